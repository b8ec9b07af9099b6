"""What bits cost: KL and returns by game, number of bits, and what is rounded, as plain JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from rich.table import Table

from analysis.comparison.stats import finite_or_none
from studies.bits.job import BOTH, ENGINE, HOW, RANDOM, TUNED, BitsRows
from studies.bits.plan import BITS, FLOAT32, BitsBudget
from studies.learning.interval import mean_interval
from studies.papers.verdict import Verdict, outcome_of
from studies.progress import numbers_table

SHORT = ("weights", "both", "tuned")
"""for `HOW`, in narrow columns"""
MOST_LOST = 0.05
"""of what float32 has learned, that is as good as nothing"""
FEW = (2, 3, 4, 5)
LEAST_KL = 1e-9
Found = Mapping[tuple[int, int], BitsRows]
"""of a game, by seed and bits; what is not done yet is missing"""


def game_result(game: str, budget: BitsBudget, found: Found) -> dict[str, Any] | None:
    """Return the rows of a game; None before its float32 policies have played.

    A row's return is a mean over policies and episodes. Its difference from float32 is paired by
    policy and episode, which have the same start and the same dice; the 95% interval is over those,
    and so about these policies: what others would be like is not in it.
    """
    seeds = [seed for seed, bits in found if bits == FLOAT32]
    if not seeds:
        return None
    base = {seed: _row(found[seed, FLOAT32], "float32") for seed in seeds}
    chance = {seed: _row(found[seed, FLOAT32], RANDOM) for seed in seeds}
    wanted = [(ENGINE, 8, FLOAT32), *((how, bits, bits) for how in HOW for bits in BITS)]
    rows = []
    for how, bits, at in wanted:
        own = {seed: _row(found[seed, at], how) for seed in seeds if (seed, at) in found}
        if own:
            rows.append({"how": how, "bits": bits, **_compared(own, base)})
    checks = [found[seed, FLOAT32].engine for seed in seeds]
    over_chance = _compared(base, chance)
    learned = {name: over_chance[name] for name in ("difference", "low", "high")}
    return {
        "game": game,
        "network": budget.network,
        "env_steps": budget.env_steps[game],
        "policies": len(seeds),
        "return": float(np.mean([row["returns"] for row in base.values()])),
        "random": float(np.mean([row["returns"] for row in chance.values()])),
        "learned": learned,
        "rows": rows,
        "enough": {how: enough_bits(rows, how) if has_learned(learned) else None for how in HOW},
        "engine": {
            name: float(np.mean([check[name] for check in checks if check]))
            for name in ("engine_kl_nats", "simulated_kl_nats", "between_kl_nats")
        },
    }


def _row(found: BitsRows, how: str) -> Mapping[str, Any]:
    return next(row for row in found.rows if row["how"] == how)


def _compared(
    own: Mapping[int, Mapping[str, Any]], base: Mapping[int, Mapping[str, Any]]
) -> dict[str, Any]:
    gaps = [
        mine - first
        for seed, row in own.items()
        for mine, first in zip(row["returns"], base[seed]["returns"], strict=True)
    ]
    mean, low, high = mean_interval(gaps)
    return {
        "kl_nats": float(np.mean([row["kl_nats"] for row in own.values()])),
        "kl_max_nats": max(row["kl_max_nats"] for row in own.values()),
        "agreement": float(np.mean([row["agreement"] for row in own.values()])),
        "return": float(np.mean([row["returns"] for row in own.values()])),
        "difference": mean,
        "low": low if len(gaps) > 1 else None,
        "high": high if len(gaps) > 1 else None,
        "episodes": len(gaps),
    }


def has_learned(learned: Mapping[str, float | None]) -> bool:
    """Whether policies score more than random play; of others no number of bits costs anything."""
    return learned["low"] is not None and learned["low"] > 0.0


def enough_bits(rows: Sequence[Mapping[str, Any]], how: str) -> int | None:
    """Return the fewest bits that, like all more, score no less than float32 as far as one can see.

    That is: the interval of the difference reaches 0. None: no number of bits does.
    """
    enough = None
    for row in sorted(
        (row for row in rows if row["how"] == how), key=lambda row: row["bits"], reverse=True
    ):
        if row["high"] is None or row["high"] < 0.0:
            break
        enough = row["bits"]
    return enough


def bits_verdicts(games: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return what becomes of QuaRL's claims, by 95% intervals over games (see `Verdict`).

    Returns are shares of what float32 has learned, which is what it scores above random play. Games
    in which it has learned nothing say nothing of returns.
    """
    keyed: list[dict[Any, Any]] = [
        {"learned": game["learned"]["difference"] if has_learned(game["learned"]) else 0.0}
        | {(row["how"], row["bits"]): row for row in game["rows"]}
        for game in games
    ]
    idle = [game["game"] for game in games if not has_learned(game["learned"])]
    left_out = f"; left out, as nothing was learned: {', '.join(idle)}" if idle else ""
    found = []
    for bits in (8, 6):
        shares = [
            game[BOTH, bits]["difference"] / game["learned"]
            for game in keyed
            if (BOTH, bits) in game and game["learned"]
        ]
        found.append(
            _verdict(
                f"weights and activations in {bits} bits score as float32 does",
                "return over float32's, as a share of what that has learned (claimed: at least "
                f"{-MOST_LOST:+.0%}){left_out}",
                shares,
                at_least=-MOST_LOST,
            )
        )
    # Copies of one policy are not independent: a game counts once.
    logs = [
        float(np.mean([_log_kl(game[TUNED, bits]) - _log_kl(game[BOTH, bits]) for bits in known]))
        for game in keyed
        if (known := [bits for bits in FEW if (TUNED, bits) in game])
    ]
    gained = [
        float(np.mean([game[TUNED, bits]["return"] - game[BOTH, bits]["return"] for bits in known]))
        / game["learned"]
        for game in keyed
        if game["learned"] and (known := [bits for bits in FEW if (TUNED, bits) in game])
    ]
    found.append(
        _verdict(
            "tuning raises the return of copies of 2 to 5 bits",
            "return, tuned less rounded, as a share of what float32 has learned, means over bits "
            f"(claimed: above 0){left_out}",
            gained,
            at_least=0.0,
        )
    )
    claim = "tuning brings copies of 2 to 5 bits closer to float32"
    what = "log of KL, tuned over rounded, means over bits (claimed: below 0)"
    return [*found, _verdict(claim, what, logs, at_most=0.0)]


def _log_kl(row: Mapping[str, Any]) -> float:
    return math.log(max(row["kl_nats"], LEAST_KL))


def _verdict(
    claim: str,
    what: str,
    values: Sequence[float],
    *,
    at_least: float = -math.inf,
    at_most: float = math.inf,
) -> dict[str, Any]:
    estimate, low, high = mean_interval(values)
    return Verdict(
        claim=claim,
        outcome=outcome_of(low, high, at_least=at_least, at_most=at_most),
        what=what,
        estimate=estimate if values else None,
        low=finite_or_none(low),
        high=finite_or_none(high),
        runs=len(values),
        over="games",
    ).to_json()


def tuned_what(budget: BitsBudget) -> str:
    """Return in a sentence what is tuned, on what, and for how long."""
    return (
        f"{TUNED}: a copy of the float32 policy takes {budget.updates:,} steps of Adam (learning "
        f"rate {budget.learning_rate:g}) down KL(policy || copy) with weights and activations "
        f"rounded in its forward pass and gradients passed straight through; each step has "
        f"{budget.batch} of {budget.states:,} states that the policy has played, none of those "
        "that are compared. The policy stands still, and rewards play no part."
    )


def game_table(game: Mapping[str, Any]) -> Table:
    """Return a game's KL and returns by bits."""
    columns = [f"{name} {what}" for name in SHORT for what in ("KL", "return")]
    title = f"{game['game']}, {game['network']}, float32 return {game['return']:.1f}, "
    title += f"random play {game['random']:.1f}"
    table = numbers_table(title, "bits", *columns)
    by_key = {(row["how"], row["bits"]): row for row in game["rows"]}
    for bits in BITS:
        cells = []
        for how in HOW:
            row = by_key.get((how, bits))
            cells += ["-", "-"] if row is None else [f"{row['kl_nats']:.2g}", _return(row)]
        table.add_row(str(bits), *cells)
    engine = by_key[ENGINE, 8]
    cells = [f"{engine['kl_nats']:.2g}", _return(engine)]
    table.add_row(ENGINE, "", "", *cells, "", "")
    return table


def _return(row: Mapping[str, Any]) -> str:
    lost = row["high"] is not None and row["high"] < 0.0
    return f"{row['return']:.1f}{' (less)' if lost else ''}"
