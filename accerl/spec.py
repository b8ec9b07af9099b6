"""CompressionSpec and Decision: the vocabulary every layer speaks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from decimal import Decimal
from typing import Any, NamedTuple, TypeVar

from accerl.errors import (
    UserError,
    did_you_mean,
    is_number,
    read_json_text,
    require,
    require_choice,
    require_fields,
)

STUDENTS = ("original", "net1", "net2", "net3")  # largest first: paper, Table 6
IMPALA_NETWORKS = ("impala", "impala-small", "impala-tiny")  # largest first
NETWORKS = (*STUDENTS, *IMPALA_NETWORKS)
"""what a learner's network or a student may be called, besides an import path"""
BITS = (32, 16, 8)
GRAPHS = ("eager", "torchscript", "onnx")
_PRECISION = {32: "fp32", 16: "bf16", 8: "INT8"}
_LABEL = re.compile(
    r"(?P<student>\S+)(?: pruned (?P<sparsity>\d+(?:\.\d+)?)%)?(?: rank (?P<rank>\d+(?:\.\d+)?)%)?"
    r" (?P<bits>fp32|bf16|INT8)(?: (?P<graph>\S+))?"
)
_Value = TypeVar("_Value")


class StudentKey(NamedTuple):
    """Which network is distilled from the learner's: a student, a pruned network, or both."""

    student: str
    sparsity: float


@dataclass(frozen=True, kw_only=True)
class CompressionSpec:
    """How hard the actors' copy of the policy is compressed; the default is the identity.

    Raises:
        UserError: a field lies outside what is allowed, or the combination cannot be built.
    """

    student: str = "original"
    """original: the learner's own network, whatever it is (`RunConfig.network`), undistilled; net1,
    net2 or net3, impala, impala-small or impala-tiny: that network, distilled from the learner;
    module:function: your own, see `accerl.networks.make.make_network`"""
    sparsity: float = 0.0
    """fraction of output channels / neurons REMOVED by structured pruning, in [0, 1)"""
    rank: float = 1.0
    """fraction of singular values kept in factorised layers, in (0, 1]"""
    bits: int = 32
    """32 (float), 16 (bfloat16) or 8 (static INT8)"""
    graph: str = "onnx"
    """eager | torchscript | onnx"""

    def __post_init__(self) -> None:
        require_network("spec: student", self.student)
        whole = not isinstance(self.bits, bool) and self.bits in BITS
        require(whole, "spec: bits", f"must be one of {list(BITS)}", self.bits)
        require_choice("spec: graph", self.graph, GRAPHS)
        require_fields(self, "spec", "sparsity rank", "must be a number", is_number)
        rule = "is the fraction removed and must lie in [0, 1)"
        require(0.0 <= self.sparsity < 1.0, "spec: sparsity", rule, self.sparsity)
        rule = "is the fraction of singular values kept and must lie in (0, 1]"
        require(0.0 < self.rank <= 1.0, "spec: rank", rule, self.rank)
        if self.bits == 8 and self.graph != "onnx":
            raise UserError(
                f"spec: bits 8 runs in ONNX Runtime only; use graph 'onnx', not {self.graph!r}"
            )
        # JSON writers spell 8 and 8.0 as they like; one spelling keeps hashes equal.
        object.__setattr__(self, "bits", int(self.bits))
        object.__setattr__(self, "sparsity", float(self.sparsity))
        object.__setattr__(self, "rank", float(self.rank))

    @property
    def label(self) -> str:
        """The spec in words, such as ``net3 pruned 50% INT8``; no two specs share a label.

        Records use it as the key of a spec; `from_label` reads it back.
        """
        parts = [self.student]
        if self.sparsity:
            parts.append(f"pruned {_percent(self.sparsity)}")
        if self.rank < 1.0:
            parts.append(f"rank {_percent(self.rank)}")
        parts.append(_PRECISION[self.bits])
        if self.graph != "onnx":
            parts.append(self.graph)
        return " ".join(parts)

    @classmethod
    def from_label(cls, label: str) -> CompressionSpec:
        """Return the spec with this `label`.

        Raises:
            UserError: no spec has it.
        """
        match = _LABEL.fullmatch(label)
        if match is None:
            raise UserError(f"spec: no spec is labelled {label!r}")
        given: dict[str, Any] = {
            name: text for name, text in match.groupdict().items() if text is not None
        }
        for name in {"sparsity", "rank"} & given.keys():
            given[name] = float(Decimal(given[name]) / 100)
        given["bits"] = next(bits for bits, word in _PRECISION.items() if word == given["bits"])
        return cls(**given)

    @property
    def student_key(self) -> StudentKey | None:
        """The network that must be distilled before it can act; None: the learner's own acts."""
        if self.student == STUDENTS[0] and self.sparsity == 0.0:
            return None
        return StudentKey(self.student, self.sparsity)

    @property
    def undistilled(self) -> CompressionSpec:
        """The learner's own network in the same bits and graph: it acts while a student waits."""
        return CompressionSpec(bits=self.bits, graph=self.graph)

    @property
    def size_rank(self) -> float:
        """Place in the network's family, 0 for the largest; your own counts as middle."""
        for family in (STUDENTS, IMPALA_NETWORKS):
            if self.student in family:
                return float(family.index(self.student))
        return (len(STUDENTS) - 1) / 2

    @property
    def mildness(self) -> tuple[float, float, float, int, str]:
        """A key that sorts specs by how much they change: network, then width, then numbers.

        Your own networks come last: how large they are, a name does not tell.
        """
        place = 0.0
        if self.student != STUDENTS[0]:
            place = 1.0 + (self.size_rank if self.student in NETWORKS else len(STUDENTS))
        graph = "" if self.graph == GRAPHS[-1] else self.graph
        return place, self.sparsity, -self.rank, -self.bits, graph

    def to_json(self) -> dict[str, Any]:
        """Return all fields as a JSON object."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: str | Mapping[str, Any]) -> CompressionSpec:
        """Read a spec from a JSON text or object; unknown keys are errors.

        Raises:
            UserError: the text is not a JSON object, or a key or value is not allowed.
        """
        if isinstance(data, str):
            data = read_json_text(data, "spec", '{"bits": 8}')
        if not isinstance(data, Mapping):
            raise UserError('spec: expected a JSON object such as {"bits": 8}')
        known = [field.name for field in fields(cls)]
        for key in data:
            if key not in known:
                raise UserError(f"spec: unknown key {key!r}; {did_you_mean(str(key), known)}")
        return cls(**data)


def is_import_path(name: str) -> bool:
    """Whether `name` is an import path of somebody's own code, such as ``mynets:small``."""
    path, colon, function = str(name).partition(":")
    return bool(colon) and function.isidentifier() and all(map(str.isidentifier, path.split(".")))


def require_network(what: str, name: str) -> None:
    """Refuse what is neither the name of a network nor an import path.

    Raises:
        UserError: it is neither.
    """
    if not is_import_path(name):
        require_choice(what, name, (*NETWORKS, "module:function") if ":" in str(name) else NETWORKS)


def by_label(values: Mapping[CompressionSpec, _Value]) -> dict[str, _Value]:
    """Return `values` with labels as keys, for JSON."""
    return {spec.label: value for spec, value in values.items()}


def by_spec(values: Mapping[str, _Value]) -> dict[CompressionSpec, _Value]:
    """Return what `by_label` was given.

    Raises:
        UserError: a key is not the label of a spec.
    """
    return {CompressionSpec.from_label(label): value for label, value in values.items()}


def _percent(fraction: float) -> str:
    """Return a fraction in percent with every digit that it has: 0.124 is ``12.4%``."""
    return f"{(Decimal(repr(fraction)) * 100).normalize():f}%"


IDENTITY = CompressionSpec()
"""The strongest uncompressed actor: the learner's own network in ONNX Runtime fp32."""


@dataclass(frozen=True)
class Decision:
    """A probability mix over specs; each rollout is acted by one spec drawn from it.

    The paper's "linear strategy" mixes Net3 and Original with weight alpha.

    Raises:
        UserError: the mix is empty, a share is not positive, the shares do not sum to 1, or the
            shadow acts.
    """

    mix: tuple[tuple[CompressionSpec, float], ...]
    shadow: CompressionSpec | None = None
    """what is compressed beside that and compared with the learner once an interval, without
    acting (`IntervalReport.shadow_kl_nats`); a student or pruned network is distilled on"""

    def __post_init__(self) -> None:
        if not self.mix:
            raise UserError("decision: the mix of specs is empty")
        if any(not share > 0.0 for _, share in self.mix):
            raise UserError("decision: every share must be positive; leave out specs at zero")
        if len({spec for spec, _ in self.mix}) != len(self.mix):
            raise UserError("decision: a spec appears twice; add its shares up")
        total = sum(share for _, share in self.mix)
        if abs(total - 1.0) > 1e-6:
            raise UserError(f"decision: shares must sum to 1, got {total:.6f}")
        if self.shadow in self.specs:
            raise UserError(
                f"decision: {self.shadow.label!r} cannot be the shadow of a mix that it is part of"
            )

    @classmethod
    def of(cls, spec: CompressionSpec) -> Decision:
        """Return the decision to act with `spec` alone."""
        return cls(((spec, 1.0),))

    @property
    def specs(self) -> tuple[CompressionSpec, ...]:
        """The specs of the mix, in order."""
        return tuple(spec for spec, _ in self.mix)

    @property
    def named(self) -> tuple[CompressionSpec, ...]:
        """Every spec that a run must be able to compress to: those of the mix, and the shadow."""
        return self.specs if self.shadow is None else (*self.specs, self.shadow)

    @property
    def without_shadow(self) -> Decision:
        """What acts: two decisions that are equal in that differ in what is measured at most."""
        return self if self.shadow is None else Decision(self.mix)

    @property
    def main(self) -> CompressionSpec:
        """The spec with the largest share (the first of them on a tie)."""
        return max(self.mix, key=lambda item: item[1])[0]

    @property
    def label(self) -> str:
        """A short name for people, such as ``70% net3 INT8 + 30% original fp32``.

        A shadow comes last: ``original fp32 + shadow original INT8``.
        """
        parts = [f"{share:.0%} {spec.label}" for spec, share in self.mix]
        if len(parts) == 1:
            parts = [self.mix[0][0].label]
        if self.shadow is not None:
            parts.append(f"shadow {self.shadow.label}")
        return " + ".join(parts)

    def check_students(self, network: str) -> None:
        """Refuse students that are not smaller than the learner's network, of the same family.

        Args:
            network: the learner's network, see `RunConfig.network`.

        Raises:
            UserError: a spec asks for one.
        """
        family = next((names for names in (STUDENTS, IMPALA_NETWORKS) if network in names), ())
        for spec in self.named:
            if spec.student == "original" or spec.student not in family:
                continue
            if family.index(spec.student) <= family.index(network):
                smaller = family[family.index(network) + 1 :]
                raise UserError(
                    f"spec: student {spec.student!r} is not smaller than the learner's network, "
                    f"{network!r}; use {' or '.join((*smaller, 'original'))} (its own network), "
                    "or a larger network for the learner"
                )

    def to_json(self) -> list[dict[str, Any]]:
        """Return the mix as a list of ``{"spec": {...}, "share": float}``.

        The shadow is the last entry, with a share of 0.
        """
        shadow = () if self.shadow is None else ((self.shadow, 0.0),)
        return [{"spec": spec.to_json(), "share": share} for spec, share in (*self.mix, *shadow)]

    @classmethod
    def from_json(cls, data: list[dict[str, Any]]) -> Decision:
        """Read a decision written by `to_json`.

        Raises:
            UserError: several specs have a share of 0, or no decision can be what was written.
            KeyError, TypeError, ValueError: it is no list of objects with a spec and a share.
        """
        shares = [(CompressionSpec.from_json(item["spec"]), float(item["share"])) for item in data]
        shadows = [spec for spec, share in shares if share == 0.0]
        if len(shadows) > 1:
            raise UserError("decision: one spec at most may have a share of 0, the shadow")
        mix = tuple((spec, share) for spec, share in shares if share != 0.0)
        return cls(mix, shadows[0] if shadows else None)
