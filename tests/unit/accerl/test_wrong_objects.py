"""Objects of another kind than Python's entry points take: one line that says which."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from torch import Tensor, nn

import accerl
from accerl.correct import CorrectorChain, VTraceCorrector
from accerl.errors import UserError
from accerl.runtime.parts import Parts
from accerl.spec import IDENTITY, CompressionSpec, Decision
from controller.bundle.schedule import Schedule, SchedulePoint

STATES = np.zeros((8, 4), np.float32)
SPEC = CompressionSpec(graph="eager")
WRONG: Any = CorrectorChain


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.policy, self.value = nn.Linear(4, 3), nn.Linear(4, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.policy(x), self.value(x)


class Model:
    """One that has a policy, as those of Stable-Baselines3."""

    policy = nn.Linear(1, 1)


def parts(**given: Any) -> Callable[[], object]:
    return lambda: Parts(**given)


def compressed(module: Any, **options: Any) -> Callable[[], object]:
    return lambda: accerl.compress(module, SPEC, STATES, **options)


def acted(states: Any, dice: Any = None) -> Callable[[], object]:
    return lambda: accerl.compress(Small(), SPEC, STATES)(states, dice)


def planned(fraction: float) -> Callable[[], object]:
    point = SchedulePoint(
        fraction=0.0, seconds=0.0, decision=Decision.of(IDENTITY), agreement=1.0, levels={}
    )
    return lambda: Schedule((point,)).at(fraction)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (parts(corrector=VTraceCorrector()), r"a chain: CorrectorChain\(\[VTraceCorrector"),
        (parts(links=Small()), "links takes a tuple"),
        (lambda: WRONG([VTraceCorrector]), "has a method `correct`, such as VTraceCorrector"),
        (lambda: WRONG([3]), "got 3"),
        (compressed(Model()), "not Model: give its `policy`"),
        (compressed("model.pt"), "give a torch module, not str"),
        (compressed(Small().state_dict()), "not OrderedDict"),
        (compressed(Small(), config={}), "give a CompressionConfig, not dict"),
        (acted(STATES.tolist()), "must be a NumPy array, not list"),
        (acted(STATES, 0), r"numpy\.random\.default_rng"),
        (planned(50), "from 0 to 1, got 50"),
        (planned(-0.5), r"got -0\.5"),
        (planned(float("nan")), "got nan"),
    ],
)
def test_what_is_of_the_wrong_kind_is_named(call: Callable[[], object], said: str) -> None:
    with pytest.raises(UserError, match=said):
        call()


def test_dice_choose_and_schedules_answer_beyond_their_end() -> None:
    assert accerl.compress(Small(), SPEC, STATES)(STATES, np.random.default_rng(0)).shape == (8,)
    assert planned(1.5)() == Decision.of(IDENTITY)
