"""The learner against a slow oracle: gradients, episode ends, clipping, precision, resume."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from accerl.acting.rollout import Rollout
from accerl.checkpoint import load_checkpoint, save_checkpoint
from accerl.errors import UserError
from accerl.learner.config import LearnerConfig
from accerl.learner.learner import Learner
from accerl.learner.network import LearningNetwork
from accerl.networks.policy_net import ObservationSpec, make_policy
from tests.fixtures.chains import as_chain
from tests.fixtures.runs.learners import CONFIG, A, B, T, make_learner, make_rollout, tensors


def slow_targets(
    config: LearnerConfig, rollout: Rollout, values: np.ndarray, log_prob: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """V-trace of each environment by itself, one step at a time, in double precision."""
    targets, advantages = np.zeros((T, B)), np.zeros((T, B))
    for b in range(B):
        target_after = values[T, b]
        for t in reversed(range(T)):
            ratio = np.exp(log_prob[t, b] - rollout.log_prob[t, b])
            limit = config.reward_clip
            reward = np.clip(rollout.reward[t, b], -limit, limit) if limit else rollout.reward[t, b]
            reward *= config.reward_scale
            after, decay = values[t + 1, b], config.lam
            if rollout.truncated[t, b]:
                after, decay = values[t, b], 0.0
            gamma = 0.0 if rollout.terminated[t, b] else config.discount
            delta = min(ratio, config.clip_rho) * (reward + gamma * after - values[t, b])
            correction = target_after - after if decay else 0.0
            trace = gamma * decay * min(ratio, config.clip_c) * correction
            targets[t, b] = values[t, b] + delta + trace
            bootstrap = decay * target_after + (1.0 - decay) * after if t < T - 1 else after
            advantages[t, b] = reward + gamma * bootstrap - values[t, b]
            target_after = targets[t, b]
            if rollout.truncated[t, b]:  # nothing is fitted to a value that stands in for itself
                targets[t, b] = values[t, b]
    return targets, advantages


def oracle_gradients(learner: Learner, rollout: Rollout) -> list[Tensor]:
    """Gradients of the importance loss with targets and weights as constants."""
    config, policy = learner.config, learner.policy
    logits, values = policy(torch.from_numpy(rollout.obs).flatten(0, 1))
    logits, values = logits.view(T + 1, B, A)[:-1], values.view(T + 1, B)
    log_policy = logits - logits.logsumexp(-1, keepdim=True)
    chosen = torch.stack(
        [log_policy[t, b, rollout.action[t, b]] for t in range(T) for b in range(B)]
    ).view(T, B)
    numbers = chosen.detach().double().numpy()
    targets, advantages = slow_targets(config, rollout, values.detach().double().numpy(), numbers)
    weights = np.minimum(np.exp(numbers - rollout.log_prob), config.clip_rho)
    if config.normalise_advantages:
        plain = config.advantage_moments == "plain"
        counted = None if plain else weights
        mean = np.average(advantages, weights=counted)
        spread = np.sqrt(np.average((advantages - mean) ** 2, weights=counted))
        spread *= np.sqrt(T * B / (T * B - 1)) if plain else 1.0
        advantages = (advantages - mean) / (spread + 1e-8)
    constant = torch.from_numpy(weights * advantages).float()
    policy_loss = -(constant * chosen).mean()
    value_loss = 0.5 * (torch.from_numpy(targets).float() - values[:-1]).square().mean()
    entropy = -(log_policy.exp() * log_policy).sum(-1).mean()
    total = policy_loss + config.value_cost * value_loss - config.entropy_cost * entropy
    return list(torch.autograd.grad(total, list(policy.parameters())))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"reward_clip": 0.0, "discount": 0.9, "lam": 1.0},
        {"clip_rho": 2.0, "clip_c": 1.5, "reward_scale": 0.1, "value_cost": 1.0},
        {"normalise_advantages": True, "entropy_cost": 0.0},
        {"normalise_advantages": True, "advantage_moments": "weighted"},
        {"policy_loss": "clipped"},  # on the first pass its gradient is that of the ratio
    ],
    ids=str,
)
@pytest.mark.parametrize("seed", [0, 1])
def test_gradients_equal_the_slow_oracle(changes: dict[str, Any], seed: int) -> None:
    """So no gradient flows into targets, weights or the bootstrap value, at episode ends too."""
    learner, rollout = make_learner(replace(CONFIG, **changes)), make_rollout(seed)
    assert rollout.terminated.any()
    assert rollout.truncated.any()
    batch = tensors(rollout)
    if learner.config.policy_loss == "clipped":
        batch["proximal"] = learner._proximal_logp_t(batch)
    _, _, total = learner._loss(batch)
    gradients = torch.autograd.grad(total, list(learner.policy.parameters()))
    for mine, slow in zip(gradients, oracle_gradients(learner, rollout), strict=True):
        torch.testing.assert_close(mine, slow, rtol=2e-4, atol=2e-6)


def test_what_all_advantages_share_cancels_where_actors_and_learner_differ() -> None:
    learner = make_learner(replace(CONFIG, advantage_moments="weighted"))
    generator = torch.Generator().manual_seed(0)
    advantages = 3.0 + torch.randn((T, B), generator=generator)
    weights = torch.rand((T, B), generator=generator)
    normalised = learner._normalised(advantages, weights)
    assert float((weights * normalised).mean().abs()) < 1e-6
    assert float((weights * normalised.square()).sum() / weights.sum()) == pytest.approx(1.0)
    torch.testing.assert_close(learner._normalised(10.0 * advantages - 7.0, weights), normalised)


def test_no_gradient_reaches_the_bootstrap_observation() -> None:
    learner, batch = make_learner(), tensors(make_rollout())
    batch["obs"].requires_grad_()
    learner._loss(batch)[2].backward()
    gradient = batch["obs"].grad
    assert gradient is not None
    assert gradient[:-1].abs().sum() > 0.0
    assert not gradient[-1].any()


def test_one_update_moves_every_weight_towards_what_paid() -> None:
    config = replace(CONFIG, entropy_cost=0.0, reward_clip=0.0)
    for loss in ("importance", "clipped"):
        learner, rollout = make_learner(replace(config, policy_loss=loss)), make_rollout(ends=0.0)
        rollout.reward[:] = np.where(rollout.action == 2, 1.0, -1.0)
        rollout.terminated[:] = True
        before = {name: value.clone() for name, value in learner.policy.state_dict().items()}
        obs = torch.from_numpy(rollout.obs[:-1]).flatten(0, 1)
        with torch.no_grad():
            chance = learner.policy(obs)[0].softmax(-1)[:, 2].mean()
        learner.update(rollout)
        assert learner.updates == 1
        for name, value in learner.policy.state_dict().items():
            assert not torch.equal(value, before[name]), name
        with torch.no_grad():
            assert learner.policy(obs)[0].softmax(-1)[:, 2].mean() > chance


def test_dead_units_are_counted_over_the_whole_rollout() -> None:
    learner, rollout = make_learner(replace(CONFIG, minibatches=2)), make_rollout()
    last = as_chain(learner.policy).body[-2]
    assert isinstance(last, nn.Linear)
    with torch.no_grad():
        last.bias[:32] = -1e6  # a quarter of 128
        last.bias[32:] = 1e6
    assert learner.update(rollout).losses["dead_units"] == pytest.approx(0.25)


def test_the_second_pass_is_clipped_around_the_first() -> None:
    """Far from the proximal policy in the direction of the advantage, the gradient is zero."""
    config = replace(CONFIG, policy_loss="clipped", proximal="pass", reuse=2, entropy_cost=0.0)
    learner, batch = make_learner(replace(config, value_cost=0.0)), tensors(make_rollout())
    output, _, loss = learner._loss(batch)
    first = torch.autograd.grad(loss, list(as_chain(learner.policy).policy_head.parameters()))
    assert sum(gradient.abs().sum() for gradient in first) > 0.0
    with torch.no_grad():
        values = learner._forward(batch["obs"])[1]
        advantages = learner._targets(batch, values, output.target_logp_t).advantages
    batch["proximal"] = output.target_logp_t - 0.5 * advantages.sign()
    _, _, loss = learner._loss(batch)
    again = torch.autograd.grad(loss, list(as_chain(learner.policy).policy_head.parameters()))
    assert all(not gradient.any() for gradient in again)


def test_minibatches_cover_every_environment_in_every_pass() -> None:
    config = replace(CONFIG, minibatches=3, reuse=2, policy_loss="clipped", learning_rate=1e-9)
    learner, rollout = make_learner(config), make_rollout()
    rollout.obs[..., 0] = np.arange(B)  # so that each state says which environment it is from
    seen: list[list[int]] = []

    def note(_: object, arguments: tuple[Tensor]) -> None:
        if torch.is_grad_enabled():
            seen.append(sorted(int(number) for number in arguments[0][:, 0]))

    as_chain(learner.policy).body[0].register_forward_pre_hook(note)
    stats = learner.update(rollout)
    assert len(seen) == 6
    for first in (0, 3):
        parts = seen[first : first + 3]
        assert sorted(env for part in parts for env in part) == sorted([*range(B)] * (T + 1))
        assert all(len(set(part)) in (1, 2) for part in parts)
    whole = make_learner(replace(config, minibatches=1)).update(rollout)
    torch.testing.assert_close(stats.kl_nats, whole.kl_nats, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(stats.entropy_nats, whole.entropy_nats, rtol=1e-4, atol=1e-6)


def test_kl_and_entropy_are_those_of_the_learner_against_the_acting_logits() -> None:
    learner, rollout = make_learner(), make_rollout()
    with torch.no_grad():
        logits = learner.policy(torch.from_numpy(rollout.obs[:-1]).flatten(0, 1))[0]
    p = logits.double().softmax(-1).view(T, B, A).numpy()
    q = torch.from_numpy(rollout.logits).double().softmax(-1).numpy()
    stats = learner.update(rollout)
    np.testing.assert_allclose(stats.kl_nats, (p * np.log(p / q)).sum(-1), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(stats.entropy_nats, -(p * np.log(p)).sum(-1), rtol=1e-4)
    diagnostics = {"explained_variance", "grad_norm", "dead_units", "value_error"}
    diagnostics |= {"argmax_agreement", "ess_fraction", "clipped_share"}
    assert set(stats.losses) == {"policy", "value", "entropy"} | diagnostics
    assert stats.losses["entropy"] == pytest.approx(float(stats.entropy_nats.mean()), rel=1e-4)


def test_rewards_are_clipped_here_and_nowhere_else() -> None:
    small, large = make_rollout(), make_rollout()
    small.reward[:] = np.sign(small.reward)
    large.reward[:] = 30.0 * small.reward
    for clip, equal in ((1.0, True), (0.0, False)):
        one, two = (make_learner(replace(CONFIG, reward_clip=clip)) for _ in range(2))
        one.update(small)
        two.update(large)
        same = all(
            torch.equal(a, b)
            for a, b in zip(one.policy.parameters(), two.policy.parameters(), strict=True)
        )
        assert same == equal
    assert np.abs(large.reward).max() == 30.0  # the raw score stays in the rollout


def test_gradients_are_clipped_by_their_norm() -> None:
    learner = make_learner(replace(CONFIG, max_grad_norm=1e-3))
    stats = learner.update(make_rollout())
    left = torch.stack(
        [
            parameter.grad.norm()
            for parameter in learner.policy.parameters()
            if parameter.grad is not None
        ]
    ).norm()
    assert stats.losses["grad_norm"] > 1e-2
    assert left.item() == pytest.approx(1e-3, rel=1e-3)


def test_heads_stay_in_float32_under_bf16() -> None:
    """Early values differ by less than bfloat16 resolves (0.016 near -2.4)."""
    learner = make_learner(replace(CONFIG, precision="bf16"))
    with torch.no_grad():
        as_chain(learner.policy).value_head.weight.mul_(0.005)
        as_chain(learner.policy).value_head.bias.fill_(-2.4)
    obs = torch.from_numpy(make_rollout().obs)
    logits, values, _ = learner._forward(obs)
    assert (logits.dtype, values.dtype) == (torch.float32, torch.float32)
    rounded = values.bfloat16().unique()
    assert len(rounded) <= 3
    assert len(values.unique()) > 0.8 * values.numel()
    full = make_learner(CONFIG)
    full.policy.load_state_dict(learner.policy.state_dict())
    exact, _, _ = full._forward(obs)
    assert not torch.equal(logits, exact)  # the body did run in bfloat16
    torch.testing.assert_close(logits, exact, rtol=0.05, atol=0.05)
    learner.update(make_rollout())
    assert all(value.dtype == torch.float32 for value in learner.policy.state_dict().values())


@pytest.mark.parametrize(("side", "laid_out"), [(84, True), (10, False)])
def test_pixels_are_laid_out_for_convolutions_and_boards_are_not(side: int, laid_out: bool) -> None:
    """Whatever the layout: the numbers are the rollout's."""
    observation = ObservationSpec((4, side, side), "uint8")
    policy = make_policy("net3", observation, A, torch.Generator().manual_seed(0))
    learner = Learner(policy, replace(CONFIG, minibatches=2))
    obs = np.random.default_rng(0).integers(
        256, size=(T + 1, 4, *observation.shape), dtype=np.uint8
    )
    action = torch.zeros((T, 4), dtype=torch.int64)
    parts = list(learner._parts({"obs": torch.from_numpy(obs), "action": action}))
    assert torch.equal(torch.cat([part["obs"] for part in parts], dim=1), torch.from_numpy(obs))
    for part in parts:
        states = part["obs"].flatten(0, 1)
        assert states.is_contiguous(memory_format=torch.channels_last) == laid_out


@pytest.mark.parametrize("network", ["original", "net3"])
def test_pixels_that_are_converted_once_change_no_update(
    network: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In bfloat16 they are converted before the first pass, not in every one."""

    def laid_out(states: Tensor) -> Tensor:
        pixels = states.flatten(0, 1).contiguous(memory_format=torch.channels_last)
        return pixels.view(states.shape)

    observation = ObservationSpec((4, 84, 84), "uint8", centre=87, unit=90.0)
    config = replace(CONFIG, minibatches=2, reuse=2, precision="bf16", policy_loss="clipped")
    rollout = make_rollout()
    obs = np.random.default_rng(0).integers(
        256, size=(T + 1, B, *observation.shape), dtype=np.uint8
    )
    rollout = replace(rollout, obs=obs)

    def learned() -> Learner:
        policy = make_policy(network, observation, A, torch.Generator().manual_seed(0))
        learner = Learner(policy, config)
        learner.update(rollout)
        return learner

    once = learned()
    part = next(iter(once._parts({"obs": torch.from_numpy(obs), "action": torch.zeros((T, B))})))
    assert part["obs"].dtype == torch.bfloat16
    monkeypatch.setattr(LearningNetwork, "prepared", lambda _, states: laid_out(states))
    always = learned()
    for name, weight in once.policy.state_dict().items():
        assert torch.equal(weight, always.policy.state_dict()[name]), name


def spoiled(field: str, value: float) -> Rollout:
    rollout = make_rollout()
    getattr(rollout, field)[1, 1] = value
    return rollout


@pytest.mark.parametrize(
    ("field", "value"), [("reward", np.nan), ("obs", np.nan), ("log_prob", np.nan), ("obs", 1e19)]
)
def test_a_loss_or_gradient_that_is_not_finite_leaves_the_weights(field: str, value: float) -> None:
    learner = make_learner()
    learner.update(make_rollout(3))
    before = {name: tensor.clone() for name, tensor in learner.policy.state_dict().items()}
    with pytest.raises(FloatingPointError, match="not finite after 1 updates"):
        learner.update(spoiled(field, value))
    for name, tensor in learner.policy.state_dict().items():
        assert torch.equal(tensor, before[name])
    learner.update(make_rollout(4))
    assert all(tensor.isfinite().all() for tensor in learner.policy.state_dict().values())


def test_a_learner_restored_from_disk_makes_the_same_next_update(tmp_path: Path) -> None:
    config = replace(CONFIG, minibatches=2, reuse=2, policy_loss="clipped", max_grad_norm=0.5)
    learner = make_learner(config)
    for seed in range(3):
        learner.update(make_rollout(seed))
    state = learner.state_dict()
    save_checkpoint(tmp_path / "learner", state)
    other = make_learner(config, seed=9)
    other.update(make_rollout(8))
    other.load_state_dict(load_checkpoint(tmp_path / "learner"))
    assert other.updates == 3
    one, two = learner.update(make_rollout(5)), other.update(make_rollout(5))
    assert one.losses == two.losses
    for a, b in zip(learner.policy.parameters(), other.policy.parameters(), strict=True):
        assert torch.equal(a, b)
    # What was saved has not moved with the learner.
    save_checkpoint(tmp_path / "again", state)
    again = (tmp_path / "again" / "tensors.safetensors").read_bytes()
    assert again == (tmp_path / "learner" / "tensors.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"precision": "fp16"}, "precision must be auto, fp32 or bf16"),
        ({"policy_loss": "ppo"}, "policy_loss must be importance or clipped"),
        ({"device": "tpu"}, "device must be auto, cpu or cuda"),
        ({"proximal": "target"}, "proximal must be update or pass"),
        ({"policy_loss": "clipped", "proximal": "pass"}, "clips nothing without reuse"),
        ({"reuse": 0}, "must be at least 1"),
        ({"discount": 1.1}, r"must lie in \[0, 1\]"),
        ({"learning_rate": 0.0}, "learning_rate must be positive"),
        ({"reward_clip": -1.0}, "reward_clip must not be negative"),
        ({"clip_c": 2.0}, "V-trace needs c <= rho"),
        ({"anneal_updates": -1}, "anneal_updates must not be negative"),
        ({"anneal_to": 0.0}, "anneal_to must lie in"),
    ],
    ids=str,
)
def test_settings_out_of_range_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        replace(CONFIG, **changes)


def test_sparse_monitoring_compares_tiny_networks_now_and_then() -> None:
    learner = Learner(make_learner().policy, CONFIG, sparse_monitoring=True)
    stats = [learner.update(make_rollout()) for _ in range(10)]
    assert [item.kl_nats.numel() > 0 for item in stats] == [True, *[False] * 8, True]
    assert ["ess_fraction" in item.losses for item in stats] == [True, *[False] * 8, True]
    assert all("entropy" in item.losses for item in stats)
