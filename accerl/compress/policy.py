"""A compressed policy in one object: states in, actions out; and any torch policy made one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import nn

from accerl.acting.actor import gumbel_max
from accerl.compress.artifact import Artifact
from accerl.compress.compressor import Compressor
from accerl.compress.config import CompressionConfig
from accerl.compress.engine import make_engine
from accerl.errors import UserError
from accerl.networks.adopt import as_policy, require_states_of
from accerl.networks.graph_policy import own_copy
from accerl.networks.observation import ObservationSpec
from accerl.networks.probe import PROBED_STATES, require_repeatable
from accerl.networks.sb3 import ActorCritic, is_sb3_policy
from accerl.spec import IDENTITY, CompressionSpec


class EnginePolicy:
    """States in, actions out: a policy in the engine that its spec asks for.

    ``policy(obs)`` returns the most probable action of every state; with a generator, actions are
    drawn as actors draw them. Actions are numbered from 0, as `accerl.envs.make_envs` takes them.
    Values are the learner's where its own network acts, and mean nothing with a student or a pruned
    network, whose values are not trained unless `distill_value_cost` says so.
    """

    def __init__(self, artifact: Artifact, observation: ObservationSpec) -> None:
        self._artifact = artifact
        self._engine = make_engine(artifact)
        self.observation = observation
        """of one state"""

    @property
    def spec(self) -> CompressionSpec:
        """How it is compressed."""
        return self._engine.spec

    def infer(self, obs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the logits [B, A] and values [B] of states [B, *shape], float32.

        Raises:
            UserError: they have another shape or type.
        """
        shape, dtype = self.observation.shape, self.observation.dtype
        if not isinstance(obs, np.ndarray):
            raise UserError(f"policy: states must be a NumPy array, not {type(obs).__name__}")
        if obs.shape[1:] != shape or obs.dtype != dtype:
            raise UserError(
                f"policy: states must be {dtype} [B, {', '.join(map(str, shape))}], got "
                f"{obs.dtype} {list(obs.shape)}"
            )
        return self._engine.infer(obs)

    def logits(self, obs: np.ndarray) -> np.ndarray:
        """Return the logits [B, A] of states [B, *shape], see `infer`."""
        return self.infer(obs)[0]

    def __call__(self, obs: np.ndarray, generator: np.random.Generator | None = None) -> np.ndarray:
        """Return an action for each of the states [B, *shape], int64 [B]."""
        logits = self.logits(obs)
        if generator is None:
            return logits.argmax(-1)
        if not isinstance(generator, np.random.Generator):
            raise UserError(
                "policy: dice are a numpy.random.default_rng(seed); without, the best acts"
            )
        actions = np.empty(len(logits), dtype=np.int64)
        gumbel_max(logits, generator.random(logits.shape, dtype=np.float32), out=actions)
        return actions

    def save(self, path: str | Path) -> None:
        """Write one ordinary ONNX file: ``obs`` in, ``logits`` and ``value`` out.

        Raises:
            UserError: the spec runs in torch, or the file cannot be written.
        """
        if self._artifact.kind != "onnx":
            raise UserError(
                f"policy: {self.spec.label} runs in torch; load it with graph 'onnx' and 32 or 8 "
                "bits to save it as ONNX"
            )
        import onnx  # slow to import, and needed here alone

        from accerl.compress.graphs.onnx_payload import standalone

        try:
            onnx.save(standalone(self._artifact.payload), str(path))
        except OSError as error:
            raise UserError(f"policy: cannot write {path}: {error.strerror or error}") from error


def compress_policy(
    module: nn.Module,
    spec: CompressionSpec = IDENTITY,
    observations: np.ndarray | None = None,
    *,
    distill_updates: int = 200,
    config: CompressionConfig = CompressionConfig(),
    seed: int = 0,
) -> EnginePolicy:
    """Compress a policy that was trained elsewhere: `accerl.compress(module, spec, observations)`.

    Args:
        module: takes states [B, *shape] and returns logits [B, A] and values, [B] or [B, 1]; or
            the `policy` of a Stable-Baselines3 PPO or A2C. It stays as it is.
        spec: how hard to compress.
        observations: recorded states [N, *shape], uint8 or float32, as the policy meets them:
            integers are calibrated on 64 of them, spread evenly, and students and pruned networks
            learn from all.
        distill_updates: gradient steps of a student or a pruned network.
        config: how to prune, distil, factorise and quantise.
        seed: of students' weights and of the distillation.

    Raises:
        UserError: there are no such states, or the policy cannot act or be compressed; it says why.
    """
    if not isinstance(spec, CompressionSpec):
        raise UserError(f"compress: the spec must be a CompressionSpec, not {type(spec).__name__}")
    if not isinstance(module, nn.Module):
        inner = (
            ": give its `policy`" if isinstance(getattr(module, "policy", None), nn.Module) else ""
        )
        raise UserError(f"compress: give a torch module, not {type(module).__name__}{inner}")
    if not isinstance(config, CompressionConfig):
        raise UserError(f"compress: give a CompressionConfig, not {type(config).__name__}")
    if not isinstance(observations, np.ndarray) or len(observations) == 0:
        raise UserError(
            "compress: give recorded states as `observations`, a NumPy array [N, *shape]"
        )
    if observations.dtype not in (np.uint8, np.float32):
        raise UserError(
            f"compress: observations must be uint8 or float32, not {observations.dtype}; "
            "use observations.astype(np.float32)"
        )
    if config.prune_criterion == "taylor" and spec.sparsity > 0.0:
        raise UserError(
            "compress: prune_criterion 'taylor' needs the gradients of a learner, which a module "
            "that is given here does not bring along; choose another"
        )
    if not np.isfinite(observations).all():
        raise UserError("compress: observations hold NaN or infinite values; leave such states out")
    kind = ObservationSpec.of_states(observations)
    given = ActorCritic(module) if is_sb3_policy(module) else module
    policy = as_policy(own_copy(given).cpu().eval(), kind)
    require_states_of(policy, kind)
    require_repeatable(policy, observations[:PROBED_STATES])
    config = replace(
        config,
        calibration_states=len(observations),
        distill_warmup_updates=distill_updates,
        distill_batch=min(config.distill_batch, len(observations)),
    )
    generator = torch.Generator().manual_seed(seed)
    compressor = Compressor(policy.observation, policy.num_actions, config, generator)
    compressor.observe(observations)
    return EnginePolicy(compressor.build(spec, policy, 0), kind)
