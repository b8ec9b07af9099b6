"""Behaviour cloning: start meta-training from a hand-set strategy instead of from nothing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from accerl.errors import UserError
from accerl.monitor.strategy import Strategy
from controller.env import CompressionControlEnv
from controller.policy import ControllerPolicy


def record(
    env: CompressionControlEnv, strategy: Strategy, seeds: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Drive `env` with `strategy` and return what it saw [N, F] and chose [N, heads].

    A mix of specs is recorded as its main spec, because a controller chooses one spec at a time.

    Raises:
        UserError: the strategy chose a spec that the environment's action space lacks.
    """
    vectors, indices = [], []
    for seed in seeds:
        strategy.reset()
        env.reset(seed=seed)
        truncated = False
        while not truncated:
            decision = strategy.decide(env.features)
            vectors.append(env.features.vector)
            indices.append(env.actions.indices(decision.main))
            _, _, _, truncated, _ = env.step_decision(decision)
    return np.array(vectors, dtype=np.float32), np.array(indices, dtype=np.int64)


def clone(
    policy: ControllerPolicy,
    vectors: np.ndarray,
    indices: np.ndarray,
    *,
    steps: int = 300,
    learning_rate: float = 0.02,
) -> float:
    """Fit the policy to recorded choices by maximum likelihood; return the share it repeats.

    Raises:
        UserError: nothing was recorded.
    """
    if len(vectors) == 0:
        raise UserError("cloning: nothing was recorded; give at least one seed")
    inputs, targets = torch.from_numpy(vectors), torch.from_numpy(indices)
    optimizer = torch.optim.Adam(policy.parameters(), lr=learning_rate)
    for _ in range(steps):
        log_prob, _ = policy.evaluate(inputs, targets)
        loss = -log_prob.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        chosen = torch.stack([logits.argmax(dim=-1) for logits in policy(inputs)], dim=-1)
    return (chosen == targets).all(dim=-1).float().mean().item()
