"""Any environment of Gymnasium's registry with Box observations and discrete actions."""

from __future__ import annotations

import math
import sys
import traceback
from collections.abc import Callable, Mapping
from inspect import signature
from textwrap import shorten
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import load_env_creator
from gymnasium.vector import AutoresetMode, VectorEnv

from accerl.envs.base import Step, UnsavedEnvs
from accerl.envs.config import AS_IT_IS, EnvConfig
from accerl.envs.observations import Observations
from accerl.envs.registry import bare_id, find_spec, missing_package
from accerl.errors import GameError, UserError, did_you_mean, one_line, raised_in
from accerl.networks.observation import ObservationSpec
from accerl.own_code import find_own

MAX_ACTIONS = 1024
"""combinations of a MultiDiscrete space that become actions of their own, at most"""
_OF_VECTOR_ENVS = {
    "autoreset_mode": AutoresetMode.SAME_STEP,
    "reward_clipping": False,  # raw scores are recorded; the learner clips
    "num_threads": 1,  # more than one per process only steals cores
}
"""given to an environment's own vector entry point, as far as it takes them"""
_SAME_STEP = (AutoresetMode.SAME_STEP, AutoresetMode.SAME_STEP.value)


class GymnasiumEnvs(UnsavedEnvs):
    """A batch of one Gymnasium environment, by its own vector entry point or one after another.

    Args:
        game: an id in Gymnasium's registry; ``module:Id`` imports the module first.
        num_envs: how many.
        config: how observations are shown.

    Raises:
        UserError: it cannot be made, or has spaces that no network here can take.
    """

    def __init__(self, game: str, num_envs: int, config: EnvConfig = AS_IT_IS) -> None:
        self._game = game
        self._guards: list[_Guard] = []
        self._env = _make(game, num_envs, config, self._guards)
        self.num_envs = num_envs
        try:
            space = self._env.single_observation_space
            if not isinstance(space, spaces.Box):
                raise _unsupported_observations(game, space, config)
            self._actions = _Actions(game, self._env.single_action_space)
            self._observations = Observations(space, num_envs, config)
        except UserError:
            self._env.close()
            raise
        self.num_actions = self._actions.count
        self.observation: ObservationSpec = self._observations.spec
        self._steps = 0
        self._lives = np.zeros(num_envs, np.int64)

    def reset(self, seed: int) -> np.ndarray:
        """See `Envs.reset`."""
        self._seed, self._steps = seed, 0
        self.rest(np.zeros(self.num_envs, np.bool_))
        # Environments take consecutive seeds, and some hold them in 32 bits.
        obs, info = self._call(self._env.reset, seed=seed % (2**31 - self.num_envs))
        self._check(obs, "its first observation")
        self._lives = self._lives_in(info, np.zeros_like(self._lives))
        return self._observations.first(obs)

    def step(self, actions: np.ndarray) -> Step:
        """See `Envs.step`."""
        self._steps += 1
        obs, reward, terminated, truncated, info = self._call(
            self._env.step, self._actions.own(actions)
        )
        self._check(obs, "its observation")
        self._check(reward, "its reward")
        terminated, truncated = np.array(terminated), np.array(truncated)
        done = terminated | truncated
        life_lost = None
        if "lives" in info:
            # Where a game ended, the count is already the next one's: there are more, not fewer.
            lives = self._lives_in(info, self._lives)
            life_lost, self._lives = (lives < self._lives) & ~done, lives
        shown = self._observations.next(obs, done)
        return Step(shown, np.asarray(reward, np.float32), terminated, truncated, life_lost)

    def rest(self, rows: np.ndarray) -> None:
        """See `Rests.rest`; those of a vector entry point of their own step on all together."""
        for guard, rests in zip(self._guards, rows, strict=False):
            guard.rests = bool(rests)

    @staticmethod
    def _lives_in(info: Mapping[str, Any], before: np.ndarray) -> np.ndarray:
        """Return the lives that are left [B]: as before in environments that do not say."""
        said = np.broadcast_to(np.array(info.get("_lives", "lives" in info), bool), before.shape)
        return np.where(said, np.array(info.get("lives", before), np.int64), before)

    def _call(self, method: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Call the environments; what they raise names the game, and keeps its traceback."""
        try:
            return method(*args, **options)
        except GameError:
            raise
        except Exception as error:  # a user's own code may fail in any way
            where = f"step {self._steps}" if self._steps else "reset"
            raise _failure(self._game, "one of the environments", where, error) from error

    def _check(self, values: Any, what: str) -> None:
        """Refuse what is NaN or infinity in float32: a network that learns from one is lost."""
        values = np.asarray(values)
        if values.dtype.kind != "f":
            return
        with np.errstate(over="ignore"):
            values = values.astype(np.float32, copy=False)
        finite = np.isfinite(values).reshape(self.num_envs, -1).all(axis=1)
        if not finite.all():
            which = int(np.argmin(finite))
            raise GameError(
                f"game {self._game!r}: environment {which} returned NaN or infinity in {what}, "
                f"in step {self._steps}"
            )


class _Actions:
    """Actions 0, 1, ... as the environment's own: Discrete from any start, or MultiDiscrete."""

    def __init__(self, game: str, space: Any) -> None:
        self._start: Any = getattr(space, "start", 0)
        self._sizes: tuple[int, ...] | None = None
        if isinstance(space, spaces.Discrete):
            self.count = int(space.n)
            return
        shown = shorten(" ".join(str(space).split()), 100, placeholder=" ...")  # NumPy breaks lines
        if not isinstance(space, spaces.MultiDiscrete) or space.nvec.ndim != 1:
            kind = "continuous" if isinstance(space, spaces.Box) else "of another kind"
            raise UserError(
                f"game {game!r}: its actions are {kind}, {shown}; Discrete and MultiDiscrete "
                "actions, of one axis, can be learned"
            )
        self._sizes = tuple(map(int, space.nvec))
        self.count = math.prod(self._sizes)  # NumPy's product would overflow
        if self.count > MAX_ACTIONS:
            raise UserError(
                f"game {game!r}: {shown} has {self.count} combinations, and at most {MAX_ACTIONS} "
                "can be learned; leave some out by a wrapper of your own (--set env.wrappers)"
            )

    def own(self, actions: np.ndarray) -> np.ndarray:
        """Return what the environments take for actions [B] in 0 .. count - 1."""
        if self._sizes is None:
            return actions + self._start
        return np.stack(np.unravel_index(actions, self._sizes), axis=-1) + self._start


_RESET = ("observation", "info")
_STEP = ("observation", "reward", "terminated", "truncated", "info")


class _Guard(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Names the environment that raises; its own traceback goes with the error."""

    rests = False
    """whether `step` does nothing and shows what the episode began with"""

    def __init__(self, env: gymnasium.Env[Any, Any], game: str, index: int) -> None:
        super().__init__(env)
        self._who, self._game, self._steps = f"environment {index}", game, 0
        self._seen: Any = None

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        """Reset the environment."""
        try:
            found = self.env.reset(**options)
            self._check_form(found, "reset", _RESET)
            self._seen, info = found
            self._check_observation(self._seen)
            self._check_info(info)
            info = _lives_of(info)
        except GameError:
            raise
        except Exception as error:  # a user's own code may fail in any way
            raise _failure(self._game, self._who, "reset", error) from error
        return self._seen, info

    def _check_form(self, found: Any, method: str, names: tuple[str, ...]) -> None:
        """Refuse what is not of the form that Gymnasium gives it, as in Gym before it."""
        if not isinstance(found, tuple) or len(found) != len(names):
            what = f"{len(found)} values" if isinstance(found, tuple) else type(found).__name__
            raise GameError(
                f"game {self._game!r}: {method}() of {self._who} returned {what}; Gymnasium's "
                f"returns ({', '.join(names)})"
            )

    def _check_observation(self, seen: Any) -> None:
        """Refuse what does not fit into the batch, where it would have no name."""
        space = self.observation_space
        if space.shape is not None and np.shape(seen) != space.shape:
            raise self._wrong(
                f"an observation of shape {np.shape(seen)}", f"observation_space says {space.shape}"
            )
        kind = getattr(seen, "dtype", None)
        if kind == space.dtype or space.dtype is None:
            return
        kind = np.asarray(seen).dtype
        if not np.can_cast(kind, space.dtype, "same_kind"):
            raise self._wrong(
                f"an observation of type {kind}", f"observation_space says {space.dtype}"
            )

    def _check_outcome(self, reward: Any, ends: tuple[Any, Any]) -> None:
        """Refuse a reward that is no number, and ends that are neither true nor false."""
        if type(reward) is not float:  # once a step: the usual case first
            given = np.asarray(reward)
            if given.ndim:
                raise self._wrong(f"a reward of shape {given.shape}", "a number is needed")
            if given.dtype.kind not in "biuf":
                raise self._wrong(f"{reward!r} as its reward", "a number is needed")
        for name, value in zip(_STEP[2:4], ends, strict=True):
            if type(value) is not bool and (value is None or np.ndim(value)):
                raise self._wrong(f"{value!r} as {name!r}", "True or False is needed")

    def _check_info(self, info: Any) -> None:
        if not isinstance(info, Mapping):
            raise self._wrong(f"{type(info).__name__} as its info", "a dictionary is needed")

    def _wrong(self, returned: str, needed: str) -> GameError:
        return GameError(f"game {self._game!r}: {self._who} returned {returned}, and {needed}")

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the environment, unless it rests."""
        if self.rests:
            return self._seen, 0.0, False, False, {}
        self._steps += 1
        try:
            seen = self.env.step(action)
            self._check_form(seen, "step", _STEP)
            self._check_observation(seen[0])
            self._check_outcome(seen[1], seen[2:4])
            self._check_info(seen[4])
            return (*seen[:4], _lives_of(seen[4]))
        except GameError:
            raise
        except Exception as error:  # a user's own code may fail in any way
            raise _failure(self._game, self._who, f"step {self._steps}", error) from error

    def close(self) -> None:
        """Close the environment; that it cannot be closed is said, and ends nothing.

        An error would hide the one that ended the run, and leave the others of a batch open.
        """
        try:
            super().close()
        except Exception as error:  # a user's own code may fail in any way
            failure = _failure(self._game, self._who, "close", error)
            print(f"accerl: {failure}", file=sys.stderr, flush=True)


def _failure(game: str, who: str, where: str, error: Exception) -> GameError:
    return GameError(
        f"game {game!r}: {who} raised {type(error).__name__} in {where}: {one_line(error)}"
        f"{raised_in(error)}",
        "".join(traceback.format_exception(error)),
    )


def _make(
    game: str, num_envs: int, config: EnvConfig, guards: list[_Guard]
) -> VectorEnv[Any, Any, Any]:
    """Return the environments, with same-step autoreset; `guards` gets those of single ones."""

    def guard(env: gymnasium.Env[Any, Any]) -> _Guard:
        guards.append(_Guard(env, game, len(guards)))
        return guards[-1]

    spec, name = find_spec(game), bare_id(game)
    wrappers: list[Any] = []
    try:
        wrappers += [_find_wrapper(wrapper) for wrapper in config.wrappers]
        options = _own_vector_options(spec) if config == AS_IT_IS else None
        if options is not None:
            own = gymnasium.make_vec(
                name, num_envs, vectorization_mode="vector_entry_point", **options
            )
            if own.metadata.get("autoreset_mode") in _SAME_STEP:
                return own
            own.close()
            if spec.entry_point is None:
                raise UserError(
                    f"game {game!r}: its vector environment does not say that it resets in the "
                    "step that ends an episode; set metadata['autoreset_mode'] to SAME_STEP"
                )
        return gymnasium.make_vec(
            name,
            num_envs,
            vectorization_mode="sync",
            vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP, "copy": False},
            wrappers=[*wrappers, guard],
            disable_env_checker=True,
        )
    except UserError:
        raise
    except (ModuleNotFoundError, gymnasium.error.DependencyNotInstalled) as error:
        if config.wrappers:
            named = f"; is it needed by env.wrappers ({', '.join(config.wrappers)})?"
            raise UserError(f"game {game!r}: {one_line(error)}{named}") from error
        raise missing_package(game, spec, error) from error
    except Exception as error:  # a user's own code may fail in any way
        hint = ""
        if config.wrappers:
            given = ", ".join(config.wrappers)
            hint = f"; env.wrappers is {given}, and may name others, also module:Class of your own"
        kind, said = type(error).__name__, one_line(error)
        reason = said if said == kind else f"{kind}: {said}"
        raise UserError(f"game {game!r} cannot be made: {reason}{hint}") from error


def _own_vector_options(spec: Any) -> dict[str, Any] | None:
    """Return what an environment's own vector entry point is given; None: it is not used.

    It must reset in the same step: otherwise an episode's end leaves a junk row.
    """
    if spec.vector_entry_point is None or spec.additional_wrappers:
        return None
    creator = spec.vector_entry_point
    if isinstance(creator, str):
        creator = load_env_creator(creator)
    known = signature(creator).parameters
    if "autoreset_mode" not in known:
        return None
    if spec.max_episode_steps is not None and "max_episode_steps" not in known:
        return None  # Gymnasium would give it that
    return {option: value for option, value in _OF_VECTOR_ENVS.items() if option in known}


def _lives_of(info: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is read of an info: batching the rest fails where its types or shapes vary."""
    lives = info.get("lives")
    if lives is None or isinstance(lives, int):  # nearly always
        return {} if lives is None else {"lives": lives}
    given = np.asarray(lives)
    is_number = not given.ndim and given.dtype.kind in "iuf" and np.isfinite(given)
    return {"lives": int(given)} if is_number else {}


_OWN_STATISTICS = (
    "each process would have statistics of its own, so that actors, evaluation and a resumed run "
    "see other numbers; scale them by constants in a wrapper of your own"
)
_REFUSED_WRAPPERS = {
    "Autoreset": "it resets before an end is seen, so that no episode would end",
    "NormalizeObservation": _OWN_STATISTICS,
    "NormalizeReward": _OWN_STATISTICS,
}


def _find_wrapper(name: str) -> Callable[[Any], Any]:
    """Return a wrapper by its name in gymnasium.wrappers, or by ``module:Class``."""
    if ":" not in name:
        if name in _REFUSED_WRAPPERS:
            raise UserError(f"env: wrapper {name} cannot be used: {_REFUSED_WRAPPERS[name]}")
        names = [
            each
            for each in gymnasium.wrappers.__all__
            if each[0].isupper() and each not in _REFUSED_WRAPPERS
        ]
        if name not in names:
            raise UserError(
                f"env: wrapper {name!r} does not exist; {did_you_mean(name, names)}, "
                "or module:Class of your own"
            )
        return getattr(gymnasium.wrappers, name)
    return find_own("env: wrapper", name, "mywrappers:Mine")


def _unsupported_observations(game: str, space: Any, config: EnvConfig) -> UserError:
    advice = "flatten them with --set env.wrappers=FlattenObservation"
    if "FlattenObservation" in config.wrappers:
        advice = "show one by a wrapper of your own, --set env.wrappers=module:Class"
    return UserError(
        f"game {game!r}: observations are {type(space).__name__}, and networks take a Box; {advice}"
    )
