"""`accerl train` and `accerl eval`."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Any

import tyro

from accerl.acting.evaluate import MAX_STEPS
from accerl.config import RunConfig
from accerl.errors import UserError, require
from accerl.monitor.strategies import HandSetStrategy
from accerl.records import CONFIG, METRICS, not_a_run, read_json
from accerl.runtime.machine.energy import EnergyMeter
from accerl.settings import to_text
from accerl.spec import IDENTITY, CompressionSpec, is_import_path
from accerl.training.run_folder import check_free, resumed, seconds_finished
from accerl.training.saved_policy import evaluate_checkpoint
from analysis.formats import rounded
from controller.bundle.serving import ServedSchedule
from controller.indicator.strategy import AdvancedIndicator
from controller.shield import Shielded
from studies.cli.command import Command, as_file_name, check_positive, save_result
from studies.cli.recorded import free_folder, run_recorded
from studies.cli.run_options import RunOptions
from studies.jobs.inner import with_dice
from studies.progress import say
from studies.strategies import choose_strategy


@dataclass(frozen=True, kw_only=True)
class Train(RunOptions):
    """Train one agent.

    For example `accerl train pong --seconds 120 --spec '{"bits": 8}'`.
    """

    print_config: bool = False
    """print the whole configuration as JSON, and train nothing"""
    strategy: str | None = None
    """fixed (default), kl-threshold, reward-gap, linear-kl, three-stage, advise-kl-cap, random,
    first-that-fires, sw-ucb, thompson, gp-bandit, indicator (the learned controller that ships with
    AcceRL), the path of a schedule bundle, or module:Class, your own"""
    spec: str | None = None
    """what actors act with under the fixed strategy as JSON (default: no compression), such as
    '{"student": "net2", "bits": 8}'; bits: 32, 16 or 8; sparsity: share that is pruned, from 0 to
    below 1; student: original, net1, net2, net3, impala, impala-small, impala-tiny or
    module:function; rank: share of singular values that is kept; graph: onnx, torchscript or
    eager"""
    strategy_params: str | None = None
    """parameters of the strategy (a bundle has none), as JSON: '{"threshold_nats": 2.0}'; one that
    it does not have is answered with those that it has"""
    bundle_mode: str = "policy"
    """how a schedule bundle decides: policy (reacts to the run) or schedule (replays what the
    controller usually did, by the clock)"""
    strict: bool = False
    """refuse a bundle that may choose specs this run cannot act with; without it a policy chooses
    from the others, and in a schedule the nearest milder ones act instead"""
    shield: float | None = None
    """KL in nats (the paper: 14): where the largest of an interval exceeds it, the next interval
    acts with the strategy's mildest spec, unless stale weights explain it; and so it does after an
    error of the strategy"""
    out: Path | None = None
    """run directory (default: runs/GAME-seedN, or with -2, -3, ... behind it where there is one; to
    resume, the last of these that had not finished)"""
    resume: bool = False
    """go on with the run in --out from its last checkpoint, with the settings and the strategy that
    it was started with, to its length unless --seconds says another"""
    wandb: bool = False
    """also write an offline W&B run to the run directory"""
    energy: str | None = None
    """on the real clock: also estimate the energy and CO2 that this machine takes meanwhile, by
    codecarbon (pip install codecarbon); the country's ISO code, such as DEU"""

    def execute(self) -> dict[str, Any]:
        """Resolve the options and train."""
        config = self.run_config()
        default = Path("runs") / f"{as_file_name(config.preset)}-seed{config.seed}"
        out = self.out or free_folder(default, self.resume)
        if self.resume and (out / CONFIG).is_file() and self.config is None:
            again = replace(self, config=out / CONFIG, out=out, **self._recorded_strategy(out))
            return again.execute()
        if self.resume:
            config = resumed(config, out, self.seconds)
            if self.seconds is not None and self.config == out / CONFIG:
                # As in Python: longer than it was means past the score that it was to end at.
                config = replace(config, until_score=self.until_score)
            if (done := seconds_finished(config, out)) is not None:
                say(f"{out} is finished after {done:g} s: give more --seconds to go on with it")
        strategy = "fixed" if self.strategy is None else self.strategy
        params = "{}" if self.strategy_params is None else self.strategy_params
        chosen = choose_strategy(
            strategy,
            config,
            spec="{}" if self.spec is None else self.spec,
            params=params,
            bundle_mode=self.bundle_mode,
            strict=self.strict,
        )
        given = json.loads(params)
        chosen = with_dice(chosen, config.seed, given)
        is_own = is_import_path(strategy)  # though it may inherit the name of a rule
        is_named = isinstance(chosen, HandSetStrategy)
        name = strategy if is_own or not is_named else chosen.label
        if self.shield is not None:
            chosen = Shielded(chosen, self.shield)
            name = f"{name} + {chosen.shield_label}"
        if self.print_config:
            if not self.json:
                print(to_text(config))
            return config.to_json()
        if not self.resume:
            check_free(out, "add --resume, or give another --out")
        summary = run_recorded(
            config,
            chosen,
            name,
            out,
            resume=self.resume,
            meter=self._meter(config),
            strategy_params=given or None,
        )
        if self.wandb:
            from analysis.render.wandb_runs import write_offline_runs

            for folder in write_offline_runs([out], out / "wandb"):
                say(f"wrote {folder} (upload with `wandb sync {quote(str(folder))}`)")
        return summary

    def _recorded_strategy(self, out: Path) -> dict[str, Any]:
        """Return the options that say with which strategy a run was started, if none is given."""
        said = (self.strategy, self.spec, self.strategy_params, self.shield)
        if any(option is not None for option in said):
            return {}
        data = read_json(out / CONFIG)
        if "strategy" not in data:
            raise UserError(not_a_run(out, METRICS))
        name, shielded, _ = str(data["strategy"]).partition(" + shield(")
        recorded = data["strategy_params"] or {}
        shield = data["shield"]["threshold_nats"] if shielded else None
        if "digest" in recorded:
            mode = recorded.get("mode", "policy")
            if self.bundle_mode not in ("policy", mode):
                raise UserError(
                    f"{out} was started with --bundle-mode {mode}; resume it without "
                    f"--bundle-mode {self.bundle_mode}, or choose another --out"
                )
            return {"strategy": name, "bundle_mode": mode, "shield": shield}
        is_policy = "scorer" in recorded and name != AdvancedIndicator.name
        if is_policy or name in (ServedSchedule.__name__, AdvancedIndicator.__name__):
            raise UserError(
                f"{out} was started in Python, with a bundle; go on there: accerl.train(..., "
                "strategy=the same, out=..., resume=True)"
            )
        name = "fixed" if name.startswith("fixed ") else name.partition("(")[0]
        if is_import_path(name) and not Path(name).exists():
            params = f" {json.dumps(recorded)}" if recorded else ""
            raise UserError(
                f"{out} was started with {name}{params}, which is your own: give --strategy and "
                "--strategy-params again"
            )
        if name == AdvancedIndicator.name:
            # Beside its settings, what it holds is no option; if it has changed, that is refused.
            recorded = recorded.get("settings", {})
        return {"strategy": name, "strategy_params": json.dumps(recorded), "shield": shield}

    def _meter(self, config: RunConfig) -> EnergyMeter | None:
        if self.energy is None:
            return None
        if config.runtime.clock == "virtual":
            raise UserError(
                "--energy goes with the real clock: the seconds of a virtual clock take no power; "
                "add --runtime process"
            )
        return EnergyMeter(self.energy)


@dataclass(frozen=True, kw_only=True)
class Eval(Command):
    """Play episodes with a checkpoint.

    For example `accerl eval runs/pong-seed0 --episodes 20`.
    """

    run: tyro.conf.Positional[Path]
    """run directory"""
    episodes: int = 10
    """how many to play"""
    spec: str = "{}"
    """compression to act with, as JSON; full precision by default"""
    seed: int = 0
    """seed of the episodes"""
    out: Path | None = None
    """folder to write eval.json to"""

    def execute(self) -> dict[str, Any]:
        """Play, and print the mean."""
        require(self.seed >= 0, "--seed", "must not be negative", self.seed)
        check_positive(episodes=self.episodes)
        spec = CompressionSpec.from_json(self.spec)
        result = evaluate_checkpoint(self.run, self.episodes, spec, self.seed)
        say(
            f"{self.episodes} episodes: mean return {result['mean_return']:.2f}, "
            f"standard deviation {result['std_return']:.2f}"
        )
        if spec != IDENTITY and result["kl_nats"] is not None:
            say(
                f"{spec.label} is {rounded(result['kl_nats'])} nats (KL) from the learner on the "
                "states that were recorded last"
                + "; a student rests while it does not act"
                * bool(spec.student_key)
            )
        if result["cut_off"]:
            say(
                f"{result['cut_off']} of them had not ended after {MAX_STEPS:,} steps, and count "
                "with their scores so far"
            )
        return save_result(result, self.out, "eval.json")
