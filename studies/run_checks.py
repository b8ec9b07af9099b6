"""What is checked before a run is begun, and said of what nobody has measured."""

from __future__ import annotations

from collections.abc import Sequence

from accerl.compress.graphs.policy_graph import check_own_student
from accerl.config import RunConfig
from accerl.envs import check_installed, make_envs
from accerl.families import describe_game
from accerl.monitor.strategy import Strategy, check_students, check_times, specs_of
from accerl.networks.make import make_network
from accerl.own_code import own_errors
from accerl.presets import PRESETS
from accerl.runtime.latency.games import note_on_times, notes_on_events, times_of_run
from accerl.runtime.latency.profile import LatencyProfile
from accerl.runtime.ray.cluster import check_reachable
from accerl.runtime.wiring import Wiring
from accerl.spec import STUDENTS, CompressionSpec, is_import_path
from accerl.training.run import check_startable
from accerl.training.run_folder import starting_learner
from studies.progress import say


def say_what_is_assumed(config: RunConfig, profile: LatencyProfile | None) -> None:
    """Print what is taken of a game that has no preset, and of times that nobody has measured.

    Args:
        config: of the run.
        profile: that charges its virtual clock; None: the clock is real.
    """
    check_installed(config.game)
    if config.preset not in PRESETS:
        say(describe_game(config))
    if profile is not None:
        for note in (note_on_times(profile, config), *notes_on_events(profile, config)):
            if note is not None:
                say(note)


def check_run(
    config: RunConfig,
    strategy: Strategy,
    profile: LatencyProfile | None,
    *,
    begins: bool,
    times: LatencyProfile | None = None,
) -> None:
    """Refuse, before anything is written, what the run would refuse when it comes to it.

    Args:
        config: of the run.
        strategy: that decides; afterwards it knows the run.
        profile: that charges its virtual clock; None: the clock is real.
        begins: whether it starts, as opposed to going on from a checkpoint.
        times: what the strategy knew of the machine when it began; None: what is known now.

    Raises:
        UserError: with what to do instead.
    """
    check_installed(config.game)
    check_startable(config, strategy, times=profile or times)
    decided = config.adapted()
    if config.runtime.runtime == "ray":
        check_reachable(config.ray.address)
    Wiring.of(decided.runtime, profile).process_names(config.conditions)
    if config.start and begins:
        starting_learner(config)
    with own_errors("strategy", strategy):
        # What chooses from that which the run can act with says so only now that it knows the run.
        specs = specs_of(strategy)
        check_students(strategy, config)
    _check_networks(config, specs)
    if profile is not None:
        check_times(strategy, times_of_run(profile, config), config)


def _check_networks(config: RunConfig, specs: Sequence[CompressionSpec]) -> None:
    """Refuse networks that the game does not fit; the paper's fit any."""
    named = {config.network, *(spec.student for spec in specs)}.difference(STUDENTS)
    if named:
        envs = make_envs(config.game, 1, config.env)
        inputs = config.inputs(envs.observation)
        for name in sorted(named):
            make_network(name, inputs, envs.num_actions)
        for spec in specs:
            if is_import_path(spec.student):
                check_own_student(spec, inputs, envs.num_actions)
        envs.close()
