"""Who learns: a run in the background (Table 2)."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from accerl.adopt import adopt
from accerl.config import RunConfig
from accerl.correct import name_of
from accerl.envs import make_envs
from accerl.errors import UserError
from accerl.monitor.indicators import Indicator
from accerl.networks import PolicyNet, architecture
from accerl.paper.actors import QManager
from accerl.paper.strategy import Acting
from accerl.presets import load_preset
from accerl.runtime.parts import Parts
from accerl.runtime.run import IntervalReport
from accerl.spec import STUDENTS
from accerl.train import RunResult, train


class Learner:
    """Learns from what the memory's actors collect, in the background from `start` on.

    Args:
        policy: what learns, in place: a network of Table 6's ladder (`AtariCNN`, `policy_for`), or
            a module of your own with the same layers, of which a copy learns (see `policy`).
        memory: whose actors collect, and whose correctors correct.
        alg: "AC", actor-critic, is the only one.
        ddp: two learner processes share every update (torch DistributedDataParallel over gloo).
        amp: learn in bfloat16 where that is safe.
        seconds: length of the run; None: as the game's preset says.
        seed: of the run.
        out: folder for its records and checkpoint; None: none are kept.
        indicators: of your own, for a strategy of your own.
        config: what else the run is like; None: the game's preset.

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
        seed: int = 0,
        out: Path | str | None = None,
        indicators: Sequence[Indicator] = (),
        config: RunConfig | None = None,
    ) -> None:
        if alg != "AC":
            raise UserError(f'Learner: alg must be "AC" (actor-critic), got {alg!r}')
        config = config or load_preset(memory.env)
        self.memory = memory
        self.out = None if out is None else Path(out)
        self.indicators = tuple(indicators)
        envs = make_envs(config.game, 1)
        shown, num_actions = envs.observation, envs.num_actions
        envs.close()
        self.policy = adopt(policy, config.inputs(shown))
        seen = self.policy.observation
        config = replace(
            config,
            network=_network_of(self.policy),
            pixel_centre=seen.centre,
            pixel_unit=seen.unit,
            seed=seed,
            seconds=config.seconds if seconds is None else seconds,
        )
        self.config = config.with_runtime(
            runtime="process",
            clock="real",
            num_actors=len(memory.agents),
            num_learners=2 if ddp else 1,
        ).with_learner(precision="bf16" if amp else "fp32")
        # Refuses what does not fit.
        Parts(policy=self.policy).make_policy(self.config, shown, num_actions, torch.Generator())
        self.reports: list[IntervalReport] = []
        """of the intervals so far"""
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._result: RunResult | None = None
        self._error: BaseException | None = None

    def start(self) -> None:
        """Begin; returns at once.

        Raises:
            UserError: an actor was not started, or the learner was already.
        """
        waiting = [str(agent.rank) for agent in self.memory.agents if not agent.started]
        if waiting:
            raise UserError(f"Learner: start the actors first; rank {', '.join(waiting)} was not")
        if self._thread is not None:
            raise UserError("Learner: it was started already")
        self._thread = threading.Thread(target=self._run, name="learner")
        self._thread.start()

    def stop(self) -> None:
        """End the run after its present interval; it can be resumed from `out`."""
        self._stopping.set()

    def join(self) -> RunResult | None:
        """Wait until the run has ended and return what came of it; None if it was stopped.

        Ctrl-C stops the run and is then passed on, as is whatever ended it.
        """
        if self._thread is None:
            raise UserError("Learner: it was not started")
        try:
            self._thread.join()
        except KeyboardInterrupt:
            self.stop()
            self._thread.join()
            raise
        if self._error is not None:
            raise self._error
        return self._result

    def _run(self) -> None:
        compressed = self.memory.agents[0].policy
        parts = Parts(
            policy=self.policy,
            corrector=self.memory.correctors,
            links=compressed.chain.own_links,
        )
        try:
            acting = Acting(compressed)
            given = self.config.learner
            name = name_of(self.memory.correctors, rho=given.clip_rho, c=given.clip_c)
            config = self.config.with_learner(corrector=name)
            if "learner_return" in acting.needs and not config.runtime.eval_episodes:
                config = config.with_runtime(eval_episodes=16)
            self._result = train(
                config,
                acting,
                strategy_name=acting.name,
                out=self.out,
                parts=parts,
                indicators=self.indicators,
                on_interval=self._note,
            )
        except _Stopped:
            pass
        except BaseException as error:  # a thread must hand it over: `join` raises it
            self._error = error

    def _note(self, report: IntervalReport) -> None:
        self.reports.append(report)
        if self._stopping.is_set():
            raise _Stopped


class _Stopped(Exception):
    """The run is to end."""


def _network_of(policy: PolicyNet) -> str:
    """Return which network of Table 6 a policy is.

    Raises:
        UserError: it is none.
    """
    for name in STUDENTS:
        if architecture(name, policy.observation) == policy.arch:
            return name
    raise UserError(
        f"Learner: the policy has layers {policy.arch}, which is none of {', '.join(STUDENTS)}; a "
        "run's other processes can build only those: take AtariCNN() or policy_for()"
    )
