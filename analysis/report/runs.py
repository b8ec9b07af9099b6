"""The sections of a report on single runs side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from accerl.runtime.run import Takeover
from analysis import formats
from analysis.comparison.decisions import chosen_label, explained
from analysis.comparison.scores import default_levels, first_reached, score_curve
from analysis.figures import runs as figures
from analysis.figures.conditions import event_bands, run_conditions
from analysis.figures.costs import phase_bars
from analysis.figures.explainer import run_explainers
from analysis.figures.strips import run_strips
from analysis.records.load import RunRecord, machine_warning
from analysis.report.blocks import Block, Folded, Heading, Section, Text, fold, listing, section
from analysis.report.provenance import provenance_tables
from analysis.report.table import Cell, Table, count, number, pairs_table
from analysis.report.transfer import speed_and_phases

FILES = ("metrics.jsonl", "summary.json")
DECIDING = {
    "score": "Score",
    "env_steps_per_second": "Steps / s",
    "efficiency": "Efficiency",
    "kl_nats": "KL (nats)",
}
"""columns of the table of decisions, by what an explanation calls them"""
DECISIONS_SHOWN = 12


def run_sections(
    runs: Mapping[str, RunRecord], levels: Sequence[float] | None = None
) -> list[Section]:
    """Return all sections; `levels` are the scores whose first reaching is tabled."""
    curves: list[Block] = [figures.run_curves(runs, axis) for axis in ("seconds", "env_steps")]
    if not any(score_curve(run) for run in runs.values()):
        curves = [
            Text(
                "No score yet: the learner's policy was not evaluated, and too few episodes have "
                "ended."
            )
        ]
    provenance: list[Block | None] = []
    for label, run in runs.items():
        provenance += [Heading(label), *map(fold, provenance_tables(run.summary))]
        provenance.append(fold(pairs_table("Configuration", run.config)))
    summary = [
        listing(_warnings(runs), warning=True),
        run_table(runs),
        Text(
            "Returns are raw game scores of the learner's full-precision policy, measured off the "
            "clock, or where it was not measured the mean of the last 20 episodes of the actors. "
            "The best return is then that of any 20 episodes in a row; curves and times to scores "
            "look at the last 20 when an interval ends, so the best of a curve may be lower. "
            "Between two points a curve is a straight line.",
            "small",
        ),
    ]
    parts: dict[str, tuple[str, Sequence[Block | None]]] = {
        "Summary": ("The runs side by side.", summary),
        "Curves": (
            "Scores over seconds and over environment steps.",
            [*curves, *score_tables(runs, levels)],
        ),
        "Indicators": ("What the monitor measured.", figures.run_indicators(runs)),
        "Schedules": (
            "Which compression acted when.",
            [run_strips(runs), run_conditions(runs), takeover_table(runs)],
        ),
        "Phases": ("Where the seconds go.", [phase_bars(runs), speed_and_phases(runs)]),
        "Provenance": ("Machines, versions, settings.", provenance),
    }
    found = [section(title, lead, blocks, FILES) for title, (lead, blocks) in parts.items()]
    why = why_section(runs)
    return [*found[:-2], *([] if why is None else [why]), *found[-2:]]


def why_section(runs: Mapping[str, RunRecord]) -> Section | None:
    """Return the section of the runs whose records explain their decisions; None: there is none."""
    blocks: list[Block | None] = []
    for label, figure in run_explainers(runs).items():
        found = (figure, decision_table(runs[label]))
        blocks += [fold(*found, title=label)] if blocks else found
    lead = "What the strategy believed of every spec, and which numbers decided."
    return section("Why it decided so", lead, blocks, FILES) if blocks else None


def decision_table(run: RunRecord) -> Table | Folded:
    """What was believed of the old choice and of the new one when a decision changed something.

    Of more than `DECISIONS_SHOWN` such decisions the table is closed at first.
    """
    rows, last = [], ""
    bands = event_bands(run)
    for report in explained(run):
        known, chosen = report.explanation, chosen_label(report)
        if chosen in (last, ""):
            continue
        begins = report.total_seconds - report.seconds
        words = [band["event"] for band in bands if band["begins"] <= begins < band["ends"]]
        pairs = (_from_to(known.get(last, {}).get(key), known[chosen][key]) for key in DECIDING)
        names = (Cell(last if last in known else formats.NOTHING), Cell(chosen))
        rows.append((number(begins), *names, *pairs, Cell(", ".join(words) or formats.NOTHING)))
        last = chosen
    columns = ("#Seconds", "From", "To", *(f"#{name}" for name in DECIDING.values()), "Under way")
    table = Table("Decisions that changed something", columns, tuple(rows))
    return (
        Folded(f"{table.title} ({len(rows)} rows)", (table,))
        if len(rows) > DECISIONS_SHOWN
        else table
    )


def _from_to(old: float | None, new: float) -> Cell:
    text = formats.significant(new)
    return number(new, text if old is None else f"{formats.significant(old)} to {text}")


def _warnings(runs: Mapping[str, RunRecord]) -> list[str]:
    notes = [
        f"{label} never finished; the report shows what it wrote until then."
        for label, run in runs.items()
        if not run.finished
    ]
    clocks = sorted({run.clock for run in runs.values()})
    if len(clocks) > 1:
        notes.append(
            f"These runs' seconds come from different clocks ({'; '.join(clocks)}): "
            f"do not compare them with each other."
        )
    charged = {run.config.get("profile_hash") for run in runs.values()} - {None}
    if len(charged) > 1:
        notes.append(
            f"These runs' seconds are those of {len(charged)} latency profiles, which are other "
            f"machines: do not compare them with each other."
        )
    warning = machine_warning("These runs", list(runs.values()))
    return notes + ([warning] if warning else [])


def run_table(labelled: Mapping[str, RunRecord]) -> Table:
    """Single runs side by side."""
    rows = []
    for label, run in labelled.items():
        data = run.summary
        used = sorted(data["spec_seconds"].items(), key=lambda item: -item[1])
        rows.append(
            (
                Cell(label if run.finished else f"{label} (unfinished)"),
                Cell(run.env),
                Cell(run.clock),
                count(run.seed),
                number(data["seconds"]),
                number(data["env_steps"], formats.compact(data["env_steps"])),
                number(data["env_steps_per_second"]),
                number(data["final_return"]),
                number(data["best_return"]),
                Cell(used[0][0] if used else formats.NOTHING),
            )
        )
    columns = ("Run", "Environment", "Clock", "#Seed", "#Seconds", "#Env steps", "#Steps / s")
    return Table("Runs", (*columns, "#Final return", "#Best return", "Most used spec"), tuple(rows))


def takeover_table(labelled: Mapping[str, RunRecord]) -> Table | None:
    """What each run began to act with, and how long that took from the decision."""
    rows = []
    for label, run in labelled.items():
        found: dict[str, list[Takeover]] = {}
        for report in run.reports:
            for taken in report.takeovers:
                found.setdefault(taken.spec.label, []).append(taken)
        for spec, all_taken in found.items():
            seconds = [taken.seconds for taken in all_taken]
            kls = [taken.kl_nats for taken in all_taken if taken.kl_nats is not None]
            times = (sum(seconds) / len(seconds), max(seconds))
            kl = sum(kls) / len(kls) if kls else None
            numbers = (count(len(seconds)), *map(number, times), number(kl))
            rows.append((Cell(label), Cell(spec), *numbers))
    columns = ("Run", "Spec", "#Takeovers", "#Mean seconds", "#Longest", "#KL when admitted")
    return Table("From decision to acting", columns, tuple(rows)) if rows else None


def score_tables(
    labelled: Mapping[str, RunRecord], levels: Sequence[float] | None = None
) -> list[Table]:
    """Return a table for each game: scores of different games have nothing in common."""
    games = dict.fromkeys(run.env for run in labelled.values())
    found = []
    for game in games:
        own = {label: run for label, run in labelled.items() if run.env == game}
        table = score_table(own, levels)
        title = f"{table.title}: {game}" if len(games) > 1 else table.title
        found.append(replace(table, title=title))
    return found


def score_table(labelled: Mapping[str, RunRecord], levels: Sequence[float] | None = None) -> Table:
    """Seconds and env steps until each run's curve first reached each level."""
    curves = {label: score_curve(run) for label, run in labelled.items()}
    chosen = list(dict.fromkeys(levels)) if levels else default_levels(list(curves.values()))
    rows = []
    for label, curve in curves.items():
        cells = [Cell(label)]
        for level in chosen:
            point = first_reached(curve, level)
            if point is None:
                cells.append(Cell(formats.NOTHING))
            else:
                steps = formats.compact(point.env_steps)
                cells.append(
                    number(point.seconds, f"{formats.duration(point.seconds)}, {steps} steps")
                )
        rows.append((*cells, number(max((point.score for point in curve), default=None))))
    columns = ("Run", *(f"#Score {level:g}" for level in chosen), "#Best of the curve")
    return Table("Time to score", columns, tuple(rows))
