"""CompressorChain: a chain of responsibility of small links (paper, Figure 4 and Table 1).

chain = CompressorChain()
chain.add(Pruning(policy, 0.5)).add(Distillation(policy)).add(Quantizer("INT8")).add(ONNX())
engine = make_engine(chain.compress(observations=states))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from accerl.compress.artifact import Artifact
from accerl.compress.config import CompressionConfig
from accerl.compress.engine import Engine, make_engine
from accerl.compress.links import (
    ONNX,
    PRECISIONS,
    CompressionState,
    Distillation,
    Eager,
    Link,
    LowRank,
    Pruning,
    Quantizer,
    SimulatedQuantizer,
    Stage,
    TorchScript,
)
from accerl.compress.lowrank import Factoriser
from accerl.compress.quantization.ranges import RangeTracker
from accerl.errors import UserError, one_line
from accerl.networks.adopt import as_policy, require_states_of
from accerl.networks.graph_policy import GraphPolicy, own_copy
from accerl.networks.make import student_name
from accerl.networks.observation import ObservationSpec
from accerl.networks.policy_net import PolicyNet
from accerl.spec import CompressionSpec

GRAPHS: dict[type, str] = {ONNX: "onnx", TorchScript: "torchscript", Eager: "eager"}
SHIPPED = (Pruning, Distillation, LowRank, Quantizer, SimulatedQuantizer, *GRAPHS)
REASONS = {
    Stage.STUDENT: "a student replaces the whole network, so all work before it would be lost",
    Stage.PRUNE: "removing units changes the network that was tuned, factorised or quantised",
    Stage.TUNE: "training moves the weights that were factorised or quantised",
    Stage.FACTORISE: "factorising changes the layers whose ranges were measured",
    Stage.QUANTISE: "an exported graph is finished",
}
"""Why a stage may not come later than its place."""


class CompressedPolicy:
    """The policy that a chain makes: what actors are given, before anything is compressed."""

    def __init__(self, chain: CompressorChain) -> None:
        self.chain = chain
        self.strategy: Any = None
        """what decides how hard it is compressed in a run, see `accerl.paper.Strategy`"""
        self._engine: Engine | None = None
        self._links = 0  # that it was made with

    def infer(self, obs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return logits [B, A] and values [B] for states obs [B, *shape], to try the chain by hand.

        The policy is compressed at the first call, and at the first one after a link was added,
        calibrated on its states. In a run, actors get what was made of the learner's newest
        weights instead.
        """
        if self._engine is None or self._links != len(self.chain.links):
            self._engine = make_engine(self.chain.compress(observations=obs))
            self._links = len(self.chain.links)
        return self._engine.infer(obs)


class CompressorChain:
    """Links that run one after the other, from the learner's policy to an artifact."""

    def __init__(self, links: Sequence[Link] = ()) -> None:
        self.policy = CompressedPolicy(self)
        """what actors act with"""
        self.links: list[Link] = []
        for link in links:
            self.add(link)

    def add(self, link: Link) -> CompressorChain:
        """Append `link` and return the chain itself.

        Raises:
            UserError: it is no link, or the order makes no sense; the message says why.
        """
        name = type(link).__name__
        if isinstance(link, type) or not isinstance(getattr(link, "stage", None), Stage):
            raise UserError(
                "chain: a link has a `stage` and a method `apply`, such as Pruning(policy, 0.5); "
                f"got {link!r}"
            )
        for earlier in self.links:
            before = type(earlier).__name__
            both = isinstance(earlier, SHIPPED) and isinstance(link, SHIPPED)
            # Links of your own may share a stage, with others.
            if earlier.stage == link.stage and (both or type(earlier) is type(link)):
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

    @property
    def spec(self) -> CompressionSpec:
        """What a run would be asked for, to act with networks compressed like this.

        Links of your own are not part of it: see `own_links`.

        Raises:
            UserError: a link does what no spec can say.
        """
        said: dict[str, Any] = {}
        for link in self.links:
            if isinstance(link, Pruning):
                said["sparsity"] = link.sparsity
            elif isinstance(link, LowRank):
                said["rank"] = link.rank
            elif isinstance(link, Quantizer):
                said["bits"] = link.bits
            elif isinstance(link, Distillation):
                if link.student is not None:
                    said["student"] = student_name(link.student)
                elif "sparsity" not in said:  # a run distils students and pruned networks alone
                    raise UserError("chain: Distiller needs Pruning before it, or student=...")
            elif type(link) in GRAPHS:
                said["graph"] = GRAPHS[type(link)]
            elif isinstance(link, SimulatedQuantizer):
                raise UserError(
                    "chain: a run simulates bits with --set compression.simulated_bits, not by a "
                    "SimulatedQuantizer"
                )
        exported = "onnx" if said.get("bits") == 8 else "eager"
        return CompressionSpec(**{"graph": exported, **said})

    @property
    def own_links(self) -> tuple[Link, ...]:
        """The links that are not of this package, which a run takes along as objects."""
        return tuple(link for link in self.links if not isinstance(link, SHIPPED))

    def compress(
        self, policy: nn.Module | None = None, *, observations: np.ndarray, version: int = 0
    ) -> Artifact:
        """Compress `policy` (by default the one its first link was given).

        Args:
            policy: the learner's policy: a PolicyNet, or any module that returns logits and
                values.
            observations: recorded states [N, *shape].
            version: learner updates of `policy`.

        Raises:
            UserError: no link and no caller gave a policy, or a link refuses.
        """
        given = [link.policy for link in self.links if isinstance(link, Pruning | Distillation)]
        source = next((net for net in [policy, *given] if net is not None), None)
        if source is None:
            raise UserError("chain: which policy? give one to compress() or to the first link")
        if observations.dtype not in (np.uint8, np.float32):
            raise UserError(
                f"chain: observations must be uint8 or float32, not {observations.dtype}"
            )
        kind = ObservationSpec.of_states(observations)
        if not isinstance(source, PolicyNet | GraphPolicy):
            source = own_copy(source)  # a graph is read in evaluation mode, with hooks
        source = as_policy(source, kind)
        require_states_of(source, kind)
        state = CompressionState(
            policy=source, net=source, observations=observations, version=version
        )
        return self.run(state).result

    def run(self, state: CompressionState) -> CompressionState:
        """Run all links from `state`; a chain without an export ends in plain torch.

        Raises:
            UserError: a link refuses.
        """
        for link in self.links:
            state = _applied(link, state)
        if state.artifact is None:
            state = (ONNX() if state.bits == 8 else Eager()).apply(state)
        return state

    @classmethod
    def from_spec(
        cls,
        spec: CompressionSpec,
        network: nn.Module | None = None,
        *,
        config: CompressionConfig = CompressionConfig(),
        memory: ChainMemory | None = None,
        own_links: Sequence[Link] = (),
    ) -> CompressorChain:
        """Return the chain that `spec` means: student or prune, factorise, quantise, export.

        Args:
            spec: how hard to compress.
            network: what was distilled for `spec.student_key`; None: what the chain is given is
                pruned, and stays as it is then.
            config: how to prune, factorise and quantise.
            memory: of this network's earlier publications; None: there were none.
            own_links: of the user's own, each before the shipped link of its stage.

        Raises:
            UserError: the spec names a student and there is no `network`.
        """
        links: list[Link] = [*own_links]
        if network is not None:
            links.append(Distillation(student=network, key=spec.student_key))
        elif spec.student != "original":
            raise UserError(f"chain: spec {spec.label!r} needs a distilled {spec.student}")
        elif spec.sparsity > 0.0:
            links.append(Pruning(None, spec.sparsity, config.prune_method))
        if spec.rank < 1.0:
            factoriser = None if memory is None else memory.factoriser
            links.append(LowRank(spec.rank, config.rank_method, factoriser))
        if spec.bits != 32:
            precision = next(name for name, bits in PRECISIONS.items() if bits == spec.bits)
            tracker = None if memory is None else memory.tracker
            links.append(Quantizer(precision, config.quantise_method, tracker))
        elif config.simulated_bits:
            links.append(SimulatedQuantizer(config.simulated_bits))
        links.append(next(link for link, graph in GRAPHS.items() if graph == spec.graph)())
        return cls(sorted(links, key=lambda link: link.stage))


@dataclass(frozen=True)
class ChainMemory:
    """What earlier publications of one network taught about it."""

    factoriser: Factoriser
    tracker: RangeTracker
    network: int = 0
    """number of the network, see `StudentPool.network_number`; what was learned about another does
    not hold"""
    version: int = 0
    """learner updates at the publication that used it last"""

    @classmethod
    def of(
        cls, rank: float, config: CompressionConfig, network: int = 0, version: int = 0
    ) -> ChainMemory:
        """Return an empty memory."""
        factoriser = Factoriser(rank, config.rank_method)
        return cls(factoriser, RangeTracker(config.quantise_method.ranges), network, version)

    def state_dict(self) -> dict[str, Any]:
        """Return everything that an exact resume needs, as a plain tree."""
        return {
            "factoriser": self.factoriser.state_dict(),
            "tracker": self.tracker.state_dict(),
            "network": self.network,
            "version": self.version,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Become the memory that `state` was taken from."""
        self.factoriser.load_state_dict(state["factoriser"])
        self.tracker.load_state_dict(state["tracker"])


def _applied(link: Link, state: CompressionState) -> CompressionState:
    """Apply a link; the mistakes of one of the user's own name it, also from another process."""
    try:
        after = link.apply(state)
    except UserError:
        raise
    except Exception as error:  # a user's own code may fail in any way
        if isinstance(link, SHIPPED):
            raise
        raise UserError(
            f"{type(link).__name__}: its apply() raised {type(error).__name__}: {one_line(error)}"
        ) from error
    if not isinstance(after, CompressionState):
        raise UserError(
            f"{type(link).__name__}: its apply() returned {type(after).__name__}, not a "
            "CompressionState; return the state, or dataclasses.replace(state, ...)"
        )
    own = not isinstance(link, SHIPPED)
    if own and _has_finite_weights(state.net) and not _has_finite_weights(after.net):
        raise UserError(
            f"{type(link).__name__}: its apply() made weights NaN or infinite; look for a division "
            "by 0"
        )
    return after


def _has_finite_weights(net: nn.Module) -> bool:
    return all(bool(torch.isfinite(weights).all()) for weights in net.parameters())
