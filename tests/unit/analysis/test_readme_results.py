"""The README's results are those of the gallery's files, rounded.

No file holds some of them: the contest before, and what Net2 takes on Atari, one of whose runs was
played on after its file was written.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt
from pathlib import Path
from typing import Any

import pytest

from accerl.records import read_json

ROOT = Path(__file__).parents[3]
RIVALS = {
    "fp32": "fp32 (12 pairs)",
    "advise_kl_cap": "advise + KL cap, which reads the machine",
    "kl_threshold": "best KL threshold, one for all",
    "static": "best static spec, one for all",
}


@pytest.fixture(scope="module")
def readme() -> str:
    """Return its words, wherever lines end."""
    return " ".join((ROOT / "README.md").read_text().split())


def gallery(name: str) -> Any:
    return read_json(ROOT / "analysis" / "gallery" / name)


def gain(over: Mapping[str, float]) -> str:
    """Return a ratio with its interval in percent beyond 1."""
    ratio, low, high = (f"{100.0 * (over[name] - 1.0):.0f}" for name in ("ratio", "low", "high"))
    return f"{ratio}% ({low} to {high})"


@pytest.mark.parametrize("rival", RIVALS)
def test_the_contest(rival: str, readme: str) -> None:
    contest = gallery("contest.json")
    (found,) = (
        each
        for each in contest["contrasts"]
        if (each["b"], each["metric"]) == (rival, "seconds_to_target")
    )
    assert found["a"] == contest["subject"] == "controller"
    ratio, low, high = (f"{found[name]:.2f}" for name in ("ratio", "low", "high"))
    is_certain = found["p_holm"] is not None and found["p_holm"] < 0.05
    shown = f"**{ratio}**" if is_certain else ratio
    assert f"| {RIVALS[rival]} | {shown} ({low} to {high}) |" in readme
    sentence = "on four machines, the indicator's seconds to target over theirs (18 pairs):"
    assert sentence in readme
    pairs = f"({found['clusters']} pairs"
    assert pairs in (RIVALS[rival] if "pairs" in RIVALS[rival] else sentence)
    assert f"On {len(found['ratio_by_game'])} instances of three games" in readme


def test_the_curves_of_the_contest(readme: str) -> None:
    found = [each for each in gallery("contest.json")["contrasts"] if each["metric"] == "auc"]
    planned = [each for each in found if each["family"] == "secondary"]
    assert {each["b"] for each in planned} == set(RIVALS)
    assert all(each["low"] > 0.0 for each in planned)
    (p,) = {f"{each['p_holm']:.3f}" for each in planned}
    assert f"Its mean score over a run is higher than all four's (p {p})" in readme


def test_the_room(readme: str) -> None:
    room = gallery("room.json")
    assert room["chosen"]["one for all"] == "net3 INT8"
    ratios = {row["family"]: f"{row['seconds']['net3 INT8']:.2f}" for row in room["families"]}
    assert (
        f"Net3 in INT8 reaches targets {ratios['gpu-few-cores']} times as fast where a GPU learns "
        f"for few actors, {ratios['server']} on servers, {ratios['edge']} on edge devices and "
        f"{ratios['laptop']} on laptops"
    ) in readme
    assert f"Choosing for each game and machine gains {gain(room['room'])} more" in readme
    over = {each["name"]: each["over_single"] for each in room["strategies"]}
    rules = [over[name]["ratio"] for name in over if name not in ("indicator", "schedule")]
    low, high = (f"{100.0 * (bound(rules) - 1.0):.0f}" for bound in (min, max))
    assert (
        f"On MinAtar's {room['room']['instances']} instances the indicator gains "
        f"{gain(over['indicator'])}, rules tuned there {low} to {high}%"
    ) in readme


def test_what_small_actors_cost_on_atari(readme: str) -> None:
    cases = [case for case in gallery("students.json")["cases"] if case["network"] == "net1"]
    assert sorted(case["game"] for case in cases) == ["breakout", "pong"]

    def env_steps(label: str) -> float:
        first, second = (
            variant["to_score"][-1]["env_steps_ratio"]
            for case in cases
            for variant in case["variants"]
            if variant["label"] == label
        )
        return sqrt(first * second)

    pruned, net3 = env_steps("original pruned 50% INT8"), env_steps("net3 INT8")
    assert f"pruned actors take {pruned:.2f} times fp32's env steps to a score" in readme
    assert f"Net3 {net3:.2f}. Where Original learns" in readme


def test_int8_on_twelve_games(readme: str) -> None:
    figure = gallery("papers/atari/fig12.json")
    lines = [
        {line["label"]: line for line in panel["machines"]["paper-1080ti"]["lines"]}
        for panel in figure["panels"]
    ]
    sooner = sum(each["INT8"]["seconds_ratio"]["estimate"] < 1.0 for each in lines)
    (found,) = (each for each in figure["verdicts"] if "the least that is claimed" in each["claim"])
    mean, low = (f"{found[name]:.2f}" for name in ("estimate", "low"))
    assert (found["outcome"], found["bound"]) == ("these runs cannot tell", ">")
    assert (
        f"INT8 is sooner in {sooner} of {len(lines)} games; whether on average is undecided (at "
        f"least {mean} of fp32's seconds, from {low};"
    ) in readme


def speed(compared: Mapping[str, Any], label: str, game: str, seeds: int) -> Mapping[str, Any]:
    """Return a strategy's env steps over fp32's, on the real clock."""
    assert (compared["game"], compared["clock"], compared["network"]) == (game, "real", "original")
    assert len(compared["seeds"]) == seeds
    (found,) = (each for each in compared["strategies"] if each["label"] == label)
    return found["speed"]


def with_interval(found: Mapping[str, Any]) -> str:
    low, high = found["interval"]
    return f"{found['ratio']:.2f} ({low:.2f} to {high:.2f})"


def test_int8_on_the_real_clock(readme: str) -> None:
    gpu = gallery("gpu-pong.json")
    int8, net2 = (speed(gpu, label, "pong", 2) for label in ("INT8", "net2 INT8"))
    assert gpu["actors"] == 6
    assert (
        f"(6 actors, Pong, Original, 2 seeds) INT8 actors make {with_interval(int8)} times fp32's "
        f"env steps, Net2's {net2['ratio']:.2f};"
    ) in readme
    breakout = gallery("real-clock-breakout-original.json")
    cores = speed(breakout, "original INT8", "breakout", 3)
    assert sum(event["lasts_seconds"] for event in breakout["events"]) == 240
    assert breakout["seconds"] == 600
    sentence = (
        f"INT8 makes {with_interval(cores)} times fp32's without VNNI (Breakout, 3 seeds), and"
    )
    assert sentence in readme
    with_vnni = (Path(__file__).parents[3] / "analysis/gallery/real-clock.md").read_text()
    assert "| 1.03 (0.76 to 1.39) |" in with_vnni
    assert "1.03 (0.76 to 1.39) with it (Pong, 3 seeds)" in readme
