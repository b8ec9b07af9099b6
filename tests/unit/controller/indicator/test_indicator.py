"""The Advanced Indicator decides in real runs, says why, and is trained in parameter space."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from accerl.errors import UserError
from accerl.monitor.features import Features
from accerl.monitor.strategy import reject
from accerl.presets import load_preset
from accerl.records import read_metrics
from accerl.runtime.latency.games import times_of_run
from accerl.runtime.latency.profiles import load_profile
from accerl.runtime.run import IntervalReport
from accerl.spec import IDENTITY, CompressionSpec, Decision
from accerl.training.run import RunResult, run_training
from controller.indicator.candidates import SCORED
from controller.indicator.prior import Prior
from controller.indicator.scorer import SpecScorer
from controller.indicator.strategy import AdvancedIndicator, IndicatorSettings
from controller.indicator.trainable import read_indicator
from controller.indicator.training import train_on_tier0
from controller.shield import Shielded
from controller.training.evolution import Evolution, EvolutionConfig
from controller.training.gradient import GradientConfig
from tests.fixtures.controllers.raw_indicators import raw

INT8 = CompressionSpec(bits=8)
NET3 = CompressionSpec(student="net3", bits=8)
SPECS = (IDENTITY, INT8, NET3)


def make_indicator(machine: str, game: str = "catch", **settings: object) -> AdvancedIndicator:
    """Return the rule that training starts from, bound to a machine."""
    given = {"specs": SPECS, "uses_shadows": False, **settings}
    scorer = SpecScorer(generator=torch.Generator().manual_seed(0))
    indicator = AdvancedIndicator(scorer, Prior(), IndicatorSettings(**given))
    config = load_preset(game)
    indicator.bind(config, times_of_run(load_profile(machine), config))
    indicator.reset()
    return indicator


def features(**known: float) -> Features:
    """Return features of an early moment, with some raw indicators known.

    The policy is as decided as the prior's typical KL is of.
    """
    start = raw(entropy_fraction=2.0 / 3.0)
    new = {"compression_kl_is_new": 1.0} if "compression_kl_nats" in known else {}
    return Features.of({**start, "seconds": 1.0, "time_fraction": 0.1, **new, **known})


def test_it_starts_with_the_fastest_spec_whose_kl_is_thought_to_be_allowed() -> None:
    fast = make_indicator("edge-8000", cap_nats=10.0)
    assert fast.decide(features()) == Decision.of(NET3)
    careful = make_indicator("edge-8000", cap_nats=0.02)
    assert careful.decide(features()) == Decision.of(INT8)
    rows = careful.explanation
    assert set(rows) == {spec.label for spec in SPECS}
    assert rows[INT8.label]["chosen"] == 1.0
    assert rows[INT8.label]["score"] == max(row["score"] for row in rows.values())
    assert sum(row["preference"] for row in rows.values()) == pytest.approx(1.0)
    assert all(row["allowed"] == 1.0 for row in rows.values())


def test_a_spec_that_turns_out_to_be_far_from_the_learner_is_left() -> None:
    indicator = make_indicator("edge-8000", cap_nats=10.0)
    assert indicator.decide(features()) == Decision.of(NET3)
    seen = {"served_share": 1.0, "kl_mean_nats": 40.0, "ess_fraction": 0.02, "policy_lag": 8.0}
    for kl_nats in (40.0, 41.0):
        decision = indicator.decide(features(compression_kl_nats=kl_nats, **seen))
    assert decision in (Decision.of(INT8), Decision.of(IDENTITY))
    assert indicator.explanation[NET3.label]["kl_nats"] > 5.0


@pytest.mark.parametrize(
    "diverged",
    [
        {"compression_kl_nats": math.nan, "served_share": 0.6},  # before its rollouts are used
        {"kl_mean_nats": math.nan, "served_share": 1.0},
        {"kl_mean_nats": math.inf, "served_share": 1.0},
    ],
)
def test_a_spec_that_diverges_is_left(diverged: dict[str, float]) -> None:
    indicator = make_indicator("edge-8000", cap_nats=10.0)
    assert indicator.decide(features()) == Decision.of(NET3)
    assert indicator.decide(features(policy_lag=8.0, served_share=1.0)) == Decision.of(NET3)
    made = [indicator.decide(features(policy_lag=8.0, **diverged)).main for _ in range(2)]
    assert made[-1] != NET3


def test_a_student_that_stays_far_away_is_not_waited_for() -> None:
    indicator = make_indicator("edge-8000", cap_nats=0.35)
    assert indicator.decide(features()) == Decision.of(NET3)
    acts = {"served_share": 0.0, "compression_kl_nats": 0.002, "kl_mean_nats": 0.01}
    made = [
        indicator.decide(features(waiting_kl_nats=6.0, policy_lag=8.0, **acts)) for _ in range(3)
    ]
    assert made[-1] != Decision.of(NET3)
    assert indicator.explanation[NET3.label]["kl_nats"] > 2.0


def test_a_waiting_kl_is_learned_from_once() -> None:
    """It keeps its value until the next delivery, which a slow link brings after many intervals."""
    waits = {"served_share": 0.0, "waiting_kl_nats": 0.3, "policy_lag": 8.0}
    found = []
    for intervals in (1, 5):
        indicator = make_indicator("edge-8000", cap_nats=10.0)
        assert indicator.decide(features()) == Decision.of(NET3)
        for _ in range(intervals):
            indicator.decide(features(**waits))
        found.append(indicator.explanation[NET3.label]["kl_nats"])
    assert found[1] == pytest.approx(found[0])
    indicator.decide(features(**waits | {"waiting_kl_nats": 0.31}))
    assert indicator.explanation[NET3.label]["kl_nats"] > 1.02 * found[1]


def test_what_cannot_be_built_is_not_chosen_again_in_this_run() -> None:
    indicator = make_indicator("edge-8000", cap_nats=10.0)
    assert indicator.decide(features()) == Decision.of(NET3)
    reject(Shielded(indicator), NET3)
    reject(indicator, IDENTITY)  # always there
    for _ in range(3):
        decision = indicator.decide(features(served_share=0.0))
        assert decision.main != NET3
        assert decision.shadow != NET3
    assert set(indicator.specs) == set(SPECS) - {NET3}
    indicator.reset()  # another run may build it
    assert indicator.specs == SPECS
    assert indicator.decide(features()) == Decision.of(NET3)


def test_what_waits_does_not_count_as_what_acts() -> None:
    indicator = make_indicator("edge-8000", cap_nats=10.0)
    with torch.no_grad():
        indicator.scorer.linear[list(SCORED).index("acts")] = 50.0  # never leaves what acts
        indicator.scorer.linear[list(SCORED).index("kl")] = 0.0
    first = indicator.decide(features())
    served = {"compression_kl_nats": 0.002, "kl_mean_nats": 0.01, "policy_lag": 8.0}
    indicator.decide(features(served_share=1.0, **served))
    kept = indicator.explanation[first.label]["score"]
    indicator.decide(features(served_share=0.0, **served))
    assert kept > indicator.explanation[first.label]["score"] + 40.0


def test_what_is_believed_to_be_worth_less_than_no_compression_does_not_act() -> None:
    bold = make_indicator("learner-bound", cap_nats=1e6, least_worth=0.0)
    with torch.no_grad():
        bold.scorer.linear[list(SCORED).index("kl")] = 50.0  # a policy gone wrong
    assert bold.decide(features()) == Decision.of(NET3)
    safe = make_indicator("learner-bound", cap_nats=1e6)
    safe.scorer = bold.scorer
    chosen = safe.decide(features())
    assert chosen != Decision.of(NET3)
    worth = {
        label: row["env_steps_per_second"] * row["efficiency"]
        for label, row in safe.explanation.items()
    }
    assert worth[NET3.label] < 0.97 * worth[IDENTITY.label] <= worth[chosen.label]


def test_a_decision_is_held_unless_conditions_change() -> None:
    def decisions(speed_after: float) -> list[Decision]:
        indicator = make_indicator("edge-8000", cap_nats=10.0, least_worth=0.0)
        with torch.no_grad():
            indicator.scorer.log_dwell[:] = math.log(20.0)
        first = indicator.decide(features())
        rate = indicator.explanation[first.label]["env_steps_per_second"]
        made, env_steps = [first], 0.0
        for interval in range(1, 8):
            known = {"served_share": 1.0, "learner_updates": 50.0 * interval, "policy_lag": 8.0}
            known |= {"compression_kl_nats": 30.0 + interval, "kl_mean_nats": 40.0}
            env_steps += rate * (speed_after if interval > 3 else 1.0)
            known |= {"seconds": 1.0 * interval, "env_steps": env_steps, "ess_fraction": 0.02}
            made.append(indicator.decide(features(**known)))
        return made

    held = decisions(1.0)
    assert set(held) == {Decision.of(NET3)}
    broken = decisions(0.4)
    assert set(broken[:5]) == {Decision.of(NET3)}
    assert Decision.of(NET3) not in broken[5:7]


def test_intervals_without_a_rollout_say_nothing_and_take_nothing_away() -> None:
    """An update every other interval: what was counted before goes on counting, and so acts."""
    indicator = make_indicator("edge-8000", cap_nats=10.0)
    assert indicator.decide(features()) == Decision.of(NET3)
    believed = indicator.explanation[NET3.label]["env_steps_per_second"]
    for interval in range(1, 25):
        used = interval // 2
        served = 1.0 if interval % 2 == 0 else math.nan
        known = {"learner_updates": used, "env_steps": 0.3 * believed * 2.0 * used}
        seen = {"seconds": 2.0 * used, "served_share": served, "policy_lag": 8.0}
        indicator.decide(features(**known, **seen))
        assert indicator._served
    assert indicator.explanation[NET3.label]["env_steps_per_second"] < 0.6 * believed


def test_what_was_overruled_need_not_be_held() -> None:
    indicator = make_indicator("edge-8000", cap_nats=10.0)
    with torch.no_grad():
        indicator.scorer.log_dwell[:] = math.log(20.0)
    assert indicator.decide(features()) == Decision.of(NET3)
    indicator.overruled(Decision.of(IDENTITY))
    assert indicator.decide(features(seconds=2.0, served_share=1.0)) == Decision.of(NET3)


def test_a_spec_whose_times_nobody_knows_does_not_act_beside_others() -> None:
    low_rank = CompressionSpec(rank=0.25, bits=8)
    scorer = SpecScorer(generator=torch.Generator().manual_seed(0))
    indicator = AdvancedIndicator(scorer, Prior(), IndicatorSettings(specs=(*SPECS, low_rank)))
    config = load_preset("pong").with_runtime(clock="real")
    indicator.bind(config, times_of_run(load_profile("two-core"), config))
    assert indicator.specs == SPECS
    indicator.bind(config, None)
    assert indicator.specs == (*SPECS, low_rank)


def test_a_checkpoint_of_another_indicator_is_refused(tmp_path: Path) -> None:
    config = GradientConfig(instances=1, pairs=2)
    train_on_tier0(make_indicator("edge-8000"), config, 1, checkpoint=tmp_path / "c")
    other = make_indicator("edge-8000", cap_nats=5.0)
    with pytest.raises(UserError, match=r"other settings \(indicator\)"):
        train_on_tier0(other, config, 2, checkpoint=tmp_path / "c")
    assert (
        len(train_on_tier0(make_indicator("edge-8000"), config, 2, checkpoint=tmp_path / "c")) == 2
    )


def test_it_acts_only_with_what_the_run_can_act_with() -> None:
    own = CompressionSpec(student="net1", bits=8)
    config = replace(load_preset("minatar-breakout"), network="net1")
    scorer = SpecScorer(generator=torch.Generator().manual_seed(0))
    indicator = AdvancedIndicator(scorer, Prior(), IndicatorSettings(specs=(*SPECS, own)))
    indicator.bind(config, times_of_run(load_profile("server-8000"), config))
    assert own not in indicator.specs
    assert {IDENTITY, NET3} <= set(indicator.specs)


def test_what_may_be_worth_more_is_measured_without_acting() -> None:
    indicator = make_indicator("edge-8000", cap_nats=0.02, uses_shadows=True)
    first = indicator.decide(features())
    assert (first.main, first.shadow) == (INT8, None)  # nobody knows yet how decided the policy is
    acts = {"served_share": 1.0, "compression_kl_nats": 0.004, "kl_mean_nats": 0.01}
    acts |= {"policy_lag": 8.0}
    assert indicator.decide(features(**acts)).shadow == NET3
    for kl_nats in (1e-3, 1.1e-3, 1.2e-3):
        close = indicator.decide(features(shadow_kl_nats=kl_nats, **acts))
    assert close.main == NET3
    assert close.shadow != NET3
    far = make_indicator("edge-8000", cap_nats=0.02, uses_shadows=True)
    for kl_nats in (math.nan, math.nan, 5.0):
        decision = far.decide(features(shadow_kl_nats=kl_nats, **acts))
    assert decision.main == INT8
    assert far.explanation[NET3.label]["kl_nats"] > 1.0
    blind = make_indicator("edge-8000", cap_nats=0.02, uses_shadows=True, uses_kl=False)
    assert {blind.decide(features(**acts)).shadow for _ in range(2)} == {None}


def test_who_does_not_look_at_kl_learns_of_lags() -> None:
    seen = {"served_share": 1.0, "policy_lag": 400.0, "kl_mean_nats": 0.5, "ess_fraction": 0.5}
    lags = []
    for uses_kl in (True, False):
        indicator = make_indicator("edge-8000", uses_kl=uses_kl)
        indicator.decide(features())
        [indicator.decide(features(**seen)) for _ in range(3)]
        lags.append(indicator._fidelity.policy_lag(IDENTITY, 3.0))
    assert lags[0] == lags[1] > 3.6


def test_a_policy_that_hardly_decides_says_nothing_of_kl() -> None:
    indicator = make_indicator("edge-8000", cap_nats=0.02, uses_shadows=True)
    acts = {"served_share": 1.0, "compression_kl_nats": 1e-5, "kl_mean_nats": 1e-5}
    for _ in range(5):
        even = indicator.decide(features(entropy_fraction=0.99, policy_lag=8.0, **acts))
        assert even.shadow is None
    shown = (0.1 + 0.9 * 0.01) / (0.1 + 0.9 / 3.0)
    for spec in (INT8, NET3):
        believed = indicator.explanation[spec.label]["kl_nats"]
        assert believed == pytest.approx(shown * math.exp(indicator.prior.log_kl(spec)))
    indicator.decide(
        features(entropy_fraction=0.99, policy_lag=8.0, **acts | {"compression_kl_nats": 9.0})
    )
    assert indicator.explanation[INT8.label]["kl_nats"] > 0.01  # a broken copy decides much


def test_a_student_that_acted_and_rests_is_not_measured_again() -> None:
    """It has fallen behind meanwhile: its KL says nothing of what it would be at work."""
    counted = []
    for acted in (False, True):
        indicator = make_indicator("edge-8000", cap_nats=10.0, uses_shadows=True)
        first = indicator.decide(features())
        assert first.main == NET3
        if acted:
            indicator.decide(features(served_share=1.0, policy_lag=8.0))
        indicator.overruled(Decision.of(INT8))
        acts = {"served_share": 1.0, "compression_kl_nats": 0.004, "kl_mean_nats": 0.01}
        with torch.no_grad():
            indicator.scorer.linear[list(SCORED).index("acts")] = 50.0  # never leaves what acts
        made = [indicator.decide(features(policy_lag=8.0, **acts)) for _ in range(4)]
        counted.append(sum(decision.shadow == NET3 for decision in made))
    assert counted[0] > 0 == counted[1]


def test_a_run_that_is_cut_finely_has_hardly_more_measured_without_acting() -> None:
    """What Net3 costs is quite unknown here, so it is worth measuring while its KL is unsure."""
    counted = []
    for intervals in (40, 400):
        start = make_indicator("edge-8000", cap_nats=0.02, uses_shadows=True)
        indicator = AdvancedIndicator(start.scorer, Prior(cost_spread=3.0), start.settings)
        config = replace(load_preset("catch"), seconds=10.0)
        config = config.with_runtime(interval_seconds=10.0 / intervals)
        indicator.bind(config, times_of_run(load_profile("edge-8000"), config))
        indicator.reset()
        seen = features(shadow_kl_nats=math.exp(indicator.prior.log_kl(NET3)))
        made = [indicator.decide(seen) for _ in range(intervals)]
        assert {decision.main for decision in made} == {INT8}
        counted.append(sum(decision.shadow == NET3 for decision in made))
    assert 10 <= counted[0] <= counted[1] < 2 * counted[0]


def test_it_must_know_its_run() -> None:
    scorer = SpecScorer(generator=torch.Generator().manual_seed(0))
    indicator = AdvancedIndicator(scorer, Prior(), IndicatorSettings(specs=SPECS))
    with pytest.raises(UserError, match="bind it to a run"):
        indicator.reset()


def test_settings_and_weights_are_read_as_they_were_written() -> None:
    indicator = make_indicator("edge-8000", cap_nats=0.3)
    again = AdvancedIndicator.from_params(indicator.to_json()["params"])
    assert again.settings == indicator.settings
    assert again.to_json() == indicator.to_json()
    broken = indicator.params()
    del broken["scorer"]["weights"]["inner"]
    with pytest.raises(UserError, match=r"weights do not fit.*inner"):
        AdvancedIndicator.from_params(broken)
    with pytest.raises(UserError, match="lack 'prior'"):
        AdvancedIndicator.from_params({"scorer": indicator.scorer.to_json()})
    with pytest.raises(UserError, match=r"cap_nats must be a number above 0\.0, got -1\.0"):
        IndicatorSettings(specs=SPECS, cap_nats=-1.0)
    with pytest.raises(UserError, match="uses_kl must be"):
        IndicatorSettings(specs=SPECS, uses_kl="false")  # pyright: ignore
    with pytest.raises(UserError, match="are no indicator's"):
        AdvancedIndicator.from_params({**indicator.params(), "prior": [1]})
    with pytest.raises(UserError, match="'oracle' is none"):
        read_indicator({"name": "oracle", "params": {}})


def test_a_real_run_records_why_and_resumes_bit_by_bit(tmp_path: Path) -> None:
    profile = load_profile("paper-1080ti")
    config = replace(load_preset("catch"), seconds=8.0).with_runtime(
        runtime="serial", clock="virtual", interval_seconds=0.5
    )

    def run(name: str, *, stop: int = 100, resume: bool = False) -> RunResult:
        def interrupt(report: IntervalReport) -> None:
            if report.index == stop:
                raise KeyboardInterrupt

        return run_training(
            config,
            make_indicator("paper-1080ti", cap_nats=0.3),
            strategy_name="indicator",
            out=tmp_path / name,
            resume=resume,
            profile=profile,
            on_interval=interrupt,
        )

    whole = run("whole").reports
    assert IDENTITY not in [report.decision.main for report in whole]  # inference is dear here
    last = whole[-1].explanation[whole[-1].decision.label]
    assert last["chosen"] == 1.0
    rate = (whole[-1].total_env_steps - whole[1].total_env_steps) / 7.0
    assert last["env_steps_per_second"] == pytest.approx(rate, rel=0.1)
    with pytest.raises(KeyboardInterrupt):
        run("parts", stop=4)
    run("parts", resume=True)
    assert list(read_metrics(tmp_path / "parts")) == whole


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_evolution_strategies_move_the_same_weights_to_where_it_pays(sign: float) -> None:
    start = SpecScorer(generator=torch.Generator().manual_seed(0))
    evolution = Evolution(start, EvolutionConfig(pairs=4))
    begun = float(start.linear.detach().sum())
    for _ in range(10):
        states = evolution.proposal()
        assert len(states) == 8
        evolution.improve(np.array([sign * np.sum(s["weights"]["linear"]) for s in states]))
    assert sign * (float(start.linear.detach().sum()) - begun) > 0.05
