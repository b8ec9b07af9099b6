"""Tier 0 on real machines: an inner run whose learning is drawn and whose clock is worked out.

Env steps, policy lag and phases are the steady state of the machine's latency profile for what acts
(`pace`), at every moment of the run's conditions; skill and KL follow the equations of `fidelity`.
What is decided acts when it has been published: after the update that orders it, compressing,
warm-up or admission, and sending, during which actors go on with what they have. Left out of the
clock are chance, contention at the moment of a switch, distillers that follow what rests, and what
compressing and measuring a shadow takes: reports have those seconds, under "compress".
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from dataclasses import replace
from functools import cache
from typing import Any

from accerl.compress.admission import PLAYED_SHARE
from accerl.errors import UserError
from accerl.runtime.conditions import Moment, to_records
from accerl.runtime.run import IntervalReport, Snapshot, Takeover
from accerl.seeds import Role, generator
from accerl.spec import IDENTITY, CompressionSpec, Decision, StudentKey
from controller.analytic.fidelity import GameFidelity
from controller.analytic.lag import LagErrors
from controller.analytic.machine_report import NOISES, Sums, make_report
from controller.analytic.pace import MachinePace, Mix, Pace

STEPS = 160
"""of the integration of a whole run, at least"""
_LUCKY_INTERVALS = 20.0  # in which `luck_spread` is what it says
_STATE = (
    *("skill", "seconds", "index", "env_steps", "updates", "publications"),
    *("learning", "publishing", "switch_seconds", "speed"),
)
"""the numbers of a run's state"""


class MachineRun:
    """An InnerRun of a drawn game on a machine; `seed` drives luck and measurement noise.

    Args:
        pace: of the machine and configuration; runs of one instance may share it.
        game: how it is learned.
        seed: the noise of equal seeds is the same whatever acts.
    """

    def __init__(self, pace: MachinePace, game: GameFidelity, seed: int) -> None:
        self.game = game
        self._machine = pace
        config = self._config = pace.config
        self._rng = generator(seed, Role.ANALYTIC_RUN)
        self._speed = math.exp(game.seed_spread * float(self._rng.standard_normal()))
        self._lags = LagErrors(game, seed)
        conditions = config.conditions
        events = conditions.events
        self._changes = sorted({0.0, *(t for each in events for t in (each.at_seconds, each.ends))})
        self._moments = [conditions.at(time) for time in self._changes]
        self._step = config.seconds / STEPS
        self._skill = game.initial_skill
        self._seconds, self._env_steps, self._updates = 0.0, 0.0, 0.0
        self._publications, self._switch_seconds = 0.0, 0.0
        self._learning, self._publishing = 0.0, 0.0
        """seconds of the update, and of the publication, that is under way"""
        self._index = 0
        self._decision: Decision | None = None
        self._acting: Mix = ()
        self._coming: tuple[Mix, float, float] | None = None
        """what is being published, when it will act, and what publishing takes"""
        self._asked_at: dict[CompressionSpec, float] = {}
        self._excess: dict[StudentKey, float] = {}
        self._warm: StudentKey | None = None
        """what was the shadow when something else was decided: it needs no warm-up"""

    @property
    def num_actions(self) -> int:
        """See `InnerRun.num_actions`."""
        return self.game.num_actions

    @property
    def seconds(self) -> float:
        """The run's clock."""
        return self._seconds

    @property
    def skill(self) -> float:
        """The learner's skill, which J is measured of."""
        return self._skill

    def apply(self, decision: Decision) -> None:
        """See `InnerRun.apply`."""
        last, self._decision = self._decision, decision
        if last is not None and decision.without_shadow == last.without_shadow:
            return  # a shadow is measured with the next publication
        decision.check_students(self._config.network)
        self._warm = None if last is None or last.shadow is None else last.shadow.student_key
        acting = self._specs
        asked = [spec for spec in decision.specs if spec not in acting]
        self._asked_at = {spec: self._asked_at.get(spec, self._seconds) for spec in asked}
        self._publish(self._admitted(decision))

    @property
    def _specs(self) -> tuple[CompressionSpec, ...]:
        return tuple(spec for spec, _ in self._acting)

    def _moment(self) -> tuple[Moment, float]:
        """Return the machine as it is now, and until when."""
        place = bisect_right(self._changes, self._seconds)
        until = self._changes[place] if place < len(self._changes) else math.inf
        return self._moments[place - 1], until

    def _publish(self, mix: Mix) -> None:
        """Have `mix` act as soon as it is published: one publication is under way at a time."""
        if mix == self._acting or self._coming is not None:
            return
        moment, _ = self._moment()
        pace = self._machine.of(mix, (), moment, kl_nats=self._student_kl)
        before = self._specs
        busy = 0.0
        if before:
            acting = self._machine.of(self._acting, (), moment, kl_nats=self._student_kl)
            busy = acting.blocked_seconds
        warmed = sum(self._machine.warmup_seconds(s, moment) for s in self._cold(mix).values())
        delay = pace.delay_seconds if before else pace.delay_seconds + 0.5 * pace.fill_seconds
        self._coming = mix, self._seconds + busy + delay + warmed, pace.publish_seconds + warmed

    def _cold(self, mix: Mix) -> dict[StudentKey, CompressionSpec]:
        """Return what must be warmed up before a mix acts: none where students are admitted."""
        if self._config.compression.admit_kl_nats:
            return {}
        warm = {self._warm, *(spec.student_key for spec in self._specs)}
        keys = ((spec.student_key, spec) for spec, _ in mix)
        return {key: spec for key, spec in keys if key is not None and key not in warm}

    def _admitted(self, decision: Decision) -> Mix:
        """Return what is to act for a decision: milder specs for those that are not admitted.

        An untrained learner's copies are, see `Admission`.
        """
        acting = self._specs
        bound = self._config.compression.admit_kl_nats if int(self._updates) else 0.0
        shares: defaultdict[CompressionSpec, float] = defaultdict(float)
        for spec, share in decision.mix:
            waits = bound and spec.student_key is not None and spec not in acting
            if waits and not (self._has_played and self._kl(spec) <= bound):
                own = CompressionSpec(bits=spec.bits, graph=spec.graph)
                milder = [other for other in acting if other.mildness < spec.mildness]
                spec = max([own, *milder], key=lambda other: other.mildness)
            shares[spec] += share
        return tuple(shares.items())

    @property
    def _waiting(self) -> tuple[CompressionSpec, ...]:
        """What was asked for and is not admitted yet, or on its way."""
        if self._decision is None or not self._config.compression.admit_kl_nats:
            return ()
        acting, asked = self._specs, self._decision.specs
        return tuple(s for s in asked if s.student_key is not None and s not in acting)

    @property
    def _shadow(self) -> CompressionSpec | None:
        """What is compressed and compared, and does not act."""
        return None if self._decision is None else self._decision.shadow

    @property
    def _has_played(self) -> bool:
        """Whether enough states were played to admit anything."""
        return self._env_steps >= PLAYED_SHARE * self._config.compression.distill_states

    def _kl(self, spec: CompressionSpec) -> float:
        """Return KL(learner || what acts) of a spec now, of compression alone."""
        kl = self.game.full_kl(spec) * self.game.growth(self._skill)
        key = spec.student_key
        return kl if key is None else kl * (1.0 + self._excess.get(key, self.game.begins_at))

    def _student_kl(self, spec: CompressionSpec) -> float:
        """Return the same of the network that `spec` distils."""
        return self._kl(_distilled(spec))

    def advance(self, seconds: float) -> IntervalReport:
        """See `InnerRun.advance`."""
        if not seconds > 0.0:
            raise UserError(f"advance needs positive seconds, got {seconds!r}")
        if self._decision is None:
            self.apply(Decision.of(IDENTITY))
        noise = self._rng.standard_normal(NOISES).tolist()
        spread = self.game.luck_spread
        spread *= math.sqrt(self._config.seconds / _LUCKY_INTERVALS / seconds)
        luck = self._speed * math.exp(spread * noise[0] - 0.5 * spread**2)
        begins, sums = self._seconds, Sums(*self._totals)
        end = begins + seconds
        while self._seconds < end:
            self._go_on(end, luck, sums)
        self._book_what_ended(sums)
        self._index += 1
        switch_seconds, self._switch_seconds = self._switch_seconds, 0.0
        assert self._decision is not None
        return make_report(
            self.game,
            sums,
            noise,
            index=self._index - 1,
            seconds=seconds,
            total_seconds=self._seconds,
            totals=self._totals,
            skill=self._skill,
            kl={spec: self._kl(spec) for spec in (*self._specs, *self._waiting)},
            acted_kl={spec: self._kl(spec) for spec in sums.acted},
            shadow=self._measured_shadow(sums),
            waiting={spec: self._kl(spec) if self._has_played else None for spec in self._waiting},
            decision=self._decision,
            switch_seconds=switch_seconds,
            conditions=to_records(self._config.conditions.under_way(begins, self._seconds)),
            episodes=self._config.runtime.eval_episodes,
        )

    def _book_what_ended(self, sums: Sums) -> None:
        """Book the seconds of updates and publications where they end, as runs do."""
        _, updates, publications = sums.counted(self._totals)
        begun = self._updates - int(sums.updates)
        self._learning = _book(sums.phases, "learn", self._learning, updates, begun)
        begun = self._publications - int(sums.publications)
        self._publishing = _book(sums.phases, "publish", self._publishing, publications, begun)

    @property
    def _totals(self) -> tuple[float, float, float]:
        return self._env_steps, self._updates, self._publications

    def _measured_shadow(self, sums: Sums) -> dict[CompressionSpec, float]:
        """Measure the shadow once in an interval, after a publication, and report what that takes.

        The clock does not go on meanwhile, see the module.
        """
        spec = self._shadow
        published = int(self._publications) > int(sums.publications)
        if spec is None or not published or (spec.student_key and not self._has_played):
            return {}
        sums.phases["compress"] += self._machine.shadow_seconds(spec)
        return {spec: self._kl(spec)}

    def _go_on(self, end: float, luck: float, sums: Sums) -> None:
        """Go on until something changes, for one step of the integration at most."""
        moment, changes = self._moment()
        until = min(end, changes, self._seconds + self._step)
        waiting = self._waiting
        if self._coming is not None:
            until = min(until, self._coming[1])
        if until > self._seconds:
            if self._acting:
                known = self._student_kl
                pace = self._machine.of(self._acting, waiting, moment, known, self._shadow)
                self._act(pace, until - self._seconds, luck, sums)
            else:
                sums.phases["wait"] += until - self._seconds
            self._seconds = until
        if self._coming is not None and self._seconds >= self._coming[1]:
            self._take_over(sums)
        elif waiting and self._coming is None and self._decision is not None:
            self._publish(self._admitted(self._decision))

    def _take_over(self, sums: Sums) -> None:
        """What was published acts from now on."""
        assert self._coming is not None
        before, compression = self._specs, self._config.compression
        mix, _, published = self._coming
        if before:
            self._switch_seconds += published
        for key in self._cold(mix):
            states = compression.distill_warmup_updates * compression.distill_batch
            excess = self._excess.get(key, self.game.begins_at)
            self._excess[key] = excess * math.exp(-states / self.game.distill_states)
        self._coming, self._acting = None, mix
        bound = compression.admit_kl_nats
        for spec, _ in mix:
            if spec in self._asked_at:
                asked = self._asked_at.pop(spec)
                kl = self._kl(spec) if bound and spec.student_key is not None else None
                sums.takeovers.append(
                    Takeover(
                        spec=spec, asked_seconds=asked, seconds=self._seconds - asked, kl_nats=kl
                    )
                )
        if self._decision is not None:  # another may have been asked for meanwhile
            self._publish(self._admitted(self._decision))

    def _act(self, pace: Pace, seconds: float, luck: float, sums: Sums) -> None:
        """Act and learn for some seconds at one pace."""
        game = self.game
        env_steps = seconds * pace.env_steps_per_second
        updates = seconds / pace.update_seconds
        self._follow(pace, updates)
        parts = []
        kl_mean, growth = 0.0, game.growth(self._skill)
        for spec, share in self._acting:
            kl = self._kl(spec)
            kl_mean += share * kl
            parts.append((share, kl / growth))
        lag = self._lags.real(pace.policy_lag, self._acting)
        gain = luck * game.gain_per_step * env_steps / (1.0 + lag / game.lag_half)

        def gained(x: float) -> float:
            shown = game.growth(x)
            worth = sum(
                share * math.exp(-game.cost * (kl * shown) ** game.cost_power)
                for share, kl in parts
            )
            return gain * worth * x**game.rise * (1.0 - x) ** game.saturation

        middle = min(self._skill + 0.5 * gained(self._skill), 1.0)
        self._skill = min(self._skill + gained(middle), 1.0)
        self._env_steps += env_steps
        self._updates += updates
        self._publications += updates / pace.publish_every
        sums.add(pace, self._acting, seconds, updates, kl_mean, lag)

    def _follow(self, pace: Pace, updates: float) -> None:
        """Have students fall behind the learner, and those in use be distilled."""
        game, followed = self.game, dict(pace.distill_states)
        for key in {**dict.fromkeys(self._excess, 0.0), **followed}:
            excess = self._excess.get(key, game.begins_at)
            self._excess[key] = game.followed(excess, updates, followed.get(key, 0.0))

    def snapshot(self) -> Snapshot:
        """See `InnerRun.snapshot`."""
        coming = self._coming
        return {
            **{name: getattr(self, f"_{name}") for name in _STATE},
            "decision": None if self._decision is None else self._decision.to_json(),
            "acting": _mix_state(self._acting),
            "coming": None if coming is None else [_mix_state(coming[0]), *coming[1:]],
            "asked_at": {spec.label: seconds for spec, seconds in self._asked_at.items()},
            "excess": [[*key, excess] for key, excess in self._excess.items()],
            "warm": None if self._warm is None else list(self._warm),
            "rng": self._rng.bit_generator.state,
        }

    def restore(self, snapshot: Snapshot) -> None:
        """See `InnerRun.restore`."""
        for name in _STATE:
            setattr(self, f"_{name}", snapshot[name])
        decision, coming = snapshot["decision"], snapshot["coming"]
        self._decision = None if decision is None else Decision.from_json(decision)
        self._acting = _read_mix(snapshot["acting"])
        self._coming = None if coming is None else (_read_mix(coming[0]), coming[1], coming[2])
        self._asked_at = {
            CompressionSpec.from_label(label): float(seconds)
            for label, seconds in snapshot["asked_at"].items()
        }
        self._excess = {StudentKey(*key): float(excess) for *key, excess in snapshot["excess"]}
        warm = snapshot["warm"]
        self._warm = None if warm is None else StudentKey(*warm)
        self._rng.bit_generator.state = snapshot["rng"]

    def close(self) -> None:
        """Nothing to release."""


def _book(phases: dict[str, float], name: str, under_way: float, ended: int, begun: float) -> float:
    """Leave a phase the seconds of work that has ended; return those of what is under way.

    Args:
        phases: seconds of an interval.
        name: of the phase.
        under_way: seconds that earlier intervals left.
        ended: pieces of work that ended in this one.
        begun: pieces that it did, those before it but for what had ended, parts of one included.
    """
    seconds = under_way + phases[name]
    phases[name] = seconds * ended / begun if begun else 0.0
    return seconds - phases[name]


@cache
def _distilled(spec: CompressionSpec) -> CompressionSpec:
    """Return the network that `spec` distils, as it is before it is rounded or factorised."""
    return replace(spec, bits=32, rank=1.0)


def _mix_state(mix: Mix) -> list[list[Any]]:
    return [[spec.label, share] for spec, share in mix]


def _read_mix(state: list[list[Any]]) -> Mix:
    return tuple((CompressionSpec.from_label(label), float(share)) for label, share in state)
