"""How figures look: colours that colour-blind readers can tell apart, and Vega-Lite -> SVG."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from accerl.spec import CompressionSpec

INK = "#24292f"
"""ink of all text and axes; rendered as currentColor, so that figures follow dark pages too"""
FONT = "Helvetica Neue, Helvetica, Arial, Liberation Sans, DejaVu Sans Condensed, sans-serif"
"""much the same widths: a browser sets the text that was measured when the figure was laid out"""
SUBJECT_COLOUR = "#d55e00"
BASELINE_COLOUR = "#7f8790"
# Begun from Okabe and Ito 2008 without vermilion (the subject). Every tone has a contrast of at
# least 3 to the light page and to the dark one; that leaves little room for lightness: dashes help.
COLOURS = (
    "#0f7fc4",
    "#009e73",
    "#c669a0",
    "#7a5af5",
    "#cc1f48",
    "#2391a0",
    "#94653b",
    "#858a2d",
    "#a97f00",
)
DASHES = ([1, 0], [7, 3], [2, 2], [9, 3, 2, 3], [4, 2], [1, 3], [12, 3], [6, 2, 1, 2], [3, 5])
# Identity dark, hardest compression light: viridis without its darkest fifth, which would drown on
# a dark page.
RAMP = (
    "#414487",
    "#355f8d",
    "#2a788e",
    "#21918c",
    "#22a884",
    "#44bf70",
    "#7ad151",
    "#bddf26",
    "#fde725",
)
OTHER_COLOUR = "#9aa0a6"
LEAST_SHARE = 0.9
"""of its own width: on a narrower page a figure is scrolled, so that its text stays readable"""
SCALE, MOST_BYTES = 1.7, 200_000
"""of pictures: pixels for each of the figure's own, and a size that a repository can keep"""
COLOURS_OF_PICTURES = 256


@dataclass(frozen=True)
class Figure:
    """One figure: a Vega-Lite specification whose data is one tidy table."""

    name: str
    title: str
    caption: str
    spec: Mapping[str, Any]
    table: Sequence[Mapping[str, Any]] = field(repr=False)

    @property
    def columns(self) -> list[str]:
        """Return the names of the table's columns; a row need not have all of them."""
        return list(dict.fromkeys(key for row in self.table for key in row))

    def vega_lite(self) -> dict[str, Any]:
        """Return the complete specification with its data."""
        return {**self.spec, "data": {"values": list(self.table)}, "config": CONFIG}


_TEXT = {"labelColor": INK, "titleColor": INK, "titleFontSize": 12}
_LINES = {
    f"{part}{key}": value
    for part, opacity in (("domain", 0.45), ("tick", 0.45), ("grid", 0.1))
    for key, value in (("Color", INK), ("Opacity", opacity))
}
CONFIG: dict[str, Any] = {
    "background": "transparent",
    "padding": {"left": 14, "top": 5, "right": 18, "bottom": 5},
    "font": FONT,
    "view": {"stroke": None},
    "axis": {
        **_TEXT,
        **_LINES,
        "labelFontSize": 11,
        "titleFontWeight": "normal",
        "titlePadding": 8,
    },
    "legend": {
        **_TEXT,
        "title": None,
        "orient": "top",
        "labelFontSize": 12,
        "titleFontWeight": "normal",
        "labelLimit": 260,
        "symbolStrokeWidth": 2.5,
        "symbolSize": 220,
        "symbolOpacity": 1,
        "columnPadding": 20,
    },
    "header": {**_TEXT, "labelFontSize": 13, "labelFontWeight": "bold"},
    "title": {"color": INK, "fontSize": 13, "anchor": "start", "fontWeight": "bold"},
    "text": {"color": INK},
    "rule": {"color": INK},
}


def strategy_colours(
    names: Sequence[str], subject: str | None = None, first: Sequence[str] = ()
) -> dict[str, str]:
    """Return one colour a strategy: the subject vermilion, plain fp32 grey, the rest in order.

    Those named in `first` choose first; there are len(COLOURS) colours before one comes again.
    """
    colours: dict[str, str] = {}
    free = 0
    for name in sorted(names, key=lambda name: name not in first):
        if name == subject:
            colours[name] = SUBJECT_COLOUR
        elif "fp32" in name and BASELINE_COLOUR not in colours.values():
            colours[name] = BASELINE_COLOUR
        else:
            colours[name] = COLOURS[free % len(COLOURS)]
            free += 1
    return {name: colours[name] for name in names}


def strategy_dashes(
    names: Sequence[str], subject: str | None = None, first: Sequence[str] = ()
) -> dict[str, list[int]]:
    """Return one dash pattern a strategy, the subject solid: colour is never the only sign.

    There is one pattern less than there are colours, so that a colour that comes again is dashed
    otherwise.
    """
    ordered = sorted(names, key=lambda name: name not in first)
    others = [name for name in ordered if name != subject]
    patterns = DASHES[1:] if subject is not None else DASHES
    dashes = {name: list(patterns[i % len(patterns)]) for i, name in enumerate(others)}
    return {name: dashes.get(name, list(DASHES[0])) for name in names}


def compression_rank(spec: CompressionSpec) -> tuple[float, ...]:
    """Return a sort key from no compression to the hardest: student, then bits, sparsity, rank."""
    return (spec.size_rank, -spec.bits, spec.sparsity, -spec.rank)


def ramp(count: int) -> list[str]:
    """Return `count` colours from the dark end of the ramp to the light one."""
    if count == 1:
        return [RAMP[0]]
    return [RAMP[round(i * (len(RAMP) - 1) / (count - 1))] for i in range(count)]


def render_png(figure: Figure) -> bytes:
    """Return the figure as a PNG on white, for where a page cannot style it."""
    spec = figure.vega_lite()
    spec["config"] = {**spec["config"], "background": "white"}
    png = _draw(spec, SCALE)
    if len(png) > MOST_BYTES:  # about as many as it has pixels
        png = _draw(spec, 0.92 * SCALE * math.sqrt(MOST_BYTES / len(png)))
    return png


def _draw(spec: dict[str, Any], scale: float) -> bytes:
    """Return a PNG with a palette: lines and letters need few colours, and a fifth of the bytes."""
    import vl_convert
    from PIL import Image

    drawn = io.BytesIO(vl_convert.vegalite_to_png(spec, scale=scale, allowed_base_urls=[]))
    few = Image.open(drawn).convert("RGB").quantize(COLOURS_OF_PICTURES, dither=Image.Dither.NONE)
    packed = io.BytesIO()
    few.save(packed, "PNG", optimize=True)
    return packed.getvalue()


def render_svg(figure: Figure) -> str:
    """Return the figure as an SVG element to paste into a page: no script, no link, no font file.

    Ink becomes `currentColor`, ids get the figure's name (several figures share one page).
    """
    import vl_convert  # 30 MB of renderer: only reports need it

    svg = vl_convert.vegalite_to_svg(figure.vega_lite(), allowed_base_urls=[])
    svg = re.sub(r'\sxmlns(:xlink)?="[^"]*"', "", svg)
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{figure.name}-\1"', svg)
    svg = re.sub(r"url\(#([^)]+)\)", rf"url(#{figure.name}-\1)", svg)
    svg = svg.replace(INK, "currentColor").replace(INK.upper(), "currentColor")
    size = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
    width, height = size.groups() if size else ("1000", "400")
    shown, least = float(width), math.ceil(LEAST_SHARE * float(width))
    label = figure.title.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
    head = (
        f'<svg role="img" aria-label="{label}" viewBox="0 0 {width} {height}" '
        f'style="max-width:{shown:.0f}px;min-width:{least}px" font-family="{FONT}">'
    )
    return re.sub(r"<svg[^>]*>", lambda _: head, svg, count=1)  # a title may hold backslashes
