"""Learner: corrected rollouts -> new weights (actor-critic on corrected targets, paper eq. 4)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from time import thread_time
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from accerl.acting.rollout import Rollout
from accerl.compress.pruning.sparse import SparseTopology
from accerl.correct import CorrectorChain, Experience, Targets, make_corrector
from accerl.learner.config import LearnerConfig, choose_device
from accerl.learner.group import LearnerGroup
from accerl.learner.network import LearningNetwork
from accerl.monitor.divergence import RolloutMeasures, measure_rollout, updates_between
from accerl.networks.graph_policy import GraphPolicy, Policy, count_macs
from accerl.networks.optimiser_state import load_optimiser_state, optimiser_state
from accerl.networks.structure import load_saved
from accerl.precision import choose_precision
from accerl.seeds import Role, torch_generator

LARGEST_LOG_RATIO = 20.0
"""bound on log(pi_new / pi_old) within an update; the loss clips the ratio near 1.2 anyway"""


@dataclass(frozen=True)
class UpdateStats:
    """What one update saw: per-state indicators before learning, and mean losses."""

    kl_nats: Tensor  # [T, B] KL(learner || actor), eq. 5; empty where it was not measured
    entropy_nats: Tensor  # [T, B] of the learner's policy; likewise
    logits: Tensor  # [T, B, A] of the learner's policy, each before the step that used it
    losses: dict[str, float]
    """mean losses and diagnostics: explained_variance of the targets by the values and value_error
    (root mean square, in the learner's scaled rewards), grad_norm before clipping, dead_units
    (share of the last hidden layer that no state of the rollout excited; 0 for a network
    whose policy head is not linear), and, where that was
    measured, argmax_agreement, ess_fraction, clipped_share (see `RolloutMeasures`)"""
    monitor_cpu_seconds: float = 0.0
    """processor seconds that measuring took, learning apart"""


class _Output(NamedTuple):
    """What one part of a rollout made the policy put out; without gradient."""

    logits: Tensor  # [T, B, A]
    target_logp_t: Tensor  # [T, B] of the actions that were taken
    alive: Tensor  # [H] whether a unit of the last hidden layer was above zero for any state


class Learner:
    """Owns the full-precision policy and its optimiser."""

    def __init__(
        self,
        policy: Policy,
        config: LearnerConfig,
        generator: torch.Generator | None = None,
        *,
        corrector: CorrectorChain | None = None,
        sparse_monitoring: bool = False,
    ) -> None:
        """Take over `policy`.

        Args:
            policy: what is improved, in place.
            config: how.
            generator: masks of a sparse policy are drawn from it (seed 0 if None).
            corrector: takes the place of the one that the configuration names.
            sparse_monitoring: whether updates of tiny networks compare learner and actors only
                now and then (`updates_between`); all members of a group agree on it.
        """
        self.device = choose_device(config.device)
        self.policy = policy.to(self.device)
        self.config = config
        if corrector is None:
            corrector = make_corrector(config.corrector, rho=config.clip_rho, c=config.clip_c)
        self.corrector = corrector
        self._sparse_monitoring = sparse_monitoring
        self._macs = count_macs(policy)
        self.updates = 0
        self._optimiser = torch.optim.Adam(
            policy.parameters(), lr=config.learning_rate, eps=config.adam_eps, fused=True
        )
        self.topology: SparseTopology | None = None
        if config.sparse is not None:
            generator = generator or torch_generator(0, Role.LEARNER)
            self.topology = SparseTopology(policy, config.sparse, generator)
        precision = choose_precision(config.precision, self.device)
        self._network = LearningNetwork(self.policy, precision)
        self._group = LearnerGroup()
        self._parallel = self._wrapped()

    def join(self, group: LearnerGroup) -> None:
        """Leave the group it is in and learn as a member of `group`, all in the same state."""
        left, self._group = self._group, group
        self._parallel = self._wrapped()
        left.close()

    def _wrapped(self) -> torch.nn.Module:
        return self._group.wrap(self._network, may_skip=isinstance(self.policy, GraphPolicy))

    def update(self, rollout: Rollout) -> UpdateStats:
        """Improve the policy with one rollout, of which each member of a group uses its share.

        The KL and entropy that are returned belong to the policy before the step that used them.
        What is returned describes the whole rollout; no member reads the rollout any more by then.

        Raises:
            FloatingPointError: the loss or its gradient is not finite, and that step is not taken;
                or its last steps have made the weights so.
        """
        config = self.config
        for group in self._optimiser.param_groups:
            group["lr"] = config.learning_rate * config.annealed(self.updates)
        batch = {
            name: torch.from_numpy(array).to(self.device, non_blocking=True)
            for name, array in rollout.state_dict().items()
        }
        parts = list(self._parts(batch))
        if config.policy_loss == "clipped" and config.proximal == "update":
            for part in parts[1:]:  # the first one's own forward pass precedes every step
                part["proximal"] = self._proximal_logp_t(part)
        alive = torch.zeros((), dtype=torch.bool, device=self.device)
        outputs: list[_Output] = []
        totals: dict[str, float] = {}
        for epoch in range(config.reuse):
            for part in parts:
                output, losses, loss = self._loss(part)
                if epoch == 0:
                    outputs.append(output)
                    alive = alive | output.alive
                for name, value in self._step(loss, losses).items():
                    totals[name] = totals.get(name, 0.0) + value
        self._refuse_broken()
        passes = config.reuse * len(parts)
        gather = self._group.gather
        logits = torch.cat([gather(output.logits, dim=1) for output in outputs], dim=1)
        before = thread_time()
        measured = self._measured(batch, logits, outputs)
        monitor_cpu_seconds = thread_time() - before
        alive = self._group.mean(alive.float()) > 0.0
        # Also the members' last word to each other: by then all have read the rollout.
        means = self._group.mean(torch.tensor(list(totals.values()), dtype=torch.float64)) / passes
        losses = dict(zip(totals, means.tolist(), strict=True))
        losses["value_error"] = math.sqrt(2.0 * losses["value"])
        losses["dead_units"] = 1.0 - alive.float().mean().item()
        self.updates += 1
        if measured is None:
            nothing = torch.empty(0)
            return UpdateStats(nothing, nothing, logits.cpu(), losses, monitor_cpu_seconds)
        names = ("argmax_agreement", "ess_fraction", "clipped_share")
        losses |= {name: getattr(measured, name) for name in names}
        return UpdateStats(
            kl_nats=measured.kl_nats.cpu(),
            entropy_nats=measured.entropy_nats.cpu(),
            logits=logits.cpu(),
            losses=losses,
            monitor_cpu_seconds=monitor_cpu_seconds,
        )

    def _measured(
        self, batch: dict[str, Tensor], logits: Tensor, outputs: list[_Output]
    ) -> RolloutMeasures | None:
        """Return how the first pass compares with the acting policy, in every environment.

        None where nobody would read it, and between the updates that are measured.
        """
        macs = self._macs * batch["action"].numel() * self.config.reuse
        if self._sparse_monitoring and self.updates % updates_between(macs):
            return None
        target_logp_t = torch.cat(
            [self._group.gather(output.target_logp_t, dim=1) for output in outputs], dim=1
        )
        if not self._group.leads:
            return None
        return measure_rollout(
            logits,
            batch["logits"],
            target_logp_t,
            batch["log_prob"],
            rho_bar=self.corrector.truncation,
        )

    def _parts(self, batch: dict[str, Tensor]) -> Iterator[dict[str, Tensor]]:
        """Yield the rollout, or this learner's share of it, by sets of environments."""
        envs = batch["action"].shape[1]
        for minibatch in np.array_split(np.arange(envs), self.config.minibatches):
            columns = self._group.share(minibatch)
            low, high = int(columns[0]), int(columns[-1]) + 1
            part = {name: values[:, low:high] for name, values in batch.items() if name != "header"}
            part["obs"] = self._network.prepared(part["obs"])
            yield part

    def _loss(self, batch: dict[str, Tensor]) -> tuple[_Output, dict[str, Tensor], Tensor]:
        """Return what the policy put out, the named losses and the total to minimise.

        Without a "proximal" policy in the batch, the one that this finds becomes it.
        """
        config = self.config
        logits, values, alive = self._forward(batch["obs"])
        logits = logits[:-1]
        log_policy = F.log_softmax(logits, dim=-1)
        target_logp_t = log_policy.gather(-1, batch["action"].unsqueeze(-1)).squeeze(-1)
        if config.policy_loss == "clipped":
            batch.setdefault("proximal", target_logp_t.detach())
        with torch.no_grad():
            targets, advantages, weights = self._targets(batch, values, target_logp_t)
        if config.normalise_advantages:
            advantages = self._normalised(advantages, weights)
        if config.policy_loss == "importance":
            policy_loss = -(weights * advantages * target_logp_t).mean()
        else:
            # Clipping around the behaviour policy would tie the learner to a student that lags.
            # An infinite ratio would make NaN of a gradient that the minimum leaves out.
            log_ratio = target_logp_t - batch["proximal"]
            ratio = log_ratio.clamp(max=LARGEST_LOG_RATIO).exp()
            clipped = ratio.clamp(1.0 - config.clip_ratio, 1.0 + config.clip_ratio)
            surrogate = torch.minimum(ratio * advantages, clipped * advantages)
            policy_loss = -(weights * surrogate).mean()
        value_loss = 0.5 * (targets - values[:-1]).square().mean()
        entropy_mean = -(log_policy.exp() * log_policy).sum(-1).mean()
        entropy_cost = config.entropy_cost * config.annealed(self.updates)
        total = policy_loss + config.value_cost * value_loss - entropy_cost * entropy_mean
        if config.actor_kl_cost:
            acted = F.log_softmax(batch["logits"], dim=-1)
            actor_kl = (acted.exp() * (acted - log_policy)).sum(-1).mean()
            total = total + config.actor_kl_cost * actor_kl
        errors = self._group.gather(targets - values[:-1].detach(), dim=1)
        free = int(errors.numel() > 1)  # a single sample has no deviation
        spread = self._group.gather(targets, dim=1).var(correction=free).clamp_min(1e-8)
        residual = errors.var(correction=free) / spread
        losses = {
            "policy": policy_loss.detach(),
            "value": value_loss.detach(),
            "entropy": entropy_mean.detach(),
            "explained_variance": 1.0 - residual,
        }
        return _Output(logits.detach(), target_logp_t.detach(), alive), losses, total

    def _normalised(self, advantages: Tensor, weights: Tensor) -> Tensor:
        """Return advantages [T, B] with mean 0 and deviation 1, weighted or not.

        The gradient is that of sum(w A log pi). Only moments under the same w make the mean cancel
        as a baseline where actors and learner differ. Plain ones leave a share of
        sum(w log pi) in it, which pulls the learner back towards the actors wherever w is
        truncated.
        """
        gather = self._group.gather
        whole = gather(advantages, dim=1)
        if self.config.advantage_moments == "plain":
            deviation = whole.std(correction=int(whole.numel() > 1))
            return (advantages - whole.mean()) / (deviation + 1e-8)
        shares = gather(weights, dim=1)
        shares = shares / shares.sum().clamp_min(1e-8)
        mean = (shares * whole).sum()
        deviation = (shares * (whole - mean).square()).sum().sqrt()
        return (advantages - mean) / (deviation + 1e-8)

    def _forward(self, obs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return logits [T + 1, B, A], values [T + 1, B] and live units for obs [T + 1, B, *]."""
        steps, envs = obs.shape[:2]
        logits, values, hidden = self._parallel(obs.flatten(0, 1))
        alive = (hidden.detach() > 0).any(0)
        return logits.view(steps, envs, -1), values.view(steps, envs), alive

    @torch.no_grad()
    def _proximal_logp_t(self, batch: dict[str, Tensor]) -> Tensor:
        """Return log pi(action) [T, B] of the policy before this update."""
        logits, _, _ = self._forward(batch["obs"][:-1])
        log_policy = F.log_softmax(logits, dim=-1)
        return log_policy.gather(-1, batch["action"].unsqueeze(-1)).squeeze(-1)

    def _targets(self, batch: dict[str, Tensor], values: Tensor, target_logp_t: Tensor) -> Targets:
        """Return what the correctors make of the batch [T, B]; V is the learner's."""
        config = self.config
        reward_t = batch["reward"]
        if config.reward_clip:
            reward_t = reward_t.clamp(-config.reward_clip, config.reward_clip)
        # Where an episode ends as its time is up too, there is nothing to come, as at any end.
        truncated = batch["truncated"] & ~batch["terminated"]
        ended = batch["terminated"]
        if config.life_loss_ends:
            ended = ended | batch["life_lost"]
        # A truncated episode goes on, unseen: the state before the cut stands in for the one
        # after it, and the trace ends there so that nothing leaks in from the next episode.
        value_tp1 = torch.where(truncated, values[:-1], values[1:])
        experience = Experience(
            value_t=values[:-1].detach(),
            value_tp1=value_tp1.detach(),
            reward_t=reward_t * config.reward_scale,
            discount_t=config.discount * (~ended).float(),
            target_logp_t=target_logp_t.detach(),
            behaviour_logp_t=batch["log_prob"],
            lam=config.lam * (~truncated).float(),
            # The clipped surrogate holds the ratio to the proximal policy; the rest is weighed.
            policy_logp_t=batch.get("proximal") if config.policy_loss == "clipped" else None,
        )
        targets = self.corrector.correct(experience)
        # A target made of the value itself would be chased up to reward / (1 - discount).
        fixed = torch.where(truncated, experience.value_t, targets.value_targets)
        return targets._replace(value_targets=fixed)

    def _step(self, loss: Tensor, losses: dict[str, Tensor]) -> dict[str, float]:
        """Take a step; return the losses and the gradient's norm as numbers.

        Raises:
            FloatingPointError: the loss or the gradient is not finite; the step is not taken.
        """
        self._optimiser.zero_grad(set_to_none=True)
        loss.backward()
        mean_loss = self._group.mean(loss.detach())  # so that a group's members fail alike
        if self.topology is not None and self._has_finite_gradients():
            self.topology.before_step(self._optimiser)
        norm = torch.nn.utils.clip_grad_norm_(
            self.policy.parameters(), self.config.max_grad_norm, foreach=True
        )
        shown = {**losses, "grad_norm": norm, "loss": mean_loss}
        # At once: a GPU's queue runs dry whenever a number is read.
        numbers = torch.stack([value.float() for value in shown.values()]).tolist()
        found = dict(zip(shown, numbers, strict=True))
        # A gradient can overflow where the loss does not, and clipping makes NaN of infinity.
        if not (math.isfinite(found.pop("loss")) and math.isfinite(found["grad_norm"])):
            raise FloatingPointError(
                f"the learner's loss is not finite after {self.updates} updates ({found}); "
                "lower the learning rate; mask actions with -1e9, if the network does with -inf"
            )
        self._optimiser.step()
        if self.topology is not None:
            self.topology.after_step()
        return found

    def _has_finite_gradients(self) -> bool:
        grads = [each.grad.sum() for each in self.policy.parameters() if each.grad is not None]
        return bool(torch.stack(grads).isfinite().all())

    def _refuse_broken(self) -> None:
        """Refuse weights that a finite gradient has made infinite, before anybody acts with them.

        Raises:
            FloatingPointError: one is NaN or infinite.
        """
        learned = [each for each in self.policy.parameters() if each.requires_grad]
        sums = torch.stack([weight.detach().sum() for weight in learned])
        if not math.isfinite(sums.sum().item()):
            raise FloatingPointError(
                f"the learner's weights are not finite after {self.updates} updates and a step of "
                f"{self.config.learning_rate:g}; lower the learning rate"
            )

    def state_dict(self, *, gradients: bool = False) -> dict[str, Any]:
        """Return weights, optimiser state and counters as a tree of tensors and numbers.

        With `gradients`, those of its last step too, by which units are pruned (Taylor).
        """
        return {
            "policy": {name: value.clone() for name, value in self.policy.state_dict().items()},
            "optimiser": optimiser_state(self._optimiser),
            "updates": self.updates,
            "gradients": _gradients(self.policy) if gradients else {},
            "topology": None if self.topology is None else self.topology.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state returned by `state_dict`.

        Raises:
            UserError: the network has other layers now.
        """
        load_saved(self.policy, state["policy"])
        load_optimiser_state(self._optimiser, state["optimiser"])
        self.updates = state["updates"]
        slopes = state["gradients"]
        for name, weight in self.policy.named_parameters():
            slope = slopes.get(name)
            weight.grad = None if slope is None else slope.to(weight.device, copy=True)
        if self.topology is not None:
            self.topology.load_state_dict(state["topology"])


def _gradients(policy: Policy) -> dict[str, Tensor]:
    """Return copies of the gradients of a policy's last step, by name; none before its first."""
    slopes = {name: weight.grad for name, weight in policy.named_parameters()}
    return {name: slope.clone() for name, slope in slopes.items() if slope is not None}
