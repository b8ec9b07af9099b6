"""One page of all figures in a folder: what the paper claims, what came out, the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accerl.errors import UserError
from accerl.records import write_bytes
from analysis import formats
from analysis.records.read import read_record, require_shape
from studies.bits.plan import BUDGETS as BITS_BUDGETS
from studies.learning.curve import PROCESSES
from studies.learning.interval import ENOUGH_GAMES
from studies.papers.plan import BUDGETS, FIGURES, at_budget
from studies.papers.results import interval_text, ratio_text, reached_text

PAGE = "README.md"
NUMBER = (float, None)
SHAPE = {
    **{"budget": str, "command": str},
    "fingerprint": {"cpu": str, "cores": int},
    "verdicts": [
        {
            **{"claim": str, "outcome": str, "what": str},
            **{"estimate": NUMBER, "low": NUMBER, "high": NUMBER, "over": str, "runs": int},
        }
    ],
}
"""what every result that a page shows says at least"""
SHAPE_OF_BITS = {**SHAPE, "games": [dict], "tuned": str}
SHAPE_OF_FIGURES = {
    **{"figure": str, "title": str, "git_revision": (str, None)},
    **SHAPE,
    "panels": [{"game": str, "baseline": str, "rules": [str], "machines": dict}],
}
TITLE = "# The papers' figures, run again"
"""first line of a page, by which one that is written anew is known"""
INTERVALS = (
    f"A verdict's 95% interval is over games where there are {ENOUGH_GAMES} or more (each counts "
    "once, with the mean of its seeds), else over seeds of the games that are there. Where it is "
    "too wide, as it nearly always is of one game with two seeds, these runs cannot tell. (Table "
    "6's are of medians over its repeats; what happens in most runs is judged by their share.)"
)
MARKS = (
    "Ratios are geometric means. > means at least and < at most, as some of the runs, or of the "
    "baseline's, ended before they reached the score, and ~ that both happened, or that pairs of "
    "which neither did are left out; of an interval stands then what still bounds it, up to or "
    "from where. Scores were fixed by what actors without compression reached with "
    "the first seeds (80% of the way to their best; Figure 8's 18 on Pong was chosen beforehand). "
    "Most of these runs reach that score, as others need not: a claim that fails beside them alone "
    "is one that these runs cannot tell."
)

TINY = (
    "--budget tiny: Catch stands in for every game, for a few seconds. This shows that everything "
    "works; its verdicts claim nothing."
)


def write_page(folder: Path) -> Path:
    """Write the page of a folder's figures; return its path."""
    files = (folder / f"{name}.json" for name in FIGURES)
    found = [read_result(path) for path in files if path.is_file()]
    lines = [
        TITLE,
        "",
        "No run needs the machine it is of: a virtual clock charges every step the time that the "
        "paper prints for its machine, or that was measured on the one that is named beside it. "
        f"Those of a panel begin with the same seeds. {INTERVALS} {MARKS}",
    ]
    for result in found:
        lines += section(folder, result)
    path = folder / PAGE
    write_bytes(path, ("\n".join(lines) + "\n").encode())
    return path


def read_result(path: Path) -> dict[str, Any]:
    """Read a figure's result, or that of bits.

    Raises:
        UserError: it is incomplete or damaged.
    """
    found = read_record(path)
    try:
        require_shape(found, SHAPE_OF_BITS if "study" in found else SHAPE_OF_FIGURES, str(path))
    except UserError as error:
        raise UserError(
            f"{error}; remove it and run the study again (its runs are kept)"
        ) from error
    return found


def check_page(folder: Path, title: str) -> None:
    """Refuse a folder whose page does not begin with a title, and so was not written here.

    Raises:
        UserError: it was not.
    """
    page = folder / PAGE
    text = page.read_bytes() if page.is_file() else b""
    if text and not text.startswith(title.encode()):  # an empty file is nothing to lose
        raise UserError(f"{page} would be lost: it was not written here; give --out another folder")


def heading(name: str) -> str:
    """Return what the paper calls a figure or table, such as Figure 8; Beyond: it has none."""
    if name.startswith("fig"):
        return f"Figure {name.removeprefix('fig')}"
    if not name.startswith("table"):
        return "Beyond"
    return f"Table {name.removeprefix('table')}"


def section(folder: Path, result: Mapping[str, Any]) -> list[str]:
    """Return the lines of a figure: its pictures in the folder, its numbers and verdicts."""
    from analysis.figures.studies.papers import paper_captions  # brings Altair, which no job needs

    name = result["figure"]
    lines = ["", f"## {heading(name)}: {result['title']}", ""]
    lines += [f"**The paper**: {FIGURES[name].claim}", "", f"`{result['command']}`"]
    lines += [""]
    lines += [f"**{TINY}**", ""] if result.get("budget") == "tiny" else []
    lines += [*left_to_make(result), *of_today(result)]
    lines += [written_by(result)]
    captions = paper_captions(result)
    for path in sorted(folder.glob(f"{name}-*.png")):
        lines += ["", f"![{result['title']}, {picture_words(name, path)}]({path.name})"]
        lines += ["", f"*{captions[path.stem]}*"] if path.stem in captions else []
    if "split" in result:
        lines += _split(result["split"])
    if "inference" in result:
        lines += _inference(result["inference"])
    for panel in result["panels"]:
        for machine, known in panel["machines"].items():
            lines += _lines(panel, machine, known)
    return lines + verdict_lines(result)


def verdict_lines(result: Mapping[str, Any]) -> list[str]:
    """Return a table of what became of a result's claims; nothing where there are none."""
    if not result["verdicts"]:
        return []
    return [
        "",
        "| claim | verdict | estimate (interval) | over | runs | of what |",
        "|---|---|---|---|---|---|",
        *(
            f"| {each['claim']} | **{each['outcome']}** | {interval_text(each)} | {each['over']} "
            f"| {each['runs'] or '-'} | {each['what']} |"
            for each in result["verdicts"]
        ),
    ]


def of_today(result: Mapping[str, Any]) -> list[str]:
    """Say where the command would run or ask something else today than what is shown."""
    budget, name = result["budget"], result.get("figure")
    if budget in (BITS_BUDGETS if name is None else BUDGETS):
        today = BITS_BUDGETS[budget] if name is None else at_budget(FIGURES[name], budget)
        if result.get("key") == today.key:
            return []
    return [
        "Of an earlier version: today's command has other runs, scores or questions, or judges by "
        "other rules.",
        "",
    ]


def picture_words(name: str, picture: Path) -> str:
    """Return what a picture of a figure shows, such as ``by seconds``."""
    return picture.stem.removeprefix(name).strip("-").replace("-", " ") or "KL and return"


def left_to_make(result: Mapping[str, Any]) -> list[str]:
    """Return what to say of a figure whose study was interrupted."""
    made, runs = result.get("runs_made", 0), result.get("runs", 0)
    return [f"Not finished: {made} of {runs} runs are made.", ""] if made < runs else []


def written_by(result: Mapping[str, Any]) -> str:
    """Return which code and machine a result is from."""
    machine, by = result["fingerprint"], formats.revision(result.get("git_revision"))
    written = f"Written by revision {by} on {machine['cpu']}, {machine['cores']} cores"
    runs = formats.made_by(result.get("runs_by", {}))
    return f"{written}; runs: {runs}." if runs else f"{written}."


def _lines(panel: Mapping[str, Any], machine: str, known: Mapping[str, Any]) -> list[str]:
    target = "no score" if known["target"] is None else f"{known['target']:.1f}"
    lines = [
        "",
        f"{panel['game']} on {machine}, learner {panel['network']} with the corrector "
        f"`{panel['corrector']}`, {panel['env_steps']:,} env steps of {panel['baseline']}; length "
        f"of the runs in seconds; env steps, seconds and processor seconds to {target} over "
        f"{panel['baseline']}'s, and processor seconds to {target} of {' + '.join(PROCESSES)} (>: "
        f"some ended before){_which_seeds(known)}:",
        "",
        "| actors | length | last score | reached | env steps | seconds | processor seconds "
        "| by process | env steps/s |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for line in known["lines"]:
        end = "-" if line["end_score"] is None else f"{line['end_score']:.1f}"
        lines.append(
            f"| {line['label']} | {line['curves'][0]['seconds'][-1]:,.0f} | {end} | "
            f"{reached_text(line, known['target'])} | {ratio_text(line['env_steps_ratio'])} | "
            f"{ratio_text(line['seconds_ratio'])} | {ratio_text(line['core_seconds_ratio'])} "
            f"| {_by_process(line)} | {line['env_steps_per_second']:,.0f} |"
        )
    return lines


def _which_seeds(known: Mapping[str, Any]) -> str:
    """Say which seeds means are of, where some lines have more of them than others."""
    shared = known.get("seeds_of_means", ())
    made = {curve["seed"] for line in known["lines"] for curve in line["curves"]}
    if not shared or set(shared) == made:
        return ""
    return (
        "; last scores, processor seconds by process and env steps/s are of what all have, seed "
        f"{' and '.join(map(str, shared))}"
    )


def _by_process(line: Mapping[str, Any]) -> str:
    """Return them in the order of `PROCESSES`; JSON has them in the alphabet's."""
    seconds = line["processor_seconds"]
    if not seconds:
        return "-"
    missed = line.get("missed_of_means", line["missed"])
    return ">" * (missed > 0) + " + ".join(f"{seconds[name]:,.0f}" for name in PROCESSES)


def _split(rows: list[dict[str, Any]]) -> list[str]:
    lines = [
        "",
        "Shares of a batch's milliseconds as published, of core-seconds on the machines; what is "
        "saved is of the clock.",
        "",
        "| machine | env | agent | learner | saved |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        shares = " | ".join(f"{row['shares'][part]:.0%}" for part in ("env", "agent", "learner"))
        saved = ", ".join(f"{share:.1%} ({name})" for name, share in row["saved"].items())
        lines.append(f"| {row['machine']} | {shares} | {saved} |")
    return lines


def _inference(rows: list[dict[str, Any]]) -> list[str]:
    def number(value: float | None) -> str:
        return "-" if value is None else f"{value:.3g}"

    columns = ("published_ms", "published_speedup", "here_ms", "here_spread_ms", "here_speedup")
    lines = [
        "",
        "Milliseconds of one core for one state; the spread is the range of the middle half of the "
        "repeats.",
        "",
        "| network | paper, ms | times as fast | here, ms | spread | times as fast |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['label']} | {' | '.join(number(row[name]) for name in columns)} |" for row in rows
    ]
    return lines
