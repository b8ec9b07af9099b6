"""BitsJob: one trained policy in one number of bits, as a job."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from accerl.acting.evaluate import Infer, fast_infer, play_episodes, policy_infer
from accerl.compress.check import kl_nats
from accerl.compress.engine import open_session
from accerl.compress.graphs.onnx_export import onnx_int8
from accerl.compress.quantization.quantize import QuantiseMethod, spread
from accerl.compress.quantization.ranges import Range, RangeTracker
from accerl.compress.quantization.rounding import (
    hidden_ranges,
    round_weights,
    rounded_outputs,
    simulated_outputs,
    tune_rounded,
)
from accerl.envs import make_envs
from accerl.networks.policy_net import PolicyNet
from accerl.seeds import Role, number
from accerl.training.run_folder import read_config
from studies.bits.plan import FLOAT32, BitsBudget
from studies.jobs.executor import Job
from studies.learning.job import LearningJob
from studies.learning.played import Played, play

WEIGHTS, BOTH, TUNED = "weights", "weights and activations", "tuned for it"
ENGINE = "INT8 engine"
RANDOM = "random play"
"""as often one action as another: what a policy scores above it, it has learned"""
HOW = (WEIGHTS, BOTH, TUNED)
CALIBRATED = 1_024
"""states that the ranges of activations are measured on"""


@dataclass(frozen=True, kw_only=True)
class BitsRows:
    """What copies of one policy do."""

    rows: Sequence[Mapping[str, Any]]
    """{how, bits, kl_nats, kl_max_nats, agreement, returns: [episodes]}"""
    engine: Mapping[str, float] | None = None
    """mean KL of the INT8 engine and of its arithmetic in float32, both without the shift of the
    heads' biases: from the policy, and between the two"""

    def to_json(self) -> dict[str, Any]:
        """Return all fields."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class BitsJob(Job[BitsRows]):
    """Rounds copies of a trained policy to so many bits, and has them play.

    With `FLOAT32` bits: the policy itself, the INT8 engine that runs act with, and random play.
    """

    kind: ClassVar[str] = "bits"
    trained: LearningJob
    """whose run directory, `trained.out`, holds the policy"""
    bits: int
    budget: BitsBudget

    def to_json(self) -> dict[str, Any]:
        """Return all fields, and what the training was."""
        return {
            "kind": self.kind,
            "game": self.trained.game,
            "seed": self.trained.seed,
            "bits": self.bits,
            "beside": RANDOM,
            "trained": self.trained.to_json(),
            "budget": {**asdict(self.budget), "env_steps": self.trained.env_steps},
        }

    def run(self) -> BitsRows:
        """Record states, round, tune, compare and play."""
        assert self.trained.out is not None
        budget, seed = self.budget, number(self.trained.seed, Role.PLAYED_CHECKPOINT)
        played = play(self.trained.out, budget.states, budget.compared, seed)
        logits = policy_infer(played.policy)(played.compared)

        def row(how: str, bits: int, infer: Infer) -> dict[str, Any]:
            found = infer(played.compared)
            kl = kl_nats(logits, found)
            return {
                "how": how,
                "bits": bits,
                "kl_nats": float(kl.mean()),
                "kl_max_nats": float(kl.max()),
                "agreement": float((logits.argmax(-1) == found.argmax(-1)).mean()),
                "returns": self._play(infer, seed),
            }

        if self.bits == FLOAT32:
            engine = _int8(played, shifted=True)
            rows = [
                row("float32", FLOAT32, fast_infer(played.policy)),
                row(ENGINE, 8, engine),
                row(RANDOM, 0, lambda obs: np.zeros((len(obs), logits.shape[-1]), np.float32)),
            ]
            return BitsRows(rows=rows, engine=_agreement(played, logits))
        copies = self._copies(played, seed)
        return BitsRows(rows=[row(how, self.bits, infer) for how, infer in copies.items()])

    def _copies(self, played: Played, seed: int) -> dict[str, Infer]:
        """Return how the copies act, by what is done to them."""
        bits, net, budget = self.bits, played.policy, self.budget
        generator = torch.Generator().manual_seed(seed)
        calibrated = torch.from_numpy(played.ring.draw(CALIBRATED, generator).obs)
        ranges = hidden_ranges(net, calibrated)

        def outputs(tuned: PolicyNet, states: Tensor) -> tuple[Tensor, Tensor]:
            return simulated_outputs(tuned, states, bits, ranges=ranges)

        tuned = tune_rounded(
            net,
            outputs,
            played.ring,
            batch=budget.batch,
            updates=budget.updates,
            learning_rate=budget.learning_rate,
            value_cost=0.0,
            generator=generator,
        )
        rounded = round_weights(net, bits)
        return {
            WEIGHTS: fast_infer(rounded),
            BOTH: _simulated(rounded, bits, ranges),
            TUNED: _simulated(round_weights(tuned, bits), bits, ranges),
        }

    def _play(self, infer: Infer, seed: int) -> list[float]:
        config = read_config(self.trained.out) if self.trained.out else self.trained.config()
        envs = make_envs(config.game, self.budget.episodes, config.env)
        try:
            # Mirrored dice would make pairs of episodes that are not independent.
            return play_episodes(envs, infer, seed, antithetic=False).tolist()
        finally:
            envs.close()

    @classmethod
    def read_result(cls, data: Mapping[str, Any]) -> BitsRows:
        """Read rows."""
        return BitsRows(**data)


def _simulated(net: PolicyNet, bits: int, ranges: Sequence[Range]) -> Infer:
    """Return how a network acts whose weights are rounded already."""

    @torch.no_grad()
    def infer(obs: np.ndarray) -> np.ndarray:
        states = torch.from_numpy(np.ascontiguousarray(obs))
        return simulated_outputs(net, states, bits, weights=False, ranges=ranges)[0].numpy()

    return infer


def _int8(played: Played, *, shifted: bool) -> Callable[[np.ndarray], np.ndarray]:
    """Return how the INT8 engine acts; `shifted`: as it is published."""
    states, ranges = _calibrated(played)
    payload = onnx_int8(played.policy, ranges, states=states if shifted else None)
    session = open_session(payload)
    return lambda obs: np.asarray(session.run(("logits",), {"obs": np.ascontiguousarray(obs)})[0])


def _calibrated(played: Played) -> tuple[np.ndarray, Any]:
    states = spread(played.ring.draw(CALIBRATED, torch.Generator().manual_seed(0)).obs)
    return states, RangeTracker().measure(played.policy, states)


def _agreement(played: Played, logits: np.ndarray) -> dict[str, float]:
    """Return how far the engine and its arithmetic in float32 are from the policy, and apart."""
    _, ranges = _calibrated(played)
    with torch.no_grad():
        simulated, _ = rounded_outputs(
            played.policy,
            ranges,
            torch.from_numpy(played.compared),
            levels=QuantiseMethod().levels,
        )
    engine = _int8(played, shifted=False)(played.compared)
    return {
        "engine_kl_nats": float(kl_nats(logits, engine).mean()),
        "simulated_kl_nats": float(kl_nats(logits, simulated.numpy()).mean()),
        "between_kl_nats": float(kl_nats(engine, simulated.numpy()).mean()),
    }
