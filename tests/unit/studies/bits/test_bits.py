"""The study of bits: what is read off rounded copies, its figure and page, and a real one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from accerl.errors import UserError
from accerl.runtime.latency.profiles import load_profile
from analysis.figures.studies.bits import bits_figures
from analysis.render.html import write_page
from analysis.report.studies.bits import bits_sections
from studies.bits import run as bits_run
from studies.bits.job import BOTH, ENGINE, HOW, RANDOM, TUNED, WEIGHTS, BitsRows
from studies.bits.plan import BITS, BUDGETS, FLOAT32
from studies.bits.result import bits_verdicts, enough_bits, game_result, game_table, tuned_what
from studies.bits.run import run_bits
from studies.cli.study import STUDIES
from studies.options import StudyOptions
from studies.papers.verdict import FAILS, HOLDS, OPEN
from studies.study_folder import write_plan

TINY = BUDGETS["tiny"]


def row(how: str, bits: int, returns: list[float]) -> dict[str, Any]:
    kl = 4.0**-bits
    return {
        "how": how,
        "bits": bits,
        "kl_nats": kl,
        "kl_max_nats": 2.0 * kl,
        "agreement": 1.0 - kl,
        "returns": returns,
    }


def found() -> dict[tuple[int, int], BitsRows]:
    """Two policies, whose copies lose ten points in 2 bits and five in 3."""
    result = {}
    for seed in (0, 1):
        base = [100.0 + seed + i for i in range(4)]
        checks = {"engine_kl_nats": 0.01, "simulated_kl_nats": 0.011, "between_kl_nats": 1e-5}
        chance = row(RANDOM, 0, [1.0, 3.0, 1.0, 3.0])
        first = [row("float32", FLOAT32, base), row(ENGINE, 8, base), chance]
        result[seed, FLOAT32] = BitsRows(rows=first, engine=checks)
        for bits in BITS:
            lost = {2: 10.0, 3: 5.0}.get(bits, 0.0)
            noise = [0.1, -0.1, 0.2, -0.2]
            result[seed, bits] = BitsRows(
                rows=[
                    row(
                        how,
                        bits,
                        [b - lost * (how != TUNED) + n for b, n in zip(base, noise, strict=True)],
                    )
                    for how in HOW
                ]
            )
    return result


def test_copies_are_compared_with_float32_episode_by_episode() -> None:
    result = game_result("catch", TINY, found())
    assert result is not None
    rows = {(each["how"], each["bits"]): each for each in result["rows"]}
    assert len(rows) == len(HOW) * len(BITS) + 1
    lost = rows[WEIGHTS, 2]
    assert lost["difference"] == pytest.approx(-10.0)
    # Policies and starts differ by more than a point: what is paired does not.
    assert -10.3 < lost["low"] < -10.0 < lost["high"] < -9.7
    assert (lost["episodes"], result["policies"]) == (8, 2)
    assert result["return"] == pytest.approx(102.0)
    assert result["random"] == pytest.approx(2.0)
    assert result["learned"]["difference"] == pytest.approx(100.0)
    assert 95.0 < result["learned"]["low"] < 100.0
    assert result["enough"] == {WEIGHTS: 4, BOTH: 4, TUNED: 2}
    assert result["engine"]["between_kl_nats"] == pytest.approx(1e-5)


def test_policies_that_learned_nothing_say_nothing_of_bits() -> None:
    def as_good_as(base: list[float]) -> dict[tuple[int, int], BitsRows]:
        known = found()
        for seed in (0, 1):
            rows = [*known[seed, FLOAT32].rows[:2], row(RANDOM, 0, base)]
            known[seed, FLOAT32] = replace(known[seed, FLOAT32], rows=rows)
        return known

    learned = [game_result("catch", TINY, found()) or {} for _ in range(3)]
    idle = game_result("cartpole", TINY, as_good_as([100.0, 102.0, 101.0, 105.0])) or {}
    assert idle["learned"]["low"] < 0.0 < idle["learned"]["high"]
    assert set(idle["enough"].values()) == {None}
    with_it, without = (bits_verdicts(games) for games in ([*learned, idle], learned))
    for more, less in list(zip(with_it, without, strict=True))[:3]:
        assert (more["low"], more["high"], more["runs"]) == (less["low"], less["high"], 3)
        assert more["what"] == f"{less['what']}; left out, as nothing was learned: cartpole"
    assert (with_it[3]["runs"], without[3]["runs"]) == (4, 3)  # KL needs no reward


def test_enough_bits_are_those_below_which_something_is_lost() -> None:
    def rows(*high: float | None) -> list[dict[str, Any]]:
        return [
            {"how": WEIGHTS, "bits": bits, "high": value}
            for bits, value in zip((2, 4, 8), high, strict=True)
        ]

    assert enough_bits(rows(0.1, 0.1, 0.1), WEIGHTS) == 2
    assert enough_bits(rows(0.1, -0.1, 0.1), WEIGHTS) == 8  # luck at 2 bits does not count
    assert enough_bits(rows(0.1, 0.1, -0.1), WEIGHTS) is None
    assert enough_bits(rows(0.1, 0.1, None), WEIGHTS) is None


def test_claims_hold_fail_or_stay_open_by_their_intervals_over_games() -> None:
    def games(*differences: float) -> list[dict[str, Any]]:
        made = []
        for difference in differences:
            game = game_result("catch", TINY, found())
            assert game is not None
            for each in game["rows"]:
                if each["how"] == BOTH and each["bits"] >= 6:
                    each["difference"] = difference
                if each["how"] == TUNED:
                    each["kl_nats"] *= 0.5
            made.append(game)
        return made

    def outcomes(*differences: float) -> list[str]:
        return [each["outcome"] for each in bits_verdicts(games(*differences))]

    assert outcomes(0.0, 0.1, -0.1, 0.0) == [HOLDS, HOLDS, HOLDS, HOLDS]
    assert outcomes(-30.0, -31.0, -29.0, -30.0) == [FAILS, FAILS, HOLDS, HOLDS]
    assert outcomes(10.0, -20.0) == [OPEN, OPEN, HOLDS, HOLDS]
    assert outcomes(0.0)[0] == OPEN  # one game is none
    assert [each["outcome"] for each in bits_verdicts([])] == [OPEN] * 4
    worse = games(0.0, 0.0, 0.0, 0.0)
    for game in worse:
        for each in game["rows"]:
            each["return"] -= 1_000.0 * (each["how"] == TUNED)
    assert [each["outcome"] for each in bits_verdicts(worse)][2] == FAILS


def test_what_is_known_is_drawn_and_explained(tmp_path: Path) -> None:
    some = {key: rows for key, rows in found().items() if key[1] in (FLOAT32, 8, 16)}
    game = game_result("catch", TINY, some)
    assert game is not None
    assert game_result("pong", TINY, {}) is None
    assert game_table(game).row_count == len(BITS) + 1
    result = {"games": [game], "tuned": tuned_what(TINY), "command": "accerl study run bits"}
    (figure,) = bits_figures(result)
    assert {entry["how"] for entry in figure.table} == {*HOW, ENGINE}
    assert "100 steps of Adam" in figure.caption
    page = write_page(bits_sections(result), tmp_path / "bits.html", "Bits").read_text()
    assert "<svg" in page
    assert "Bits that are enough" in page
    page = write_page(bits_sections({**result, "games": []}), tmp_path / "b", "Bits").read_text()
    assert "No policy has played yet." in page


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"budget": "tny"}, "did you mean 'tiny'"),
        ({"seed": -1}, "--seed must lie between"),
        ({"storage": "x"}, "bits tunes nothing with Optuna"),
        ({"profile": "two-cor"}, "did you mean 'two-core'"),
    ],
)
def test_mistakes_cost_a_line_and_leave_nothing(
    tmp_path: Path, options: dict[str, Any], words: str
) -> None:
    out = tmp_path / "out"
    with pytest.raises(UserError, match=words):
        run_bits(out, StudyOptions(**{"budget": "tiny", **options}))
    assert not out.exists()


def test_a_profile_without_times_leaves_nothing(tmp_path: Path) -> None:
    profile = load_profile("two-core").to_json()
    profile["specs"] = [row for row in profile["specs"] if row["spec"]["student"] != "original"]
    (tmp_path / "few.json").write_text(json.dumps(profile))
    given = StudyOptions(budget="tiny", profile=str(tmp_path / "few.json"))
    with pytest.raises(UserError, match="has no times for 'original fp32'"):
        run_bits(tmp_path / "out", given)
    assert not (tmp_path / "out").exists()


def test_a_full_disk_and_a_folder_of_another_plan_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_plan(tmp_path, {"study": "papers"})
    with pytest.raises(UserError, match="another plan"):
        run_bits(tmp_path, StudyOptions(budget="tiny"))
    monkeypatch.setattr(bits_run, "FREE_BYTES", 10**18)
    with pytest.raises(UserError, match="MB are free"):
        run_bits(tmp_path, StudyOptions(budget="tiny"))
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


@pytest.mark.slow
def test_policies_are_trained_rounded_and_played_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = replace(TINY, env_steps={"catch": 20_000}, updates=20, episodes=8)
    monkeypatch.setitem(BUDGETS, "tiny", small)
    result = run_bits(tmp_path, StudyOptions(budget="tiny", workers=1))
    (game,) = result["games"]
    kl = {(each["how"], each["bits"]): each["kl_nats"] for each in game["rows"]}
    for how in (WEIGHTS, BOTH):
        assert kl[how, 16] < kl[how, 8] < kl[how, 4] < kl[how, 2]
    assert kl[TUNED, 2] < kl[BOTH, 2]
    # The engine is what its arithmetic in float32 says.
    assert game["engine"]["between_kl_nats"] < 0.1 * game["engine"]["engine_kl_nats"]
    assert game["engine"]["simulated_kl_nats"] == pytest.approx(
        game["engine"]["engine_kl_nats"], rel=0.2
    )
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "jobs").iterdir()}
    assert run_bits(tmp_path, StudyOptions(budget="tiny", workers=1)) == result
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "jobs").iterdir()} == before


def test_the_study_is_listed() -> None:
    assert "bits" in STUDIES
