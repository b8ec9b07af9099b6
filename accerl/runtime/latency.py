"""LatencyProfile: what every operation of a run costs, measured on one machine or published.

The virtual clock charges from a profile. Its times are those of the 84x84 networks of the paper's
Table 6, whatever game is played, so that small games keep the trade-offs of the real ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from accerl.errors import UserError, did_you_mean
from accerl.records import json_hash, read_json, write_json
from accerl.spec import STUDENTS, CompressionSpec, is_own_student

FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class SpecLatency:
    """One row of the table: what acting with `spec` costs."""

    spec: CompressionSpec
    infer_us: dict[int, float]
    """microseconds per state, by batch size"""
    publish_ms: float
    """compress + export + make ready to act, milliseconds per publication"""
    distill_us: float
    """one distillation update of this student or pruned network, microseconds per state"""


@dataclass(frozen=True, kw_only=True)
class LatencyProfile:
    """A latency table and the wiring it stands for.

    Raises:
        UserError: a time is not positive.
    """

    name: str
    source: str
    """where the numbers come from, in words"""
    env_step_us: float
    """one agent step of one environment on one core"""
    learner_us_per_sample: float
    """one pass (forward, backward, optimiser) of Original over one sample"""
    specs: tuple[SpecLatency, ...]
    num_actors: int = 1
    """actors that run beside the learner, each on a core of its own"""
    agents_per_actor: int = 1
    """agents that fill one rollout side by side, each with its share of the environments"""
    small_learner_us: dict[str, float] = field(default_factory=dict)
    """the same of learners whose network is net1, net2 or net3, per sample"""
    fingerprint: dict[str, Any] = field(default_factory=dict)
    """the machine that was measured; empty for published numbers"""

    def __post_init__(self) -> None:
        times = [self.env_step_us, self.learner_us_per_sample, *self.small_learner_us.values()]
        for row in self.specs:
            times += [row.publish_ms, row.distill_us, *row.infer_us.values()]
        if not times or not all(value > 0.0 for value in times) or not self.specs:
            raise UserError(f"latency profile {self.name!r}: every time must be positive")
        if self.num_actors < 1 or self.agents_per_actor < 1:
            raise UserError(f"latency profile {self.name!r}: it needs at least one actor and agent")

    @property
    def hash(self) -> str:
        """Identity of the numbers: seconds under different profiles are never mixed."""
        return json_hash(self.to_json())[:12]

    def for_network(self, network: str) -> LatencyProfile:
        """Return the profile as a learner of that network sees it.

        Its student "original" is the learner's own network and costs what that network costs;
        smaller students keep their times. Distillation stays what it costs to follow Original:
        a smaller teacher's forward pass was not measured.

        Raises:
            UserError: it has no learner times for this network.
        """
        if network == "original":
            return self
        if network not in self.small_learner_us:
            raise UserError(
                f"latency profile {self.name!r} has no times for a learner of {network!r}; "
                "measure it again (`accerl profile measure`), or use --network original"
            )
        own = [row for row in self.specs if row.spec.student == network]
        smaller = STUDENTS[STUDENTS.index(network) + 1 :]
        rows = [replace(row, spec=replace(row.spec, student="original")) for row in own]
        rows += [row for row in self.specs if row.spec.student in smaller]
        return replace(
            self, learner_us_per_sample=self.small_learner_us[network], specs=tuple(rows)
        )

    def infer_seconds(self, spec: CompressionSpec, batch: int) -> float:
        """Return seconds to infer one batch of `batch` states with `spec`."""
        return self._interpolate(spec, lambda row: _per_state_us(row, batch)) * batch * 1e-6

    def publish_seconds(self, spec: CompressionSpec) -> float:
        """Return seconds to compress, export and load one publication of `spec`."""
        return self._interpolate(spec, lambda row: row.publish_ms) * 1e-3

    def act_seconds(self, spec: CompressionSpec, batch: int) -> tuple[float, float]:
        """Return seconds in which one actor's agents step and infer `batch` environments once."""
        env, infer = self.env_seconds(batch), self.infer_seconds(spec, batch)
        return env / self.agents_per_actor, infer / self.agents_per_actor

    def env_seconds(self, batch: int) -> float:
        """Return seconds to step `batch` environments once on one core."""
        return self.env_step_us * batch * 1e-6

    def learn_seconds(self, samples: int) -> float:
        """Return seconds of one learner pass over `samples` transitions."""
        return self.learner_us_per_sample * samples * 1e-6

    def distill_seconds(self, spec: CompressionSpec, states: int) -> float:
        """Return seconds of one distillation update on `states` states."""
        return self._interpolate(spec, lambda row: row.distill_us) * states * 1e-6

    def _interpolate(self, spec: CompressionSpec, value: Callable[[SpecLatency], float]) -> float:
        """Read a table value, linear in sparsity between the measured levels."""
        key = (spec.student, spec.bits, spec.graph, spec.rank)
        rows = sorted(
            (
                row
                for row in self.specs
                if (row.spec.student, row.spec.bits, row.spec.graph, row.spec.rank) == key
            ),
            key=lambda row: row.spec.sparsity,
        )
        if not rows:
            hint = "choose a spec it lists (`accerl profile show`) or measure another profile"
            if is_own_student(spec.student):
                hint = "your own students act on the real clock: add --clock real"
            raise UserError(
                f"latency profile {self.name!r} has no times for {spec.label!r}; {hint}"
            )
        levels = [row.spec.sparsity for row in rows]
        return float(np.interp(spec.sparsity, levels, [value(row) for row in rows]))

    def to_json(self) -> dict[str, Any]:
        """Return the profile as one JSON object."""
        return {
            "format": FORMAT,
            "name": self.name,
            "source": self.source,
            "env_step_us": self.env_step_us,
            "learner_us_per_sample": self.learner_us_per_sample,
            "small_learner_us": dict(self.small_learner_us),
            "num_actors": self.num_actors,
            "agents_per_actor": self.agents_per_actor,
            "fingerprint": dict(self.fingerprint),
            "specs": [
                {
                    "spec": row.spec.to_json(),
                    "infer_us": {str(batch): us for batch, us in row.infer_us.items()},
                    "publish_ms": row.publish_ms,
                    "distill_us": row.distill_us,
                }
                for row in self.specs
            ],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> LatencyProfile:
        """Read a profile written by `to_json`.

        Raises:
            UserError: it is of another format or incomplete.
        """
        try:
            if data["format"] != FORMAT:
                raise UserError(f"latency profile: format {data['format']} is not {FORMAT}")
            values = {key: value for key, value in data.items() if key != "format"}
            values["specs"] = tuple(
                SpecLatency(
                    spec=CompressionSpec.from_json(row["spec"]),
                    infer_us={int(batch): float(us) for batch, us in row["infer_us"].items()},
                    publish_ms=float(row["publish_ms"]),
                    distill_us=float(row["distill_us"]),
                )
                for row in data["specs"]
            )
            return cls(**values)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UserError(f"latency profile is damaged ({error!r}); measure it again") from error


def _per_state_us(row: SpecLatency, batch: int) -> float:
    """Microseconds per state at `batch`, linear in log2(batch) between measured sizes."""
    sizes = sorted(row.infer_us)
    return float(np.interp(np.log2(batch), np.log2(sizes), [row.infer_us[size] for size in sizes]))


def paper_profile() -> LatencyProfile:
    """Return the times that the paper publishes (Figure 1, Table 6, section 3.2).

    Published: env 3 ms, learner 25 ms per 160 samples, batch-1 inference of the four networks,
    INT8 Original 3.0 ms, ten agents. Derived here: INT8 halves the other networks too, and 16 bits
    lie between; pruning removes its share of what lies above 0.6 ms; a publication takes 100 ms;
    learning with a smaller network is scaled by its inference time, and so is distillation, which
    adds 0.3 of Original's learning for the teacher.
    """
    times_ms = {"original": 6.0, "net1": 2.5, "net2": 1.9, "net3": 1.2}
    floor_ms = 0.6
    learner_us = 25.0 / 160.0 * 1e3
    rows = []
    for student, fp32_ms in times_ms.items():
        for bits, share in ((32, 1.0), (16, 0.75), (8, 0.5)):
            for sparsity in (0.0,) if bits == 16 else (0.0, 0.25, 0.5, 0.75):
                base = fp32_ms * share
                ms = floor_ms + (base - floor_ms) * (1.0 - sparsity)
                rows.append(
                    SpecLatency(
                        spec=CompressionSpec(student=student, bits=bits, sparsity=sparsity),
                        infer_us={1: ms * 1e3},
                        publish_ms=100.0,
                        distill_us=learner_us * (0.3 + (1.0 - sparsity) * fp32_ms / 6.0),
                    )
                )
    return LatencyProfile(
        name="paper",
        source="AcceRL paper, Figure 1 and Table 6 (GTX 1080 Ti, Xeon Gold 5118), partly derived",
        env_step_us=3000.0,
        learner_us_per_sample=learner_us,
        specs=tuple(rows),
        small_learner_us={
            student: learner_us * ms / times_ms["original"]
            for student, ms in times_ms.items()
            if student != "original"
        },
        agents_per_actor=10,
    )


def load_profile(name_or_path: str, folder: Path | None = None) -> LatencyProfile:
    """Return a profile by name (``paper``, or one kept in `folder`) or by path of its JSON file.

    Raises:
        UserError: there is none of that name.
    """
    if name_or_path == "paper":
        return paper_profile()
    path = Path(name_or_path)
    if path.suffix == ".json":
        return LatencyProfile.from_json(read_json(path))
    folder = folder or profile_folder()
    stored = folder / f"{name_or_path}.json"
    if stored.is_file():
        return LatencyProfile.from_json(read_json(stored))
    hint = did_you_mean(name_or_path, profile_names(folder))
    raise UserError(
        f"latency profile {name_or_path!r} does not exist; {hint}; "
        "`accerl profile measure` makes one for this machine"
    )


def profile_folder() -> Path:
    """Return where measured profiles are kept: $ACCERL_HOME or ~/.cache/accerl."""
    import os

    home = os.environ.get("ACCERL_HOME")
    return (Path(home) if home else Path.home() / ".cache" / "accerl") / "profiles"


def profile_names(folder: Path | None = None) -> list[str]:
    """Return the names that `load_profile` knows."""
    folder = folder or profile_folder()
    stored = sorted(path.stem for path in folder.glob("*.json")) if folder.is_dir() else []
    return ["paper", *stored]


def save_profile(profile: LatencyProfile, path: Path) -> None:
    """Write a profile as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, profile.to_json())


def standard_specs() -> list[CompressionSpec]:
    """Return the specs that a measured profile covers."""
    levels = (0.0, 0.25, 0.5, 0.75)
    specs = [
        CompressionSpec(student=student, bits=bits, sparsity=sparsity)
        for student in STUDENTS
        for bits in (32, 8)
        for sparsity in levels
    ]
    for student in STUDENTS:
        specs += [
            CompressionSpec(student=student, graph=graph) for graph in ("eager", "torchscript")
        ]
        specs += [CompressionSpec(student=student, bits=16)]
    return specs
