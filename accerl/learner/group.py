"""Groups of learners: what one of them does alone is the identity, what several do is a collective.

Each member learns from its share of the same rollout. Gradients, losses and whatever is normalised
are those of the whole of it, so that N members make the update that one alone would make.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import Store, TCPStore  # pyright: ignore[reportPrivateImportUsage]
from torch.nn.parallel import DistributedDataParallel

from accerl.errors import UserError

TIMEOUT_SECONDS = 60.0
"""how long a member waits for another one that neither answers nor ends"""
_CONNECT_SECONDS = 10.0  # to where the members find each other, which is open already
_HOST = "127.0.0.1"
_INTERFACE = "GLOO_SOCKET_IFNAME"


class GroupBrokenError(Exception):
    """Another member has ended, has left, or does not answer."""


class LearnerGroup:
    """A learner by itself: member 0 of 1."""

    rank: int = 0
    size: int = 1

    @property
    def leads(self) -> bool:
        """Whether this member is the one whose statistics are read."""
        return self.rank == 0

    def share(self, columns: np.ndarray) -> np.ndarray:
        """Return this member's part of a minibatch's environments; parts follow one another."""
        return np.array_split(columns, self.size)[self.rank]

    def wrap(self, module: nn.Module, *, may_skip: bool = False) -> nn.Module:
        """Return what computes the same, and whose gradients are means over the members.

        Args:
            module: what computes.
            may_skip: whether it may have parameters that its forward does not use.
        """
        return module

    def mean(self, tensor: Tensor) -> Tensor:
        """Return the mean over the members, each of which gives its own tensor."""
        return tensor

    def gather(self, tensor: Tensor, dim: int) -> Tensor:
        """Return the members' tensors, of equal shapes, concatenated in order of their ranks."""
        return tensor

    def close(self) -> None:
        """Leave; the others find that the group is broken."""


class GlooGroup(LearnerGroup):
    """Processes of one machine that talk by gloo, over the loopback interface alone.

    The constructor waits for all members. It takes torch's default process group, of which a
    process has one.

    Raises:
        GroupBrokenError: not all members have come. In its operations, and in a backward pass,
            torch raises errors of its own: put them under `translating_failures`.
        UserError: this process is in a group already.
    """

    def __init__(self, store: Store, rank: int, size: int) -> None:
        if dist.is_initialized():
            raise UserError(
                "runtime: num_learners above 1 needs torch's default process group, and this "
                "process has one already; close the other run first, or use num_learners 1"
            )
        self.rank, self.size = rank, size
        timeout = timedelta(seconds=TIMEOUT_SECONDS)
        try:
            with translating_failures(), _on_loopback():
                dist.init_process_group(
                    "gloo", store=store, rank=rank, world_size=size, timeout=timeout
                )
        except GroupBrokenError:
            self.close()
            raise

    def wrap(self, module: nn.Module, *, may_skip: bool = False) -> nn.Module:
        """See `LearnerGroup.wrap`; the members must hold equal weights."""
        return DistributedDataParallel(module, init_sync=False, find_unused_parameters=may_skip)

    def mean(self, tensor: Tensor) -> Tensor:
        """See `LearnerGroup.mean`."""
        total = tensor.clone()
        dist.all_reduce(total)
        return total / self.size

    def gather(self, tensor: Tensor, dim: int) -> Tensor:
        """See `LearnerGroup.gather`."""
        tensor = tensor.contiguous()
        parts = [torch.empty_like(tensor) for _ in range(self.size)]
        dist.all_gather(parts, tensor)
        return torch.cat(parts, dim)

    def close(self) -> None:
        """See `LearnerGroup.close`; safe to call twice."""
        if dist.is_initialized():
            dist.destroy_process_group()


def open_store(size: int) -> TCPStore:
    """Return where `size` members find each other: a port of this machine that nobody else has."""
    # torch by itself would listen on every interface; this needs no file that could be left behind.
    listener = socket.create_server((_HOST, 0))
    port = listener.getsockname()[1]
    timeout = timedelta(seconds=TIMEOUT_SECONDS)
    return TCPStore(_HOST, port, size, True, timeout, False, master_listen_fd=listener.detach())


def find_store(port: int, size: int) -> TCPStore:
    """Return the store that another process has opened.

    Raises:
        GroupBrokenError: it is gone.
    """
    with translating_failures():
        return TCPStore(_HOST, port, size, False, timedelta(seconds=_CONNECT_SECONDS), False)


@contextmanager
def translating_failures() -> Iterator[None]:
    """Raise `GroupBrokenError` in place of what torch makes of a member that is gone."""
    try:
        yield
    except RuntimeError as error:
        # What gloo throws, from the middle of a backward pass too, has no class of its own.
        if not isinstance(error, dist.DistError) and "gloo" not in str(error):
            raise
        raise GroupBrokenError(str(error)) from error


@contextmanager
def _on_loopback() -> Iterator[None]:
    """Have gloo listen on the loopback interface meanwhile, whatever the environment says."""
    before = os.environ.get(_INTERFACE)
    os.environ[_INTERFACE] = next(
        name for _, name in socket.if_nameindex() if name.startswith("lo")
    )
    try:
        yield
    finally:
        if before is None:
            del os.environ[_INTERFACE]
        else:
            os.environ[_INTERFACE] = before
