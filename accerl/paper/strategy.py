"""Who decides: monitors, and the strategy that acts on what they see (Table 3)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import nn

from accerl.compress.chain import CompressedPolicy, CompressorChain
from accerl.compress.links import Distillation, Pruning
from accerl.config import RunConfig
from accerl.errors import UserError
from accerl.monitor.features import Features
from accerl.monitor.strategies import (
    FixedStrategy,
    HandSetStrategy,
    KLThresholdStrategy,
    RewardGapStrategy,
)
from accerl.monitor.strategy import Strategy as Rule
from accerl.monitor.strategy import (
    bind_rule,
    decide,
    events_of,
    explanation_of,
    needs_of,
    overrule,
    reject,
    reset,
    specs_of,
)
from accerl.own_code import class_name
from accerl.paper.actors import require_compressed
from accerl.runtime.latency.profile import LatencyProfile
from accerl.spec import IDENTITY, CompressionSpec, Decision


class PairMonitor:
    """Watches a policy and what a chain makes of it; knows the paper's step back from a spec."""

    def __init__(self, policy: nn.Module, compressed: CompressedPolicy, thre: float) -> None:
        require_compressed(type(self).__name__, compressed)
        self.policy = policy
        self.compressed = compressed
        self.thre = thre

    def rule(self, aggressive: CompressionSpec, conservative: CompressionSpec) -> Rule:
        """Return the strategy that acts on what is watched."""
        raise NotImplementedError

    def milder(self, spec: CompressionSpec) -> CompressionSpec:
        """Return the step back: 8 to 16 bits (Fig. 6), else sparsity to 0.2, else the identity."""
        return _more_bits(spec) or _less_sparse(spec) or IDENTITY


class KLMonitor(PairMonitor):
    """Watches the largest KL of the compressed policy from the original one (eq. 5, Fig. 6).

    The original is the learner as it is now, and what acted was made of older weights: staleness
    is part of this KL.

    Args:
        policy: the original.
        compressed: ``chain.policy``.
        thre: the largest KL that is allowed, in nats.
    """

    def __init__(self, policy: nn.Module, compressed: CompressedPolicy, thre: float = 14.0) -> None:
        super().__init__(policy, compressed, thre)

    def rule(self, aggressive: CompressionSpec, conservative: CompressionSpec) -> Rule:
        """Return the strategy that acts on what is watched."""
        return KLThresholdStrategy(
            aggressive=aggressive, conservative=conservative, threshold_nats=self.thre
        )


class RewardMonitor(PairMonitor):
    """Watches how far the compressed policy scores below the original (Fig. 7).

    Args:
        policy: the original.
        compressed: ``chain.policy``.
        thre: the largest gap that is allowed, in points of the game.
    """

    def __init__(self, policy: nn.Module, compressed: CompressedPolicy, thre: float = 10.0) -> None:
        super().__init__(policy, compressed, thre)

    def rule(self, aggressive: CompressionSpec, conservative: CompressionSpec) -> Rule:
        """Return the strategy that acts on what is watched."""
        return RewardGapStrategy(aggressive=aggressive, conservative=conservative, gap=self.thre)

    def milder(self, spec: CompressionSpec) -> CompressionSpec:
        """Return the step back: sparsity to 0.2 (Fig. 7), else 8 to 16 bits, else the identity."""
        return _less_sparse(spec) or _more_bits(spec) or IDENTITY


class Strategy:
    """Compresses as the chain says until the monitor objects, and more mildly from then on.

    Args:
        chain: how hard to compress.
        monitor: what objects.
        conservative: what then acts; None: what the monitor calls `milder` than the chain.

    What the chain holds when this is made counts; of what is added later only actors know.

    Raises:
        UserError: the monitor watches another chain or another policy than the chain compresses,
            or the chain compresses nothing that could be relaxed.
    """

    def __init__(
        self,
        chain: CompressorChain,
        monitor: PairMonitor,
        conservative: CompressionSpec | None = None,
    ) -> None:
        if not isinstance(monitor, PairMonitor):
            raise UserError(
                f"Strategy: give it a KLMonitor or a RewardMonitor, got {type(monitor).__name__}"
            )
        if monitor.compressed.chain is not chain:
            raise UserError("Strategy: the monitor watches another chain; give both the same")
        given = [link.policy for link in chain.links if isinstance(link, Pruning | Distillation)]
        if any(policy is not None and policy is not monitor.policy for policy in given):
            raise UserError("Strategy: the monitor watches another policy than the chain's")
        spec, relaxed = chain.spec, conservative or monitor.milder(chain.spec)
        # Another graph of the same network is no relief.
        is_whole = replace(spec, graph=IDENTITY.graph) == IDENTITY
        if spec == relaxed or (conservative is None and is_whole):
            raise UserError(
                f"Strategy: the chain ({spec.label}) compresses nothing that could be relaxed; add "
                'Quantizer("INT8") or Pruning(policy, 0.5), or give it another conservative spec'
            )
        self.rule = monitor.rule(spec, relaxed)
        self.started = False
        chain.policy.strategy = self

    def start(self) -> None:
        """Decide from the run's next interval on."""
        self.started = True


def _more_bits(spec: CompressionSpec) -> CompressionSpec | None:
    return replace(spec, bits=16) if spec.bits == 8 else None


def _less_sparse(spec: CompressionSpec) -> CompressionSpec | None:
    return replace(spec, sparsity=0.2) if spec.sparsity > 0.2 else None


class Acting:
    """What a run decides by: the chain's spec, and the strategy from the moment it is started.

    Args:
        compressed: whose chain and strategy these are.
        measures: whether the run measures J.
    """

    name = "paper"

    def __init__(self, compressed: CompressedPolicy, *, measures: bool) -> None:
        self._compressed = compressed
        self._measures = measures
        self._fixed = FixedStrategy(compressed.chain.spec)

    @property
    def _rule(self) -> Rule:
        strategy = self._compressed.strategy
        return self._fixed if strategy is None else strategy.rule

    @property
    def specs(self) -> tuple[CompressionSpec, ...]:
        """Every spec that it may act with, as far as is known."""
        return tuple(dict.fromkeys((self._fixed.spec, *specs_of(self._rule))))

    @property
    def needs(self) -> frozenset[str]:
        """What the strategy needs."""
        return needs_of(self._rule)

    @property
    def explanation(self) -> dict[str, dict[str, float]]:
        """Why the strategy decided so, once it was started."""
        strategy = self._compressed.strategy
        return explanation_of(self._rule) if strategy is not None and strategy.started else {}

    @property
    def events(self) -> list[dict[str, Any]]:
        """What happened to the strategy in this run."""
        return events_of(self._rule)

    def bind(self, config: RunConfig, times: LatencyProfile | None) -> None:
        """Tell the strategy what is known of the run."""
        bind_rule(self._rule, config, times)

    def overruled(self, decision: Decision) -> None:
        """Let the strategy know what acts instead."""
        overrule(self._rule, decision)

    def rejected(self, spec: CompressionSpec) -> None:
        """Let the strategy know what cannot be built."""
        reject(self._rule, spec)

    def to_json(self) -> dict[str, Any]:
        """Return what a run records: the chain's spec, and the rule if there is one by now."""
        rule = self._rule
        known = isinstance(rule, HandSetStrategy)
        described = rule.to_json() if known else {"name": class_name(rule)}
        return {
            "name": self.name,
            "params": {"chain": self._fixed.spec.to_json(), "rule": described},
        }

    def reset(self) -> None:
        """Forget the last run."""
        reset(self._rule)

    def decide(self, features: Features) -> Decision:
        """Return the chain's spec, or what the strategy decides if it was started.

        Raises:
            UserError: the strategy came too late to have J measured for it.
        """
        strategy = self._compressed.strategy
        if strategy is None or not strategy.started:
            return self._fixed.decide(features)
        if "learner_return" in self.needs and not self._measures:
            raise UserError(
                "Strategy: it compares with the learner's return, which this run does not measure; "
                "make the strategy before learner.start()"
            )
        return decide(self._rule, features)
