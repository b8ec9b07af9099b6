"""CompressionConfig: how a run prunes, distils, factorises and quantises, whatever its spec."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

from accerl.compress.distillation.beginnings import BeginMethod
from accerl.compress.distillation.trainer import DistillMethod
from accerl.compress.lowrank import LowRankMethod
from accerl.compress.pruning.criteria import PruneMethod
from accerl.compress.quantization.quantize import QuantiseMethod
from accerl.compress.quantization.ranges import RangeMethod
from accerl.compress.quantization.rounding import check_simulated_bits
from accerl.errors import require_fields


@dataclass(frozen=True, kw_only=True)
class CompressionConfig:
    """How students are distilled and integer ranges calibrated.

    Raises:
        UserError: a value is out of range.
    """

    calibration_states: int = 256
    """newest states kept for calibration, a sample of each rollout"""
    distill_states: int = 4096
    """newest states kept for distillation, all of each rollout"""
    distill_learning_rate: float = DistillMethod.learning_rate
    """these ten, and `distill_rest_kl_nats`: see `DistillMethod`"""
    distill_decay_updates: int = DistillMethod.decay_updates
    distill_decay_to: float = DistillMethod.decay_to
    distill_entropy_cost: float = DistillMethod.entropy_cost
    distill_value_cost: float = DistillMethod.value_cost
    distill_temperature: float = DistillMethod.temperature
    distill_sync_every: int = DistillMethod.sync_every
    distill_recorded_updates: int = DistillMethod.recorded_updates
    distill_batch: int = DistillMethod.batch
    distill_precision: str = DistillMethod.precision
    distill_updates: int = 4
    """distillation updates of every student in use per learner update, at most: of all distillers
    together; 0: no limit, they go on without pause"""
    distill_rest_kl_nats: float = DistillMethod.rest_kl_nats
    """a student this far from the learner gets all updates that are allowed, a closer one fewer,
    see `effort`; 0: all, however close it is. It is no more than `admit_kl_nats`, and means nothing
    without a limit"""
    distill_warmup_updates: int = 20
    """distillation updates before a student acts for the first time, or acts again; none where
    students are admitted"""
    distill_start: str = BeginMethod.start
    """these five: see `BeginMethod`"""
    distill_start_states: int = BeginMethod.states
    distill_renew_every: int = BeginMethod.renew_every
    distill_renew_share: float = BeginMethod.renew_share
    distill_renew_margin: float = BeginMethod.renew_margin
    admit_kl_nats: float = 0.0
    """a student or pruned network acts once its KL on held-out states is at most
    this (`Admission`); 0: at once, whatever its KL"""
    prune_criterion: str = PruneMethod.criterion
    """these four: see `PruneMethod`"""
    prune_budget: str = PruneMethod.budget
    prune_round_to: int = PruneMethod.round_to
    prune_compensate: bool = PruneMethod.compensate
    rank_energy: float = LowRankMethod.energy
    """these two: see `LowRankMethod`"""
    rank_convolutions: bool = LowRankMethod.convolutions
    quantise_ranges: str = RangeMethod.name
    """these three: see `RangeMethod`"""
    quantise_percentile: float = RangeMethod.percentile
    quantise_memory: float = RangeMethod.memory
    quantise_reduce_range: bool | None = QuantiseMethod.reduce_range
    """these four: see `QuantiseMethod`"""
    quantise_weights_only: bool = QuantiseMethod.weights_only
    quantise_tuning_updates: int = QuantiseMethod.tuning_updates
    quantise_tuning_learning_rate: float = QuantiseMethod.tuning_learning_rate
    simulated_bits: int = 0
    """2 to 16: what is asked for in 32 bits has its weights rounded to these (QuaRL)"""

    def __post_init__(self) -> None:
        check = partial(require_fields, self, "compression")
        check(
            "admit_kl_nats distill_rest_kl_nats",
            "must be a number that is not negative",
            lambda kl: 0.0 <= kl < math.inf,
        )
        # They refuse what is not allowed.
        _ = self.prune_method, self.rank_method, self.quantise_method
        _ = self.distill_method, self.begin_method
        if self.simulated_bits:
            check_simulated_bits(self.simulated_bits)
        counts = "calibration_states distill_states"
        check(counts, "must be at least 1", lambda count: count >= 1)
        updates = "distill_updates distill_warmup_updates"
        check(updates, "must not be negative", lambda updates: updates >= 0)

    @property
    def distill_method(self) -> DistillMethod:
        """How students follow the learner."""
        return DistillMethod(
            batch=self.distill_batch,
            learning_rate=self.distill_learning_rate,
            decay_updates=self.distill_decay_updates,
            decay_to=self.distill_decay_to,
            entropy_cost=self.distill_entropy_cost,
            value_cost=self.distill_value_cost,
            temperature=self.distill_temperature,
            sync_every=self.distill_sync_every,
            recorded_updates=self.distill_recorded_updates,
            precision=self.distill_precision,
            rest_kl_nats=self.rest_kl_nats,
        )

    @property
    def rest_kl_nats(self) -> float:
        """The KL below which a student is distilled less.

        None rests that waits to be admitted, or where nothing limits distilling.
        """
        if not self.distill_updates:
            return 0.0
        return min(self.distill_rest_kl_nats, self.admit_kl_nats or math.inf)

    @property
    def begin_method(self) -> BeginMethod:
        """What students start from."""
        return BeginMethod(
            start=self.distill_start,
            states=self.distill_start_states,
            renew_every=self.distill_renew_every,
            renew_share=self.distill_renew_share,
            renew_margin=self.distill_renew_margin,
        )

    @property
    def prune_method(self) -> PruneMethod:
        """How units to prune are chosen."""
        return PruneMethod(
            criterion=self.prune_criterion,
            budget=self.prune_budget,
            round_to=self.prune_round_to,
            compensate=self.prune_compensate,
        )

    @property
    def needs_gradients(self) -> bool:
        """Whether those of the learner's last step say which units to prune."""
        return self.prune_criterion == "taylor"

    @property
    def rank_method(self) -> LowRankMethod:
        """What is factorised, and whether fewer ranks may do."""
        return LowRankMethod(energy=self.rank_energy, convolutions=self.rank_convolutions)

    @property
    def quantise_method(self) -> QuantiseMethod:
        """How integers are chosen."""
        ranges = RangeMethod(
            name=self.quantise_ranges,
            percentile=self.quantise_percentile,
            memory=self.quantise_memory,
        )
        return QuantiseMethod(
            ranges=ranges,
            reduce_range=self.quantise_reduce_range,
            weights_only=self.quantise_weights_only,
            tuning_updates=self.quantise_tuning_updates,
            tuning_learning_rate=self.quantise_tuning_learning_rate,
        )
