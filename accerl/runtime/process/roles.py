"""What each process of a run does: act, compress, distil, or evaluate.

Each body is called with the channel to the learner's process, ends when that closes, and imports
what only it needs: an actor on ONNX Runtime gets by without torch.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Sequence
from functools import partial
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Any

from accerl.acting.actor import Actor
from accerl.acting.rollout import Slab
from accerl.envs import EnvConfig, Envs, make_envs
from accerl.networks.observation import ObservationSpec
from accerl.runtime.machine.memory import give_back_large_blocks, keep_freed_memory
from accerl.runtime.process.board import Board
from accerl.runtime.process.messages import (
    AskState,
    Distil,
    Done,
    Fill,
    Filled,
    Hello,
    Measured,
    Publish,
    Ready,
    Shadowed,
    State,
    Taken,
)
from accerl.runtime.process.samples import SampleRing
from accerl.runtime.process.shaped_pipe import ShapedPipe, Uplink, rollout_bytes
from accerl.runtime.process.wire import Channel
from accerl.weights import Mailbox, Publication, WeightVector

if TYPE_CHECKING:
    from accerl.compress.compressor import Compressor
    from accerl.compress.config import CompressionConfig
    from accerl.compress.distillation.state_ring import StateRing
    from accerl.compress.links import Link
    from accerl.runtime.process.steps import Steps
    from accerl.runtime.publishing.delivery import Order


def collect_rollouts(
    channel: Channel,
    slab_handle: dict[str, Any],
    mailbox_handle: dict[str, Any],
    game: str,
    env: EnvConfig,
    threads: int,
    infer_batch: int,
    patience_seconds: float,
    seed: int,
    index: int,
    pipe_handle: dict[str, Any] | None,
) -> None:
    """Receive slot numbers, fill the slots in order, send each number back.

    If rollouts pass a link, a number is sent when that rollout has arrived.

    With the numbers comes that of the last publication that was ordered, by the update that freed
    the slots as a rule. An actor with time on its hands gets here before that publication does:
    it waits a few milliseconds more rather than act with weights that are one update older.
    """
    give_back_large_blocks()
    slab = Slab(**slab_handle)
    mailbox = Mailbox(**mailbox_handle)
    pipe = None if pipe_handle is None else ShapedPipe(**pipe_handle)
    uplink: Uplink | None = None
    envs: Envs | None = None

    def arrived(slot: int) -> None:
        channel.send(Filled(slot))

    try:
        envs = make_envs(game, slab.shape.num_envs, env)
        actor = Actor(envs, seed, threads=threads, infer_batch=infer_batch)
        channel.send(Ready())
        if pipe is not None:  # from here on its thread alone sends
            uplink = Uplink(pipe, index, rollout_bytes(slab.shape), arrived)
        while True:
            message = channel.receive()
            assert isinstance(message, Fill)
            _wait_for(mailbox, message.publication, patience_seconds)
            for slot in message.slots:
                if mailbox.latest != actor.publication_number:
                    act_with(actor, mailbox.get(), threads)
                if pipe is not None:
                    pipe.fills(index, slot)
                actor.collect(slab[slot])
                if pipe is not None:
                    pipe.fills(index)
                (uplink.send if uplink else arrived)(slot)
    finally:
        for block in (uplink, mailbox, slab, pipe, envs):  # the last one's code may be anybody's
            if block is not None:
                block.close()


def act_with(actor: Actor, publication: Publication, threads: int) -> None:
    """Have an actor act with a publication from now on."""
    actor.load(publication)
    actor.drop_artifacts()
    if "torch" in sys.modules:  # one of the engines is torch's
        sys.modules["torch"].set_num_threads(threads)


def _wait_for(mailbox: Mailbox, number: int, seconds: float) -> None:
    """Return when that publication, or a newer one, is there or is not needed, or patience ends."""
    deadline = perf_counter() + seconds
    while mailbox.settled < number and perf_counter() < deadline:
        sleep(0.001)


def compress_weights(
    channel: Channel,
    network: str,
    observation: ObservationSpec,
    num_actions: int,
    config: CompressionConfig,
    device: str,
    links: Sequence[Link],
    weights_handle: dict[str, Any],
    states_handle: dict[str, Any],
    samples_handle: dict[str, Any],
    mailbox_handle: dict[str, Any],
    board_handles: list[dict[str, Any]],
    pipe_handle: dict[str, Any] | None,
    actors: int,
) -> None:
    """Take weights and states, compress, publish; distil in between what nobody else distils.

    The messages, in order: this process says `Hello` and receives its `State`; it is `Ready`; for
    each order to `Publish` it says `Taken` when it has copied weights and states, then `Done` with
    what became of it, and `Shadowed` with what became of its shadow; asked for its `State`, it
    sends it. What it is to `Distil` it is told when that changes, and it says what it `Distilled`.
    What others distil it finds on boards. A publication passes the pipe to so many `actors`.
    """
    from accerl.compress.distillation.state_ring import StateRing
    from accerl.runtime.process.steps import Steps, Students
    from accerl.runtime.publishing.probe import KLProbe
    from accerl.runtime.publishing.work import make_publication, try_shadow

    ring = StateRing(**states_handle)
    policy, compressor = policy_and_compressor(
        network, observation, num_actions, config, links, ring, device
    )
    probe = KLProbe()
    weights = WeightVector(**weights_handle)
    samples = SampleRing(**samples_handle)
    mailbox = Mailbox(**mailbox_handle)
    students = Students([Board(**handle) for handle in board_handles])
    pipe = None if pipe_handle is None else ShapedPipe(**pipe_handle)
    current: Publication | None = None

    def send(number: int, publication: Publication | None) -> None:
        if pipe is not None and publication is not None:
            pipe.send_down(actors * sum(len(each.payload) for each in publication.artifacts))
        mailbox.settle_or_put(number, publication)

    try:
        _start_from_state(channel, compressor)
        steps = Steps(channel, compressor, policy, weights)
        while True:
            order, states = _next_order(channel, compressor, steps)
            steps.load_weights()
            compressor.observe(samples.lent(*states))
            channel.send(Taken())
            if students.look():
                compressor.take_students(students.shown.students())
            if not steps.has_followed:  # what acts next has seen the newest weights
                steps.step()
            sent = partial(send, order.number)
            made = make_publication(compressor, probe, policy, order, current, sent)
            current = made.publication or current
            channel.send(Done(made.delivery))
            if order.shadow is not None:
                shadow, _ = try_shadow(compressor, policy, order)
                channel.send(Shadowed(shadow))
    finally:
        for block in (mailbox, samples, ring, weights, students, pipe):
            if block is not None:
                block.close()


def distill_repeatedly(
    channel: Channel,
    network: str,
    observation: ObservationSpec,
    num_actions: int,
    config: CompressionConfig,
    device: str,
    weights_handle: dict[str, Any],
    states_handle: dict[str, Any],
    board_handles: list[dict[str, Any]],
    index: int,
    restarts: int,
) -> None:
    """Distil without pause, and show the students; the messages are the compressor's.

    It is never sent an order, and starts from the compressor's state. If it takes the place of
    another, what that one has shown is still on the board.
    """
    from accerl.compress.distillation.state_ring import StateRing
    from accerl.runtime.process.steps import Steps, Students

    ring = StateRing(**states_handle)
    policy, compressor = policy_and_compressor(
        network, observation, num_actions, config, ring=ring, device=device
    )
    weights = WeightVector(**weights_handle)
    students = Students([Board(**handle) for handle in board_handles])
    try:
        _start_from_state(channel, compressor)
        steps = Steps(channel, compressor, policy, weights, index, students, restarts)
        steps.recover()
        _next_order(channel, compressor, steps)
    finally:
        for block in (students, ring, weights):
            block.close()


def _start_from_state(channel: Channel, compressor: Compressor) -> None:
    channel.send(Hello())
    message = channel.receive()
    assert isinstance(message, State)
    compressor.load_state_dict(message.state)
    channel.send(Ready())


def _next_order(
    channel: Channel, compressor: Compressor, steps: Steps
) -> tuple[Order, Sequence[int]]:
    """Distil until there is an order; return it, and where its states are."""
    while not isinstance(message := steps.next_message(), Publish):
        if isinstance(message, Distil):
            steps.distil(message.charges)
        else:
            assert isinstance(message, AskState)
            channel.send(State(compressor.state_dict()))
    return message.order, message.states


def measure_returns(
    channel: Channel,
    network: str,
    observation: ObservationSpec,
    num_actions: int,
    game: str,
    env: EnvConfig,
    episodes: int,
    weights_handle: dict[str, Any],
) -> None:
    """Measure J of the current weights whenever asked."""
    policy, evaluator = policy_and_evaluator(network, observation, num_actions, game, env, episodes)
    weights = WeightVector(**weights_handle)
    try:
        channel.send(Ready())
        while True:
            channel.receive()
            weights.load_into(policy)
            channel.send(Measured(evaluator.measure(policy)))
    finally:
        weights.close()
        evaluator.close()


def policy_and_compressor(
    network: str,
    observation: ObservationSpec,
    num_actions: int,
    config: CompressionConfig,
    links: Sequence[Link] = (),
    ring: StateRing | None = None,
    device: str = "cpu",
) -> tuple[Any, Any]:
    """Return what a process that compresses or distils begins with, before anybody waits for it.

    A network to copy weights into, and a compressor without states or students, which trains these
    on `device`.
    """
    import torch

    from accerl.compress.compressor import Compressor
    from accerl.networks.graph_policy import blank_states

    torch.set_num_threads(1)
    keep_freed_memory()
    policy = empty_policy(network, observation, num_actions)
    # With the first optimiser torch imports its compiler: a second that belongs to the start.
    torch.optim.Adam(policy.parameters())
    if device != "cpu":  # so does beginning to compute on a GPU
        there = copy.deepcopy(policy).to(device)
        there(blank_states(policy.observation, 2, device))[0].sum().backward()
    generator = torch.Generator()
    return policy, Compressor(observation, num_actions, config, generator, links, ring, device)


def policy_and_evaluator(
    network: str,
    observation: ObservationSpec,
    num_actions: int,
    game: str,
    env: EnvConfig,
    episodes: int,
) -> tuple[Any, Any]:
    """Return a network to copy weights into, and what measures J of it."""
    import torch

    from accerl.acting.evaluate import Evaluator

    torch.set_num_threads(1)
    return empty_policy(network, observation, num_actions), Evaluator(game, episodes, env)


def empty_policy(network: str, observation: ObservationSpec, num_actions: int) -> Any:
    """Return a network to copy weights into."""
    from accerl.networks.make import make_network

    return make_network(network, observation, num_actions)
