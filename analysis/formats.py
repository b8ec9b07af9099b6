"""Numbers for people: as many digits as they mean, and a dash where there is no number."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

WIDEST = 100.0
"""so many times its lower bound an interval's upper one may be, to be shown"""
NOTHING = "\N{EN DASH}"


def significant(value: float | None, digits: int = 3) -> str:
    """Return `value` to `digits` significant digits, never in powers of ten below a million."""
    if value is None or not math.isfinite(value):
        return NOTHING
    if value == 0.0:
        return "0"
    size = math.floor(math.log10(abs(value)))
    if size >= 6:
        return f"{value / 1e6:,.{max(digits - 1 - (size - 6), 0)}f}M"
    if size < -4:
        return f"{value:.{digits - 1}e}"
    return f"{value:,.{max(digits - 1 - size, 0)}f}"


def rounded(value: float) -> str:
    """Return `value` with zeros for what comes after three digits: 42,800."""
    return significant(float(f"{value:.3g}"), 3)


def plain(value: float) -> str:
    """Return a chosen number as it was written: no padding zeros."""
    return f"{value:,.6g}"


def fixed(value: float | None, decimals: int = 2) -> str:
    """Return `value` with a fixed number of decimals."""
    return NOTHING if value is None or not math.isfinite(value) else f"{value:,.{decimals}f}"


def interval(low: float | None, high: float | None, decimals: int = 2) -> str:
    """Return "low to high"."""
    return NOTHING if low is None or high is None else f"{low:.{decimals}f} to {high:.{decimals}f}"


def limits(low: float, high: float, bound: str = "", digits: str = ".2f") -> str:
    """Return an interval's limits as words; of a bound the one that bounds what it is of.

    Args:
        low: end of the interval.
        high: likewise.
        bound: what is written before the estimate: > (at least), < (at most) or ~ (cannot tell).
        digits: as of `format`.
    """
    said = {"": f"{low:{digits}} to {high:{digits}}", "~": ""}
    return {**said, "<": f"up to {high:{digits}}", ">": f"from {low:{digits}}"}[bound]


def is_of_use(low: float, high: float) -> bool:
    """Whether an interval of ratios says more than that there are too few seeds."""
    return high <= WIDEST * low


def gain(ratio: float | None, low: float | None, high: float | None) -> tuple[str, str]:
    """Return by how much a ratio is above 1, and its interval, in percent."""
    bounds = NOTHING if low is None or high is None else f"{low - 1.0:+.1%} to {high - 1.0:+.1%}"
    return (NOTHING, NOTHING) if ratio is None else (f"{ratio - 1.0:+.1%}", bounds)


def gain_with_interval(ratio: float | None, low: float | None, high: float | None) -> str:
    """Return "+1.2% (-0.4% to +2.8%)"; without bounds the gain alone."""
    text, bounds = gain(ratio, low, high)
    return text if bounds == NOTHING else f"{text} ({bounds})"


def percent(value: float | None) -> str:
    """Return a share as a percentage."""
    return NOTHING if value is None else f"{value:.0%}"


def duration(seconds: float | None) -> str:
    """Return seconds as "95 s", "12.3 min" or "3.4 h"."""
    if seconds is None:
        return NOTHING
    if seconds < 120.0:
        return f"{significant(seconds)} s"
    return f"{seconds / 60.0:.1f} min" if seconds < 7200.0 else f"{seconds / 3600.0:.1f} h"


def p_value(p: float | None) -> str:
    """Return a p value; never 0."""
    if p is None:
        return NOTHING
    return "<0.001" if p < 0.001 else f"{p:.3f}" if p < 0.1 else f"{p:.2f}"


def listed(items: Sequence[str]) -> str:
    """Return "a, b and c"."""
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"


def sentence(text: str) -> str:
    """Return the text with a capital letter at its beginning; names such as fp32 stay."""
    return text[:1].upper() + text[1:] if text.partition(" ")[0].isalpha() else text


def counted(number: int, noun: str) -> str:
    """Return "1 pair", "3 pairs" or "3 strategies"."""
    if number != 1:
        noun = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number:,} {noun}"


def revision(name: str | None) -> str:
    """Return a git revision in seven digits, and whether files had been changed since.

    Code that no commit names is called by a digest, see `controller.bundle.meta.code_revision`.
    """
    if name is None:
        return "unknown"
    text, dirty, digest = name.partition("-dirty")
    return (text[:7] if len(text) == 40 else text) + dirty + digest


def made_by(runs_by: Mapping[str, int]) -> str:
    """Return how many runs are by which revisions: "12 by 0e758a2, 3 by 5d431c4"."""
    return ", ".join(f"{count} by {revision(name)}" for name, count in runs_by.items())


def ranges(numbers: Iterable[int]) -> str:
    """Return whole numbers with runs of them shortened: "0-9, 50-54"."""
    runs: list[list[int]] = []
    for value in sorted(set(numbers)):
        if runs and value == runs[-1][1] + 1:
            runs[-1][1] = value
        else:
            runs.append([value, value])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)


def compact(value: Any, length: int = 160) -> str:
    """Return any JSON value on one line, cut at `length`."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        text = NOTHING if value is None else str(value)
    elif isinstance(value, int):
        text = f"{value:,}"
    elif isinstance(value, float):
        text = significant(value, 4)
    else:
        text = json.dumps(value, sort_keys=True)
    return text if len(text) <= length else f"{text[: length - 1]}…"
