"""Parts: a user's network, which other processes make again by its name."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
import torch

from accerl.correct import CorrectorChain, ISCorrector
from accerl.errors import UserError
from accerl.networks.graph_policy import Policy
from accerl.networks.make import make_network
from accerl.networks.observation import ObservationSpec
from accerl.runtime.parts import Parts, check_remade
from accerl.runtime.process.run import ProcessRun
from tests.fixtures.runs.inner_runs import weights_hash
from tests.fixtures.runs.process_runs import quick_catch

OWN = "tests.fixtures.own_networks"
BOARD = ObservationSpec((10, 5), "uint8")


def learners(network: str) -> Policy:
    return make_network(network, BOARD, 3, torch.Generator().manual_seed(1))


def others() -> torch.Generator:
    return torch.Generator().manual_seed(2)


@pytest.mark.parametrize("name", ["MaskedBoard", "ScaledBoard", "WidthsBoard"])
def test_a_network_of_which_others_would_draw_parts_anew_is_refused(name: str) -> None:
    network = f"{OWN}:{name}"
    with pytest.raises(UserError, match=f"network '{network}' draws .* float buffers, or") as no:
        check_remade(learners(network), network, others())
    assert "\n" not in str(no.value)


@pytest.mark.parametrize(
    "name",
    ["EvenlyMaskedBoard", "BufferedBoard", "EmbeddedBoard", "LazyBoard", "residual_board"],
)
def test_a_network_that_others_make_alike_is_let_be(name: str) -> None:
    """Also one with dropout and a counter, one that few states suit, and one that sizes itself."""
    network = f"{OWN}:{name}"
    policy = learners(network)
    before = weights_hash(policy)
    check_remade(policy, network, others())
    assert weights_hash(policy) == before


class Sealed(ISCorrector):
    """Holds what no other process can be sent."""

    def __init__(self) -> None:
        super().__init__(1.0)
        object.__setattr__(self, "lock", threading.Lock())


def test_what_other_processes_are_sent_can_be_sent() -> None:
    parts = Parts(corrector=CorrectorChain([Sealed()]))
    parts.check_sendable(learners=1)  # it stays here
    with pytest.raises(UserError, match="sent to the run's other processes: Sealed: TypeError: ca"):
        parts.check_sendable(learners=2)


def test_a_run_of_processes_refuses_it_before_anything_starts() -> None:
    with pytest.raises(UserError, match="MaskedBoard' draws numbers"):
        ProcessRun(replace(quick_catch(), network=f"{OWN}:MaskedBoard"))
