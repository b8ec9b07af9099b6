"""make_envs(): ALE, MinAtar, Gymnasium and our own Catch behind one small surface."""

from __future__ import annotations

from accerl.envs.atari import AtariEnvs, atari_games
from accerl.envs.base import Envs, Step
from accerl.envs.catch import CatchEnvs
from accerl.envs.classic import AcrobotEnvs, CartPoleEnvs
from accerl.envs.config import AS_IT_IS, EnvConfig
from accerl.envs.minatar import MINATAR_GAMES, PACKAGED_GAMES, make_minatar
from accerl.envs.minatar.packaged import require_minatar
from accerl.envs.registry import find_spec, nearest
from accerl.errors import UserError

__all__ = [
    "AcrobotEnvs",
    "AtariEnvs",
    "CartPoleEnvs",
    "CatchEnvs",
    "EnvConfig",
    "Envs",
    "Step",
    "atari_games",
    "check_game",
    "check_installed",
    "make_envs",
]

OWN_GAMES = {"catch": CatchEnvs, "cartpole": CartPoleEnvs, "acrobot": AcrobotEnvs}


def check_game(game: str, env: EnvConfig = AS_IT_IS) -> None:
    """Refuse a game that does not exist, or that is not shown in other ways.

    Raises:
        UserError: with the nearest names.
    """
    if is_built_in(game):
        if env != AS_IT_IS:
            raise UserError(
                f"game {game!r} is shown in one way; settings of env go with ids of Gymnasium's "
                "registry, such as ALE/Pong-v5"
            )
    elif find_spec(game) is None:
        small = [*OWN_GAMES, *MINATAR_GAMES]
        first, *others = [*map(repr, nearest(game, [*small, *atari_games()])), ""]
        hint = f"did you mean {first}?" if first else f"allowed: {', '.join(small)}"
        near = f"or {', '.join(filter(None, others))}, " if any(others) else "or "
        raise UserError(
            f"game {game!r} does not exist; {hint} ({near}any Atari game in snake_case, any id of "
            "Gymnasium's registry, module:Id for one that a module of yours registers, which a "
            "run's other processes import too)"
        )


def is_built_in(game: str) -> bool:
    """Whether a game is played without Gymnasium's registry."""
    return game in OWN_GAMES or game in MINATAR_GAMES or game in atari_games()


def check_installed(game: str) -> None:
    """Refuse a game whose package is missing.

    Raises:
        UserError: with how to install it.
    """
    if game in PACKAGED_GAMES:
        require_minatar()


def make_envs(game: str, num_envs: int, env: EnvConfig = AS_IT_IS) -> Envs:
    """Return `num_envs` environments of `game`: catch, a MinAtar or Atari game, a Gymnasium id.

    Raises:
        UserError: the game does not exist, its package is not installed, or it has spaces that
            nothing here can learn.
    """
    check_game(game, env)
    if game in OWN_GAMES:
        return OWN_GAMES[game](num_envs)
    if game in MINATAR_GAMES:
        return make_minatar(game, num_envs)
    if is_built_in(game):
        return AtariEnvs(game, num_envs)
    from accerl.envs.gymnasium import GymnasiumEnvs  # Gymnasium is slow to import

    return GymnasiumEnvs(game, num_envs, env)
