from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from accerl.compress import CompressionConfig
from accerl.compress.check import kl_nats
from accerl.compress.distillation.student_pool import RESTED_UPDATES, StudentPool
from accerl.compress.distillation.trainer import DistillMethod, FixedStates, StudentTrainer
from accerl.networks.graph_policy import Policy
from accerl.networks.policy_net import ObservationSpec, PolicyNet, make_policy
from accerl.spec import StudentKey
from tests.fixtures.chains import as_chain

OBSERVATION = ObservationSpec((6,), "float32")
PRUNED = StudentKey("original", 0.5)


def make_learner(seed: int = 0) -> PolicyNet:
    net = make_policy("original", OBSERVATION, 4, torch.Generator().manual_seed(seed))
    with torch.no_grad():
        net.policy_head.weight.mul_(200.0)
    return net


def make_pool(**settings: Any) -> StudentPool:
    config = CompressionConfig(distill_batch=32, **settings)
    return StudentPool(OBSERVATION, 4, config, torch.Generator().manual_seed(0))


def states(count: int = 64, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, 6)).astype(np.float32)


def test_a_network_that_was_begun_anew_replaces_what_was_received() -> None:
    learner, here = make_learner(), make_pool()
    there = [make_pool(prune_budget=budget) for budget in ("uniform", "global")]
    for pool in there:
        pool.network(PRUNED, learner, states())
    first, second = (pool.send([PRUNED]) for pool in there)
    assert [entry["generation"] for entry in first] == [0]
    second[0]["generation"] = 1
    here.receive(first)
    before = here.network(PRUNED, learner, states())
    here.receive(first)
    assert here.network(PRUNED, learner, states()) is before
    here.receive(second)
    after = here.network(PRUNED, learner, states())
    assert here.generation(PRUNED) == 1
    assert isinstance(before, PolicyNet)
    assert isinstance(after, PolicyNet)
    assert after.arch != before.arch
    for name, weight in there[1].network(PRUNED, learner, states()).state_dict().items():
        torch.testing.assert_close(after.state_dict()[name], weight, rtol=0.0, atol=0.0)


def test_a_network_that_another_process_takes_over_has_another_number() -> None:
    learner, here, there = make_learner(), make_pool(), make_pool()
    for pool in (here, there):
        pool.network(PRUNED, learner, states())
    own = here.network_number(PRUNED)
    here.receive(there.send([PRUNED]))
    assert here.generation(PRUNED) == 0
    taken = here.network_number(PRUNED)
    assert taken != own
    here.receive(there.send([PRUNED]))
    assert here.network_number(PRUNED) == taken


@pytest.mark.parametrize("key", [PRUNED, StudentKey("net3", 0.0)])
def test_a_resumed_pool_knows_how_often_it_began(key: StudentKey) -> None:
    learner, pool, resumed = make_learner(), make_pool(), make_pool()
    pool.network(key, learner, states())
    state = pool.state_dict()
    state["students"][0]["generation"] = 3
    resumed.load_state_dict(state)
    assert resumed.generation(key) == 3
    assert resumed.send([key])[0]["generation"] == 3


def kl(learner: PolicyNet, net: Policy) -> float:
    unseen = torch.from_numpy(states(256, seed=1))
    with torch.no_grad():
        return float(kl_nats(learner(unseen)[0].numpy(), net(unseen)[0].numpy()).mean())


NET3 = StudentKey("net3", 0.0)


def test_students_of_the_learner_are_closer_than_random_ones() -> None:
    learner, obs = make_learner(), states(512)
    random, copied = (
        kl(learner, make_pool(distill_start=start).network(NET3, learner, obs))
        for start in ("random", "learner")
    )
    assert copied < 0.5 * random


@pytest.mark.parametrize("start", ["learner", "random"])
def test_copies_of_a_learner_scale_what_they_see_as_it_does(start: str) -> None:
    run, own = (ObservationSpec((6,), "uint8", *scale) for scale in ((90, 30.0), (0, 255.0)))
    learner = make_policy("original", own, 4, torch.Generator().manual_seed(0))
    obs = np.random.default_rng(0).integers(0, 256, (256, 6)).astype(np.uint8)
    config = CompressionConfig(distill_start=start)
    pool, other = (StudentPool(run, 4, config, torch.Generator()) for _ in range(2))
    net, shown = as_chain(pool.network(NET3, learner, obs)), torch.from_numpy(obs)
    assert net.observation == (own if start == "learner" else run)
    other.receive(pool.send([NET3]))
    assert torch.equal(other.network(NET3, learner, obs)(shown)[0], net(shown)[0])
    mine, learners = (each.body[1](each.scale(shown)).T for each in (net, learner))
    nearest = torch.cdist(mine, learners).amin(1)  # of the learner's first units, to each of its
    assert (nearest.max().item() < 0.05) == (start == "learner")


def test_beginnings_are_charged_once() -> None:
    learner, obs = make_learner(), states()
    pool = make_pool(distill_start="learner", distill_start_states=64)
    pool.network(NET3, learner, obs)
    charged = [pool.train(NET3, learner, FixedStates(obs), 2, 0, obs) for _ in range(2)]
    assert charged == [8, 2]  # 64 states, three times as long as those of an update
    pool = make_pool()
    pool.network(NET3, learner, obs)
    assert pool.train(NET3, learner, FixedStates(obs), 2, 0, obs) == 2


def test_all_that_a_beginning_fits_is_charged() -> None:
    learner, obs = make_learner(), states()
    pruned = StudentKey("net3", 0.5)
    charged = {}
    for start in ("random", "learner"):
        pool = make_pool(distill_start=start, distill_start_states=64, prune_compensate=True)
        pool.network(pruned, learner, obs)
        charged[start] = pool.train(pruned, learner, FixedStates(obs), 0, 0, obs)
    assert charged == {"random": 6, "learner": 12}  # its head once more, as it is a copy


def test_who_takes_over_a_network_goes_on_in_its_learning_rate() -> None:
    settings = {**RENEWED, "distill_decay_updates": 8}
    learner, obs = make_learner(), states()
    there, here = make_pool(**settings), make_pool(**settings)
    there.network(NET3, learner, obs)
    another(learner, 5)
    there.train(NET3, learner, FixedStates(obs), 4, 0, obs)
    there.train(NET3, learner, FixedStates(obs), 2, 1, obs)  # begun anew, after four
    place = there.trainer(NET3).place
    assert place == {"updates": 6, "begun": 4, "looked": 4, "refused": 0}
    here.receive(there.send([NET3]))
    here.train(NET3, learner, FixedStates(obs), 1, 1, obs)
    assert here.trainer(NET3).place == {**place, "updates": 7}
    assert here.generation(NET3) == 1


def another(learner: PolicyNet, seed: int) -> PolicyNet:
    """Return a learner whose weights have become those of quite another policy."""
    other = make_learner(seed)
    learner.load_state_dict(other.state_dict())
    return learner


RENEWED = {
    "distill_start": "learner",
    "distill_renew_every": 4,
    "prune_compensate": True,
    "distill_learning_rate": 1e-4,
}


@pytest.mark.parametrize("key", [PRUNED, NET3])
def test_a_network_begins_anew_when_the_learner_has_left_it_behind(key: StudentKey) -> None:
    learner, obs, pool = make_learner(), states(512), make_pool(**RENEWED)
    pool.network(key, learner, obs)
    for _ in range(3):  # the learner stands still: its units stay the most important ones
        pool.train(key, learner, FixedStates(obs), 4, 0, obs)
    assert pool.generation(key) == 0
    another(learner, 1)
    before = kl(learner, pool.network(key, learner, obs))
    pool.train(key, learner, FixedStates(obs), 4, 5, obs)
    assert pool.generation(key) == 1
    assert kl(learner, pool.network(key, learner, obs)) < 0.5 * before
    trained = pool.state_dict()["students"][0]["state"]
    assert trained["updates"] == 16
    assert trained["followed"] == 5  # the learner that it was copied from


def test_a_network_that_is_closer_than_a_new_copy_stays_and_is_looked_at_less_often() -> None:
    learner, obs = make_learner(), states(512)
    settings = RENEWED | {"distill_learning_rate": 3e-3, "distill_renew_share": 0.0}
    pool = make_pool(**settings | {"distill_renew_every": 100, "distill_start_states": 32})
    pool.network(PRUNED, learner, obs)
    charged = [pool.train(PRUNED, learner, FixedStates(obs), 100, 0, obs) for _ in range(8)]
    assert pool.generation(PRUNED) == 0
    # Looks after 100 updates, 200 more, and then 400 more; the first call pays for the creation.
    assert [index for index, updates in enumerate(charged) if updates > 100] == [0, 1, 3, 7]


def test_a_network_whose_weights_are_no_numbers_begins_anew() -> None:
    learner, obs, pool = make_learner(), states(512), make_pool(**RENEWED)
    net = pool.network(NET3, learner, obs)
    another(learner, 1)
    with torch.no_grad():
        next(net.parameters()).fill_(torch.nan)
    for _ in range(2):
        pool.train(NET3, learner, FixedStates(obs), 4, 5, obs)
    assert pool.generation(NET3) == 1
    assert np.isfinite(kl(learner, pool.network(NET3, learner, obs)))


def test_a_resumed_pool_goes_on_exactly_through_a_new_beginning() -> None:
    outcomes = []
    for resumed in (False, True):
        learner, obs, pool = make_learner(), states(512), make_pool(**RENEWED)
        pool.network(PRUNED, learner, obs)
        pool.train(PRUNED, learner, FixedStates(obs), 3, 0, obs)
        if resumed:
            state, pool = pool.state_dict(), make_pool(**RENEWED)
            pool.load_state_dict(state)
        another(learner, 1)
        for _ in range(3):
            pool.train(PRUNED, learner, FixedStates(obs), 3, 0, obs)
        outcomes.append(pool.network(PRUNED, learner, obs).state_dict())
        assert pool.generation(PRUNED) == 1
    for name, weight in outcomes[0].items():
        assert torch.equal(weight, outcomes[1][name])


def test_more_sparsity_begins_from_what_was_distilled_if_that_is_closer() -> None:
    """Of an untrained copy nothing is gained; a trained one has learned to do without units."""
    learner, obs = make_learner(), states(512)
    found = []
    for updates in (0, 300):
        pool = make_pool(distill_start="learner", distill_learning_rate=3e-3)  # no compensation
        pool.network(PRUNED, learner, obs)
        for _ in range(updates):
            pool.train(PRUNED, learner, FixedStates(obs), 1, 0, obs)
        harder = StudentKey("original", 0.6)
        found.append(kl(learner, pool.network(harder, learner, obs)))
    assert found[1] < 0.8 * found[0]


def test_the_learning_rate_falls_behind_a_beginning() -> None:
    method = DistillMethod(learning_rate=1e-2, decay_updates=10, decay_to=0.1)
    assert [method.rate(updates) for updates in (0, 5, 10, 99)] == pytest.approx(
        [1e-2, 5.5e-3, 1e-3, 1e-3]
    )
    learner, obs = make_learner(), states()
    net = make_learner(1)
    trainer = StudentTrainer(net, method, torch.Generator().manual_seed(0))
    moved = []
    for _ in range(30):
        before = net.policy_head.weight.detach().clone()
        trainer.update(FixedStates(obs), learner)
        moved.append(float((net.policy_head.weight.detach() - before).abs().max()))
    assert moved[0] == pytest.approx(1e-2, rel=0.01)  # the first step of Adam
    assert max(moved[-5:]) < 3e-3


def test_what_another_process_trains_is_warmed_up_when_it_has_rested() -> None:
    learner, other = make_learner(), make_learner(1)
    key, source = StudentKey("net3", 0.0), FixedStates(states())
    here, there = make_pool(distill_warmup_updates=20), make_pool()
    there.network(key, learner, states())

    def distil(updates: int, version: int, policy: Policy) -> None:
        there.train(key, policy, source, updates, version, states())
        here.receive(there.send([key]))

    distil(40, 100, learner)
    assert here.warm_up_updates(key, 121) == 20
    assert here.warm_up_updates(key, 122) == 0  # it acted last
    assert here.warm_up_updates(None, 123) == here.warm_up_updates(None, 124) == 0
    distil(4, 120, learner)
    assert here.warm_up_updates(key, 125) == 0  # it was followed
    received = here.network(key, other, states())
    here.train(key, other, source, 20, 126, states())
    warm = here.network(key, other, states())
    assert warm is not received
    assert here.trainer(key).updates == 64
    distil(16, 127, other)
    assert here.network(key, other, states()) is warm
    distil(4, 128, other)
    assert here.network(key, other, states()) is not warm
    weights = there.network(key, other, states()).state_dict()
    for name, weight in here.network(key, other, states()).state_dict().items():
        assert torch.equal(weight, weights[name])


@pytest.mark.parametrize("updates", [1, 4])
def test_after_a_rest_a_student_is_warmed_up_towards_the_learner_as_it_is_now(updates: int) -> None:
    """However few updates it had since its teacher was last copied."""
    pool = make_pool(distill_warmup_updates=20, distill_sync_every=10)
    key, source, now = PRUNED, FixedStates(states()), make_learner(1)
    for version in (1, 2):
        pool.warm_up_updates(key, version)
        pool.network(key, make_learner(), states())
        pool.train(key, make_learner(), source, updates, version, states())
    for version in (3, 4, 5):
        pool.warm_up_updates(None, version)
    warm_up = pool.warm_up_updates(key, 1000)
    pool.train(key, now, source, warm_up, 1000, states())
    assert (warm_up, pool.trainer(key).followed) == (20, 1000)
    teacher = pool.trainer(key).state_dict()["teacher"]
    assert all(torch.equal(teacher[name], weight) for name, weight in now.state_dict().items())


def test_who_has_rested_for_long_holds_no_copy_of_the_learner() -> None:
    """Which takes more memory, and more of a checkpoint, than most students."""
    pool, learner, source = make_pool(), make_learner(), FixedStates(states())
    other = StudentKey("net3", 0.0)
    for key in (PRUNED, other):
        pool.network(key, learner, states())
    held = []
    for version in (1, 2, 2 + RESTED_UPDATES, 3 + RESTED_UPDATES):
        pool.train(other if version > 1 else PRUNED, learner, source, 1, version, states())
        teachers = [pool.trainer(key).state_dict()["teacher"] for key in (PRUNED, other)]
        held.append([teacher is not None for teacher in teachers])
    assert held == [[True, False], [True, True], [False, True], [False, True]]
    saved, again = pool.state_dict(), make_pool()
    again.load_state_dict(saved)
    for each in (pool, again):
        each.train(PRUNED, make_learner(1), source, 2, 3 + RESTED_UPDATES, states())
    one, two = (each.trainer(PRUNED) for each in (pool, again))
    assert one.followed == two.followed == 3 + RESTED_UPDATES
    for name, weight in one.net.state_dict().items():
        assert torch.equal(two.net.state_dict()[name], weight), name
