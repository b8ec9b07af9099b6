"""The body of an actor's process: what it leaves behind when the run ends."""

from __future__ import annotations

import multiprocessing
import sys
import threading
from contextlib import closing

import pytest

from accerl.acting.rollout import RolloutShape, Slab
from accerl.envs import make_envs
from accerl.envs.config import AS_IT_IS
from accerl.runtime.process.messages import Ready
from accerl.runtime.process.roles import collect_rollouts
from accerl.runtime.process.wire import Channel, PeerGoneError
from accerl.weights import Mailbox
from tests.fixtures.own_games import NAME, own


@pytest.mark.usefixtures("own_games")
def test_environments_are_closed_when_the_run_ends() -> None:
    game = own("Map-v0")
    with closing(make_envs(game, 2)) as envs:
        before = sys.modules[NAME].Map.are_open - 2  # other tests may have left some
        shape = RolloutShape.of(envs, 4)
    ours, theirs = (Channel(pipe) for pipe in multiprocessing.Pipe())
    with closing(Slab(shape, 1)) as slab, closing(Mailbox(64)) as mailbox:
        open_when_ready = []

        def end_when_ready() -> None:
            assert ours.receive() == Ready()
            open_when_ready.append(sys.modules[NAME].Map.are_open)
            ours.close()

        ending = threading.Thread(target=end_when_ready)
        ending.start()
        settings = (game, AS_IT_IS, 1, 0, 0.0, 0, 0, None)
        with pytest.raises(PeerGoneError):
            collect_rollouts(theirs, slab.handle(), mailbox.handle(), *settings)
        ending.join()
    assert open_when_ready == [before + 2]
    assert sys.modules[NAME].Map.are_open == before
