"""The sections of a report on single runs side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from analysis.comparison import scores
from analysis.figures import runs as figures_runs
from analysis.figures.costs import phase_bars
from analysis.figures.strips import run_strips
from analysis.records.load import RunRecord, machine_warning
from analysis.report import tables
from analysis.report.blocks import Block, Folded, Heading, Section, Text, listing, section
from analysis.report.sections_records import provenance_tables

FILES = ("metrics.jsonl", "summary.json")


def run_sections(
    runs: Mapping[str, RunRecord], levels: Sequence[float] | None = None
) -> list[Section]:
    """Return all sections; `levels` are the scores whose first reaching is tabled."""
    curves = [figures_runs.run_curves(runs, axis) for axis in ("seconds", "env_steps")]
    no_score = (
        "No score yet: the learner's policy was not evaluated, and too few episodes have ended."
    )
    shown: list[Block] = [*curves] if any(curve.table for curve in curves) else [Text(no_score)]
    provenance: list[Block] = []
    for label, run in runs.items():
        provenance += [Heading(label), *map(Folded, provenance_tables(run.summary))]
        provenance.append(Folded(tables.pairs_table("Configuration", run.config)))
    summary = [
        listing(_warnings(runs), warning=True),
        tables.run_table(runs),
        Text(
            "Returns are raw game scores of the learner's full-precision policy, measured off the "
            "clock, or where it was not measured the mean of the last 20 episodes of the actors.",
            "small",
        ),
    ]
    indicators = [figures_runs.run_indicators(runs)]
    return [
        section("Summary", "The runs side by side.", summary, FILES, empty=""),
        section(
            "Curves",
            "Scores over seconds and over environment steps.",
            [*shown, scores.score_table(runs, levels)],
            FILES,
            empty="",
        ),
        section("Indicators", "What the monitor saw.", indicators, FILES, empty=""),
        section("Schedules", "What was chosen when.", [run_strips(runs)], FILES, empty=""),
        section(
            "Phases",
            "Where the seconds go.",
            [phase_bars(runs), tables.replay_table(runs)],
            FILES,
            empty="",
        ),
        section("Provenance", "Machines, versions, settings.", provenance, FILES, empty=""),
    ]


def _warnings(runs: Mapping[str, RunRecord]) -> list[str]:
    notes = [
        f"{label} never finished; what it wrote until then is shown."
        for label, run in runs.items()
        if not run.finished
    ]
    clocks = sorted({run.clock for run in runs.values()})
    if len(clocks) > 1:
        notes.append(
            f"These runs' seconds come from different clocks ({'; '.join(clocks)}): "
            f"do not compare them with each other."
        )
    warning = machine_warning("These runs", list(runs.values()))
    return notes + ([warning] if warning else [])
