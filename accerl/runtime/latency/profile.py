"""LatencyProfile: what every operation of a run costs, measured on one machine or published.

The virtual clock charges from a profile. Presets are charged the times of the 84x84 networks of the
paper's Table 6, whatever game is played, so that small games keep the trade-offs of the real ones.
A profile can also hold times that were measured with other games (`LatencyProfile.games`).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from accerl.errors import UserError, first_line, require_choice
from accerl.json_fields import JsonFields
from accerl.records import json_hash
from accerl.runtime.latency.row import SpecLatency
from accerl.spec import IDENTITY, STUDENTS, CompressionSpec, is_import_path

FORMAT = 3
PIXELS = (4, 84, 84)
"""what the paper's networks see"""
LARGEST = sys.float_info.max
LEARNERS = ("cpu", "gpu")
_Key = tuple[str, int, str, float]
_WIRING = (
    "name", "num_actors", "actors_per_batch", "num_distillers", "cores", "learner", "gpu_core",
    "num_hosts", "down_bytes_per_second", "up_bytes_per_second", "step_bytes",
)  # fmt: skip
"""what belongs to a machine and not to what is played on it"""


@dataclass(frozen=True, kw_only=True)
class LatencyProfile(JsonFields):
    """A latency table and the wiring it stands for.

    Times are core-seconds: what an operation takes a process that has a core to itself, while
    actors and learner work side by side. Every process occupies a core while it computes; where
    more are busy than there are `cores`, all of them slow down alike
    (`accerl.runtime.serial.servers`). A GPU computes for one process at a time as fast as it can,
    and for several in turn.

    Left out: what cores share besides, the bandwidth of memory above all. One actor that infers
    single states with Original in float32 reads its 26 MB of weights for every state, 38 GB/s on
    two-core, so that two or three of them may fill what a laptop's memory can do, and are slower
    side by side than times measured for one say.

    Raises:
        UserError: a time is not positive, or the wiring is impossible.
    """

    name: str
    source: str
    """where the numbers come from, in words"""
    env_step_us: float
    """one agent step of one environment on one core"""
    learner_us_per_sample: float
    """one pass (forward, backward, optimiser) of Original over one sample"""
    specs: tuple[SpecLatency, ...]
    write_us: float = 0.0
    """what an actor does besides, per step of one environment"""
    num_actors: int = 1
    """actor processes beside the learner, NA of the paper"""
    actors_per_batch: int = 1
    """actors that fill one rollout side by side, each with its share of the environments"""
    num_distillers: int = 0
    """processes that only distil, ND of the paper; 0: the compressor's does that too"""
    cores: int
    """of the learner's machine, which all processes on it share"""
    learner: str = "cpu"
    """cpu or gpu: what learns and distils; `distill_us` and the learner's times are its own"""
    gpu_core: float = 1.0
    """share of a core that a process takes while the GPU computes for it: PyTorch launches kernels,
    and waits for them actively"""
    num_hosts: int = 0
    """other machines that the actors are on, evenly, with a core for each of them; 0: they are on
    the learner's"""
    copy_bytes_per_second: float = 0.0
    """how fast the learner copies its weights for the compressor; 0: at once"""
    down_bytes_per_second: float = 0.0
    """what each of those machines can receive: it fetches every publication once; 0: publications
    need not travel. Actors on the learner's machine share one link, and each fetches its own"""
    up_bytes_per_second: float = 0.0
    """what each of them can send; 0: rollouts need not travel"""
    step_bytes: float = 400.0
    """of a rollout, per env step, on such a link: with each frame once, deflated, Atari games take
    168 (Pong) to 639 (Alien); 7,056 if 84x84 frames are not deflated"""
    small_learner_us: dict[str, float] = field(default_factory=dict)
    """the same of learners whose network is net1, net2 or net3, per sample"""
    game: str = "pong"
    """the game whose environments and networks the times are of"""
    network: str = "original"
    """the learner's network, which its students "original" are"""
    observation: tuple[int, ...] = ()
    """shape of what those networks see; empty: 84x84 pixels"""
    games: tuple[LatencyProfile, ...] = ()
    """the same of other games, on the same machine; their wiring is not used"""
    spread: dict[str, float] = field(default_factory=dict)
    """interquartile range of a measured time over its median, by operation"""
    fingerprint: dict[str, Any] = field(default_factory=dict)
    """the machine that was measured; empty for published numbers"""
    origin: str = field(default="", compare=False)
    """hash of the whole profile of which these are the times of one game or network; empty: it is
    whole. No file holds it"""

    def __post_init__(self) -> None:
        times = [self.env_step_us, self.learner_us_per_sample, *self.small_learner_us.values()]
        for row in self.specs:
            times += [row.publish_ms, row.distill_us, *row.infer_us.values()]
        # A whole number of hundreds of digits is below infinity, and no float holds it.
        if not times or not all(0.0 < value <= LARGEST for value in times) or not self.specs:
            raise UserError(f"latency profile {self.name!r}: every time must be positive")
        if not all(row.infer_us and min(row.infer_us) >= 1 for row in self.specs):
            raise UserError(
                f"latency profile {self.name!r}: infer_us of every spec must give times by batch "
                "sizes of at least 1"
            )
        optional = [self.write_us, self.copy_bytes_per_second, self.num_distillers]
        optional += [self.num_hosts, self.down_bytes_per_second, self.up_bytes_per_second]
        optional += [self.cores, self.num_actors]
        for row in self.specs:
            optional += [row.load_ms, row.size_bytes]
        if not all(0.0 <= value <= LARGEST for value in optional):
            raise UserError(
                f"latency profile {self.name!r}: nothing in it may be negative, NaN or infinite"
            )
        if len({row.spec for row in self.specs}) < len(self.specs):
            raise UserError(f"latency profile {self.name!r}: a spec stands there twice")
        if min(self.observation or PIXELS) < 1:
            raise UserError(f"latency profile {self.name!r}: observation has a side below 1")
        if self.num_actors < 1 or self.actors_per_batch < 1:
            raise UserError(f"latency profile {self.name!r}: it needs at least one actor")
        if self.cores < 1:
            raise UserError(f"latency profile {self.name!r}: it needs at least one core")
        require_choice(f"latency profile {self.name!r}: learner", self.learner, LEARNERS)
        if not (0.0 < self.gpu_core <= 1.0 and 0.0 < self.step_bytes <= LARGEST):
            raise UserError(
                f"latency profile {self.name!r}: gpu_core must lie above 0 and at most at 1, "
                "step_bytes above 0"
            )
        if self.num_actors % self.actors_per_batch:
            raise UserError(
                f"latency profile {self.name!r}: {self.num_actors} actors cannot fill batches in "
                f"groups of {self.actors_per_batch}; choose a divisor"
            )
        if self.num_hosts > self.groups:
            raise UserError(
                f"latency profile {self.name!r}: {self.num_hosts} machines for {self.groups} "
                "rollouts at a time; num_hosts may be at most that"
            )

    @property
    def hash(self) -> str:
        """Identity of the numbers: seconds under different profiles are never mixed."""
        return json_hash(self.to_json())[:12]

    @property
    def whole_hash(self) -> str:
        """`hash` of the profile that it was part of, whatever a run sees of it."""
        return self.origin or self.hash

    def for_game(
        self, game: str, network: str, observation: tuple[int, ...] | None = None
    ) -> LatencyProfile:
        """Return the profile with the times of a game: its own, or those of the nearest.

        Nearest is an observation with as many axes, then the one whose size is nearest.

        Args:
            game: in `games`, or any other.
            network: the learner's: times that know it come first.
            observation: shape of what the game's networks see; None: where the game has no times
                of its own, those that the profile begins with count.
        """

        def strangeness(times: LatencyProfile) -> tuple[bool, int, float, bool]:
            shape = times.observation or PIXELS
            knows = times.knows(network)
            if observation is None:
                return times.game != game, 0, float(not knows), times is not self
            size = abs(math.log(math.prod(shape) / math.prod(observation)))
            own = times.game == game and shape == observation
            return not own, abs(len(shape) - len(observation)), size, not knows

        times = min((self, *self.games), key=strangeness)
        wiring = {name: getattr(self, name) for name in _WIRING}
        return self if times is self else replace(times, **wiring, origin=self.whole_hash)

    def knows(self, network: str) -> bool:
        """Whether there are times of a learner of that network, and of acting with it."""
        acts = any(row.spec.student == network for row in self.specs)
        return network == self.network or (network in self.small_learner_us and acts)

    def for_network(self, network: str) -> LatencyProfile:
        """Return the profile as a learner of that network sees it.

        Its student "original" is the learner's own network and costs what that network costs;
        smaller students keep their times. Distillation stays what it costs to follow Original:
        a smaller teacher's forward pass was not measured.

        Raises:
            UserError: it has no times for a learner of this network, or of acting with it.
        """
        if network == self.network:
            return self
        if not self.knows(network):
            raise UserError(
                f"latency profile {self.name!r} has no times for a learner of {network!r}; `accerl "
                f"profile measure --game GAME --network {network}` measures them, which "
                f"--profile measured takes; or use --network {self.network}; or, for a run that "
                "need not be on the virtual clock, add --clock real"
            )
        own = [row for row in self.specs if row.spec.student == network]
        smaller = STUDENTS[STUDENTS.index(network) + 1 :]
        rows = [replace(row, spec=replace(row.spec, student="original")) for row in own]
        rows += [row for row in self.specs if row.spec.student in smaller]
        return replace(
            self,
            network=network,
            learner_us_per_sample=self.small_learner_us[network],
            specs=tuple(rows),
            origin=self.whole_hash,
        )

    def infer_seconds(self, spec: CompressionSpec, batch: int) -> float:
        """Return seconds to infer one batch of `batch` states with `spec`."""
        return self._interpolate(spec, lambda row: row.per_state_us(batch)) * batch * 1e-6

    def publish_seconds(self, spec: CompressionSpec) -> float:
        """Return seconds to compress and export one publication of `spec`."""
        return self._interpolate(spec, lambda row: row.publish_ms) * 1e-3

    def has(self, spec: CompressionSpec) -> bool:
        """Whether there are times for `spec`.

        Sparsity is interpolated where several levels of it were measured, and above the highest
        counts like that. Below the lowest there are none, and what one level alone was measured of
        says nothing about others.
        """
        levels = [row.spec.sparsity for row in self._rows.get(_key(spec), ())]
        return spec.sparsity in levels or (len(levels) > 1 and spec.sparsity > levels[0])

    @cached_property
    def _rows(self) -> dict[_Key, list[SpecLatency]]:
        """Rows that differ in sparsity alone, by it."""
        rows: dict[_Key, list[SpecLatency]] = {}
        for row in sorted(self.specs, key=lambda row: row.spec.sparsity):
            rows.setdefault(_key(row.spec), []).append(row)
        return rows

    @property
    def groups(self) -> int:
        """How many rollouts are filled side by side."""
        return self.num_actors // self.actors_per_batch

    @property
    def has_links(self) -> bool:
        """Whether publications or rollouts travel."""
        return self.down_bytes_per_second > 0.0 or self.up_bytes_per_second > 0.0

    @property
    def on_gpu(self) -> bool:
        """Whether a GPU learns and distils."""
        return self.learner == "gpu"

    def group_cores(self, batch: int) -> float:
        """Return the cores of the learner's machine that the actors of a rollout occupy.

        On average while they step `batch` environments: who has nothing left to step waits.
        """
        return 0.0 if self.num_hosts else batch / self._own(batch)

    def _own(self, batch: int) -> int:
        """Return the environments of the actor that has most of them."""
        return -(-batch // self.actors_per_batch)

    def act_seconds(
        self, spec: CompressionSpec, batch: int, infer_batch: int = 0
    ) -> tuple[float, float, float]:
        """Return seconds to step, infer and write `batch` environments once.

        Args:
            spec: what acts.
            batch: environments, shared evenly by the actors that fill a rollout together.
            infer_batch: states per inference call; 0: all of an actor's environments.
        """
        own = self._own(batch)
        size = min(infer_batch or own, own)
        full, rest = divmod(own, size)
        infer = full * self.infer_seconds(spec, size)
        infer += self.infer_seconds(spec, rest) if rest else 0.0
        return self.env_seconds(own), infer, self.write_us * own * 1e-6

    def load_seconds(self, spec: CompressionSpec) -> float:
        """Return seconds in which an actor makes an engine of one publication of `spec`."""
        return self._interpolate(spec, lambda row: row.load_ms) * 1e-3

    def send_seconds(self, spec: CompressionSpec) -> float:
        """Return seconds in which one publication of `spec` reaches all actors."""
        if not self.down_bytes_per_second:
            return 0.0
        copies = 1 if self.num_hosts else self.num_actors
        return copies * self.size_bytes(spec) / self.down_bytes_per_second

    def upload_seconds(self, env_steps: int) -> float:
        """Return seconds in which a rollout of so many env steps reaches the learner."""
        return env_steps * self.step_bytes / (self.up_bytes_per_second or math.inf)

    def size_bytes(self, spec: CompressionSpec) -> float:
        """Return what is sent to each actor per publication of `spec`."""
        return self._interpolate(spec, lambda row: row.size_bytes)

    def copy_seconds(self) -> float:
        """Return seconds in which the learner copies its weights for the compressor."""
        if not self.copy_bytes_per_second:
            return 0.0
        size = self.size_bytes(IDENTITY)
        return size / self.copy_bytes_per_second

    def env_seconds(self, batch: int) -> float:
        """Return seconds to step `batch` environments once on one core."""
        return self.env_step_us * batch * 1e-6

    def learn_seconds(self, samples: int) -> float:
        """Return seconds of one learner pass over `samples` transitions."""
        return self.learner_us_per_sample * samples * 1e-6

    def distill_seconds(self, spec: CompressionSpec, states: int) -> float:
        """Return seconds of one distillation update on `states` states."""
        return self._interpolate(spec, lambda row: row.distill_us) * states * 1e-6

    def _interpolate(self, spec: CompressionSpec, value: Callable[[SpecLatency], float]) -> float:
        """Read a table value, linear in sparsity between the measured levels."""
        rows = self._rows.get(_key(spec), [])
        if not self.has(spec):
            hint = "choose one that it lists (`accerl profile show`), or measure it by --specs "
            hint += "(`accerl profile measure`)"
            if is_import_path(spec.student):
                hint += "; on the real clock it can act at once: add --clock real"
            raise UserError(
                f"latency profile {self.name!r} has no times for {spec.label!r}; {hint}"
            )
        levels = [row.spec.sparsity for row in rows]
        if spec.sparsity in levels:
            return value(rows[levels.index(spec.sparsity)])
        return float(np.interp(spec.sparsity, levels, [value(row) for row in rows]))

    def to_json(self) -> dict[str, Any]:
        """Return the profile as one JSON object."""
        data = {"format": FORMAT, **super().to_json()}
        del data["origin"]
        for name in ("observation", "games"):
            if not data[name]:
                del data[name]  # a profile of one game reads as it always did
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> LatencyProfile:
        """Read a profile written by `to_json`.

        Raises:
            UserError: it is none, of another format, or incomplete.
        """
        if not isinstance(data, Mapping) or "format" not in data:
            raise UserError(
                "this file holds no latency profile; `accerl profile measure` writes one"
            )
        try:
            if data["format"] != FORMAT:
                raise UserError(
                    f"latency profile: it has format {data['format']}, and this version of AcceRL "
                    f"reads {FORMAT}; measure it again"
                )
            beside = ("format", "versions")  # the latter where a command printed it
            return super().from_json({key: data[key] for key in data if key not in beside})
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            what = f"{error} is missing" if isinstance(error, KeyError) else first_line(error)
            raise UserError(f"latency profile is damaged: {what}; measure it again") from error


def _key(spec: CompressionSpec) -> _Key:
    """What two rows of a table share that differ in sparsity alone."""
    return spec.student, spec.bits, spec.graph, spec.rank
