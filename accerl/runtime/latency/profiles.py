"""Latency profiles by name: those that come with the package, and those measured here."""

from __future__ import annotations

from pathlib import Path

from accerl.errors import UserError, did_you_mean
from accerl.records import read_json, write_json
from accerl.runtime.latency import shipped
from accerl.runtime.latency.profile import LatencyProfile, SpecLatency
from accerl.spec import STUDENTS, CompressionSpec

PAPER = "paper-1080ti"
SHIPPED = (PAPER, *shipped.MAKERS)
"""names of the profiles that come with the package"""
TAKEN = ("paper", *SHIPPED)
"""names that a measured profile cannot be loaded by"""
MEASURED = "measured"
"""name under which this machine's profile is kept, unless another is given"""


def paper_profile() -> LatencyProfile:
    """Return the times that the paper publishes (Figure 1, Table 6, section 3.2).

    Published: env 3 ms, learner 25 ms per 160 samples, batch-1 inference of the four networks,
    INT8 Original 3.0 ms; twelve actors, four distillers, one learner. Derived here: INT8 halves
    the other networks too, and 16 bits lie between; pruning removes its share of what lies above
    0.6 ms; a publication takes 100 ms;
    learning with a smaller network is scaled by its inference time, and so is distillation, which
    adds 0.3 of Original's learning for the teacher.
    """
    times_ms = {"original": 6.0, "net1": 2.5, "net2": 1.9, "net3": 1.2}
    floor_ms = 0.6
    learner_us = 25.0 / 160.0 * 1e3
    rows = []
    for student, fp32_ms in times_ms.items():
        for bits, share in ((32, 1.0), (16, 0.75), (8, 0.5)):
            for sparsity in (0.0, 0.25, 0.5, 0.75):
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
        name=PAPER,
        source="AcceRL paper, Figure 1 and Table 6 (GTX 1080 Ti, Xeon Gold 5118), partly derived",
        env_step_us=3000.0,
        learner_us_per_sample=learner_us,
        specs=tuple(rows),
        small_learner_us={
            student: learner_us * ms / times_ms["original"]
            for student, ms in times_ms.items()
            if student != "original"
        },
        num_actors=12,
        actors_per_batch=12,
        num_distillers=4,
    )


def load_profile(name_or_path: str, folder: Path | None = None) -> LatencyProfile:
    """Return a profile by name (shipped, or kept in `folder`) or by path of its JSON file.

    Raises:
        UserError: there is none of that name.
    """
    if name_or_path in (PAPER, "paper"):
        return paper_profile()
    if name_or_path in shipped.MAKERS:
        return shipped.MAKERS[name_or_path]()
    path = Path(name_or_path)
    if path.suffix == ".json":
        return LatencyProfile.from_json(read_json(path))
    folder = folder or profile_folder()
    stored = folder / f"{name_or_path}.json"
    if stored.is_file():
        return LatencyProfile.from_json(read_json(stored))
    hint = did_you_mean(name_or_path, ["paper", *profile_names(folder)])
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
    return [*SHIPPED, *(name for name in stored if name not in TAKEN)]


def this_machine(folder: Path | None = None) -> str:
    """Return the name of what comes nearest to this machine: its measured profile, if there is."""
    return MEASURED if MEASURED in profile_names(folder) else "two-core"


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
        for bits in (32, 16, 8)
        for sparsity in levels
    ]
    for student in STUDENTS:
        specs += [
            CompressionSpec(student=student, graph=graph) for graph in ("eager", "torchscript")
        ]
    return specs
