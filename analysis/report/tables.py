"""Tables of results, once: the HTML report and the terminal print the same cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from accerl.runtime.run import PHASES
from analysis.comparison.contrasts import LOWER_IS_BETTER, PRIMARY
from analysis.comparison.verdict import format_p, lean, outcome, quality
from analysis.figures.costs import spec_label
from analysis.figures.learning_curves import study_colours
from analysis.records.entrants import EACH, best_score, tuning_rows
from analysis.records.load import RunRecord, StudyRecord
from analysis.records.plan import StrategyInfo
from analysis.report import formats

NAMES = {
    "seconds_to_target": "seconds to target",
    "gain_per_second": "gain per second",
    "auc": "area under the learning curve",
    "final_return": "final return",
    "cpu_seconds": "CPU-seconds",
    "publication_bytes": "bytes published",
}
LEVEL_COLUMNS = (
    "Strategy",
    "#Target reached",
    "#Time / horizon",
    "#95%",
    "#Curve area",
    "#95%",
    "#Final return",
    "#95%",
)
RUN_COLUMNS = ("#Seconds to target", "#Curve area", "#Gain per second", "#Final return")


@dataclass(frozen=True)
class Cell:
    """What is shown, and the number behind it if there is one."""

    text: str
    value: float | None = None
    colour: str | None = None


@dataclass(frozen=True)
class Table:
    """A titled table; column titles that begin with "#" hold numbers and are right-aligned."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    @property
    def headings(self) -> list[tuple[str, bool]]:
        """Column titles, and whether the column is numeric."""
        return [(name.removeprefix("#"), name.startswith("#")) for name in self.columns]


def number(value: float | None, text: str | None = None) -> Cell:
    """Return a cell of a number."""
    return Cell(formats.significant(value) if text is None else text, value)


def strategy_cell(study: StudyRecord, name: str) -> Cell:
    """Return a cell of a strategy's label in its colour."""
    return Cell(study.labels[name], colour=study_colours(study)[name])


def level_table(study: StudyRecord, contest: Mapping[str, Any]) -> Table:
    """How each strategy did by itself."""
    rows = []
    for item in contest["levels"]:
        cells = [
            strategy_cell(study, item["strategy"]),
            Cell(f"{item['reached']} of {item['runs']}", item["reached"]),
        ]
        for name, decimals in (("time_fraction", 2), ("auc", 3), ("final_normalised", 2)):
            bounds = formats.interval(item[f"{name}_low"], item[f"{name}_high"], decimals)
            cells += [number(item[name], formats.fixed(item[name], decimals)), Cell(bounds)]
        rows.append(tuple(cells))
    planned = study.primary_games
    what = f"all {len(study.games)} instances" if study.groups else f"all {len(study.games)} games"
    if len(planned) < len(study.games):
        what += f" (the comparisons are over {len(planned)} of them)"
    return Table(
        f"Each strategy by itself over {what}: interquartile mean over test runs, 95% bootstrap "
        "interval",
        LEVEL_COLUMNS,
        tuple(rows),
    )


def contrast_table(
    study: StudyRecord, contest: Mapping[str, Any], metric: str, *, exploratory: bool = False
) -> Table:
    """The planned comparisons of one metric, or those that the plan does not name."""
    rows = []
    scale = "Ratio"
    shared = any(item["clusters"] < item["n"] for item in contest["contrasts"])
    for item in contest["contrasts"]:
        if item["metric"] != metric or (item["family"] == "exploratory") != exploratory:
            continue
        ratio = item["ratio"] is not None
        scale = "Ratio" if ratio else "Difference"
        digits = 2 if ratio else 3
        estimate = item["ratio"] if ratio else item["difference"]
        rows.append(
            (
                strategy_cell(study, item["b"]),
                number(estimate, formats.fixed(estimate, digits)),
                Cell(formats.interval(item["low"], item["high"], digits)),
                number(item["p"], format_p(item["p"])),
                number(item["p_holm"], format_p(item["p_holm"])),
                number(item["n"], str(item["n"])),
                *((number(item["clusters"], str(item["clusters"])),) if shared else ()),
                number(
                    item["probability_of_improvement"],
                    formats.percent(item["probability_of_improvement"]),
                ),
                Cell(_result(item)),
            )
        )
    title = f"{study.labels[study.subject]} against each comparator: {NAMES[metric]}"
    if exploratory:
        title = f"{study.labels[study.subject]}, exploratory comparisons: {NAMES[metric]}"
    columns = ("Comparator", f"#{scale}", "#95% interval", "#p", "#p (Holm)", "#Pairs")
    columns += ("#Independent",) if shared else ()
    return Table(title, (*columns, "#P(better run)", "Result"), tuple(rows))


def _result(item: Mapping[str, Any]) -> str:
    """What a contrast decides, in words."""
    if item["same_policy"]:
        return "the same policy: no contrast"
    words = {"better": "better", "worse": "worse"}
    if item["metric"] in LOWER_IS_BETTER:
        words = {"better": "less", "worse": "more"}
    if item["metric"] == PRIMARY:
        words = {"better": "faster", "worse": "slower"}
    words["undecided"] = "not distinguishable"
    result, leaning = words[outcome(item)], lean(item)
    if item["family"] == "exploratory" and leaning != "undecided":
        result = f"no claim ({words[leaning]} in this sample)"
    elif outcome(item) != leaning:
        result = f"not confirmed ({words[leaning]} before correction)"
    if item["metric"] != "final_return":
        return result
    margins = {"safe": "non-inferior", "worse": "inferior by over 5%", "open": "within 5%: open"}
    return f"{result}; {margins[quality(item)]}"


def game_table(study: StudyRecord) -> Table:
    """What was fixed before the test runs, per game; what no game tells is no column."""
    texts = {"game": "Game", "profile": "Machine", "limit": "Limited by", "group": "Group"}
    shown = [key for key in texts if any(getattr(game, key) for game in study.games.values())]
    numbers = {
        "target_return": "#Target return",
        "horizon_seconds": "#Horizon (s)",
        "interval_seconds": "#Decision every (s)",
        "random_return": "#Random return",
        "reference_return": "#Reference return",
    }
    rows = tuple(
        (
            Cell(game.name),
            *(Cell(getattr(game, key) or formats.NOTHING) for key in shown),
            *(
                number(value, formats.plain(value))
                for value in (getattr(game, key) for key in numbers)
            ),
        )
        for game in study.games.values()
    )
    columns = ("Instance", *(texts[key] for key in shown), *numbers.values())
    if any(game.fp32_returns for game in study.games.values()):
        columns = (*columns, "#Median of fp32 runs")
        rows = tuple(
            (*row, _median_cell(game.fp32_returns))
            for row, game in zip(rows, study.games.values(), strict=True)
        )
    return Table("Games" if not shown else "Games and machines", columns, rows)


def _median_cell(returns: Sequence[float]) -> Cell:
    middle = median(returns) if returns else None
    return number(middle, f"{formats.significant(middle)} ({len(returns)} runs)")


def test_run_table(study: StudyRecord, contest: Mapping[str, Any]) -> Table:
    """Every test run with its four numbers."""
    rows = []
    for row in contest["rows"]:
        seconds = (
            f"{'> ' if row['censored'] else ''}{formats.significant(row['seconds_to_target'])}"
        )
        rows.append(
            (
                strategy_cell(study, row["strategy"]),
                Cell(row["env"]),
                number(row["seed"], str(row["seed"])),
                number(row["seconds_to_target"], seconds),
                number(row["auc"], formats.fixed(row["auc"], 3)),
                number(row["gain_per_second"]),
                number(row["final_return"]),
            )
        )
    return Table(
        "All test runs (> marks runs that did not reach the target before the horizon)",
        ("Strategy", "Game", "#Seed", *RUN_COLUMNS),
        tuple(rows),
    )


def tuning_table(study: StudyRecord) -> Table:
    """What each strategy was given before the test; what no strategy tells is no column."""
    with_kind = any(item.scope or item.cpu_seconds is not None for item in study.strategies)
    rows = []
    for item in study.strategies:
        trials = tuning_rows(study, item)
        chosen = "by instance: see below" if _by_instance(study, item) else ""
        kind = (
            Cell(item.kind or formats.NOTHING),
            Cell(item.scope or formats.NOTHING),
            number(item.cpu_seconds, formats.duration(item.cpu_seconds)),
        )
        rows.append(
            (
                strategy_cell(study, item.name),
                *(kind if with_kind else ()),
                number(item.inner_runs, str(item.inner_runs)),
                number(len(trials), str(len(trials))),
                number(best_score(item, trials)),
                Cell(chosen or _in_words(item.tuned_params) or "nothing"),
            )
        )
    columns = ("#Inner runs", "#Tuning trials", "#Best score", "Chosen")
    kinds = ("Kind", "Chosen for", "#Processor time") if with_kind else ()
    return Table("Budget before the test", ("Strategy", *kinds, *columns), tuple(rows))


def chosen_table(study: StudyRecord) -> Table:
    """What was chosen on each instance for those that were tuned there."""
    each = [item for item in study.strategies if _by_instance(study, item)]
    rows = tuple(
        (Cell(game), *(Cell(_in_words(item.tuned_params.get(game, {}))) for item in each))
        for game in study.games
        if each
    )
    return Table("Chosen on each instance", ("Instance", *(item.label for item in each)), rows)


def _by_instance(study: StudyRecord, item: StrategyInfo) -> bool:
    return item.scope == EACH and bool(study.games.keys() & item.tuned_params.keys())


def run_table(labelled: Mapping[str, RunRecord]) -> Table:
    """Single runs side by side."""
    rows = []
    for label, run in labelled.items():
        data = run.summary
        used = sorted((data.get("spec_seconds") or {}).items(), key=lambda item: -item[1])
        rows.append(
            (
                Cell(label if run.finished else f"{label} (unfinished)"),
                Cell(run.env),
                Cell(run.clock),
                number(run.seed, str(run.seed)),
                number(data.get("seconds")),
                number(data.get("env_steps"), formats.compact(data.get("env_steps"))),
                number(data.get("env_steps_per_second")),
                number(data.get("final_return")),
                number(data.get("best_return")),
                Cell(used[0][0] if used else formats.NOTHING),
            )
        )
    columns = ("Run", "Environment", "Clock", "#Seed", "#Seconds", "#Env steps", "#Steps / s")
    return Table("Runs", (*columns, "#Final return", "#Best return", "Most used spec"), tuple(rows))


def replay_table(replays: Mapping[str, RunRecord], title: str = "Speed and busy seconds") -> Table:
    """Speed of the real-clock runs and busy seconds per phase; on purpose without scores."""
    phases = [name for name in PHASES if any(name in _phases(run) for run in replays.values())]
    rows = tuple(
        (
            Cell(label),
            Cell(run.clock),
            number(run.summary.get("seconds")),
            number(run.summary.get("env_steps"), formats.compact(run.summary.get("env_steps"))),
            number(run.summary.get("env_steps_per_second")),
            *(number(_phases(run).get(name)) for name in phases),
        )
        for label, run in replays.items()
    )
    columns = ("Run", "Clock", "#Seconds", "#Env steps", "#Steps / s")
    return Table(title, columns + tuple(f"#{p} (s)" for p in phases), rows)


def _phases(run: RunRecord) -> Mapping[str, float]:
    return run.summary.get("phases") or {}


def object_tables(data: Mapping[str, Any]) -> list[Table]:
    """Turn any JSON object into tables: one of its plain values, one per list of objects."""
    plain = {key: value for key, value in data.items() if not _is_rows(value)}
    tables = [pairs_table("Settings", plain)] if plain else []
    return tables + [
        rows_table(key.replace("_", " "), value) for key, value in data.items() if _is_rows(value)
    ]


def pairs_table(title: str, data: Mapping[str, Any], length: int = 160) -> Table:
    """A table of names and values; texts are cut at `length`."""
    rows = tuple((Cell(str(key)), _any_cell(key, value, length)) for key, value in data.items())
    return Table(title, ("Name", "Value"), rows)


def rows_table(title: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    """A table of objects; a column is numeric if all its values are."""
    rows = [_flat(row) for row in rows]
    keys = list(dict.fromkeys(key for row in rows for key in row))
    numeric = {key for key in keys if all(_is_number(row.get(key, 0.0)) for row in rows)}
    return Table(
        title,
        tuple(f"#{key}" if key in numeric else key for key in keys),
        tuple(tuple(_any_cell(key, row.get(key)) for key in keys) for row in rows),
    )


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """Lift small objects such as {"batch": microseconds} into columns; a spec stays one cell."""
    result: dict[str, Any] = {}
    for key, value in row.items():
        if isinstance(value, Mapping) and "student" not in value:
            result |= {f"{key} {inner}": item for inner, item in value.items()}
        else:
            result[key] = value
    return result


def _in_words(value: Any) -> str:
    """Parameters without JSON's punctuation; specs by their label."""
    if isinstance(value, Mapping):
        if {"student", "bits", "sparsity"} <= set(value):
            return spec_label(value)
        return ", ".join(f"{key} {_in_words(item)}" for key, item in value.items())
    if isinstance(value, list | tuple):
        return f"[{'; '.join(_in_words(item) for item in value)}]"
    return formats.compact(value)


def _any_cell(key: str, value: Any, length: int = 160) -> Cell:
    if key == "spec" and value is not None:
        return Cell(spec_label(value))
    return Cell(formats.compact(value, length), _number_or_none(value))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number_or_none(value: Any) -> float | None:
    return float(value) if _is_number(value) else None


def _is_rows(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(v, Mapping) for v in value)
