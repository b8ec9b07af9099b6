"""Who learns: a run in the background (Table 2)."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from types import FrameType

import torch
from torch import nn

from accerl.compress.chain import CompressorChain
from accerl.compress.links import ONNX, Distillation, LowRank, Pruning, Quantizer
from accerl.config import RunConfig
from accerl.envs import make_envs
from accerl.errors import UserError
from accerl.monitor.indicators import Indicator
from accerl.networks.adopt import as_policy
from accerl.networks.graph_policy import Policy
from accerl.networks.make import name_of
from accerl.paper.actors import QManager
from accerl.paper.strategy import Acting
from accerl.presets import load_preset
from accerl.runtime.parts import Parts
from accerl.runtime.run import IntervalReport
from accerl.spec import NETWORKS
from accerl.training.run import RunResult, check_startable, run_training
from accerl.training.run_folder import as_measured

EVAL_EPISODES = 16
"""per measurement of J, where a monitor needs it and the preset has none"""


class Learner:
    """Learns from what the memory's actors collect, in the background from `start` on.

    A script that ends without `join` waits for the run, and ends with code 2 if that failed. Ctrl-C
    ends the run, which can be gone on with from its `out`.

    Args:
        policy: what learns, in place: a network by its name (`AtariCNN`, `policy_for`), or a
            module of your own with the same layers as one of Table 6's, of which a copy learns
            (see `policy`).
        memory: whose actors collect, and whose correctors correct.
        alg: "AC", actor-critic, is the only one.
        ddp: two learner processes, or as many more as `config` says, share every update (torch
            DistributedDataParallel over gloo), on the CPU even where there is a GPU; without it
            there is one.
        amp: learn in bfloat16 where that is safe and faster; without
            it in float32, whatever `config` says.
        seconds: length of the run; None: as the game's preset says.
        seed: of the run; None: that of `config`.
        out: folder for its records and checkpoint; None: none are kept.
        resume: go on from the checkpoint in `out`.
        indicators: of your own, for a strategy of your own.
        config: what else the run is like; None: the game's preset, which clips the policy gradient.
            ``load_preset("paper-pong")`` of `accerl.presets` learns Pong by equation 4 alone.

    Raises:
        UserError: an argument is not allowed, or the policy does not fit the game.
    """

    def __init__(
        self,
        policy: nn.Module,
        memory: QManager,
        alg: str = "AC",
        ddp: bool = False,
        amp: bool = False,
        *,
        seconds: float | None = None,
        seed: int | None = None,
        out: Path | str | None = None,
        resume: bool = False,
        indicators: Sequence[Indicator] = (),
        config: RunConfig | None = None,
    ) -> None:
        if alg != "AC":
            raise UserError(f'Learner: alg must be "AC" (actor-critic), got {alg!r}')
        if not isinstance(policy, nn.Module):
            raise UserError(f"Learner: give it a network, got {type(policy).__name__}")
        if not isinstance(memory, QManager):
            raise UserError(f"Learner: give it a QManager, got {type(memory).__name__}")
        preset = load_preset(memory.env)
        if config is None:  # the paper's actors act with what they are asked for, at once
            config = replace(preset, compression=replace(preset.compression, admit_kl_nats=0.0))
            if resume and out is not None:
                config = as_measured(config, Path(out))
        if config.game != preset.game:
            raise UserError(
                f"Learner: the actors play {preset.game} and the configuration is for {config.game}"
            )
        own, theirs = asdict(config.env), asdict(preset.env)
        if changed := [f"env.{name}" for name in own if own[name] != theirs[name]]:
            raise UserError(
                f"Learner: the actors see {preset.game} as its preset shows it, and the "
                f"configuration changes {', '.join(changed)}; leave it as the preset has it"
            )
        self.memory = memory
        self.out = None if out is None else Path(out)
        self.resume = resume
        self.indicators = tuple(indicators)
        envs = make_envs(config.game, 1, config.env)
        shown, num_actions = envs.observation, envs.num_actions
        envs.close()
        self._given = policy
        self.policy = as_policy(policy, config.inputs(shown))
        self._device = self.policy.device
        seen = self.policy.observation
        config = replace(
            config,
            network=_network_of(self.policy),
            pixel_centre=seen.centre,
            pixel_unit=seen.unit,
            seed=config.seed if seed is None else seed,
            seconds=config.seconds if seconds is None else seconds,
        )
        self.config = config.with_runtime(
            runtime="process",
            clock="real",
            num_actors=len(memory.agents),
            num_learners=max(2, config.runtime.num_learners) if ddp else 1,
        ).with_precision("auto" if amp else "fp32")
        # Refuses what does not fit.
        Parts(policy=self.policy).make_policy(self.config, shown, num_actions, torch.Generator())
        self.reports: list[IntervalReport] = []
        """of the intervals so far"""
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._ended = threading.Event()  # an interrupted Thread.join takes the thread for ended
        self._result: RunResult | None = None
        self._error: BaseException | None = None
        self._raised = False
        self._restore: Callable[[], None] | None = None
        """has Ctrl-C do what it did before the run"""

    def start(self) -> None:
        """Begin; returns at once.

        Raises:
            UserError: an actor was not started, the learner was already, or a component cannot be
                sent to other processes.
        """
        waiting = [str(agent.rank) for agent in self.memory.agents if not agent.started]
        if waiting:
            raise UserError(f"Learner: start the actors first; rank {', '.join(waiting)} was not")
        if self._thread is not None:
            raise UserError("Learner: it was started already")
        compressed = self.memory.agents[0].policy
        _check_links(compressed.chain, self._given)
        parts = Parts(
            policy=self.policy,
            corrector=self.memory.correctors,
            links=compressed.chain.own_links,
            stopping=self._stopping,
        )
        config = self.config
        acting = Acting(compressed, measures=config.runtime.eval_episodes > 0)
        if "learner_return" in acting.needs and not config.runtime.eval_episodes:
            config = config.with_runtime(eval_episodes=EVAL_EPISODES)
            acting = Acting(compressed, measures=True)
        check_startable(config, acting, parts, self.indicators)
        self._stop_when_interrupted()
        atexit.register(self._at_exit)
        self._thread = threading.Thread(
            target=self._run, args=(config, acting, parts), name="learner", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """End the run like Ctrl-C does, with a checkpoint if it has an `out`."""
        self._stopping.set()

    def join(self) -> RunResult | None:
        """Wait until the run has ended and return what came of it; None if it was stopped.

        Ctrl-C stops the run and is then passed on; what ended the run is raised.
        """
        if self._thread is None:
            raise UserError("Learner: it was not started")
        try:
            self._ended.wait()
        except KeyboardInterrupt:
            self.stop()
            self._ended.wait()
            raise
        finally:
            self._let_go()
        if self._error is not None:
            self._raised = True
            raise self._error
        return self._result

    def _run(self, config: RunConfig, acting: Acting, parts: Parts) -> None:
        try:
            self._result = run_training(
                config,
                acting,
                strategy_name=acting.name,
                out=self.out,
                resume=self.resume,
                parts=parts,
                indicators=self.indicators,
                on_interval=self.reports.append,
            )
        except KeyboardInterrupt:  # it was stopped
            pass
        except BaseException as error:  # a thread must hand it over: `join` raises it
            self._error = error
            # Who never joins, or not for long, learns of it now; a mistake needs no traceback.
            if not isinstance(error, UserError):
                traceback.print_exception(error)
            print(f"accerl: the run has ended: {error}", file=sys.stderr, flush=True)
        finally:
            try:
                self.policy.to(self._device)  # a learner on a GPU has taken it there
            finally:
                self._ended.set()

    def _stop_when_interrupted(self) -> None:
        """Have Ctrl-C stop the run besides whatever else it does."""
        if threading.current_thread() is not threading.main_thread():
            return  # only the main thread may set handlers
        before = signal.getsignal(signal.SIGINT)

        def handle(number: int, frame: FrameType | None) -> None:
            self.stop()
            if callable(before):
                before(number, frame)

        def restore() -> None:
            if signal.getsignal(signal.SIGINT) is handle:
                signal.signal(signal.SIGINT, before)

        signal.signal(signal.SIGINT, handle)
        self._restore = restore

    def _let_go(self) -> None:
        """Leave Ctrl-C and the script's end as they were, once the run has ended and is joined."""
        if not self._ended.is_set():
            return
        atexit.unregister(self._at_exit)
        if self._restore is not None and threading.current_thread() is threading.main_thread():
            self._restore()
            self._restore = None

    def _at_exit(self) -> None:
        """Wait for a run that nobody has joined; do not let a script end well if it failed."""
        while not self._ended.is_set():
            with suppress(KeyboardInterrupt):  # the handler has stopped the run
                self._ended.wait()
        if self._error is not None and not self._raised:
            sys.stdout.flush()
            os._exit(2)  # all there is to tidy up the run has tidied up; nothing else sets the code


def _network_of(policy: Policy) -> str:
    """Return what a run calls a policy's network.

    Raises:
        UserError: it has no name.
    """
    name = name_of(policy)
    if name is None:
        raise UserError(
            f"Learner: the policy is none of {', '.join(NETWORKS)}; a run's other processes build "
            "networks by name: take AtariCNN() or policy_for(), which also takes module:function"
        )
    return name


def _check_links(chain: CompressorChain, policy: nn.Module) -> None:
    """Refuse what links hold and a run takes from its configuration.

    Raises:
        UserError: it names the link.
    """
    for link in chain.links:
        plain, name = link, type(link).__name__
        if isinstance(link, Pruning):
            plain = Pruning(link.policy, link.sparsity)
        elif isinstance(link, Distillation):
            plain = Distillation(link.policy, link.student)
        elif isinstance(link, LowRank):
            plain = LowRank(link.rank)
        elif isinstance(link, Quantizer):
            plain = Quantizer(link.precision)
        elif isinstance(link, ONNX):
            plain = ONNX()
        if link != plain:
            raise UserError(
                f"Learner: a run takes the options of {name} from its configuration; give them as "
                "settings of compression in Learner(..., config=...)"
            )
        if isinstance(link, Pruning | Distillation) and link.policy not in (None, policy):
            raise UserError(f"Learner: {name} was given another policy than learns")
