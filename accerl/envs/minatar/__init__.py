"""MinAtar: five Atari games in miniature, 10x10 cells (Young and Tian, 2019)."""

from __future__ import annotations

from accerl.envs.base import Envs
from accerl.envs.minatar.envs import GAMES, MinAtarEnvs
from accerl.envs.minatar.packaged import PackagedEnvs

PACKAGED_GAMES = ("minatar-seaquest",)
"""which the package plays: its lists of fish and bullets gain nothing as arrays"""
MINATAR_GAMES = tuple(sorted((*GAMES, *PACKAGED_GAMES)))


def make_minatar(game: str, num_envs: int) -> Envs:
    """Return environments of a game.

    Raises:
        UserError: it needs the package, which is not installed.
    """
    if game in PACKAGED_GAMES:
        return PackagedEnvs(game, num_envs)
    return MinAtarEnvs(game, num_envs)
