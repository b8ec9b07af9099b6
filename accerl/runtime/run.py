"""InnerRun: the one abstraction that an `Episode` drives, in every tier."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from accerl.json_fields import JsonFields
from accerl.spec import CompressionSpec, Decision

PHASES: tuple[str, ...] = ("env", "infer", "write", "wait", "learn", "compress", "publish")
"""Where seconds go: env, infer, write (actors), wait, learn (learner), compress, publish.

learn is all that becomes of a rollout, from unpacking it to showing it to students. compress is
distilling, and measuring shadows; it and publish are the learner's seconds too, unless a process of
its own does them. On the real clock, messages and what is sent to distillers are in no phase.
"""


@dataclass(frozen=True, kw_only=True)
class Takeover(JsonFields):
    """A spec has begun to act that did not act before."""

    spec: CompressionSpec
    asked_seconds: float
    """the run's clock when it was decided for"""
    seconds: float
    """from then until actors found it: distilling, compressing and sending"""
    kl_nats: float | None = None
    """KL(learner || engine) on held-out states when it was admitted; None: it needed not be"""

    def __str__(self) -> str:
        kl = "" if self.kl_nats is None else f" (KL {self.kl_nats:.2g})"
        return f"{self.spec.label} acts after {self.seconds:.3g} s{kl}"


@dataclass(frozen=True, kw_only=True)
class IntervalReport(JsonFields):
    """What happened between two decisions; one line of metrics.jsonl.

    Seconds are those of the run's own clock. KL is KL(learner || actor) in nats, from the logits
    that the acting engines really produced (paper, eq. 5).
    """

    index: int
    """0, 1, 2, ... since the start of the run"""
    seconds: float
    """length of this interval"""
    total_seconds: float
    """clock at the end of this interval"""
    env_steps: int
    """that were learned from in this interval"""
    total_env_steps: int
    """since the start of the run"""
    learner_updates: int
    """in this interval"""
    total_learner_updates: int
    """since the start of the run"""
    phase_seconds: Mapping[str, float]
    """busy seconds per phase (env, infer, write, wait, learn, compress, publish), summed over
    actors"""
    queue_fill: float
    """mean share of the rollout queue that was full when the learner took from it, in [0, 1]"""
    policy_lag: float
    """mean number of learner updates between the acting weights and the learner's"""
    kl_mean_nats: float
    """KL(learner || actor), mean over the states of this interval's rollouts"""
    kl_var: float
    """its variance over these"""
    kl_max_nats: float
    """the largest of these"""
    entropy_nats: float
    """mean entropy of the learner's policy"""
    episode_returns: tuple[float, ...]
    """raw game scores of episodes that ended in this interval, acted by the compressed policy"""
    learner_return: float | None
    """J: mean return of the learner's full-precision policy, measured off the clock"""
    decision: Decision
    """what the actors were asked to act with during this interval"""
    spec_seconds: Mapping[CompressionSpec, float]
    """actor seconds by the spec that really acted; JSON has its label for a key, here and below"""
    switch_seconds: float
    """seconds that changes of decision, and students that began to act, cost in this interval
    (compress + publish)"""
    acted_kl_nats: Mapping[CompressionSpec, float] = field(default_factory=dict)
    """`kl_mean_nats` by the spec that acted; of those alone of whose rollouts KL was measured"""
    losses: Mapping[str, float] = field(default_factory=dict)
    """learner losses and diagnostics, means over the interval"""
    events: tuple[Mapping[str, Any], ...] = ()
    """processes that died or hung, and specs that cannot be built: role, index, exit_code, seconds
    (run clock), label (of the spec), cause, action, is_retried (whether it is built again)"""
    conditions: tuple[Mapping[str, Any], ...] = ()
    """what was under way on the machine in this interval, each with its `words`; monitors, and so
    strategies, do not get it"""
    rss_bytes: Mapping[str, int] = field(default_factory=dict)
    """resident memory by process (learner, actor-0, compressor, ...), shared memory included;
    empty without /proc, and on a virtual clock, whose runs are equal on every machine"""
    private_bytes: Mapping[str, int] = field(default_factory=dict)
    """the part of `rss_bytes` that is no shared memory; processes that were forked by one server
    share some of it, which counts in each"""
    cpu_seconds: Mapping[str, float] = field(default_factory=dict)
    """processor seconds by process since the last report, without start-up and evaluation by the
    learner; of a process that was replaced, those of both; on a virtual clock those that the
    modelled processes take, actors that fill a rollout side by side together"""
    actor_core_seconds: float = 0.0
    """processor seconds of the actors within env, infer and write, of one of those that fill a
    rollout side by side on a virtual clock; 0: not known"""
    distill_updates: int = 0
    """distillation updates of students and pruned networks, without those before one may act"""
    distill_core_seconds: float = 0.0
    """processor seconds that they took, of all who distil together; on a virtual clock with a GPU
    the GPU's"""
    publications: int = 0
    """how often the policy was compressed"""
    publications_unchanged: int = 0
    """those of them whose integers were what acted already, so that nothing was sent"""
    publication_bytes: int = 0
    """what was sent to each actor"""
    student_kl_nats: Mapping[CompressionSpec, float] = field(default_factory=dict)
    """KL(learner || student or pruned network) at the last publication, by spec"""
    compression_kl_nats: Mapping[CompressionSpec, float] = field(default_factory=dict)
    """KL(learner || what was published of the same weights) on sampled states, by spec; empty
    where no publication of the interval was sampled"""
    shadow_kl_nats: Mapping[CompressionSpec, float] = field(default_factory=dict)
    """KL(learner || what was made of the same weights and does not act), by spec, see
    `Decision.shadow`; empty where none was measured in the interval"""
    waiting_kl_nats: Mapping[CompressionSpec, float | None] = field(default_factory=dict)
    """specs that were asked for and not admitted yet at the last publication
    (`compression.admit_kl_nats`): KL on held-out states; None: too few were played"""
    takeovers: tuple[Takeover, ...] = ()
    """what began to act, and how long that took from the decision"""
    staleness_kl_nats: float | None = None
    """KL(learner || itself one publication earlier) on sampled states; None: not sampled"""
    staleness_updates: int = 0
    """learner updates between those two"""
    monitor_cpu_seconds: Mapping[str, float] = field(default_factory=dict)
    """processor seconds spent on measuring indicators, by process; empty on a virtual clock"""
    lag_rollouts: Mapping[str, int] = field(default_factory=dict)
    """rollouts by their policy lag: the distribution that `policy_lag` is the mean of"""
    indicators: Mapping[str, float] = field(default_factory=dict)
    """what the monitor made of the report and of those before it, by name, the user's own too;
    without what is not known, and in no report that has not passed a monitor"""
    explanation: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """why the strategy decided so: numbers such as rate and score by candidate's label; empty where
    it does not say"""


Snapshot = dict[str, Any]
"""A tree of dicts and lists whose leaves are tensors, arrays, numbers, strings, bools or None."""


class InnerRun(Protocol):
    """One reinforcement-learning run that can be steered while it runs (every tier)."""

    @property
    def num_actions(self) -> int:
        """Actions of the game: the scale of entropy."""
        ...

    def apply(self, decision: Decision) -> None:
        """Act with `decision` from the next publication on; its cost goes on the clock."""
        ...

    def advance(self, seconds: float) -> IntervalReport:
        """Run for `seconds` of this run's own clock and report what happened."""
        ...

    def snapshot(self) -> Snapshot:
        """Return everything the run is, but for rollouts that other processes are filling.

        Serial and analytic runs go on bit-exactly if the game does. Games that cannot be saved
        (Atari's, and those of Gymnasium's registry: see `Envs.exact_resume`) begin anew. Of the
        states that students learn from it holds the newest 32 MB: on Atari, where more are kept,
        students go on from others than they would have.
        """
        ...

    def restore(self, snapshot: Snapshot) -> None:
        """Become the run that `snapshot` was taken from."""
        ...

    def close(self) -> None:
        """Release processes, sessions and shared memory; safe to call twice."""
        ...
