"""make_envs(): ALE, MinAtar, Gymnasium and our own Catch behind one small surface."""

from __future__ import annotations

import difflib

import numpy as np

from accerl.envs.atari import AtariEnvs, atari_games
from accerl.envs.base import Envs, Step
from accerl.envs.catch import CatchEnvs
from accerl.envs.classic import AcrobotEnvs, CartPoleEnvs
from accerl.envs.minatar import MINATAR_GAMES, MinAtarEnvs, require_minatar
from accerl.errors import UserError, did_you_mean

__all__ = [
    "AcrobotEnvs",
    "AtariEnvs",
    "CartPoleEnvs",
    "CatchEnvs",
    "Envs",
    "MinAtarEnvs",
    "Step",
    "atari_games",
    "check_game",
    "check_installed",
    "make_envs",
    "measure_pixels",
]

OWN_GAMES = {"catch": CatchEnvs, "cartpole": CartPoleEnvs, "acrobot": AcrobotEnvs}


def check_game(game: str) -> None:
    """Refuse a game that does not exist.

    Raises:
        UserError: with the closest spelling.
    """
    if game in OWN_GAMES or game in MINATAR_GAMES or game in atari_games():
        return
    small = [*OWN_GAMES, *MINATAR_GAMES]
    close = difflib.get_close_matches(game, [*small, *atari_games()], n=3)
    hint = f"did you mean {', '.join(close)}?" if close else did_you_mean(game, small)
    raise UserError(f"game {game!r} does not exist; {hint} (or any Atari game in snake_case)")


def check_installed(game: str) -> None:
    """Refuse a game whose package is missing.

    Raises:
        UserError: with how to install it.
    """
    if game in MINATAR_GAMES:
        require_minatar()


def make_envs(game: str, num_envs: int) -> Envs:
    """Return `num_envs` environments of `game`: catch, acrobot, a MinAtar or Atari game, ...

    Raises:
        UserError: the game does not exist, or its package is not installed.
    """
    check_game(game)
    if game in OWN_GAMES:
        return OWN_GAMES[game](num_envs)
    if game in MINATAR_GAMES:
        return MinAtarEnvs(game, num_envs)
    return AtariEnvs(game, num_envs)


def measure_pixels(game: str, *, steps: int = 300, seed: int = 0) -> tuple[int, float]:
    """Return (centre, unit) of a game's pixels under random play, as presets hold them.

    The centre is the median, so that background becomes exactly 0; the unit is the standard
    deviation. See `ObservationSpec`.
    """
    envs, generator = make_envs(game, 4), np.random.default_rng(seed)
    envs.reset(seed)
    frames = []
    for step in range(steps):
        obs = envs.step(generator.integers(envs.num_actions, size=envs.num_envs)).obs
        if step % 10 == 0:
            frames.append(obs[:, -1].copy())
    envs.close()
    pixels = np.concatenate(frames)
    return int(np.median(pixels)), float(pixels.std())
