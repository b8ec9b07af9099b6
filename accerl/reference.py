"""`python -m accerl.reference` writes reference.md: all settings and what a run records.

What it says of each is the text that stands below its field in the code.
"""

from __future__ import annotations

import ast
import inspect
import json
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import Any

from accerl.compress.config import CompressionConfig
from accerl.compress.distillation.beginnings import BeginMethod
from accerl.compress.distillation.trainer import DistillMethod
from accerl.compress.lowrank import LowRankMethod
from accerl.compress.pruning.criteria import PruneMethod
from accerl.compress.pruning.sparse import TopologyConfig
from accerl.compress.quantization.quantize import QuantiseMethod
from accerl.compress.quantization.ranges import RangeMethod
from accerl.config import RunConfig, RuntimeConfig
from accerl.envs.config import EnvConfig
from accerl.learner.config import LearnerConfig
from accerl.own_code import OwnConfig
from accerl.runtime.ray.config import RayConfig
from accerl.runtime.run import IntervalReport
from accerl.training.summary import SUMMARY_FIELDS

PAGE = Path(__file__).with_name("reference.md")
SECTIONS: Mapping[str, type[Any]] = {
    "": RunConfig,
    "env": EnvConfig,
    "learner": LearnerConfig,
    "learner.sparse": TopologyConfig,
    "runtime": RuntimeConfig,
    "compression": CompressionConfig,
    "ray": RayConfig,
    "own": OwnConfig,
}
"""of a configuration, by the name before the last point"""
METHODS: tuple[tuple[type[Any], str, Mapping[str, str]], ...] = (
    (DistillMethod, "distill_", {}),
    (BeginMethod, "distill_", {"states": "start_states"}),
    (PruneMethod, "prune_", {}),
    (LowRankMethod, "rank_", {}),
    (QuantiseMethod, "quantise_", {}),
    (RangeMethod, "quantise_", {"name": "ranges"}),
)
"""what fields of `CompressionConfig` are made into: how their names begin, and those that differ"""


def meanings(owner: type[Any]) -> dict[str, str]:
    """Return what stands below each field of a dataclass, on one line; empty where nothing does."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
    assert isinstance(body, ast.ClassDef)
    found = {item.name: "" for item in fields(owner)}
    for statement, below in zip(body.body, body.body[1:], strict=False):
        if not isinstance(statement, ast.AnnAssign) or not isinstance(below, ast.Expr):
            continue
        name, text = statement.target, below.value
        if isinstance(name, ast.Name) and isinstance(text, ast.Constant) and name.id in found:
            found[name.id] = " ".join(str(text.value).split()).replace("|", "\\|")
    return found


def page() -> str:
    """Return the page as Markdown."""
    lines = [
        "# Settings and records",
        "",
        "Made by `python -m accerl.reference` from the code. A game's preset, or the family it "
        "belongs to, sets some of these otherwise: `accerl train GAME --print-config` shows what a "
        "run really gets.",
        "",
        "## Settings",
        "",
        "`--set SECTION.NAME=VALUE`, or `section__name=value` in Python. Those without a section "
        "have options of their own (`--network`, `--seed`, `--seconds`, `--until-score`, "
        "`--start`, `--events FILE`), but for `pixel_centre` and `pixel_unit`, which "
        "`--config FILE` sets; in Python events are `conditions__events=[{...}]`. Those of "
        '`learner.sparse` are entries of one object: `--set \'learner.sparse={"method": "set"}\'`.',
        "",
        "| setting | default | meaning |",
        "|---|---|---|",
        *_settings(),
        "",
        "## summary.json",
        "",
        "Written when a run has reached its length or its score: one that was interrupted has none "
        "until it is resumed to its end.",
        "",
        "| field | meaning |",
        "|---|---|",
        *(f"| `{name}` | {text} |" for name, text in SUMMARY_FIELDS.items()),
        "",
        "## metrics.jsonl",
        "",
        "One line an interval. Seconds are those of the run's clock.",
        "",
        "| field | meaning |",
        "|---|---|",
        *(f"| `{name}` | {text} |" for name, text in meanings(IntervalReport).items()),
    ]
    return "\n".join(lines) + "\n"


def _settings() -> Iterator[str]:
    for section, owner in SECTIONS.items():
        told = meanings(owner) | (_of_methods() if owner is CompressionConfig else {})
        for item in fields(owner):
            if section or item.name not in SECTIONS:
                name = f"{section}.{item.name}" if section else item.name
                yield f"| `{name}` | {_default(item)} | {told[item.name]} |"


def _of_methods() -> dict[str, str]:
    """Return what those fields of `CompressionConfig` mean that say it where they are used."""
    return {
        f"{start}{others.get(name, name)}": text
        for owner, start, others in METHODS
        for name, text in meanings(owner).items()
    }


def _default(item: Any) -> str:
    if item.default is MISSING:
        return ""
    return f"`{json.dumps(item.default, default=asdict)}`"


def main() -> None:
    """Write the page."""
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
