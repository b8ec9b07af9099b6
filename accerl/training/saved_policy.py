"""The policy of a finished run: to act with, to save as ONNX, and to evaluate."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from accerl.acting.evaluate import engine_infer, play_episodes, policy_infer
from accerl.compress.artifact import Artifact
from accerl.compress.check import kl_nats
from accerl.compress.compressor import Compressor
from accerl.compress.distillation.sharing import Shown
from accerl.compress.distillation.student_pool import StudentPool
from accerl.compress.engine import make_engine
from accerl.compress.links import Link
from accerl.compress.policy import EnginePolicy
from accerl.config import RunConfig
from accerl.envs import make_envs
from accerl.envs.base import Envs
from accerl.errors import UserError
from accerl.networks.graph_policy import Policy
from accerl.networks.make import make_network
from accerl.networks.structure import load_saved
from accerl.own_code import described
from accerl.records import CONFIG, read_json
from accerl.runtime.machine.threads import own_threads
from accerl.runtime.parts import named_links
from accerl.seeds import Role, number, torch_generator
from accerl.spec import IDENTITY, CompressionSpec, Decision
from accerl.training.run_folder import read_config, saved_run


def load_policy(
    run: str | Path, spec: CompressionSpec = IDENTITY, *, links: Sequence[Link] = ()
) -> EnginePolicy:
    """Return the policy of a run directory's checkpoint, compressed as `spec` says.

    Args:
        run: its folder.
        spec: how hard to compress.
        links: compressors of the user's own, as the run had them in its `Parts`; those that its
            configuration names are found by that.

    Raises:
        UserError: there is no such run or checkpoint, its network cannot act with `spec`, the run
            has not distilled the student of `spec`, or it had other links.
    """
    path = Path(run)
    _check_links(path, links)
    restored = _restore(path, spec, links)
    return EnginePolicy(_built(restored, spec), restored.policy.observation)


def evaluate_checkpoint(
    path: Path, episodes: int, spec: CompressionSpec = IDENTITY, seed: int = 0
) -> dict[str, Any]:
    """Play `episodes` episodes with the policy of a run's checkpoint, compressed as `spec` says.

    The identity spec plays the learner's network itself, in torch. `cut_off` counts episodes that
    had not ended after `MAX_STEPS`: their scores so far stand. `kl_nats` is the mean KL of what
    plays from the learner on the states that were recorded last, None where there are none: a
    student that has rested since it last acted is far away.

    Raises:
        UserError: see `load_policy`.
    """
    if episodes < 1:
        raise UserError(f"episodes must be at least 1, got {episodes}")
    if spec != IDENTITY:
        _check_links(path, ())
    restored = _restore(path, spec)
    config, policy, states = restored.config, restored.policy, restored.compressor.states
    infer = policy_infer(policy)
    if spec != IDENTITY:
        infer = engine_infer(make_engine(_built(restored, spec)))
    away = None
    if len(states):
        away = float(kl_nats(policy_infer(policy)(states), infer(states)).mean())
    envs = make_envs(config.game, episodes, config.env)
    cut_off = np.zeros(episodes, np.bool_)
    dice = number(seed, Role.PLAYED_CHECKPOINT)
    with closing(envs), own_threads(config.runtime.learner_threads):
        scores = play_episodes(envs, infer, dice, cut_off=cut_off)
    return {
        "spec": spec.to_json(),
        "episodes": episodes,
        "mean_return": float(scores.mean()),
        "std_return": float(scores.std()),
        "returns": [float(score) for score in scores],
        "cut_off": int(cut_off.sum()),
        "kl_nats": away,
    }


def _check_links(path: Path, links: Sequence[Link]) -> None:
    """Refuse other links than those that a run compressed with."""
    read_config(path)
    held = read_json(path / CONFIG).get("own_parts", {}).get("links", [])
    given = [described(link) for link in links]
    if held != given:
        raise UserError(
            f"{path} compressed with {' and '.join(held) or 'no links of its own'}; give the same "
            f"to load_policy(run, spec, links=...), not {' and '.join(given) or 'none'}"
        )


def learned_policy(
    saved: Mapping[str, Any], config: RunConfig, envs: Envs, generator: torch.Generator
) -> Policy:
    """Return the learner's policy of a snapshot.

    Args:
        saved: by `saved_run`.
        config: of the run.
        envs: of its game.
        generator: makes the network, whose weights are then those that were saved.

    Raises:
        UserError: the network's code has changed since.
    """
    inputs = config.inputs(envs.observation)
    policy = make_network(config.network, inputs, envs.num_actions, generator)
    load_saved(policy, saved["learner"]["policy"])
    return policy


class _Restored(NamedTuple):
    """What a run's checkpoint holds of its policy."""

    config: RunConfig
    policy: Policy
    """the learner's"""
    updates: int
    """of that"""
    compressor: Compressor
    """with what it recorded and distilled"""


def _restore(path: Path, spec: CompressionSpec, links: Sequence[Link] = ()) -> _Restored:
    """Return the policy of a run's checkpoint, and what can compress it as `spec` says."""
    if not isinstance(spec, CompressionSpec):
        raise UserError(f"the spec must be a CompressionSpec, not {type(spec).__name__}")
    config = read_config(path)
    Decision.of(spec).check_students(config.network)
    state = saved_run(path)
    envs = make_envs(config.game, 1, config.env)
    envs.close()
    inputs, generator = config.inputs(envs.observation), torch_generator(config.seed, Role.LEARNER)
    policy = learned_policy(state, config, envs, generator)
    links = (*links, *named_links(config))
    as_it_is = replace(config.compression, distill_warmup_updates=0)
    compressor = Compressor(inputs, envs.num_actions, as_it_is, generator, links)
    compressor.load_state_dict(state["publishing"]["compressor"])
    # On the virtual clock the compressor takes over what distillers show when it next publishes.
    compressor.take_students(Shown.of_state(state["publishing"].get("shown", ())).students())
    _check_distilled(path, spec, compressor.pool)
    return _Restored(config, policy, state["learner"]["updates"], compressor)


def _built(restored: _Restored, spec: CompressionSpec) -> Artifact:
    """Return the policy compressed as `spec` says."""
    config, policy, updates, compressor = restored
    with own_threads(config.runtime.learner_threads):  # sums depend on how they are split
        return compressor.build(spec, policy, updates)


def _check_distilled(path: Path, spec: CompressionSpec, pool: StudentPool) -> None:
    """Refuse a network that would have to be distilled first: nobody has seen it act."""
    key = spec.student_key
    if key is not None and key not in pool:
        held = " and ".join(json.dumps(other._asdict()) for other in pool)
        raise UserError(
            f"spec: {path} has never distilled {json.dumps(key._asdict())}; leave out student and "
            f"sparsity{f', or give what it holds: {held}' if held else ''}"
        )
