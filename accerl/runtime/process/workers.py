"""What the processes of a run do: actors collect, the compressor publishes, the evaluator plays.

Each body is called with the channel to the learner's process, ends when that closes, and imports
what only it needs: an actor on ONNX Runtime gets by without torch.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Any

from accerl.actor import Actor
from accerl.envs import make_envs
from accerl.networks.observation import ObservationSpec
from accerl.rollout import Slab
from accerl.runtime.machine.memory import give_back_large_blocks, keep_freed_memory
from accerl.runtime.process.distillers import Board
from accerl.runtime.process.samples import SampleRing
from accerl.runtime.process.wire import Channel
from accerl.spec import CompressionSpec, by_label
from accerl.weights import Mailbox, Publication, WeightVector

if TYPE_CHECKING:
    from accerl.compress.config import CompressionConfig
    from accerl.compress.links import Link


def collect_rollouts(
    channel: Channel,
    slab_handle: dict[str, Any],
    mailbox_handle: dict[str, Any],
    game: str,
    threads: int,
    infer_batch: int,
    patience_seconds: float,
    seed: int,
) -> None:
    """Receive slot numbers, fill the slots in order, send each number back.

    With the numbers comes that of the last publication that was ordered, by the update that freed
    the slots as a rule. An actor with time on its hands gets here before that publication does:
    it waits a few milliseconds more rather than act with weights that are one update older.
    """
    give_back_large_blocks()
    slab = Slab(**slab_handle)
    mailbox = Mailbox(**mailbox_handle)
    try:
        envs = make_envs(game, slab.shape.num_envs)
        actor = Actor(envs, seed, threads=threads, infer_batch=infer_batch)
        channel.send({"ready": True})
        while True:
            message = channel.receive()
            _wait_for(mailbox, message["publication"], patience_seconds)
            for slot in message["fill"]:
                if mailbox.latest != actor.publication_number:
                    actor.load(mailbox.get())
                    actor.drop_artifacts()
                    if "torch" in sys.modules:  # one of the engines is torch's
                        sys.modules["torch"].set_num_threads(threads)
                actor.collect(slab[slot])
                channel.send({"filled": slot})
    finally:
        mailbox.close()
        slab.close()


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
    links: Sequence[Link],
    weights_handle: dict[str, Any],
    samples_handle: dict[str, Any],
    mailbox_handle: dict[str, Any],
    board_handles: list[dict[str, Any]],
) -> None:
    """Do one piece of work at a time: take weights and states, distil, compress, publish.

    The messages, in order: this process says `hello` and receives its `state`; it is `ready`; for
    each work it is sent it says `taken` when it has copied weights and states, and then `done`
    with what that took; asked for its `state`, it sends it. What other processes distil it finds
    on their boards.
    """
    from accerl.runtime.publishing.probe import KLProbe

    policy, compressor = policy_and_compressor(network, observation, num_actions, config, links)
    probe = KLProbe()
    weights = WeightVector(**weights_handle)
    samples = SampleRing(**samples_handle)
    mailbox = Mailbox(**mailbox_handle)
    boards = [Board(**handle) for handle in board_handles]
    current: Publication | None = None
    try:
        channel.send({"hello": True})
        compressor.load_state_dict(channel.receive()["state"])
        channel.send({"ready": True})
        while True:
            message = channel.receive()
            if "work" not in message:
                channel.send({"state": compressor.state_dict()})
                continue
            weights.load_into(policy)
            compressor.observe(samples.lent(*message["states"]))
            channel.send({"taken": True})
            for board in boards:
                compressor.take_students(board.news())
            done, current = _work(compressor, policy, probe, mailbox, message["work"], current)
            channel.send({"done": done})
    finally:
        for block in (mailbox, samples, weights, *boards):
            block.close()


def _work(
    compressor: Any,
    policy: Any,
    probe: Any,
    mailbox: Mailbox,
    work: dict[str, Any],
    current: Publication | None,
) -> tuple[dict[str, Any], Publication | None]:
    """Distil the students in use, then publish what was ordered.

    Returns:
        the seconds of both and what was published, for the learner's process; and what acts now.
    """
    from accerl.runtime.publishing.orders import Order
    from accerl.runtime.publishing.publisher import (
        build_publication,
        distill_students,
        students_kl_nats,
    )

    before = perf_counter()
    specs = [CompressionSpec.from_json(spec) for spec in work["distill"]]
    distilled = bool(distill_students(compressor, policy, specs))
    done: dict[str, Any] = {
        "distill_seconds": perf_counter() - before if distilled else 0.0,
        "publish_seconds": None,
        "delivered": None,
    }
    if work["order"] is None:
        return done, current
    before = perf_counter()
    order = Order.from_json(work["order"])
    built = build_publication(compressor, policy, order, current)
    if built.unchanged:
        mailbox.settle(order.number)
    else:
        mailbox.put(built.publication)
        current = built.publication
    done["publish_seconds"] = perf_counter() - before
    done["delivered"] = {
        "acted": built.acted,
        "rejected": built.rejected,
        "unchanged": built.unchanged,
        "size_bytes": built.size_bytes,
        "student_kl_nats": by_label(students_kl_nats(compressor, policy, order.decision.specs)),
        "split": probe.measure(
            policy, built.publication, compressor.states, check=built.check
        ).to_json(),
    }
    return done, current


def measure_returns(
    channel: Channel,
    network: str,
    observation: ObservationSpec,
    num_actions: int,
    game: str,
    episodes: int,
    weights_handle: dict[str, Any],
) -> None:
    """Measure J of the current weights whenever asked."""
    import torch

    from accerl.evaluate import Evaluator

    torch.set_num_threads(1)
    policy = empty_policy(network, observation, num_actions)
    evaluator = Evaluator(game, episodes)
    weights = WeightVector(**weights_handle)
    try:
        channel.send({"ready": True})
        while True:
            channel.receive()
            version = weights.load_into(policy)
            channel.send({"measured": version, "learner_return": evaluator.measure(policy)})
    finally:
        weights.close()
        evaluator.close()


def policy_and_compressor(
    network: str,
    observation: ObservationSpec,
    num_actions: int,
    config: CompressionConfig,
    links: Sequence[Link] = (),
) -> tuple[Any, Any]:
    """Return what a process that compresses or distils begins with, before anybody waits for it.

    A network to copy weights into, and a compressor without states or students.
    """
    import torch

    from accerl.compress.compressor import Compressor

    torch.set_num_threads(1)
    keep_freed_memory()
    policy = empty_policy(network, observation, num_actions)
    # With the first optimiser torch imports its compiler: a second that belongs to the start.
    torch.optim.Adam(policy.parameters())
    return policy, Compressor(observation, num_actions, config, torch.Generator(), links)


def empty_policy(network: str, observation: ObservationSpec, num_actions: int) -> Any:
    """Return a network to copy weights into."""
    from accerl.networks.policy_net import PolicyNet, architecture

    return PolicyNet(architecture(network, observation), observation, num_actions)
