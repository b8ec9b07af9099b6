"""The pace of a pipeline, worked out from what a latency profile says its work takes.

The steady state of the pipeline that the serial runtime plays event by event. A rollout has
S = T B env steps; G groups of actors fill rollouts, one learner makes an update of each, H helpers
(a compressor, and distillers) publish after every p-th and distil without pause, up to A updates of
D core-seconds per learner update that the n of them share who distil, fewer where what they distil
is close to the learner and rests (`effort`). With core-seconds per env
step of the whole pipeline, q publications per env step and c copies of the learner's weights
(after every update where something is distilled, else q),

    w_actor      = (env + infer + write) / (B G) + load min(q, 1 / (G S))     for each group
    w_distiller  = D A / (n S), infinite without a limit                      for each of n
    w_compressor = publish q, plus w_distiller if there are no distillers
    w_learner    = reuse learn + copy c, and on a GPU
                   reuse learn + copy c + sum_n min(w_distiller, reuse learn),

because who distils on the GPU gets as much of it as the learner. A learner that compresses itself
does w_compressor too, and waits for send q, which takes no core. Rollouts of b bytes an env step
that travel from H machines, u bytes a second from each, with s slots an actor, take

    w_upload = b / (H u),
    w_slots  = (G S w_actor + S b / u + S reuse learn) / (s G S):

an actor waits when its last slots are on their way. An actor that has got a slot back while a
publication was under way waits for that before it fills it, for at most the patience h. On average
over the k-th of the updates between two publications it adds

    mean_k min(h, max(0, made - k update - later)) / (G S)

to w_actor, but no work; `made` is what is left of `age` (below) when a publication is ordered, and
`later` when an actor comes to the slot: it has filled s - 1 others since it sent this one. The
slowest,

    w* = max(w_actor, w_learner, w_upload, w_slots),

is always busy if others wait for it, and nobody is busy longer than that. While K processes of the
run and j of others compute, each gets min(1, C / (K + j)) of the C cores; a group of actors
occupies m of them, none if it is on other machines. So what is computed there takes

    s = mean of max(1, (K + j) / C)

times as long on average, and w* has s in front of what cores do. Processes do not come and go by
chance: they wait for each other. In a cycle, from one learner update to the next, the learner
begins first. Of G groups that are busy in a share a of the time each, the whole part of a G is busy
throughout, and one is in the rest of it, from when it gets its slot back. The compressor and
distillers begin after an update: where the learner limits, with the cycle. Of what the GPU
computes, only the share `gpu_core` is taken from the cores, and it takes max(1, gpu_core s) times
as long. A compressor holds nobody up: weights are older when they act. One publication is under
way at a time. A compressor that does not distil begins it after an update, so that the updates
between two are a whole number; one that does lets a piece of m updates come first:

    q = 1 / (S max(p, ceil(age / update))) or, if it distils, 1 / (S max(p, age / update)),
    age = copy + (m D + publish) s + send,   update = S seconds per env step.

Publications go to each machine once, rollouts and publications do not disturb each other. The
bandwidth of memory is left out (`LatencyProfile`).

`Work.under` says what the same work takes while conditions are others. Left out are warm-ups, new
beginnings of students (`Beginnings`), which take as long as some updates of theirs, and integers
that did not change and need not be sent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from accerl.compress.distillation.effort import updates_due, usual_kl_nats
from accerl.config import RunConfig
from accerl.runtime.conditions import Moment
from accerl.runtime.latency.profile import LatencyProfile
from accerl.runtime.publishing.charges import PIECE_UPDATES, most_sharers
from accerl.runtime.wiring import Wiring
from accerl.spec import CompressionSpec

_ROUNDS = 30  # of the fixed points of q and of what actors wait; they settle in a few
_SETTLED = 1e-4  # of an update's seconds
_SHARING_ROUNDS = 40  # of the fixed point of how all share the cores


def settle(work: Work, every: int) -> tuple[float, Steady]:
    """Return the updates between two publications, and the pace with them.

    Args:
        work: of the pipeline.
        every: updates between two publications at least.
    """
    updates, state = _between_publications(work, every, 0.0)
    waits = 0.0
    for _ in range(_ROUNDS):
        before, waits = waits, (waits + work.waits(state, updates)) / 2.0
        if abs(waits - before) <= _SETTLED * state.seconds * work.rollout:
            break
        updates, state = _between_publications(work, every, waits)
    return updates, state


def _between_publications(work: Work, every: int, waits: float) -> tuple[float, Steady]:
    updates = float(every)
    state = work.steady(updates, waits)
    for _ in range(_ROUNDS):
        # Rarer work leaves others faster: it only grows.
        before = updates
        updates = max(updates, state.age_updates if work.piece else math.ceil(state.age_updates))
        if updates == before:
            break
        state = work.steady(updates, waits)
    return updates, state


@dataclass(frozen=True, kw_only=True)
class Steady:
    """The pipeline's pace, for a certain number of updates between two publications."""

    seconds: float  # per env step
    learner_is_slowest: bool
    waits_for_upload: bool
    slowdown: float  # of everybody, where cores are shared
    acting: float  # of one group, per rollout
    learning: float  # of the learner, per update: what shares the GPU with it is counted
    made: float  # seconds from the order of a publication until actors have it
    age: float  # seconds
    age_updates: float
    actors_slower: float  # that actors take so many times as long as `Work` says
    copying: float  # seconds on the clock per env step, as are the next three
    publishing: float  # without sending
    sending: float  # of a learner that compresses itself: it waits meanwhile
    distilling: float  # of all who distil together
    distilled: float  # core-seconds per env step, of all together


@dataclass(frozen=True, kw_only=True)
class Work:
    """Core-seconds of what is done with one spec, in the names of the module's equations."""

    wiring: Wiring
    rollout: int  # env steps, S
    act: float  # per env step, as are infer and learn
    infer: float
    learn: float
    distillers: int  # that share the distilling; 0: nothing is distilled, or others do it
    distill: float  # of each of them per update, infinite without a limit
    piece: float  # that comes before a publication
    publish: float  # per publication, as all below
    copy: float
    load: float
    send: float
    upload: float = 0.0
    """seconds that a rollout takes one link"""
    hosts: int = 0
    """links; 0: rollouts need not travel"""
    slots: int = 2
    """of each group of actors"""
    holds_back: bool = False
    """whether no more rollouts are under way than keep the learner busy, see `Slots`"""
    patience: float = 0.0
    """seconds that an actor waits for a publication at most"""
    co_tenants: int = 0
    """processes of others on the learner's machine that compute without pause"""

    @classmethod
    def of(
        cls,
        profile: LatencyProfile,
        config: RunConfig,
        spec: CompressionSpec,
        kl_nats: float | None = None,
    ) -> Work:
        """Return the work of a profile's pipeline, acting with `spec`.

        Args:
            profile: of the machine, as the learner's network sees it.
            config: of the run.
            spec: what acts.
            kl_nats: how far the network that it distils is from the learner; None: as is usual.
        """
        runtime = config.runtime
        wiring = Wiring.of(runtime, profile)
        acted = profile.act_seconds(spec, runtime.num_envs, runtime.infer_batch)
        env_steps = runtime.num_envs * wiring.actors
        once, compression = 0.0, config.compression
        if spec.student_key is not None:
            once = profile.distill_seconds(spec, compression.distill_batch)
        allowed = compression.distill_updates
        sharers = most_sharers(wiring.distillers, allowed)
        share = float(allowed) if allowed else math.inf
        if not wiring.compressor:  # the learner, which goes on learning after some
            share = allowed or PIECE_UPDATES
        kl = usual_kl_nats(spec) if kl_nats is None else kl_nats
        share = updates_due(share, kl, compression.rest_kl_nats)
        return cls(
            wiring=wiring,
            rollout=config.learner.unroll * runtime.num_envs,
            act=sum(acted) / env_steps,
            infer=acted[1] / env_steps,
            learn=profile.learn_seconds(config.learner.reuse),
            distillers=sharers if once else 0,
            distill=once * share if once else 0.0,
            piece=0.0 if wiring.distillers else once * min(share, PIECE_UPDATES),
            publish=profile.publish_seconds(spec),
            copy=profile.copy_seconds(),
            load=profile.load_seconds(spec),
            send=profile.send_seconds(spec),
            upload=profile.upload_seconds(config.learner.unroll * runtime.num_envs),
            hosts=wiring.hosts,
            slots=wiring.slots_each(runtime.queue_rollouts),
            holds_back=runtime.hold_back,
            patience=runtime.patience_seconds,
        )

    def under(self, moment: Moment) -> Work:
        """Return the work under the conditions of a moment.

        Actors of unequal speed count as equal ones with the same total speed.
        """
        wiring = self.wiring
        actors = moment.actors or wiring.actors
        slower = _slower(moment, [f"actor-{index}" for index in range(actors)])
        learner = moment.slowdown("learner")
        compressor = moment.slowdown("compressor") if wiring.compressor else learner
        names = [f"distiller-{index}" for index in range(wiring.distillers)]
        distiller = _slower(moment, names) if names else compressor
        on_gpu = wiring.on_gpu
        each = slower * wiring.actors / actors
        return replace(
            self,
            wiring=replace(wiring, actors=actors),
            act=each * self.act,
            infer=each * self.infer,
            learn=self.learn * (1.0 if on_gpu else learner),
            distill=self.distill * (1.0 if on_gpu else distiller),
            piece=self.piece * (1.0 if on_gpu else compressor),
            publish=compressor * self.publish,
            copy=learner * self.copy,
            load=slower * self.load,
            send=self.send / moment.bandwidth,
            upload=self.upload / moment.bandwidth,
            co_tenants=moment.co_tenants,
        )

    def waits(self, state: Steady, updates: float) -> float:
        """Return the seconds per rollout that an actor waits for publications under way."""
        update = state.seconds * self.rollout
        later = (self.slots - 1) * state.acting - self.upload - self.learn * self.rollout
        left = state.made - max(later, 0.0)
        count = max(math.ceil(updates), 1)
        terms = min(count, math.ceil(max(left, 0.0) / update))
        first = 0.5 if self.piece else 0.0
        # The k-th wait is left - (first + k) update: the patience at first, then less and less.
        longest = min(max(math.ceil((left - self.patience) / update - first), 0), terms)
        some = min(max(math.ceil(left / update - first), longest), terms)
        middle = left - (first + (longest + some - 1) / 2.0) * update
        return (longest * self.patience + (some - longest) * middle) / count

    def steady(self, updates: float, waits: float) -> Steady:
        """Return the pace with so many updates between publications.

        Args:
            updates: between publications.
            waits: seconds per rollout that an actor waits for publications under way.
        """
        wiring = self.wiring
        q = 1.0 / (updates * self.rollout)
        publish, distill = self.publish * q, self.distill / self.rollout
        actor = self.act + self.load * min(q, 1.0 / (wiring.actors * self.rollout))
        copy = self.copy * (1.0 / self.rollout if self.distill else q)
        learn = self.learn
        helpers = [(publish, 0.0), *[(0.0, distill)] * self.distillers]
        if not wiring.distillers:
            helpers = [(publish, distill)]
        if wiring.on_gpu and wiring.compressor:
            learn += sum(min(distilling, self.learn) for _, distilling in helpers)
        cpu, gpu = (copy, learn) if wiring.on_gpu else (copy + learn, 0.0)
        learner, sending, distilled = learn + copy, 0.0, 0.0
        if not wiring.compressor:
            learner, helpers, distilled = learner + publish + distill, [], distill
            gpu += distill if wiring.on_gpu else 0.0
            cpu, sending = learner - gpu, self.send * q
        idle = waits / (wiring.actors * self.rollout)
        seconds, slowdown = self._shared(actor, idle, cpu, gpu, sending, helpers)
        on_gpu = max(1.0, wiring.gpu_core * slowdown) if wiring.on_gpu else slowdown
        for publishing, distilling in helpers:
            distilled += min(distilling, max(seconds - slowdown * publishing, 0.0) / on_gpu)
        piece = self.piece * (1.0 + learn / seconds if wiring.on_gpu else 1.0)
        age = self.copy + (piece + self.publish) * slowdown + self.send
        return Steady(
            seconds=seconds,
            learner_is_slowest=learner + sending >= actor,
            waits_for_upload=self.uploading(actor) > max(actor + idle, learner + sending),
            slowdown=slowdown,
            acting=actor * slowdown * wiring.actors * self.rollout + waits,
            learning=learn * on_gpu * self.rollout,
            made=self.publish * slowdown + self.send,
            age=age,
            age_updates=age / (seconds * self.rollout),
            actors_slower=slowdown if wiring.group_cores else 1.0,
            copying=slowdown * copy,
            publishing=slowdown * publish,
            sending=sending,
            # On a GPU, who distils waits for the learner as long as the learner does for it.
            distilling=on_gpu * (distilled + learn - self.learn),
            distilled=distilled,
        )

    def _shared(
        self,
        actor: float,
        idle: float,
        cpu: float,
        gpu: float,
        sending: float,
        helpers: Sequence[tuple[float, float]],
    ) -> tuple[float, float]:
        """Return seconds per env step, and s, as all share the cores.

        Args:
            actor: w_actor, without waiting.
            idle: what waiting adds to it.
            cpu: w_learner, what cores do of it.
            gpu: w_learner, what a GPU does of it.
            sending: for which the learner waits besides.
            helpers: of each, w_compressor for publishing and w_distiller.
        """
        wiring = self.wiring
        seconds, slower = math.inf, 1.0
        for _ in range(_SHARING_ROUNDS):
            on_gpu = max(1.0, wiring.gpu_core * slower)
            acts = slower * actor if wiring.group_cores else actor
            seconds = max(acts + idle, slower * cpu + on_gpu * gpu + sending, self.uploading(acts))
            computing = on_gpu * gpu / seconds  # processes for which the GPU computes
            busy = [min(slower * cpu / seconds, 1.0)]
            for publishing, distilling in helpers:
                share = min(slower * publishing / seconds, 1.0)
                if wiring.on_gpu:
                    computing += min(on_gpu * distilling / seconds, 1.0 - share)
                else:
                    share = min(share + slower * distilling / seconds, 1.0)
                busy.append(share)
            full, part = divmod(wiring.actors * min(acts / seconds, 1.0), 1.0)
            # Who has got a slot back waits for the publication that is under way then.
            begins = busy[1] if helpers and not self.distill else 0.0
            spans = [(begins, part, wiring.group_cores), (0.0, busy[0], 1.0)]
            spans += [(busy[0] % 1.0, share, 1.0) for share in busy[1:]]
            always = full * wiring.group_cores + self.co_tenants
            free = wiring.cores - wiring.gpu_core * computing
            found = _crowding(always, spans, free)
            if found * wiring.gpu_core > 1.0:  # who waits for the GPU gets no more than others
                found = _crowding(always + computing, spans, wiring.cores)
            processes = wiring.actors * wiring.group_cores + self.co_tenants + len(busy)
            found = 1.0 if processes <= wiring.cores else found  # each is on a core or the GPU
            before, slower = slower, (slower + found) / 2.0
            if abs(slower - before) <= _SETTLED:
                break
        return seconds, slower

    def uploading(self, actor: float) -> float:
        """Return seconds per env step that links allow, w_upload or w_slots.

        Args:
            actor: w_actor.
        """
        if not self.hosts:
            return 0.0
        groups = self.wiring.actors
        around = groups * self.rollout * actor + self.upload + self.rollout * self.learn
        # Machines whose actors have left send nothing.
        link = self.upload / (min(self.hosts, groups) * self.rollout)
        return max(link, around / (self.slots * groups * self.rollout))


def _slower(moment: Moment, names: Sequence[str]) -> float:
    """Return how many times as long processes take together, of which some are throttled."""
    return len(names) / sum(1.0 / moment.slowdown(name) for name in names)


def _crowding(always: float, spans: Sequence[tuple[float, float, float]], cores: float) -> float:
    """Return s, how many times as long everything takes where processes share cores.

    Args:
        always: cores that are asked for throughout.
        spans: of each other process, where in the cycle it begins and how long it is busy, as
            shares of the cycle, and the cores that it occupies.
        cores: that there are.
    """
    if always + sum(each for _, _, each in spans) <= cores:
        return 1.0
    if cores <= 0.0:
        return math.inf
    ends = {0.0, 1.0}
    for begin, share, _ in spans:
        ends |= {begin, (begin + share) % 1.0}
    edges = sorted(ends)
    slower = 0.0
    for first, last in pairwise(edges):
        middle = (first + last) / 2.0
        asked = always + sum(each for begin, share, each in spans if (middle - begin) % 1.0 < share)
        slower += (last - first) * max(asked / cores, 1.0)
    return slower
