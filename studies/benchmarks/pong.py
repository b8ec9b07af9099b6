"""Recorded Pong states, and policies that react to them, for measurements that need both.

A freshly initialised policy is uniform and constant, so nothing that compression does to it shows.
Here the body stays orthogonal and random, and both heads are fitted in closed form (ridge
regression) to a rule that follows the ball: less than a second, and logits that differ by state.
Residual networks imitate that rule for half a minute instead.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from accerl.envs import make_envs
from accerl.networks.graph_policy import Policy
from accerl.networks.make import make_network
from accerl.networks.policy_net import ObservationSpec, PolicyNet, make_policy
from accerl.spec import STUDENTS

PIXELS = ObservationSpec((4, 84, 84), "uint8", frames=4)
CENTRED = replace(PIXELS, centre=87, unit=60.0)
"""Pong's background taken away, as in training"""
ACTIONS = 6
STAY, UP, DOWN = 0, 2, 3
TOP, BOTTOM = 14, 76  # the playing field's rows in an 84 x 84 frame
PADDLE_COLUMNS = slice(73, 76)
BALL_COLUMNS = slice(12, 72)
CONTRAST = 20
DEAD_ZONE_PIXELS = 3.0
LOGIT_GAP = 3.0
RIDGE = 0.3
IMITATION_UPDATES = 120
GAMES = 8
"""played side by side while states are recorded"""
EVERY = 5
"""steps between two recorded states of a game"""


def record_states(states: int, seed: int) -> np.ndarray:
    """Return Pong states [N, 4, 84, 84], acted half by the rule and half at random.

    Args:
        states: how many.
        seed: of the games and of the random actions.
    """
    generator = np.random.default_rng(seed)
    pong = make_envs("pong", GAMES)
    obs = pong.reset(seed)
    recorded: list[np.ndarray] = []
    while len(recorded) * GAMES < states:
        for _ in range(EVERY):
            random = generator.integers(ACTIONS, size=GAMES)
            follow = generator.random(GAMES) < 0.5
            obs = pong.step(np.where(follow, rule(obs)[0], random)).obs
        recorded.append(obs.copy())
    pong.close()
    # Shuffled, so that every part holds every phase of the games.
    return generator.permutation(np.concatenate(recorded))[:states]


def rule(obs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return actions [N] that follow the ball, and values [N]: minus the distance, in [-3, 0]."""
    field = obs[:, -1, TOP:BOTTOM].astype(np.int64)
    background = np.median(field, axis=(1, 2), keepdims=True)
    lit = np.abs(field - background) > CONTRAST
    paddle, _ = _height(lit[:, :, PADDLE_COLUMNS])
    ball, visible = _height(lit[:, :, BALL_COLUMNS])
    gap = np.where(visible, paddle - ball, 0.0)
    actions = np.where(gap > DEAD_ZONE_PIXELS, UP, np.where(gap < -DEAD_ZONE_PIXELS, DOWN, STAY))
    return actions, -np.abs(gap) / 20.0


def _height(lit: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean row of the lit pixels of each frame, and whether there are any."""
    weight = lit.sum(2)
    total = weight.sum(1)
    return (weight * np.arange(weight.shape[1])).sum(1) / np.maximum(total, 1), total > 0


def fitted_policy(
    student: str,
    states: np.ndarray,
    generator: torch.Generator,
    *,
    observation: ObservationSpec = PIXELS,
) -> PolicyNet:
    """Return a policy of the paper's whose heads are fitted, see `fit_heads`.

    Args:
        student: member of the pixel family.
        states: recorded states [N, 4, 84, 84].
        generator: of the random body.
        observation: how the network sees pixels.
    """
    net = make_policy(student, observation, ACTIONS, generator)
    fit_heads(net, states)
    return net


def imitator(network: str, states: np.ndarray, generator: torch.Generator) -> Policy:
    """Return a network of this package that reacts to Pong states [N, 4, 84, 84].

    A chain's heads are fitted. What a deep network's random body makes of two states hardly
    differs, and no rounding leaves that difference alone; so it imitates `rule` for some updates.
    """
    if network in STUDENTS:
        return fitted_policy(network, states, generator)
    net = make_network(network, CENTRED, ACTIONS, generator)
    actions, values = map(torch.from_numpy, rule(states))
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-3, eps=1e-5)
    for _ in range(IMITATION_UPDATES):
        batch = torch.randint(len(states), (32,), generator=generator)
        logits, found = net(torch.from_numpy(states)[batch])
        loss = cross_entropy(logits, actions[batch])
        loss = loss + 0.1 * (found - values[batch]).square().mean()
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        optimiser.step()
    return net


@torch.no_grad()
def fit_heads(net: PolicyNet, states: np.ndarray) -> None:
    """Fit both heads of a network to `rule` on states [N, 4, 84, 84]."""
    actions, values = rule(states)
    logits = torch.eye(ACTIONS)[torch.from_numpy(actions)] * LOGIT_GAP
    targets = torch.cat([logits, torch.from_numpy(values).float()[:, None]], dim=1)
    features = net.body(net.scale(torch.from_numpy(states)))
    weight, bias = ridge(features, targets)
    heads = (net.policy_head, net.value_head)
    for head, rows in zip(heads, (slice(ACTIONS), slice(ACTIONS, None)), strict=True):
        head.weight.copy_(weight[rows])
        head.bias.copy_(bias[rows])


def ridge(features: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return weight [K, F] and bias [K] of the ridge regression of targets [N, K] on [N, F].

    The penalty is `RIDGE` times the mean squared norm of a centred feature vector.
    """
    feature_mean, target_mean = features.mean(0), targets.mean(0)
    centred = (features - feature_mean).double()
    gram = centred @ centred.T  # dual form: there are fewer states than features
    penalty = RIDGE * gram.diagonal().mean()
    dual = torch.linalg.solve(
        gram + penalty * torch.eye(len(gram), dtype=gram.dtype), (targets - target_mean).double()
    )
    weight = (centred.T @ dual).T.float()
    return weight, target_mean - weight @ feature_mean
