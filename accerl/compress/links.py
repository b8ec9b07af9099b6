"""The links that a CompressorChain is made of: one for each compressor of the paper."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Protocol

import numpy as np
import torch
from torch import nn

from accerl.compress.artifact import Artifact
from accerl.compress.distillation.trainer import DistillMethod, FixedStates, StudentTrainer
from accerl.compress.graphs.policy_graph import policy_fp32, policy_int8
from accerl.compress.graphs.torch_artifact import pack_torch
from accerl.compress.graphs.torch_engine import TorchEngine
from accerl.compress.graphs.torch_script import pack_script
from accerl.compress.lowrank import Factoriser, LowRankMethod, check_rank
from accerl.compress.pruning.criteria import PruneMethod
from accerl.compress.pruning.prune import check_sparsity, prune
from accerl.compress.quantization.graph_ranges import measure
from accerl.compress.quantization.quantize import CALIBRATION_STATES, QuantiseMethod, spread
from accerl.compress.quantization.ranges import ActivationRanges, RangeTracker
from accerl.compress.quantization.rounding import (
    check_simulated_bits,
    round_weights,
    tune_for_integers,
)
from accerl.errors import (
    CannotCompressError,
    UserError,
    last_line,
    require,
    require_choice,
    require_fields,
)
from accerl.networks.adopt import as_policy, require_chain, require_states_of
from accerl.networks.graph_policy import GraphPolicy, Policy, own_copy
from accerl.networks.make import student_name
from accerl.networks.policy_net import PolicyNet
from accerl.spec import CompressionSpec, StudentKey

PRECISIONS = {"INT8": 8, "BF16": 16}
REFRESHING_STATES = 8
"""measured at a publication where ranges are remembered from earlier ones"""
GRAPH_REFRESHING_STATES = 4
"""the same of a network that is no chain: IMPALA's takes 2.5 ms for each in float32, and the KL
with 2 to 64 of them is the same"""


class Stage(IntEnum):
    """When a link may run; a chain goes through the stages once, in this order."""

    STUDENT = 0
    PRUNE = 1
    TUNE = 2
    FACTORISE = 3
    QUANTISE = 4
    EXPORT = 5


@dataclass(frozen=True, kw_only=True)
class CompressionState:
    """What one link hands to the next."""

    policy: Policy
    """the learner's policy, the teacher of every distillation"""
    net: Policy
    """the network compressed so far"""
    observations: np.ndarray
    """recorded states [N, *shape] for calibration and distillation"""
    version: int = 0
    """learner updates of `policy`"""
    student: str = "original"
    sparsity: float = 0.0
    rank: float = 1.0
    bits: int = 32
    ranges: ActivationRanges | None = None
    """activation ranges, once a Quantizer has measured them"""
    measured: np.ndarray | None = None
    """states on which logits and values must keep their mean when they are rounded"""
    method: QuantiseMethod = QuantiseMethod()
    """how it wants integers to be chosen"""
    unrounded: PolicyNet | None = None
    """the network before it was trained to be rounded, if it was"""
    artifact: Artifact | None = None
    """the result, once exported"""

    @property
    def result(self) -> Artifact:
        """The artifact of a chain that has run to its end."""
        if self.artifact is None:
            raise ValueError("an export link must set the artifact of its state")
        return self.artifact

    @property
    def exact_net(self) -> Policy:
        """The float32 network that the artifact has to act like."""
        return self.net if self.unrounded is None else self.unrounded

    def spec(self, graph: str) -> CompressionSpec:
        """Return the spec that was built, exported to `graph`."""
        return CompressionSpec(
            student=self.student,
            sparsity=self.sparsity,
            rank=self.rank,
            bits=self.bits,
            graph=graph,
        )


class Link(Protocol):
    """One compression method; write your own with these two members."""

    @property
    def stage(self) -> Stage:
        """When it runs; a plain class attribute will do."""
        ...

    def apply(self, state: CompressionState) -> CompressionState:
        """Return the state after this method."""
        ...


@dataclass(frozen=True)
class Pruning:
    """Removes whole channels and neurons."""

    policy: nn.Module | None
    """the network a chain starts from if `compress` is given none"""
    sparsity: float
    """fraction removed, in [0, 1)"""
    method: PruneMethod = PruneMethod()
    """how what goes is chosen"""
    stage = Stage.PRUNE

    def __post_init__(self) -> None:
        check_sparsity(self.sparsity)

    def apply(self, state: CompressionState) -> CompressionState:
        """Return the state with a narrower network."""
        net = prune(state.net, self.sparsity, self.method, obs=state.observations)
        return replace(state, net=net, sparsity=self.sparsity)


@dataclass(frozen=True)
class Distillation:
    """Swaps in a student that is distilled elsewhere, or tunes the pruned network (eq. 1)."""

    policy: nn.Module | None = None
    """the network a chain starts from if `compress` is given none"""
    student: nn.Module | None = None
    """the student to swap in, of the policy family or your own; None: the network at hand learns
    from the policy, here and now"""
    updates: int = 20
    """gradient steps over all recorded states, if there is no `student`"""
    learning_rate: float = 1e-3
    entropy_cost: float = 1e-3
    key: StudentKey | None = None
    """what to call `student`; None: by its layers or its class"""

    def __post_init__(self) -> None:
        rule = "must be a whole number that is not negative"
        require_fields(self, "distil", "updates", rule, lambda n: type(n) is int and n >= 0)
        require_fields(self, "distil", "learning_rate", "must be positive", lambda r: r > 0.0)
        if not isinstance(self.student, nn.Module | None):
            wanted = "must be a network, such as policy_for(game, 'net3')"
            raise UserError(f"distil: student {wanted}, got {self.student!r}")

    @property
    def stage(self) -> Stage:
        """A student comes first of all; tuning comes after pruning."""
        return Stage.TUNE if self.student is None else Stage.STUDENT

    def apply(self, state: CompressionState) -> CompressionState:
        """Return the state with the student, or with a tuned copy of its network."""
        if self.student is not None:
            # A graph is read in evaluation mode and with hooks: the user's module stays as it is.
            own = self.student if isinstance(self.student, Policy) else own_copy(self.student)
            net = as_policy(own, state.net.observation)
            require_states_of(net, state.net.observation)
            same = net.num_actions == state.net.num_actions
            require(same, "distil: student", "must have the policy's actions", net.num_actions)
            key = self.key or StudentKey(student_name(self.student), state.sparsity)
            return replace(state, net=net, student=key.student, sparsity=key.sparsity)
        net = copy.deepcopy(state.net)  # the learner's own policy must not move
        is_frozen = not any(weight.requires_grad for weight in net.parameters())
        trainer = StudentTrainer(
            net.requires_grad_() if is_frozen else net,
            DistillMethod(
                batch=len(state.observations),
                learning_rate=self.learning_rate,
                entropy_cost=self.entropy_cost,
                value_cost=1.0,
            ),
            torch.Generator(),
            str(state.net.device),
        )
        trainer.update(FixedStates(state.observations), state.policy, self.updates)
        return replace(state, net=trainer.net)


@dataclass(frozen=True)
class LowRank:
    """Factorises the large linear layers."""

    rank: float
    """fraction of singular values kept, in (0, 1]"""
    method: LowRankMethod = LowRankMethod()
    """what is factorised, and whether fewer may do"""
    factoriser: Factoriser | None = None
    """what remembers the factors of earlier publications; None: there were none"""
    stage = Stage.FACTORISE

    def __post_init__(self) -> None:
        check_rank(self.rank)

    def apply(self, state: CompressionState) -> CompressionState:
        """Return the state with thin layers."""
        factoriser = self.factoriser or Factoriser(self.rank, self.method)
        net = factoriser.factorise(state.net)
        return replace(state, net=net, rank=self.rank)


@dataclass(frozen=True)
class Quantizer:
    """Lowers the precision: INT8 (static, calibrated here) or BF16."""

    precision: str
    method: QuantiseMethod = QuantiseMethod()
    """how integers are chosen"""
    tracker: RangeTracker | None = None
    """what remembers the ranges of earlier publications; None: all recorded states are measured"""
    stage = Stage.QUANTISE

    def __post_init__(self) -> None:
        require_choice("quantise: precision", self.precision, PRECISIONS)

    @property
    def bits(self) -> int:
        """Bits per weight."""
        return PRECISIONS[self.precision]

    def apply(self, state: CompressionState) -> CompressionState:
        """Return the state with its bits and what was measured, if they need it, on its states."""
        if self.bits == 16:
            many = CALIBRATION_STATES if self.tracker is None else REFRESHING_STATES
            return replace(state, bits=16, measured=spread(state.observations, many))
        if self.method.weights_only:  # what flows between layers stays float32
            return replace(state, bits=8, method=self.method)
        net = state.net
        tracker = self.tracker or RangeTracker(self.method.ranges)
        chain = isinstance(net, PolicyNet)
        refreshing = REFRESHING_STATES if chain else GRAPH_REFRESHING_STATES
        # The first publication comes before the first rollout, and knows few states.
        known = tracker.seen_states >= CALIBRATION_STATES
        measured = spread(state.observations, refreshing if known else CALIBRATION_STATES)
        ranges = measure(tracker, net, measured)
        if known and tracker.seen_states == len(measured):  # of other layers than before
            tracker.forget()
            measured = spread(state.observations, CALIBRATION_STATES)
            ranges = measure(tracker, net, measured)
        tracker.measured_at = state.version
        state = replace(state, bits=8, ranges=ranges, measured=measured, method=self.method)
        if not self.method.tuning_updates:
            return state
        try:
            net = require_chain(net)
        except UserError as error:
            raise CannotCompressError(f"quantise_tuning_updates: {error}") from error
        tuned = tune_for_integers(
            net,
            ranges,
            spread(state.observations),
            levels=self.method.levels,
            updates=self.method.tuning_updates,
            learning_rate=self.method.tuning_learning_rate,
        )
        if tuned is net:
            return state
        # It was trained to need no shift.
        return replace(state, net=tuned, unrounded=net, measured=None)


@dataclass(frozen=True)
class SimulatedQuantizer:
    """Rounds weights to 2 to 16 bits by QuaRL's affine scheme; they act in float32.

    It shows how much precision a policy needs: no kernel multiplies such numbers here, so
    nothing becomes faster, and the artifact's spec says 32 bits.
    """

    bits: int
    stage = Stage.QUANTISE

    def __post_init__(self) -> None:
        check_simulated_bits(self.bits)

    def apply(self, state: CompressionState) -> CompressionState:
        """Return the state with rounded weights."""
        return replace(state, net=round_weights(state.net, self.bits))


@dataclass(frozen=True)
class ONNX:
    """Exports to ONNX Runtime; 16 bits stay in torch, which alone has kernels for them."""

    batch: int | None = None
    """states per call, if it is always the same number; None: any"""
    stage = Stage.EXPORT

    def __post_init__(self) -> None:
        is_batch = self.batch is None or (type(self.batch) is int and self.batch >= 1)
        rule = "must be a whole number, at least 1"
        require(is_batch, "export: a fixed batch", rule, self.batch)

    def apply(self, state: CompressionState) -> CompressionState:
        """Return the state with its artifact.

        Raises:
            UserError: a link set 8 bits and left no activation ranges, or the graph cannot be made.
        """
        if state.bits == 16:
            return _torch_export(state, "onnx")
        spec = state.spec("onnx")  # refuses bits that there are no kernels for
        if state.bits == 8 and state.method.weights_only:
            payload = policy_fp32(state.net, weights_only_int8=True, batch=self.batch)
        elif state.bits == 32:
            payload = policy_fp32(state.net, batch=self.batch)
        elif state.ranges is None:
            raise UserError(
                "export: 8 bits need activation ranges, which Quantizer('INT8') measures; a link "
                "that rounds in float32 leaves bits at 32, as SimulatedQuantizer does"
            )
        else:
            payload = policy_int8(
                state.net,
                state.ranges,
                states=state.measured,
                levels=state.method.levels,
                batch=self.batch,
            )
        artifact = Artifact(spec, state.version, "onnx", payload)
        return replace(state, artifact=artifact)


@dataclass(frozen=True)
class TorchScript:
    """Exports to a network that each engine traces and freezes."""

    stage = Stage.EXPORT

    def apply(self, state: CompressionState) -> CompressionState:
        """Return the state with its artifact."""
        return _torch_export(state, "torchscript")


@dataclass(frozen=True)
class Eager:
    """Exports to plain torch: the paper's way of acting without any compression."""

    stage = Stage.EXPORT

    def apply(self, state: CompressionState) -> CompressionState:
        """Return the state with its artifact."""
        return _torch_export(state, "eager")


def _torch_export(state: CompressionState, graph: str) -> CompressionState:
    net = state.net
    kind = "script" if isinstance(net, GraphPolicy) else "torch"
    artifact = Artifact(state.spec(graph), state.version, kind, _pack(net, state.bits))
    if state.bits == 16 and state.measured is not None:
        # As in INT8: rounding errors add up to a bias that all states share.
        states = torch.from_numpy(np.ascontiguousarray(state.measured))
        with torch.no_grad():
            exact = net(states.to(net.device))
        shift = _means(*(output.cpu().numpy() for output in exact))
        try:
            shift -= _means(*TorchEngine(artifact).infer(state.measured))
        except Exception as error:  # whatever torch throws: it may not end a run
            name = type(net.module if isinstance(net, GraphPolicy) else net).__name__
            raise CannotCompressError(
                f"{name} does not run in 16 bits: {last_line(error)}"
            ) from error
        artifact = replace(artifact, payload=_pack(net, state.bits, shift))
    return replace(state, artifact=artifact)


def _pack(net: Policy, bits: int, head_shift: np.ndarray | None = None) -> bytes:
    if isinstance(net, GraphPolicy):
        return pack_script(net, bits=bits, head_shift=head_shift)
    return pack_torch(net, bits=bits, head_shift=head_shift)


def _means(logits: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return mean logits and, last, the mean value [A + 1]."""
    return np.append(logits.mean(0), values.mean())
