"""CompressorChain: a chain of responsibility of small links (paper, Figure 4 and Table 1).

chain = CompressorChain()
chain.add(Pruning(policy, 0.5)).add(Distillation(policy)).add(Quantizer("INT8")).add(ONNX())
engine = make_engine(chain.compress(observations=states))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Protocol

import numpy as np
import torch

from accerl.compress.artifact import Artifact
from accerl.compress.criteria import PruneMethod
from accerl.compress.distill import Distiller
from accerl.compress.export import onnx_fp32, onnx_int8
from accerl.compress.lowrank import DEFAULT as EVERY_RANK
from accerl.compress.lowrank import LowRankMethod, factorise
from accerl.compress.prune import DEFAULT, prune
from accerl.compress.quantize import CALIBRATION_STATES, QuantiseMethod, spread
from accerl.compress.quantize import DEFAULT as EVERY_BYTE
from accerl.compress.ranges import ActivationRanges, RangeTracker
from accerl.compress.torch_artifact import pack_torch
from accerl.compress.torch_engine import TorchEngine
from accerl.errors import UserError, did_you_mean
from accerl.networks import PolicyNet, architecture
from accerl.spec import STUDENTS, CompressionSpec

PRECISIONS = {"INT8": 8, "BF16": 16}
REFRESHING_STATES = 8
"""measured at a publication where ranges are remembered from earlier ones"""


class Stage(IntEnum):
    """When a link may run; a chain goes through the stages once, in this order."""

    STUDENT = 0
    PRUNE = 1
    TUNE = 2
    FACTORISE = 3
    QUANTISE = 4
    EXPORT = 5


REASONS = {
    Stage.STUDENT: "a student replaces the whole network, so all work before it would be lost",
    Stage.PRUNE: "removing units changes the network that was tuned, factorised or quantised",
    Stage.TUNE: "training moves the weights that were factorised or quantised",
    Stage.FACTORISE: "factorising changes the layers whose ranges were measured",
    Stage.QUANTISE: "an exported graph is finished",
    Stage.EXPORT: "an exported graph is finished",
}
"""Why a stage may not come later than its place."""


@dataclass(frozen=True, kw_only=True)
class CompressionState:
    """What one link hands to the next."""

    policy: PolicyNet
    """the learner's policy, the teacher of every distillation"""
    net: PolicyNet
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
    """the states that it measured them on"""
    method: QuantiseMethod = EVERY_BYTE
    """how it wants integers to be chosen"""
    artifact: Artifact | None = None
    """the result, once exported"""

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

    policy: PolicyNet | None
    """the network a chain starts from if `compress` is given none"""
    sparsity: float
    """fraction removed, in [0, 1)"""
    method: PruneMethod = DEFAULT
    """how what goes is chosen"""
    stage = Stage.PRUNE

    def apply(self, state: CompressionState) -> CompressionState:
        """Return the state with a narrower network."""
        net = prune(state.net, self.sparsity, self.method, obs=state.observations)
        return replace(state, net=net, sparsity=self.sparsity)


@dataclass(frozen=True)
class Distillation:
    """Swaps in a student that is distilled elsewhere, or tunes the pruned network (eq. 1)."""

    policy: PolicyNet | None = None
    """the network a chain starts from if `compress` is given none"""
    student: PolicyNet | None = None
    """the student to swap in; None: the network at hand learns from the policy, here and now"""
    updates: int = 20
    """gradient steps over all recorded states, if there is no `student`"""
    learning_rate: float = 1e-3
    entropy_cost: float = 1e-3

    @property
    def stage(self) -> Stage:
        """A student comes first of all; tuning comes after pruning."""
        return Stage.TUNE if self.student is None else Stage.STUDENT

    def apply(self, state: CompressionState) -> CompressionState:
        """Return the state with the student, or with a tuned copy of its network."""
        if self.student is not None:
            return replace(state, net=self.student, student=student_name(self.student))
        distiller = Distiller(
            prune(state.net, 0.0),  # a copy: the learner's own policy must not move
            state.policy,
            learning_rate=self.learning_rate,
            entropy_cost=self.entropy_cost,
            sync_every=max(1, self.updates),
            generator=torch.Generator(),
        )
        states = torch.from_numpy(np.ascontiguousarray(state.observations))
        for _ in range(self.updates):
            distiller.update(states, state.policy)
        return replace(state, net=distiller.net)


@dataclass(frozen=True)
class LowRank:
    """Factorises the large linear layers."""

    rank: float
    """fraction of singular values kept, in (0, 1]"""
    method: LowRankMethod = EVERY_RANK
    """what is factorised, and whether fewer may do"""
    stage = Stage.FACTORISE

    def apply(self, state: CompressionState) -> CompressionState:
        """Return the state with thin layers."""
        net = factorise(state.net, self.rank, self.method)
        return replace(state, net=net, rank=self.rank)


@dataclass(frozen=True)
class Quantizer:
    """Lowers the precision: INT8 (static, calibrated here) or BF16."""

    precision: str
    method: QuantiseMethod = EVERY_BYTE
    """how integers are chosen"""
    tracker: RangeTracker | None = None
    """what remembers the ranges of earlier publications; None: all recorded states are measured"""
    stage = Stage.QUANTISE

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            hint = did_you_mean(self.precision, list(PRECISIONS))
            raise UserError(f"quantise: precision {self.precision!r} does not exist; {hint}")

    @property
    def bits(self) -> int:
        """Bits per weight."""
        return PRECISIONS[self.precision]

    def apply(self, state: CompressionState) -> CompressionState:
        """Return the state with its bits and what was measured on its states."""
        tracker = self.tracker or RangeTracker(self.method.ranges)
        many = REFRESHING_STATES if tracker.used else CALIBRATION_STATES
        measured = spread(state.observations, many)
        ranges = tracker.measure(state.net, measured)
        return replace(state, bits=self.bits, ranges=ranges, measured=measured, method=self.method)


@dataclass(frozen=True)
class ONNX:
    """Exports to ONNX Runtime; 16 bits stay in torch, which alone has kernels for them."""

    stage = Stage.EXPORT

    def apply(self, state: CompressionState) -> CompressionState:
        """Return the state with its artifact."""
        if state.bits == 16:
            return _torch_export(state, "onnx")
        if state.bits == 32 or state.ranges is None:
            payload = onnx_fp32(state.net)
        elif state.method.weights_only:
            payload = onnx_fp32(state.net, weights_only_int8=True)
        else:
            payload = onnx_int8(
                state.net, state.ranges, states=state.measured, levels=state.method.levels
            )
        artifact = Artifact(state.spec("onnx"), state.version, "onnx", payload)
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
    artifact = Artifact(
        state.spec(graph), state.version, "torch", pack_torch(state.net, bits=state.bits)
    )
    if state.ranges is not None and state.measured is not None:
        # As in INT8: rounding errors add up to a bias that all states share.
        logits, values = TorchEngine(artifact).infer(state.measured)
        shift = np.array(state.ranges.heads_mean) - np.append(logits.mean(0), values.mean())
        payload = pack_torch(state.net, bits=state.bits, head_shift=shift)
        artifact = replace(artifact, payload=payload)
    return replace(state, artifact=artifact)


def student_name(net: PolicyNet) -> str:
    """Return which member of the policy family `net` is.

    Raises:
        UserError: it is none of them.
    """
    for name in STUDENTS:
        if architecture(name, net.observation) == net.arch:
            return name
    raise UserError(
        f"distil: a student with layers {net.arch} is not of the policy family; "
        f"allowed: {', '.join(STUDENTS)}"
    )


class CompressorChain:
    """Links that run one after the other, from the learner's policy to an artifact."""

    def __init__(self, links: Sequence[Link] = ()) -> None:
        self.links: list[Link] = []
        for link in links:
            self.add(link)

    def add(self, link: Link) -> CompressorChain:
        """Append `link` and return the chain itself.

        Raises:
            UserError: the order makes no sense; the message says why.
        """
        name = type(link).__name__
        for earlier in self.links:
            before = type(earlier).__name__
            if earlier.stage == link.stage:
                raise UserError(f"chain: {name} after {before} does the same step twice; keep one")
            if earlier.stage > link.stage:
                raise UserError(
                    f"chain: {name} cannot come after {before}: {REASONS[link.stage]}; "
                    f"add {name} before {before}"
                )
            eight = isinstance(earlier, Quantizer) and earlier.bits == 8
            if eight and isinstance(link, TorchScript | Eager):
                raise UserError(f"chain: INT8 runs in ONNX Runtime only; use ONNX(), not {name}()")
        self.links.append(link)
        return self

    def compress(
        self, policy: PolicyNet | None = None, *, observations: np.ndarray, version: int = 0
    ) -> Artifact:
        """Compress `policy` (by default the one its first link was given).

        Args:
            policy: the learner's policy.
            observations: recorded states [N, *shape].
            version: learner updates of `policy`.

        Raises:
            UserError: no link and no caller gave a policy, or a link refuses.
        """
        given = [link.policy for link in self.links if isinstance(link, Pruning | Distillation)]
        source = next((net for net in [policy, *given] if net is not None), None)
        if source is None:
            raise UserError("chain: which policy? give one to compress() or to the first link")
        state = CompressionState(
            policy=source, net=source, observations=observations, version=version
        )
        return self.run(state)

    def run(self, state: CompressionState) -> Artifact:
        """Run all links from `state`; a chain without an export ends in plain torch.

        Raises:
            UserError: a link refuses.
        """
        for link in self.links:
            state = link.apply(state)
        if state.artifact is None:
            state = (ONNX() if state.bits == 8 else Eager()).apply(state)
        if state.artifact is None:
            raise ValueError("an export link must set the artifact of its state")
        return state.artifact

    @classmethod
    def from_spec(
        cls,
        spec: CompressionSpec,
        student: PolicyNet | None = None,
        *,
        method: QuantiseMethod = EVERY_BYTE,
        tracker: RangeTracker | None = None,
    ) -> CompressorChain:
        """Return the chain that `spec` means: student, prune, factorise, quantise, export.

        Args:
            spec: how hard to compress.
            student: the distilled network of `spec.student`; not needed for the original.
            method: how integers are chosen.
            tracker: what remembers activation ranges.

        Raises:
            UserError: the spec names a student and none is given.
        """
        chain = cls()
        if spec.student != "original":
            if student is None:
                raise UserError(f"chain: spec {spec.label!r} needs a distilled {spec.student}")
            chain.add(Distillation(student=student))
        if spec.sparsity > 0.0:
            chain.add(Pruning(None, spec.sparsity))
        if spec.rank < 1.0:
            chain.add(LowRank(spec.rank))
        if spec.bits != 32:
            precision = next(name for name, bits in PRECISIONS.items() if bits == spec.bits)
            chain.add(Quantizer(precision, method, tracker))
        export = {"onnx": ONNX, "torchscript": TorchScript, "eager": Eager}[spec.graph]
        return chain.add(export())
