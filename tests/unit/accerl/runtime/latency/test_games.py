"""Times of several games in one profile: which a run is charged, and how they are measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from accerl.errors import UserError
from accerl.monitor.strategies import FixedStrategy
from accerl.presets import load_preset
from accerl.records import fingerprint
from accerl.runtime.conditions import ACTORS, BANDWIDTH, THROTTLE, Condition, Conditions
from accerl.runtime.latency import measure
from accerl.runtime.latency.games import (
    no_longer_timed,
    note_on_times,
    notes_on_events,
    times_of_game,
    times_of_run,
    with_games_of,
)
from accerl.runtime.latency.measure import measure_game
from accerl.runtime.latency.predict import advise
from accerl.runtime.latency.profile import LatencyProfile
from accerl.runtime.latency.profiles import (
    SHIPPED,
    load_profile,
    paper_profile,
    save_profile,
)
from accerl.spec import IDENTITY, CompressionSpec
from accerl.training.run import run_training
from controller.env.control_env import CompressionControlEnv
from controller.env.instances import make_instance
from tests.fixtures.own_games import own
from tests.fixtures.runs.inner_runs import fast_profile

BASE = fast_profile()


def times(game: str, observation: tuple[int, ...], env_step_us: float) -> LatencyProfile:
    return replace(
        BASE,
        name="elsewhere",
        game=game,
        observation=observation,
        env_step_us=env_step_us,
        num_actors=1,
    )


CARTPOLE = times("CartPole-v1", (4,), 7.0)
MIXED = replace(
    BASE,
    games=(
        CARTPOLE,
        times("CartPole-v1", (2, 4), 8.0),
        times("Big-v0", (100,), 9.0),
        times("catch", (10, 5), 10.0),
        replace(times("CartPole-v1", (4,), 11.0), network="net3", small_learner_us={}),
    ),
)


@pytest.mark.parametrize(
    ("game", "env", "network", "charged"),
    [
        ("CartPole-v1", {}, "original", 7.0),
        ("CartPole-v1", {}, "net1", 7.0),
        ("CartPole-v1", {"frame_stack": 2}, "original", 8.0),
        ("Acrobot-v1", {}, "original", 7.0),  # six numbers: four are nearer than a hundred
        (own("ShownGrey-v0"), {}, "net1", BASE.env_step_us),  # shown like Atari's
        ("catch", {}, "original", 10.0),
        ("cartpole", {}, "original", BASE.env_step_us),  # presets keep what they always had
    ],
)
def test_a_run_is_charged_its_own_times_or_the_nearest(
    game: str, env: dict[str, int], network: str, charged: float, own_games: None
) -> None:
    config = replace(load_preset(game, env), network=network)
    found = times_of_game(MIXED, config)
    assert found.env_step_us == charged
    assert (found.name, found.num_actors) == (BASE.name, BASE.num_actors)  # one machine
    assert times_of_run(MIXED, config).network == network


def test_times_that_know_the_network_come_first() -> None:
    only_net3 = replace(MIXED, games=(MIXED.games[-1], replace(CARTPOLE, small_learner_us={})))
    for network, charged in (("net3", 11.0), ("original", 7.0)):
        config = replace(load_preset("CartPole-v1"), network=network)
        assert times_of_run(only_net3, config).env_step_us == charged
    with pytest.raises(UserError, match="has no times for a learner of 'net2'"):
        times_of_run(only_net3, replace(load_preset("CartPole-v1"), network="net2"))


def test_a_preset_that_was_measured_with_two_networks_has_the_times_of_its_own() -> None:
    small = replace(BASE, network="net1", small_learner_us={"net2": 1.0}, env_step_us=5.0)
    held = replace(small, games=(replace(BASE, small_learner_us={}, env_step_us=6.0),))
    for network, charged in (("net1", 5.0), ("net2", 5.0), ("original", 6.0)):
        for game in ("pong", "breakout"):  # of which one was measured
            config = replace(load_preset(game), network=network)
            assert times_of_run(held, config).env_step_us == charged


def test_who_measures_a_machine_again_keeps_its_games() -> None:
    anew = replace(BASE, env_step_us=5.0)
    assert with_games_of(anew, None) == anew
    kept = with_games_of(anew, MIXED)
    assert kept.env_step_us == 5.0
    assert kept.games == MIXED.games  # and not the times that Pong had
    assert with_games_of(anew, CARTPOLE).games == (CARTPOLE,)
    assert with_games_of(replace(anew, learner="gpu"), MIXED).games == ()
    elsewhere = replace(MIXED, fingerprint={"id": "another"})
    assert with_games_of(anew, elsewhere) == anew
    others = (
        replace(BASE, network="net1", small_learner_us={}),
        replace(BASE, observation=(4, 42, 42)),
    )
    assert with_games_of(anew, replace(BASE, games=others)).games == others


def test_whoever_is_charged_another_game_s_times_hears_of_it() -> None:
    other, own = load_preset("Acrobot-v1"), load_preset("CartPole-v1")
    note = note_on_times(MIXED, other)
    assert note is not None
    assert "no times of Acrobot-v1: those of CartPole-v1 are charged" in note
    assert "--game Acrobot-v1" in note
    assert note_on_times(MIXED, own) is None
    assert note_on_times(BASE, load_preset("catch")) is None


def test_a_preset_hears_of_times_that_are_neither_its_own_nor_those_of_pong() -> None:
    measured = replace(CARTPOLE, games=(times("catch", (10, 5), 10.0),))
    note = note_on_times(measured, load_preset("cartpole"))
    assert note is not None
    assert "no times of cartpole: those of CartPole-v1 are charged" in note
    assert note_on_times(measured, load_preset("catch")) is None
    for name in SHIPPED:
        for preset in ("catch", "cartpole", "breakout"):
            assert note_on_times(load_profile(name), load_preset(preset)) is None


def test_whoever_waits_for_a_link_that_is_not_there_hears_of_it() -> None:
    calm = load_preset("catch")
    slow = Condition(at_seconds=0.0, lasts_seconds=1.0, kind=BANDWIDTH, amount=0.5)
    config = replace(calm, conditions=Conditions((slow,)))
    note = "bandwidth events change nothing: latency profile 'fast' has no links"
    assert notes_on_events(BASE, config) == [note]
    assert not notes_on_events(BASE, calm)
    assert not notes_on_events(replace(BASE, down_bytes_per_second=1e6), config)
    assert not notes_on_events(replace(BASE, up_bytes_per_second=1e6), config)


def test_what_events_mean_where_a_gpu_learns_and_actors_act_together_is_said() -> None:
    server = replace(BASE, learner="gpu", num_actors=16, actors_per_batch=16)

    def said_of(kind: str, process: str = "") -> list[str]:
        event = Condition(at_seconds=0.0, lasts_seconds=1.0, kind=kind, amount=2.0, process=process)
        config = replace(load_preset("catch"), conditions=Conditions((event,)))
        assert not notes_on_events(BASE, config)
        return notes_on_events(server, config)

    together = (
        "for events 16 actors, which fill rollouts together, count as one: latency profile 'fast' "
        "has 1"
    )
    assert said_of(ACTORS) == said_of(THROTTLE, "actor-0") == [together]
    (slower,) = said_of(THROTTLE, "learner")
    assert slower.startswith("events that slow the learner's core change nothing")
    assert not said_of(THROTTLE)  # the actors' cores slow


def test_profiles_of_one_game_read_and_hash_as_they_always_did(tmp_path: Path) -> None:
    assert not {"games", "observation"} & paper_profile().to_json().keys()
    save_profile(MIXED, tmp_path / "mixed.json")
    read = load_profile(str(tmp_path / "mixed.json"))
    assert read == MIXED
    assert read.hash == MIXED.hash != BASE.hash


def test_the_virtual_clock_charges_the_game_s_own_step() -> None:
    config = replace(load_preset("CartPole-v1"), seconds=0.04)
    config = config.with_runtime(
        runtime="serial", clock="virtual", interval_seconds=0.02, num_envs=4
    ).with_learner(unroll=8)
    slow = replace(CARTPOLE, env_step_us=1000.0)
    found = {}
    for env_us, profile in ((1000.0, slow), (7.0, CARTPOLE)):
        held = replace(BASE, num_actors=1, games=(profile,))
        summary = run_training(config, FixedStrategy(IDENTITY), profile=held).summary
        found[env_us] = summary["phases"]["env"] / summary["env_steps"] * 1e6
    assert found[1000.0] == pytest.approx(1000.0, rel=0.1)
    assert found[7.0] == pytest.approx(7.0, rel=0.3)


def test_advice_and_the_control_environment_take_any_game() -> None:
    config = load_preset("CartPole-v1")
    own = advise(MIXED, config).fp32.env_steps_per_second
    assert own > advise(BASE, config).fp32.env_steps_per_second
    instance = make_instance("CartPole-v1", MIXED, 2_000, seed=3, reference_return=100.0)
    env = CompressionControlEnv([instance])
    env.reset(seed=0)
    _, _, _, _, info = env.step(env.action_space.sample())
    assert info["learner_return"] > 5.0  # J is measured although the game's defaults do not
    env.close()


def test_a_game_is_measured_beside_what_a_profile_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own network and learner, the smallest of them so that it takes seconds."""
    few = [IDENTITY, CompressionSpec(bits=8)]
    monkeypatch.setattr(measure, "standard_specs", lambda _: few)
    config = replace(load_preset("CartPole-v1"), network="net3").with_runtime(num_envs=8)
    with pytest.raises(UserError, match="not measured on this machine"):
        measure_game(config, BASE, "mine", repeats=1)
    stale = replace(CARTPOLE, network="net3", small_learner_us={})
    base = replace(BASE, fingerprint=fingerprint(), games=(CARTPOLE, stale))
    both = measure_game(config, base, "mine", repeats=1)
    assert replace(both, games=()) == replace(base, games=())
    kept, measured = both.games
    assert kept == CARTPOLE
    assert measured != stale
    assert (measured.game, measured.network, measured.observation) == ("CartPole-v1", "net3", (4,))
    assert [row.spec for row in measured.specs] == few
    assert measured.small_learner_us == {}


@pytest.mark.slow
def test_only_what_is_named_is_measured_beside_no_compression() -> None:
    int8 = CompressionSpec(bits=8)
    config = replace(load_preset("CartPole-v1"), network="net2").with_runtime(num_envs=8)
    measured = measure_game(config, None, "mine", specs=[int8], repeats=1)
    assert [row.spec for row in measured.specs] == [IDENTITY, int8]
    with pytest.raises(UserError, match="not smaller"):
        measure_game(config, None, "mine", specs=[CompressionSpec(student="net2")])


@pytest.mark.slow
def test_students_of_a_network_of_one_s_own_have_times(monkeypatch: pytest.MonkeyPatch) -> None:
    few = [IDENTITY, CompressionSpec(bits=8), CompressionSpec(student="net3", bits=8)]
    monkeypatch.setattr(measure, "standard_specs", lambda _: few)
    own = "tests.fixtures.own_networks:OwnMLP"
    config = replace(load_preset("CartPole-v1"), network=own).with_runtime(num_envs=8)
    measured = measure_game(config, None, "mine", repeats=1)
    assert [row.spec for row in measured.specs] == few
    assert measured.network == own


@pytest.mark.parametrize(
    ("network", "students"),
    [
        ("net2", ["original", "net3"]),
        ("impala-small", ["original", "net1", "net2", "net3", "impala-tiny"]),
    ],
)
def test_students_of_the_network_s_own_form_have_times_too(
    network: str, students: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And those of the paper's form, where the network is of another."""
    given: list[CompressionSpec] = []

    def measured(*_: object, specs: list[CompressionSpec], **__: object) -> LatencyProfile:
        given.extend(specs)
        return BASE

    monkeypatch.setattr(measure, "measure_profile", measured)
    measure_game(replace(load_preset("pong"), network=network), None, "mine")
    assert list(dict.fromkeys(spec.student for spec in given)) == students


def test_times_that_are_lost_are_named_with_their_game() -> None:
    int8 = next(row for row in BASE.specs if row.spec == CompressionSpec(bits=8))
    few = replace(CARTPOLE, specs=(int8,))
    both = replace(BASE, games=(CARTPOLE,))
    assert no_longer_timed(None, both) == []
    assert no_longer_timed(both, both) == []
    lost = no_longer_timed(both, replace(both, games=(few,)))  # what BASE has of them is no times
    assert len(lost) == len(CARTPOLE.specs) - 1
    assert "CartPole-v1: original fp32" in lost
    assert len(no_longer_timed(both, CARTPOLE)) == len(BASE.specs)
