"""`accerl bench inner`: where the core-seconds of an inner run go."""

from __future__ import annotations

import contextlib
import functools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from time import process_time
from typing import Any

from accerl.acting.actor import Actor
from accerl.acting.evaluate import Evaluator
from accerl.compress.compressor import Compressor
from accerl.compress.distillation.trainer import StudentTrainer
from accerl.config import RunConfig
from accerl.envs import make_envs
from accerl.learner.learner import Learner
from accerl.presets import load_preset
from accerl.runtime.interval import IntervalRecorder
from accerl.runtime.publishing.probe import KLProbe
from accerl.spec import CompressionSpec, Decision
from accerl.training.run import make_run
from studies.benchmarks.repeats import SPREAD, median_and_spread, result_of

SCALE_ENV_STEPS = 500_000
"""core-seconds are given for a run of so many"""
PRECISIONS = ("fp32", "bf16")
REST = "rest"
PHASES = (
    "env",
    "act",
    "load",
    "learn",
    "distill",
    "publish",
    "compare",
    "evaluate",
    "record",
    REST,
)
"""act: inference and sampling; load: engines; compare: KL of what acts and of students; evaluate:
J, its environments included"""
_METHODS = {
    (Actor, "collect"): "act",
    (Actor, "load"): "load",
    (Learner, "update"): "learn",
    (StudentTrainer, "update"): "distill",
    (Compressor, "build"): "publish",
    (Compressor, "student_kl_nats"): "compare",
    (KLProbe, "measure"): "compare",
    (Evaluator, "measure"): "evaluate",
    (IntervalRecorder, "add_rollout"): "record",
    (IntervalRecorder, "report"): "record",
}


class PhaseMeter:
    """Books the processor seconds of this process under the innermost phase that is on."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._on = [REST]
        self._since = process_time()

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Book a block under `name`; environments that are evaluated count as evaluation."""
        self.book()
        self._on.append("evaluate" if name == "env" and "evaluate" in self._on else name)
        try:
            yield
        finally:
            self.book()
            self._on.pop()

    def book(self) -> None:
        """Book what has passed since the last booking."""
        now = process_time()
        self.seconds[self._on[-1]] += now - self._since
        self._since = now

    @contextlib.contextmanager
    def metering(self, methods: dict[tuple[type, str], str]) -> Iterator[None]:
        """Have every call of these methods booked, in the block."""
        originals = {key: getattr(*key) for key in methods}
        for (kind, name), phase in methods.items():
            setattr(kind, name, self._metered(getattr(kind, name), phase))
        try:
            yield
        finally:
            for (kind, name), original in originals.items():
                setattr(kind, name, original)

    def _metered(self, method: Any, phase: str) -> Any:
        @functools.wraps(method)
        def metered(*args: Any, **kwargs: Any) -> Any:
            with self.phase(phase):
                return method(*args, **kwargs)

        return metered


def bench_inner(
    game: str,
    specs: Sequence[CompressionSpec],
    *,
    profile: str = "paper-1080ti",
    precisions: Sequence[str] = ("fp32",),
    env_steps: int = 60_000,
    repeats: int = 3,
    seed: int = 0,
) -> dict[str, Any]:
    """Measure inner runs on the virtual clock, one thread; repeats are interleaved.

    Args:
        game: a preset.
        specs: what actors act with, a run each.
        profile: latency profile.
        precisions: of learner and students, of `PRECISIONS`.
        env_steps: each run ends with the interval in which it has made so many.
        repeats: of every run, with equal seeds.
        seed: of the runs.

    Raises:
        UserError: there is no such preset or profile.
    """
    cases = [(spec, precision) for spec in specs for precision in precisions]
    runs: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for _ in range(repeats):
        for index, (spec, precision) in enumerate(cases):
            config = _config(load_preset(game), profile, precision, seed)
            runs[index].append(_measure(config, spec, env_steps))
    rows = []
    for index, (spec, precision) in enumerate(cases):
        measured = runs[index]
        totals = [sum(run["phases"].values()) for run in measured]
        seconds, spread = median_and_spread(totals)
        phases = {
            phase: median_and_spread([run["phases"][phase] for run in measured])[0]
            for phase in PHASES
        }
        counts = {name: measured[0][name] for name in ("env_steps", "updates", "evaluations")}
        row = {"spec": spec.to_json(), "precision": precision, **counts}
        rows.append({**row, "core_seconds": seconds, "spread": spread, "phases": phases})
    return result_of(
        "inner", spread_is=SPREAD, game=game, profile=profile, per=SCALE_ENV_STEPS, rows=rows
    )


def _config(preset: RunConfig, profile: str, precision: str, seed: int) -> RunConfig:
    return replace(
        preset,
        seed=seed,
        learner=replace(preset.learner, precision=precision),
        compression=replace(preset.compression, distill_precision=precision),
        runtime=replace(
            preset.runtime,
            runtime="serial",
            clock="virtual",
            profile=profile,
            num_distillers=0,
            learner_threads=1,
        ),
    )


def _measure(config: RunConfig, spec: CompressionSpec, env_steps: int) -> dict[str, Any]:
    """Return core-seconds per `SCALE_ENV_STEPS` by phase, and what was done; building excluded."""
    meter, done, updates, evaluations = PhaseMeter(), 0, 0, 0
    envs = make_envs(config.game, 1, config.env)
    methods = {**_METHODS, (type(envs), "step"): "env", (type(envs), "reset"): "env"}
    envs.close()
    with closing(make_run(config)) as run, meter.metering(methods):
        meter.book()
        meter.seconds.clear()  # of building the run
        while done < env_steps:
            run.apply(Decision.of(spec))
            report = run.advance(config.runtime.interval_seconds)
            done, updates = report.total_env_steps, report.total_learner_updates
            evaluations += report.learner_return is not None
        meter.book()
    scale = SCALE_ENV_STEPS / done
    phases = {phase: scale * meter.seconds[phase] for phase in PHASES}
    return {
        "env_steps": done,
        "updates": updates,
        "evaluations": evaluations,
        "phases": phases,
    }
