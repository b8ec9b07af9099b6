"""`accerl study page`: one row a figure, of what was run at size; what was not says so."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from accerl.errors import UserError
from accerl.records import make_out_dir, write_bytes, write_json
from studies.bits.plan import BUDGETS as BITS_BUDGETS
from studies.bits.plan import CLAIM as BITS_CLAIM
from studies.options import StudyOptions
from studies.papers.page import (
    INTERVALS,
    MARKS,
    PAGE,
    check_page,
    heading,
    left_to_make,
    of_today,
    picture_words,
    read_result,
    section,
    verdict_lines,
    written_by,
)
from studies.papers.plan import (
    AGREEING_SEEDS,
    FIGURES,
    ONE_GAME_SEEDS,
    SHORT_ENV_STEPS,
    SHORT_SEEDS,
    STAND_INS,
)
from studies.papers.results import interval_text
from studies.papers.settings import settings_table
from studies.progress import say

BITS = "bits"
SHORT, DEFAULT = "short", "default"
"""budgets whose results say something"""
NAMES = (*FIGURES, BITS)
NOT_YET = "not run at size yet"
TITLE = "# The papers' claims, run again"
"""see `page.TITLE`"""


def write_gallery(sources: Sequence[Path], folder: Path) -> list[str]:
    """Copy results that were made at size, draw them, and write the page of all figures.

    What the folder holds from before stays, unless there is a newer result of the same figure; a
    short one does not replace one of full size.

    Args:
        sources: folders of `paper-all`, of single figures, and of bits.
        folder: gets FIGURE.json, pictures and the page.

    Returns:
        Names of the figures that the page shows.

    Raises:
        UserError: a source does not exist or holds none of the figures, or the folder cannot be
            written or has a page of somebody else's.
    """
    check_page(folder, TITLE)
    found: dict[str, Mapping[str, Any]] = {}
    for source in sources:
        names = [name for name in NAMES if (source / f"{name}.json").is_file()]
        if not names:
            what = "holds no figure's result" if source.is_dir() else "does not exist"
            raise UserError(f"{source} {what}; give the --out of paper-all, of a figure or of bits")
        for name in names:
            result = read_result(source / f"{name}.json")
            held = found.get(name) or _shown(folder, name)
            where = "another of them" if name in found else str(folder)
            if result["budget"] not in (SHORT, DEFAULT):
                say(f"{source / name}.json: left out, --budget {result['budget']} claims nothing")
            elif result["budget"] == SHORT and held.get("budget") == DEFAULT:
                say(f"{source / name}.json: left out, {where} has it in full size")
            elif left_to_make(result) and _is_finished(held):
                say(f"{source / name}.json: left out, {where} has one that is finished")
            else:
                found[name] = result
    make_out_dir(folder)
    for name, result in found.items():
        write_json(folder / f"{name}.json", result, indent=None)
        _draw(result, folder)
    shown = {name: held for name in NAMES if (held := _shown(folder, name))}
    write_bytes(folder / PAGE, ("\n".join(_page(shown, folder)) + "\n").encode())
    return [*shown]


def _shown(folder: Path, name: str) -> Mapping[str, Any]:
    """Return the result that a gallery shows of a figure; empty: none yet."""
    path = folder / f"{name}.json"
    return read_result(path) if path.is_file() else {}


def _is_finished(result: Mapping[str, Any]) -> bool:
    return bool(result) and not left_to_make(result)


def _draw(result: Mapping[str, Any], folder: Path) -> None:
    from analysis.figures.export import write_pngs
    from analysis.figures.studies.bits import bits_figures  # bring Altair
    from analysis.figures.studies.papers import paper_figures

    name = result.get("figure", BITS)
    for path in (*folder.glob(f"{name}-*.png"), *folder.glob(f"{name}.png")):
        path.unlink()  # what the new result has no picture of would stay
    write_pngs(paper_figures(result) if "figure" in result else bits_figures(result), folder)


def _page(shown: Mapping[str, Mapping[str, Any]], folder: Path) -> list[str]:
    lines = [
        TITLE,
        "",
        "For anyone who asks whether the papers hold. Claims are in our words: those of the "
        "AcceRL paper (Zhang 2022), and of QuaRL and ActorQ (Krishnan et al. 2022) in the last row "
        "and where they are named. Curves are made on the virtual clock, with the paper's machine "
        f"and with one of two cores. {INTERVALS} {MARKS}",
        "",
        *_on_stand_ins({name for name, each in shown.items() if each["budget"] == SHORT}),
        "| figure | the paper | verdict | our figure | command |",
        "|---|---|---|---|---|",
    ]
    lines += [_row(name, shown.get(name), folder) for name in NAMES]
    lines += settings_table()
    for name, result in shown.items():
        lines += _bits_section(folder, result) if name == BITS else section(folder, result)
    return [
        *lines,
        "",
        "Each row's command makes its result; `accerl study run paper-all --out DIR` makes all but "
        "the last, and runs that several figures need once. This page is filled from the results:",
        "",
        "```",
        "accerl study page DIR BITS_DIR --out FOLDER",
        "```",
    ]


def _bits_section(folder: Path, result: Mapping[str, Any]) -> list[str]:
    from analysis.figures.studies.bits import bits_caption  # brings Altair

    lines = ["", "## Beyond: bits of a trained policy", "", f"**The papers**: {BITS_CLAIM}", ""]
    lines += [f"`{result['command']}`", "", *left_to_make(result), *of_today(result)]
    lines += [written_by(result)]
    if (folder / f"{BITS}.png").is_file():
        lines += ["", f"![Bits of a trained policy, KL and return]({BITS}.png)"]
        lines += ["", f"*{bits_caption(result)}*"]
    return lines + verdict_lines(result)


def _on_stand_ins(short: Collection[str]) -> list[str]:
    if not short:
        return []
    atari = {
        small: [name for name in STAND_INS if STAND_INS[name] == small]
        for small in STAND_INS.values()
    }
    games = "; ".join(f"{small} for {' and '.join(names)}" for small, names in atari.items())
    bits = BITS_BUDGETS[SHORT]
    of_bits = (
        f" Policies of the last row have learned for {max(bits.env_steps.values()):,} env steps, "
        f"{bits.seeds} in each of {len(bits.env_steps)} games."
    )
    text = (
        f"Where the command says `--budget {SHORT}`, games of MinAtar stand in for Atari's "
        f"({games}). Runs of Original last as long as {SHORT_ENV_STEPS:,} env steps are predicted "
        "to take, by the times that the paper gives for Atari's networks; there are "
        f"{SHORT_SEEDS} seeds, {ONE_GAME_SEEDS} where there is one game, or {AGREEING_SEEDS} where "
        "what happens in most of its runs is judged (Figure 7)."
    )
    return [text + of_bits * (BITS in short), ""]


def _row(name: str, result: Mapping[str, Any] | None, folder: Path) -> str:
    title = "Bits" if name == BITS else heading(name)
    claim = BITS_CLAIM if name == BITS else FIGURES[name].claim
    if result is None:
        study = name if name == BITS else f"paper-{name}"
        return (
            f"| {title} | {claim} | {NOT_YET} | | `{StudyOptions(budget=DEFAULT).command(study)}` |"
        )
    verdicts = "<br>".join(
        [
            *filter(None, left_to_make(result)),
            *filter(None, of_today(result)),
            *(
                f"{each['claim']}: **{each['outcome']}** ({interval_text(each)})"
                for each in result["verdicts"]
            ),
        ]
    )
    pictures = sorted([*folder.glob(f"{name}-*.png"), *folder.glob(f"{name}.png")])
    links = ", ".join(f"[{picture_words(name, path)}]({path.name})" for path in pictures)
    return f"| {title} | {claim} | {verdicts or 'see below'} | {links} | `{result['command']}` |"
