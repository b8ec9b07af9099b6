"""RunConfig and its parts: frozen, validated, hashed; presets are plain objects."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from accerl.compress.config import CompressionConfig
from accerl.compress.pruning.sparse import TopologyConfig
from accerl.envs import check_game
from accerl.envs.config import AS_IT_IS, EnvConfig
from accerl.errors import UserError, is_number, require, require_choice, require_fields
from accerl.learner.config import LearnerConfig, choose_device
from accerl.networks.observation import ObservationSpec
from accerl.own_code import NOTHING_OWN, OwnConfig
from accerl.precision import choose_precision
from accerl.records import json_hash
from accerl.runtime.conditions import UNCHANGING, Conditions
from accerl.runtime.machine.cores import usable_cores
from accerl.runtime.ray.config import RayConfig
from accerl.spec import require_network

RUNTIMES = ("serial", "process", "ray")
CLOCKS = ("virtual", "real")
LARGEST = float(np.finfo(np.float32).max)
"""of the numbers that networks compute with"""


@dataclass(frozen=True, kw_only=True)
class RuntimeConfig:
    """How actors, learner and compressor are wired together.

    Raises:
        UserError: a value lies outside what is allowed.
    """

    runtime: str = "serial"
    """serial (one deterministic process), process (one process per actor) or ray (actors on the
    nodes of a Ray cluster)"""
    clock: str = "virtual"
    """virtual (charged from a latency profile; serial only) or real"""
    profile: str = "paper-1080ti"
    """latency profile of the virtual clock, by name (`accerl profile list`), or a JSON file"""
    num_actors: int = 1
    """actors that collect side by side; 0: one for each core that the learner leaves free; the
    virtual clock takes the number from its profile"""
    num_envs: int = 32
    """environments per actor, B"""
    infer_batch: int = 0
    """states per inference call: the paper's actors infer 1 at a time; 0: all environments'"""
    num_distillers: int = 0
    """processes that distil, ND of the paper; 0: the compressor's does that too; the virtual clock
    takes the number from its profile"""
    compressor_process: bool = True
    """virtual clock: whether a process of its own compresses, or the learner's does; in the process
    runtime one of its own always does"""
    num_learners: int = 1
    """process runtime: learner processes, NT of the paper (distributed data parallel on the CPU);
    each learns from an equal share of every rollout's environments"""
    queue_rollouts: int = 2
    """finished rollouts that may wait for the learner before actors have to; 0: an actor fills one
    while the learner uses the other"""
    hold_back: bool = True
    """whether actors get no more slots than keep the learner busy: where it limits,
    rollouts that wait for it make nothing faster, and the weights that acted older"""
    patience_seconds: float = 0.2
    """how long an actor that may fill a slot waits for weights on their way"""
    publish_every: int = 4
    """learner updates between two publications of compressed weights"""
    interval_seconds: float = 5.0
    """seconds between two decisions of the strategy"""
    first_interval_seconds: float = 0.0
    """seconds until the strategy's second decision, at most `interval_seconds`: a short first
    interval shows a strategy its machine early; 0: as long as the others"""
    eval_episodes: int = 16
    """episodes per off-the-clock measurement of the learner's policy; 0 turns it off"""
    actor_threads: int = 1
    """intra-op threads of each actor's engine"""
    learner_threads: int = 1
    """intra-op threads of the learner"""
    pin_cores: bool = False
    """process runtime: keep actors off the learner's cores (`learner_threads` of them); for
    a machine that does nothing else"""

    def __post_init__(self) -> None:
        require_choice("runtime", self.runtime, RUNTIMES)
        require_choice("clock", self.clock, CLOCKS)
        if self.runtime != "serial" and self.clock == "virtual":
            raise UserError(
                f"the {self.runtime} runtime runs on the real clock: use --clock real, or "
                "--runtime serial"
            )
        check = partial(require_fields, self, "runtime")
        counts = "num_envs num_learners publish_every"
        check(counts, "must be at least 1", lambda count: count >= 1)
        most = "must lie in 1..1024"  # a library that cannot start its threads hangs
        check("actor_threads learner_threads", most, lambda count: 1 <= count <= 1024)
        counts = "queue_rollouts num_distillers num_actors eval_episodes"
        check(counts, "must not be negative", lambda count: count >= 0)
        if self.runtime != "serial" and not self.compressor_process:
            raise UserError(
                f"runtime: the {self.runtime} runtime always has a compressor process; leave "
                "compressor_process true, or use --runtime serial"
            )
        if self.runtime == "ray" and self.pin_cores:
            raise UserError(
                "runtime: pin_cores is for the cores of one machine, and Ray places actors on any; "
                "set pin_cores false, or use --runtime process"
            )
        if self.num_distillers and self.is_serial_on_real_clock:
            raise UserError(
                "runtime: num_distillers needs processes to distil in; use --runtime process"
            )
        if self.num_distillers and not self.compressor_process:
            raise UserError("runtime: num_distillers needs a compressor process")
        if self.num_learners > 1 and self.runtime != "process":
            raise UserError(
                f"runtime: num_learners {self.num_learners} needs --runtime process; use that, "
                "or num_learners 1"
            )
        envs = self.num_envs
        check("infer_batch", f"must lie in 0..num_envs ({envs})", lambda n: 0 <= n <= envs)
        check("patience_seconds", "must lie in 0..10", lambda seconds: 0.0 <= seconds <= 10.0)
        rule = "must lie in 0.001..1e9"  # shorter ones would never end, where the clock is far on
        check("interval_seconds", rule, lambda seconds: 0.001 <= seconds <= 1e9)
        longest = self.interval_seconds
        rule = f"must lie in 0..interval_seconds ({longest:g})"
        check("first_interval_seconds", rule, lambda seconds: 0.0 <= seconds <= longest)

    @property
    def is_serial_on_real_clock(self) -> bool:
        """Whether one process does everything in turn, in seconds that really pass."""
        return self.runtime == "serial" and self.clock == "real"


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Everything one inner run depends on besides its strategy.

    Raises:
        UserError: a value lies outside what is allowed.
    """

    preset: str
    """name of the settings that the run begins with"""
    game: str
    """what is played"""
    network: str = "original"
    """the learner's network: original, net1, net2 or net3; impala, impala-small or impala-tiny;
    or module:function, your own (`accerl.networks.make`); uncompressed actors act with it too"""
    seed: int = 0
    """seed of all random numbers"""
    pixel_centre: int = 0
    """uint8 observations enter the network as (pixel - pixel_centre) / pixel_unit"""
    pixel_unit: float = 255.0
    """see `pixel_centre`"""
    seconds: float = 60.0
    """length of the run on its own clock"""
    until_score: float | None = None
    """end sooner, after the first interval at whose end the score (J where it is measured, else the
    mean of the last 20 episodes) is at least this"""
    start: str = ""
    """run directory whose learner, with its optimiser and its count of updates (by which
    `anneal_updates` goes), this run begins with"""
    env: EnvConfig = field(default_factory=EnvConfig)
    learner: LearnerConfig = field(default_factory=LearnerConfig)
    runtime: RuntimeConfig = field(default_factory=RuntimeConfig)
    compression: CompressionConfig = field(default_factory=CompressionConfig)
    ray: RayConfig = field(default_factory=RayConfig)
    own: OwnConfig = NOTHING_OWN
    conditions: Conditions = UNCHANGING
    """what happens to the machine meanwhile"""

    def __post_init__(self) -> None:
        for name in ("seed", "seconds", "until_score"):  # as loops over arrays give them
            if isinstance(value := getattr(self, name), np.generic):
                object.__setattr__(self, name, value.item())
        for name in ("seconds", "until_score"):  # equal runs have equal hashes
            if type(value := getattr(self, name)) is int and is_number(value):
                object.__setattr__(self, name, float(value))
        check_game(self.game, self.env)
        for section in ("learner", "compression"):
            for name, value in vars(getattr(self, section)).items():
                is_huge = type(value) in (int, float) and LARGEST < abs(value) < math.inf
                require(not is_huge, f"{section}: {name}", f"must be at most {LARGEST:g}", value)
        require_network("network", self.network)
        finite = type(self.seconds) is float and 0.0 < self.seconds < math.inf
        require(finite, "--seconds", "must be positive and finite", self.seconds)
        if not 0 <= self.pixel_centre <= 255 or not 0.0 < self.pixel_unit < math.inf:
            raise UserError("pixel_centre must lie in 0..255 and pixel_unit must be positive")
        if self.until_score is not None:
            finite = type(self.until_score) is float and math.isfinite(self.until_score)
            require(finite, "--until-score", "must be finite", self.until_score)
        require(isinstance(self.seed, int), "--seed", "must be a whole number", self.seed)
        require(self.seed >= 0, "--seed", "must not be negative", self.seed)
        require(self.seed < 2**128, "--seed", "must be below 2^128", self.seed)
        if self.runtime.num_envs < self.learner.minibatches:
            raise UserError("learner: more minibatches than environments per actor")
        if self.conditions != UNCHANGING and self.runtime.runtime == "ray":
            raise UserError("--events: Ray's nodes cannot be slowed down; use --runtime process")
        if self.conditions != UNCHANGING and self.runtime.is_serial_on_real_clock:
            raise UserError(
                "--events: the serial runtime plays them on the virtual clock alone; use "
                "--clock virtual, or --runtime process"
            )
        if self.runtime.runtime == "process":
            self.conditions.check_link()
        shares = self.runtime.num_learners * self.learner.minibatches
        if self.runtime.num_learners > 1 and self.runtime.num_envs % shares:
            raise UserError(
                f"runtime: {self.runtime.num_learners} learners with {self.learner.minibatches} "
                f"minibatches each need num_envs to be a multiple of {shares}, got "
                f"{self.runtime.num_envs}"
            )
        if self.runtime.num_learners > 1 and self.learner.device == "cuda":
            raise UserError(
                f"runtime: {self.runtime.num_learners} learners learn on the CPU, and learner "
                "device is cuda; use device cpu, or num_learners 1"
            )

    @property
    def hash(self) -> str:
        """Identity of the resolved configuration."""
        data = asdict(self)
        del data["ray"]  # where a run takes place
        if self.env == AS_IT_IS:  # as every game was shown before there was a choice
            del data["env"]
        if self.own == NOTHING_OWN:
            del data["own"]
        if self.conditions == UNCHANGING:
            del data["conditions"]
        if self.until_score is None:
            del data["until_score"]
        if not self.runtime.first_interval_seconds:
            del data["runtime"]["first_interval_seconds"]
        return json_hash(data)[:12]

    def to_json(self) -> dict[str, Any]:
        """Return the resolved configuration with its hash."""
        return {**asdict(self), "hash": self.hash}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> RunConfig:
        """Read a configuration written by `to_json`; unknown keys are errors."""
        values = {key: value for key, value in data.items() if key != "hash"}
        try:
            learner = dict(values["learner"])
            if learner.get("sparse") is not None:
                learner["sparse"] = TopologyConfig(**learner["sparse"])
            values["learner"] = LearnerConfig(**learner)
            values["env"] = EnvConfig(**values.get("env", {}))
            values["runtime"] = RuntimeConfig(**values["runtime"])
            values["compression"] = CompressionConfig(**values["compression"])
            values["ray"] = RayConfig(**values.get("ray", {}))
            values["own"] = OwnConfig(**values.get("own", {}))
            values["conditions"] = Conditions.from_json(values.get("conditions", {}))
            return cls(**values)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UserError(f"config.json is not of this version of AcceRL ({error})") from error

    def inputs(self, observation: ObservationSpec) -> ObservationSpec:
        """Return the observations of an environment as this run's networks see them."""
        return replace(observation, centre=self.pixel_centre, unit=self.pixel_unit)

    def adapted(self) -> RunConfig:
        """Return a copy in which what is left to the machine is decided: actors, device, precision.

        Raises:
            UserError: the learner is to use a GPU that is not there, or where it cannot.
        """
        beside = self.runtime.runtime != "serial"
        if self.learner.device == "cuda" and not beside:
            raise UserError(
                "learner: device cuda needs the process runtime, or Ray's: what compresses in "
                "the learner's own process does so on the CPU"
            )
        alone = self.runtime.num_learners == 1
        device = choose_device(self.learner.device if beside and alone else "cpu").type
        learners = self.runtime.num_learners if device == "cpu" else 0
        busy = learners * self.runtime.learner_threads
        actors = self.runtime.num_actors or actors_beside(busy, usable_cores())
        precision = choose_precision(self.learner.precision, device)
        decided = self.with_learner(device=device, precision=precision)
        return decided.with_runtime(num_actors=actors)

    def with_runtime(self, **changes: Any) -> RunConfig:
        """Return a copy with other runtime settings."""
        return replace(self, runtime=replace(self.runtime, **changes))

    def with_learner(self, **changes: Any) -> RunConfig:
        """Return a copy with other learner settings."""
        return replace(self, learner=replace(self.learner, **changes))

    def with_precision(self, precision: str) -> RunConfig:
        """Return a copy that learns and distils in `precision`: fp32, bf16 or auto."""
        compression = replace(self.compression, distill_precision=precision)
        return replace(self.with_learner(precision=precision), compression=compression)


def learns_on_gpu(config: RunConfig) -> bool:
    """Whether a GPU learns and distils in a run on the real clock; on Ray the processor distils."""
    return config.runtime.runtime == "process" and config.adapted().learner.device != "cpu"


def actors_beside(learners: int, cores: int) -> int:
    """Return one actor for each core that learners leave free, and at least one."""
    return max(1, cores - learners)
