"""A game whose optimum is known: how skill grows with samples, and what compression does to both.

The learner has a skill x in [0, 1] and gains, per environment step acted with a compressed policy,

    dx/dn = k x^a (1 - x)^b max(0, 1 - c D(spec, x)),    D(spec, x) = severity(spec) x^p.

A weak policy is easy to imitate and a strong one is not: compression is harmless early and
harmful late, so the best schedule has stages, like the paper's three-stage strategy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from accerl.errors import UserError
from accerl.spec import BITS, STUDENTS, CompressionSpec, Decision
from controller.objective import GameReference


@dataclass(frozen=True, kw_only=True)
class AnalyticConfig:
    """One analytic game on one machine; the defaults follow the paper's Atari timings (Fig. 1).

    Raises:
        UserError: a number lies outside its range.
    """

    gain_per_step: float = 6e-5
    """k: skill per env step at full efficiency"""
    rise: float = 0.8
    """a: how much early learning is held back by having no skill yet"""
    saturation: float = 1.0
    """b: how much late learning slows down"""
    mismatch_cost: float = 4.0
    """c: a sample is worth nothing from mismatch D = 1/c on"""
    mismatch_growth: float = 3.0
    """p: how fast the mismatch grows with skill"""
    initial_skill: float = 0.02
    """x before training"""
    env_ms: float = 3.0
    """milliseconds of one environment step"""
    infer_ms: tuple[float, ...] = (6.0, 2.5, 1.9, 1.2)
    """milliseconds of one fp32 inference per student, largest first"""
    overhead_ms: float = 0.3
    """part of an inference that compression cannot remove"""
    bits_speedup: tuple[float, ...] = (1.0, 1.4, 2.0)
    """how much faster inference is with 32, 16 and 8 bits"""
    num_actors: int = 10
    learner_steps_per_second: float = 6400.0
    """env steps per second beyond which the learner is the bottleneck"""
    distill_cost: float = 0.0
    """learner time that following with a student or a pruned network takes, as a share of learning;
    0: distillers have cores of their own"""
    switch_seconds: float = 0.25
    """clock that one change of decision costs"""
    return_noise: float = 0.01
    """standard deviation of the measured J, as a fraction of the reference range"""
    kl_scale_nats: float = 2.0
    """KL at mismatch D = 1"""
    num_actions: int = 6
    random_return: float = -21.0
    reference_return: float = 21.0

    def __post_init__(self) -> None:
        for name in _POSITIVE:
            if not getattr(self, name) > 0.0:
                raise UserError(f"analytic run: {name} must be positive")
        for name in _NOT_NEGATIVE:
            if not getattr(self, name) >= 0.0:
                raise UserError(f"analytic run: {name} must not be negative")
        if not 0.0 < self.initial_skill < 1.0 or self.num_actions < 2:
            raise UserError("analytic run: initial_skill lies in (0, 1), num_actions is 2 or more")
        if len(self.infer_ms) != len(STUDENTS) or len(self.bits_speedup) != len(BITS):
            raise UserError(f"analytic run: infer_ms is per {STUDENTS}, bits_speedup per {BITS}")

    @property
    def reference(self) -> GameReference:
        """The scale of this game's returns: skill 0 is random, skill 1 is the reference."""
        return GameReference(self.random_return, self.reference_return)


_POSITIVE = ("gain_per_step", "saturation", "env_ms", "num_actors", "kl_scale_nats")
_POSITIVE += ("initial_skill", "learner_steps_per_second")
_NOT_NEGATIVE = ("rise", "mismatch_cost", "mismatch_growth")
_NOT_NEGATIVE += ("distill_cost", "switch_seconds", "return_noise")
STUDENT_SEVERITY = (0.0, 0.2, 0.3, 0.45)
BITS_SEVERITY = (0.0, 0.02, 0.15)


def severity(spec: CompressionSpec) -> float:
    """Return how hard `spec` compresses, in [0, 1), 0 for the identity."""
    kept = (1.0 - STUDENT_SEVERITY[STUDENTS.index(spec.student)]) * (1.0 - 0.5 * spec.sparsity)
    kept *= (1.0 - BITS_SEVERITY[BITS.index(spec.bits)]) * (0.6 + 0.4 * spec.rank)
    return 1.0 - kept


def infer_ms(config: AnalyticConfig, spec: CompressionSpec) -> float:
    """Return the milliseconds of one inference with `spec`."""
    full = config.infer_ms[STUDENTS.index(spec.student)] - config.overhead_ms
    faster = config.bits_speedup[BITS.index(spec.bits)]
    return config.overhead_ms + max(full, 0.0) * (1.0 - spec.sparsity) * spec.rank / faster


def speed(config: AnalyticConfig, decision: Decision) -> tuple[float, float]:
    """Return env steps per second of the actors alone, and after the learner's cap.

    Games of tier 0 are drawn at random and have no latency profile, so they cannot ask
    `accerl.runtime.latency.predict`: this is a closed form of their own few constants.
    """
    step_ms = config.env_ms + sum(share * infer_ms(config, spec) for spec, share in decision.mix)
    actors = config.num_actors * 1000.0 / step_ms
    distilled = sum(share for spec, share in decision.mix if spec.student_key is not None)
    learner = config.learner_steps_per_second / (1.0 + config.distill_cost * distilled)
    return actors, min(actors, learner)


def mismatch(config: AnalyticConfig, decision: Decision, skill: float) -> float:
    """Return D: how far actors that follow `decision` are from a learner of this skill."""
    hardness = sum(share * severity(spec) for spec, share in decision.mix)
    return hardness * skill**config.mismatch_growth


def learn(config: AnalyticConfig, decision: Decision, skill: float, seconds: float) -> float:
    """Return the skill after acting with `decision` for `seconds` (midpoint rule)."""
    _, steps_per_second = speed(config, decision)
    hardness = sum(share * severity(spec) for spec, share in decision.mix)
    gain = config.gain_per_step * steps_per_second
    loss = config.mismatch_cost * hardness

    def rate(x: float) -> float:
        efficiency = max(0.0, 1.0 - loss * x**config.mismatch_growth)
        return gain * x**config.rise * (1.0 - x) ** config.saturation * efficiency

    substeps = 8
    width = seconds / substeps
    for _ in range(substeps):
        middle = min(1.0, skill + 0.5 * width * rate(skill))
        skill = min(1.0, skill + width * rate(middle))
    return skill


def sample_config(rng: np.random.Generator) -> AnalyticConfig:
    """Return a random game on a random machine, every constant around its default."""

    def around(value: float, factor: float) -> float:
        return float(value * math.exp(rng.uniform(-math.log(factor), math.log(factor))))

    base = AnalyticConfig()
    scale = around(1.0, 1.4)
    low = float(rng.uniform(-50.0, 50.0))
    return AnalyticConfig(
        gain_per_step=around(base.gain_per_step, 1.4),
        rise=float(rng.uniform(0.7, 0.9)),
        saturation=float(rng.uniform(0.8, 1.2)),
        mismatch_cost=around(base.mismatch_cost, 1.5),
        mismatch_growth=float(rng.uniform(2.0, 4.0)),
        env_ms=around(base.env_ms, 1.5),
        infer_ms=tuple(scale * ms for ms in base.infer_ms),
        bits_speedup=(1.0, float(rng.uniform(1.2, 1.6)), float(rng.uniform(1.6, 2.6))),
        learner_steps_per_second=around(3500.0, 1.8),
        switch_seconds=around(base.switch_seconds, 2.0),
        return_noise=around(base.return_noise, 2.0),
        kl_scale_nats=around(base.kl_scale_nats, 2.0),
        num_actions=int(rng.integers(3, 19)),
        random_return=low,
        reference_return=low + around(100.0, 10.0),
    )
