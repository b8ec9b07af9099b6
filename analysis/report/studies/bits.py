"""The page of bits: how many a trained policy needs, and what was done to find out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from analysis import formats
from analysis.figures.studies.bits import bits_figures
from analysis.report.blocks import Block, Code, Section, Text, section
from analysis.report.table import Cell, Table, count, number

BITS = "bits.json"


def bits_sections(result: Mapping[str, Any]) -> list[Section]:
    """Return the sections of a bits.json."""
    games = result["games"]
    blocks: list[Block | None] = [
        *bits_figures(result),
        Text(
            "The fewest bits that, like all more, score no less than float32 as far as the 95% "
            "interval over episodes of these policies can tell. Where they score no more than "
            "random play, nothing is said."
        ),
        _enough(games),
        *(_rows(game) for game in games),
    ]
    if not games:
        blocks = []
    how: list[Block | None] = [
        Text(
            "Rounded: after training, by QuaRL's affine scheme: 2^n levels between the smallest "
            "and the largest value, zero among them; each channel of a convolution has its own. "
            "Weights of all layers and both heads; activations are what flows between layers. "
            "Below 8 bits that is arithmetic in float32: nothing becomes faster."
        ),
        Text(f"{result['tuned'][:1].upper()}{result['tuned'][1:]}"),
        _engine(games) if games else None,
        Text(
            "The INT8 engine is what runs act with; it rounds weights symmetrically and by channel "
            "everywhere, and leaves the heads and what enters the last layer in float32. Both "
            "columns of KL are measured without the shift of the heads' biases that a publication "
            "adds."
        ),
        Code((result["command"],)),
    ]
    return [
        section(
            "Bits",
            "How many bits a trained policy needs to act.",
            blocks,
            (BITS,),
            empty="No policy has played yet.",
        ),
        section("Method", "What was rounded, tuned and compared.", how, (BITS, "plan.json")),
    ]


def _enough(games: list[Mapping[str, Any]]) -> Table:
    names = list(games[0]["enough"]) if games else []
    rows = tuple(
        (
            Cell(game["game"]),
            *(number(game["enough"][name], _bits(game["enough"][name])) for name in names),
            count(game["policies"]),
        )
        for game in games
    )
    return Table("Bits that are enough", ("Game", *(f"#{n}" for n in names), "#Policies"), rows)


def _bits(value: int | None) -> str:
    return formats.NOTHING if value is None else str(value)


def _rows(game: Mapping[str, Any]) -> Table:
    rows = tuple(
        (
            Cell(row["how"]),
            count(row["bits"]),
            number(row["kl_nats"]),
            number(row["agreement"], f"{row['agreement']:.0%}"),
            number(row["return"]),
            number(row["difference"], f"{row['difference']:+.3g}"),
            Cell(
                formats.NOTHING
                if row["low"] is None
                else f"{row['low']:+.3g} to {row['high']:+.3g}"
            ),
            count(row["episodes"]),
        )
        for row in game["rows"]
    )
    columns = ("Rounded", "#Bits", "#KL (nats)", "#Same action", "#Return", "#Over float32")
    title = f"{game['game']}: {game['network']} after {game['env_steps']:,} env steps, return "
    title += f"{game['return']:.3g} in float32, {game['random']:.3g} by random play"
    return Table(title, (*columns, "#95% interval", "#Episodes"), rows)


def _engine(games: list[Mapping[str, Any]]) -> Table:
    names = ("engine_kl_nats", "simulated_kl_nats", "between_kl_nats")
    rows = tuple(
        (Cell(game["game"]), *(number(game["engine"][n]) for n in names)) for game in games
    )
    columns = ("Game", "#KL of the engine", "#KL of its arithmetic in float32", "#KL between both")
    return Table("8 bits: the INT8 engine and the same arithmetic in float32", columns, rows)
