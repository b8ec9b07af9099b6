"""`accerl bench messages`: what Ray takes of the learner's core, and of an actor's, per rollout."""

from __future__ import annotations

from collections.abc import Callable
from time import process_time
from typing import Any, NamedTuple

import numpy as np

from accerl.acting.rollout import Rollout, RolloutShape
from accerl.envs import make_envs
from accerl.presets import load_preset
from accerl.runtime.latency.fleet import MessageCosts
from accerl.runtime.ray.cluster import quiet, start_here
from accerl.runtime.ray.packing import pack, size_bytes, unpack
from accerl.runtime.ray.roles import Started
from accerl.seeds import Role, generator, number
from studies.benchmarks.repeats import median_and_spread, result_of

WAITED_FOR = 256
"""calls that are under way when waiting is measured"""
STORE_BYTES = 512 * 2**20
SEED = 0
"""of the game that is played"""


class Sender:
    """An actor that sends the same rollout again and again."""

    def start(self, rollout: dict[str, np.ndarray]) -> Started:
        """Take what is to be sent."""
        self._rollout = {name: array.copy() for name, array in rollout.items()}
        return Started.here()

    def send(self) -> dict[str, np.ndarray]:
        """Return the rollout."""
        return self._rollout

    def nothing(self) -> None:
        """Return nothing."""

    def busy(self) -> float:
        """Return processor seconds of this process."""
        return process_time()


class _Ends(NamedTuple):
    """Processor seconds of one message at both ends."""

    driver: float
    actor: float


def bench_messages(*, game: str = "pong", calls: int = 300, repeats: int = 3) -> dict[str, Any]:
    """Measure processor seconds, which others on the machine do not disturb, and bytes.

    Args:
        game: whose rollouts are sent, played at random.
        calls: messages of each kind and repeat.
        repeats: of everything.
    """
    config = load_preset(game)
    rollout, shape = played_rollout(game)
    observation = shape.observation
    packed = pack(rollout, observation, travels=True)
    with quiet():
        ray, own = start_here(2, STORE_BYTES)
        try:
            rows = [_measure(ray, rollout, packed, calls) for _ in range(repeats)]
        finally:
            if own:
                ray.shutdown()
    for row in rows:
        row["pack_seconds"] = _each(lambda: pack(rollout, observation, travels=True), 20)
        row["unpack_seconds"] = _each(lambda: unpack(packed, observation), 20)
    found = {name: median_and_spread([row[name] for row in rows]) for name in rows[0]}
    costs = MessageCosts(
        **{name: median for name, (median, _) in found.items()},
        rollout_bytes=float(size_bytes(packed)),
        whole_bytes=float(shape.size_bytes),
        samples=shape.samples,
    )
    return result_of(
        "messages",
        game=game,
        calls=calls,
        repeats=repeats,
        unroll=config.learner.unroll,
        costs=costs.to_json(),
        spread={name: spread for name, (_, spread) in found.items()},
    )


def played_rollout(game: str) -> tuple[Rollout, RolloutShape]:
    """Return a rollout of random play, some way into the episodes, and its sizes."""
    config = load_preset(game)
    envs = make_envs(config.game, config.runtime.num_envs, config.env)
    shape = RolloutShape.of(envs, config.learner.unroll)
    rollout = Rollout.allocate(shape)
    rng = generator(SEED, Role.EMULATOR)
    rollout.logits[:] = rng.normal(size=rollout.logits.shape)
    rollout.obs[-1] = envs.reset(number(SEED, Role.EPISODES))
    for _ in range(10):
        rollout.obs[0] = rollout.obs[-1]
        for t in range(shape.unroll):
            rollout.action[t] = rng.integers(envs.num_actions, size=shape.num_envs)
            step = envs.step(rollout.action[t])
            rollout.obs[t + 1], rollout.reward[t] = step.obs, step.reward
    envs.close()
    return rollout, shape


def _measure(
    ray: Any, rollout: Rollout, packed: dict[str, np.ndarray], calls: int
) -> dict[str, float]:
    kind = ray.remote(num_cpus=0)(Sender)
    whole, small = kind.remote(), kind.remote()
    ray.get([whole.start.remote(rollout.state_dict()), small.start.remote(packed)])
    nothing = _messages(ray, small, small.nothing, calls)
    sent, large = (_messages(ray, actor, actor.send, calls) for actor in (small, whole))
    many = [small.nothing.remote() for _ in range(WAITED_FOR)]
    ray.get(many)
    waiting = _each(lambda: ray.wait(many, num_returns=1, timeout=0.0), calls)
    alone = _each(lambda: ray.wait(many[:1], num_returns=1, timeout=0.0), calls)
    for actor in (whole, small):
        ray.kill(actor)
    return {
        "call_seconds": nothing.driver,
        "receive_seconds": sent.driver,
        "receive_whole_seconds": large.driver,
        "send_seconds": sent.actor,
        "send_whole_seconds": large.actor,
        "wait_seconds": max(waiting - alone, 0.0) / (WAITED_FOR - 1),
    }


def _messages(ray: Any, actor: Any, method: Any, calls: int) -> _Ends:
    """Return what a call and its answer take, two calls being under way as in a run."""
    ray.get(method.remote())
    actor_before, before = ray.get(actor.busy.remote()), process_time()
    pending = [method.remote(), method.remote()]
    for _ in range(calls):
        ready, pending = ray.wait(pending, num_returns=1)
        ray.get(ready[0])
        del ready
        pending.append(method.remote())
    driver = (process_time() - before) / calls
    ray.get(pending)
    return _Ends(driver, (ray.get(actor.busy.remote()) - actor_before) / calls)


def _each(do: Callable[[], object], many: int) -> float:
    """Return processor seconds of doing something once."""
    do()
    before = process_time()
    for _ in range(many):
        do()
    return (process_time() - before) / many
