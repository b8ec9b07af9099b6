"""Who decides: monitors, and the strategy that acts on what they see (Table 3)."""

from __future__ import annotations

from dataclasses import replace

from torch import nn

from accerl.compress.chain import CompressedPolicy, CompressorChain
from accerl.errors import UserError
from accerl.monitor.features import Features
from accerl.monitor.strategies import FixedStrategy, KLThresholdStrategy, RewardGapStrategy
from accerl.monitor.strategy import Strategy as Rule
from accerl.monitor.strategy import needs_of, specs_of
from accerl.spec import IDENTITY, CompressionSpec, Decision


class PairMonitor:
    """Watches a policy and what a chain makes of it."""

    def __init__(self, policy: nn.Module, compressed: CompressedPolicy, thre: float) -> None:
        self.policy = policy
        self.compressed = compressed
        self.thre = thre

    def rule(self, aggressive: CompressionSpec, conservative: CompressionSpec) -> Rule:
        """Return the strategy that acts on what is watched."""
        raise NotImplementedError


class KLMonitor(PairMonitor):
    """Watches the largest KL between the original and the compressed policy (eq. 5, Fig. 6).

    Args:
        policy: the original.
        compressed: ``chain.policy``.
        thre: the largest KL that is put up with, in nats.
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
        thre: the largest gap that is put up with, in points of the game.
    """

    def __init__(self, policy: nn.Module, compressed: CompressedPolicy, thre: float = 10.0) -> None:
        super().__init__(policy, compressed, thre)

    def rule(self, aggressive: CompressionSpec, conservative: CompressionSpec) -> Rule:
        """Return the strategy that acts on what is watched."""
        return RewardGapStrategy(aggressive=aggressive, conservative=conservative, gap=self.thre)


class Strategy:
    """Compresses as the chain says until the monitor objects, and more mildly from then on.

    Args:
        chain: how hard to compress.
        monitor: what objects.
        conservative: what then acts; None: `milder` than the chain.

    Raises:
        UserError: the monitor watches another chain.
    """

    def __init__(
        self,
        chain: CompressorChain,
        monitor: PairMonitor,
        conservative: CompressionSpec | None = None,
    ) -> None:
        if monitor.compressed.chain is not chain:
            raise UserError("Strategy: the monitor watches another chain; give both the same")
        self.rule = monitor.rule(chain.spec, conservative or milder(chain.spec))
        self.started = False
        chain.policy.strategy = self

    def start(self) -> None:
        """Decide from the run's next interval on."""
        self.started = True


def milder(spec: CompressionSpec) -> CompressionSpec:
    """Return the paper's step back from a spec: 8 to 16 bits (Fig. 6), or sparsity to 0.2 (Fig. 7).

    Where neither is left, nothing is compressed any more.
    """
    if spec.bits == 8:
        return replace(spec, bits=16)
    return replace(spec, sparsity=0.2) if spec.sparsity > 0.2 else IDENTITY


class Acting:
    """What a run decides by: the chain's spec, and the strategy once it was started."""

    def __init__(self, compressed: CompressedPolicy) -> None:
        self._compressed = compressed
        self._fixed = FixedStrategy(compressed.chain.spec)
        self._rule: Rule = self._fixed if compressed.strategy is None else compressed.strategy.rule

    @property
    def name(self) -> str:
        """What the run's records call it."""
        return f"paper's listing: {type(self._rule).__name__}"

    @property
    def specs(self) -> tuple[CompressionSpec, ...]:
        """Every spec that it may act with."""
        return tuple(dict.fromkeys((self._fixed.spec, *specs_of(self._rule))))

    @property
    def needs(self) -> frozenset[str]:
        """What the strategy needs."""
        return needs_of(self._rule)

    def reset(self) -> None:
        """Forget the last run."""
        self._rule.reset()

    def decide(self, features: Features) -> Decision:
        """Return the chain's spec, or what the strategy decides if it was started."""
        strategy = self._compressed.strategy
        started = strategy is not None and strategy.started
        return (self._rule if started else self._fixed).decide(features)
