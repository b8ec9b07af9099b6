"""Content: what a bundle carries, an Advanced Indicator with all that it takes to act by it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from accerl.errors import UserError
from accerl.records import read_json
from accerl.spec import IDENTITY
from controller.actions import PresetActions
from controller.bundle.files import (
    BELIEFS,
    INDICATOR,
    MANIFEST,
    WEIGHTS,
    Manifest,
    refuse_malformed,
)
from controller.indicator.candidates import SCORED, SCORED_VERSION
from controller.indicator.prior import Prior
from controller.indicator.scorer import SpecScorer
from controller.indicator.strategy import AdvancedIndicator, IndicatorSettings

PROBES = 16
"""feature vectors on which torch and ONNX Runtime are compared"""
PROBE_RANGE = 3.0
"""they lie between this and its negative"""
GRAPH_IN_WORDS = f"maps the features [N, {len(SCORED)}] of N specs to scores [N]"
_ABLATED = {
    "uses_predictions": "it does not look at predicted speeds",
    "uses_kl": "it does not look at KL",
    "uses_changes": "it does not notice changes of conditions",
}


class Content:
    """The scorer, prior and settings of an indicator, and what is said of them."""

    def __init__(self, indicator: AdvancedIndicator) -> None:
        self.scorer, self._prior = indicator.scorer, indicator.prior
        self._settings = indicator.settings
        self.actions = PresetActions(indicator.settings.specs)
        """what it chooses from"""
        self.features = [{"name": name, "text": text} for name, text in SCORED.items()]
        """what the scorer reads, a row each"""

    def form(self) -> dict[str, Any]:
        """Return what the manifest says of the policy, its weights left out."""
        return {
            "kind": INDICATOR,
            "hidden": self.scorer.hidden,
            "features_version": SCORED_VERSION,
        }

    def beliefs(self) -> dict[str, Any]:
        """Return what is in `files.BELIEFS`."""
        return {"prior": self._prior.to_json(), "settings": self._settings.to_json()}

    def logits(self, vectors: np.ndarray) -> np.ndarray:
        """Return the scores [N] that torch computes for features [N, F] of candidates."""
        with torch.no_grad():
            return self.scorer(torch.from_numpy(vectors)).numpy()

    def strategy(self) -> AdvancedIndicator:
        """Return what decides in a run; it never explores."""
        return AdvancedIndicator(self.scorer, self._prior, self._settings)

    def introduction(self) -> str:
        """Return what it is, in a few sentences."""
        return (
            f"It believes something of the speed and the fidelity of each of "
            f"{len(self._settings.specs)} specs, corrects that by what it sees, and acts with the "
            f"spec that a network of {self.scorer.num_parameters()} weights scores highest. It "
            "works on machines, games and networks that it was not trained on: before a run it "
            "reads the latency profile, and leaves out what the run cannot act with. The run's "
            "metrics.jsonl says of every decision what was believed of each spec."
        )

    def in_words(self) -> list[str]:
        """Return what it chooses from, reads and believes, a line each."""
        prior, settings = self._prior, self._settings
        held = self.scorer.dwell_intervals
        lines = [
            "speed: what the latency profile predicts, corrected by the times that are seen. "
            f"Before that, a machine may differ by a factor of {_times(prior.rate_shared)}, and a "
            f"spec on it by another {_times(prior.rate_own)}",
            "fidelity: the typical KL of a spec, the more the learner's policy has decided, "
            "corrected by what is measured. Before that, a "
            f"game may differ by a factor of {_times(prior.kl_shared)}, and a spec in it by "
            f"another {_times(prior.kl_own)}",
            f"worth: an env step that is acted with a KL of D nats counts exp(-{prior.cost:g} "
            f"D^{prior.power:g}), where {prior.cost:g} may be off by a factor of "
            f"{_times(prior.cost_spread)}; it counts half at {prior.lag_half:g} updates of lag",
            f"cap: above a KL of {settings.cap_nats:g} nats a spec reads as too far off",
            f"safety: what is believed to be worth less than {settings.least_worth:.0%} of no "
            "compression does not act",
            f"patience: a decision is held for {held} interval{'s' if held > 1 else ''} or more, "
            "unless conditions change",
        ]
        ablated = [text for name, text in _ABLATED.items() if not getattr(settings, name)]
        return lines + [f"ablation: {text}" for text in ablated]

    def tables(self) -> dict[str, list[dict[str, Any]]]:
        """Return tables for people, by title: rows with the same keys."""
        slopes = self._slopes()
        return {
            "Specs that it may act with": [
                {
                    "acts with": spec.label,
                    "typical KL in nats": "0" if spec == IDENTITY else _kl(self._prior, spec),
                }
                for spec in self._settings.specs
            ],
            "What it reads of every spec, and how the score moves with it at first": [
                {"feature": name, "meaning": text, "slope": f"{slope:+.2f}"}
                for (name, text), slope in zip(SCORED.items(), slopes, strict=True)
            ],
        }

    def _slopes(self) -> list[float]:
        """Return the gradient of the score where all features are 0, [F]."""
        at = torch.zeros(len(SCORED), requires_grad=True)
        return torch.autograd.grad(self.scorer(at), at)[0].tolist()

    @classmethod
    def read(cls, path: Path, manifest: Manifest, weights: Mapping[str, Any]) -> Content:
        """Read what a bundle's folder holds.

        Args:
            path: the folder; every file in it is as it was exported.
            manifest: its description.
            weights: of the scorer.

        Raises:
            UserError: a part is of another form than expected, or does not fit the others.
        """
        data = read_json(path / BELIEFS)
        with refuse_malformed(f"{path / BELIEFS} does not hold an indicator's prior and settings"):
            prior = Prior.from_json(data["prior"])
            settings = IndicatorSettings.from_json(data["settings"])
            if data != {"prior": prior.to_json(), "settings": settings.to_json()}:
                raise UserError("some are missing or mistyped")
        with refuse_malformed(f"{path / WEIGHTS} does not hold this indicator"):
            scorer = SpecScorer.from_json({**manifest.policy, "weights": weights})
            if not all(bool(each.isfinite().all()) for each in scorer.parameters()):
                raise UserError("a weight is not a finite number")
            _ = scorer.dwell_intervals  # overflows where a decision would be held for ever
        content = cls(AdvancedIndicator(scorer, prior, settings))
        content._check(path, manifest)
        return content

    def _check(self, path: Path, manifest: Manifest) -> None:
        """Refuse a manifest whose tables are not those of this content."""
        with refuse_malformed(f"{path / MANIFEST} is not what its schema promises"):
            version = manifest.policy.get("features_version")
            names = [row["name"] for row in manifest.features]
            if version != SCORED_VERSION or names != list(SCORED):
                raise UserError(
                    "it lists other features than this AcceRL computes; train it again with this"
                )
            if manifest.action_table != self.actions.table():
                raise UserError("the action table does not list its actions")


def probe() -> np.ndarray:
    """Return features [PROBES, F] to compare two forms of a scorer on."""
    drawn = np.random.default_rng(0).uniform(-PROBE_RANGE, PROBE_RANGE, (PROBES, len(SCORED)))
    return drawn.astype(np.float32)


def _times(spread: float) -> str:
    """Return a standard deviation of a logarithm as a factor."""
    return f"{math.exp(spread):.2g}"


def _kl(prior: Prior, spec: Any) -> str:
    return f"{math.exp(prior.log_kl(spec)):.2g}"
