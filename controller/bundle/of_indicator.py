"""What a bundle carries of an Advanced Indicator: see `AdvancedIndicator`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch

from accerl.errors import UserError
from accerl.monitor.strategy import Strategy
from accerl.records import read_json
from accerl.spec import IDENTITY
from controller.actions import PresetActions
from controller.bundle.content import Content
from controller.bundle.files import BELIEFS, INDICATOR, WEIGHTS, Manifest, refuse_malformed
from controller.indicator.candidates import SCORED
from controller.indicator.onnx_graph import build_onnx, onnx_scores
from controller.indicator.prior import Prior
from controller.indicator.scorer import SpecScorer
from controller.indicator.strategy import AdvancedIndicator, IndicatorSettings

_ABLATED = {
    "uses_predictions": "it does not look at predicted speeds",
    "uses_kl": "it does not look at KL",
    "uses_changes": "it does not notice changes of conditions",
}


class IndicatorContent(Content):
    """An Advanced Indicator: its scorer, prior and settings."""

    kind: ClassVar[str] = INDICATOR
    graph_in_words: ClassVar[str] = f"maps the features [N, {len(SCORED)}] of N specs to scores [N]"
    leaves_out_what_is_missing: ClassVar[bool] = True

    def __init__(self, indicator: AdvancedIndicator) -> None:
        settings = indicator.settings
        table = [{"name": name, "text": text} for name, text in SCORED.items()]
        super().__init__(indicator.scorer, PresetActions(settings.specs), table)
        self._scorer, self._prior, self._settings = indicator.scorer, indicator.prior, settings

    def form(self) -> dict[str, Any]:
        """See `Content.form`."""
        return {"kind": self.kind, "hidden": self._scorer.hidden}

    def own_files(self) -> dict[str, Any]:
        """See `Content.own_files`."""
        return {BELIEFS: {"prior": self._prior.to_json(), "settings": self._settings.to_json()}}

    def graph(self) -> bytes:
        """See `Content.graph`."""
        return build_onnx(self._scorer)

    def logits(self, vectors: np.ndarray) -> np.ndarray:
        """Return the scores of candidates, [N]."""
        with torch.no_grad():
            return self._scorer(torch.from_numpy(vectors)).numpy()

    def graph_logits(self, graph: bytes, vectors: np.ndarray) -> np.ndarray:
        """See `Content.graph_logits`."""
        return onnx_scores(graph, vectors)

    def strategy(self, min_dwell_intervals: int) -> Strategy:
        """See `Content.strategy`; how long it holds a decision is among its weights."""
        return AdvancedIndicator(self._scorer, self._prior, self._settings)

    def sizes(self) -> dict[str, Any]:
        """See `Content.sizes`."""
        return {"candidate_features": len(self.features)}

    def introduction(self) -> str:
        """See `Content.introduction`."""
        return (
            f"It believes something of the speed and the fidelity of each of "
            f"{len(self._settings.specs)} specs, corrects that by what it sees, and acts with the "
            f"spec that a network of {self.policy.num_parameters()} weights scores highest. It "
            "works on machines, games and networks that it was not trained on: before a run it "
            "reads the latency profile, and leaves out what the run cannot act with. The run's "
            "metrics.jsonl says of every decision what was believed of each spec."
        )

    def in_words(self) -> list[str]:
        """See `Content.in_words`."""
        prior, settings = self._prior, self._settings
        held = self._scorer.dwell_intervals
        lines = [
            "speed: what the latency profile predicts, corrected by the times that are seen. "
            f"Before that, a machine may differ by a factor of {_times(prior.rate_shared)}, and a "
            f"spec on it by another {_times(prior.rate_own)}",
            "fidelity: the typical KL of a spec, corrected by what is measured. Before that, a "
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
        """See `Content.tables`."""
        slopes = self._slopes()
        return {
            "Specs that it may act with": [
                {
                    "spec": spec.label,
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
        return torch.autograd.grad(self._scorer(at), at)[0].tolist()

    @classmethod
    def read(cls, path: Path, manifest: Manifest, weights: Mapping[str, Any]) -> Self:
        """See `Content.read`."""
        data = read_json(path / BELIEFS)
        with refuse_malformed(f"{path / BELIEFS} does not hold an indicator's prior and settings"):
            prior = Prior.from_json(data["prior"])
            settings = IndicatorSettings.from_json(data["settings"])
            if data != {"prior": prior.to_json(), "settings": settings.to_json()}:
                raise UserError("some are missing or mistyped")
        with refuse_malformed(f"{path / WEIGHTS} does not hold this indicator"):
            scorer = SpecScorer.from_json({**manifest.policy, "weights": weights})
        return cls(AdvancedIndicator(scorer, prior, settings))


def _times(spread: float) -> str:
    """Return a standard deviation of a logarithm as a factor."""
    return f"{math.exp(spread):.2g}"


def _kl(prior: Prior, spec: Any) -> str:
    return f"{math.exp(prior.log_kl(spec)):.2g}"
