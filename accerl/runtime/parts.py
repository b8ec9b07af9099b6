"""Parts: what a user brings to a run as objects, where a name will not do."""

from __future__ import annotations

import pickle
import threading
from dataclasses import dataclass, replace

import torch

from accerl.compress.links import Link, Stage
from accerl.config import RunConfig
from accerl.correct import CorrectorChain, make_corrector
from accerl.errors import UserError
from accerl.monitor.indicators import Indicator
from accerl.networks.graph_policy import GraphPolicy, Policy
from accerl.networks.make import make_network
from accerl.networks.observation import ObservationSpec
from accerl.networks.probe import alike, outputs_of, states_for
from accerl.networks.structure import describe
from accerl.own_code import described, make_own, own_errors
from accerl.spec import is_import_path
from accerl.weights import load_weights, weight_arrays


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Objects that take the place of what the configuration names; records hold their classes.

    Links and correctors go to other processes, which import the modules of their classes.

    Raises:
        UserError: a class lies in the script that is run, or a link's stage is a run's own.
    """

    policy: Policy | None = None
    """what is improved, in place; None: a new network, drawn by the run's seed"""
    corrector: CorrectorChain | None = None
    """how off-policy data is corrected; None: as `LearnerConfig.corrector` says"""
    links: tuple[Link, ...] = ()
    """compressors of the user's own, which every published network goes through after it was
    distilled and pruned, each before the shipped one of its `stage`"""

    stopping: threading.Event | None = None
    """set from another thread, it ends a process run like Ctrl-C does"""

    def __post_init__(self) -> None:
        if not isinstance(self.corrector, CorrectorChain | None):
            name = type(self.corrector).__name__
            raise UserError(f"Parts: corrector takes a chain: CorrectorChain([{name}(...)])")
        if not isinstance(self.links, tuple | list):
            raise UserError("Parts: links takes a tuple of links, in the order in which they run")
        correctors = () if self.corrector is None else self.corrector.correctors
        for part in (*self.links, *correctors):
            if type(part).__module__ == "__main__":
                name = type(part).__name__
                raise UserError(
                    f"{name}: a run's other processes do not import the script that started it; "
                    f"move class {name} to a module of its own"
                )
        for link in self.links:
            if not isinstance(getattr(link, "stage", None), Stage):
                raise UserError(
                    f"{type(link).__name__}: a link of your own has a `stage`, such as "
                    "Stage.TUNE, and a method `apply`"
                )
            if link.stage in (Stage.STUDENT, Stage.PRUNE, Stage.EXPORT):
                raise UserError(
                    f"{type(link).__name__}: a run chooses students, prunes and exports as its "
                    "specs say; a link of your own tunes, factorises or quantises"
                )

    @property
    def names(self) -> dict[str, list[str]]:
        """Correctors and links as records name them, with their settings."""
        correctors = () if self.corrector is None else self.corrector.correctors
        both = {"corrector": correctors, "links": self.links}
        return {name: [described(part) for part in parts] for name, parts in both.items() if parts}

    def check_sendable(self, *, learners: int) -> None:
        """Refuse what cannot be sent to other processes.

        Args:
            learners: several are sent the correctors, too.

        Raises:
            UserError: it names the class.
        """
        sent: list[object] = [*self.links]
        if self.corrector is not None and learners > 1:
            sent += self.corrector.correctors
        for part in sent:
            with own_errors("what is sent to the run's other processes:", part):
                pickle.dumps(part)

    def check_stop(self) -> None:
        """Raise KeyboardInterrupt if the run is to end."""
        if self.stopping is not None and self.stopping.is_set():
            raise KeyboardInterrupt

    def make_policy(
        self,
        config: RunConfig,
        observation: ObservationSpec,
        num_actions: int,
        generator: torch.Generator,
    ) -> Policy:
        """Return the learner's policy for a game.

        Args:
            config: says which network it is.
            observation: what the game shows.
            num_actions: of the game.
            generator: draws the weights of a new one.

        Raises:
            UserError: the policy that was brought does not fit the game or the configuration.
        """
        inputs = config.inputs(observation)
        if self.policy is None:
            return make_network(config.network, inputs, num_actions, generator)
        policy = self.policy
        made = make_network(config.network, inputs, num_actions)
        inputs = made.observation
        if (policy.observation, policy.num_actions) != (inputs, num_actions):
            raise UserError(
                f"policy: it reads {policy.observation} and has {policy.num_actions} actions, but "
                f"{config.game} shows {inputs} and has {num_actions}"
            )
        if describe(policy) != describe(made):
            raise UserError(f"policy: it is not {config.network!r}; choose it with `network`")
        return policy


def check_remade(policy: Policy, network: str, generator: torch.Generator) -> None:
    """Refuse a user's network that acts otherwise where another process makes it again.

    That has the same name, and gets the learner's floating-point weights and persistent buffers;
    what else is drawn when a network is made, it draws for itself.

    Args:
        policy: the learner's.
        network: its name, see `make_network`.
        generator: of what is drawn when it is made again: another than the learner's.

    Raises:
        UserError: it is such a network.
    """
    if not (is_import_path(network) and isinstance(policy, GraphPolicy)):
        return  # a chain is its weights alone
    made = make_network(network, policy.observation, policy.num_actions, generator)
    if describe(made) != describe(policy):
        raise _draws(network)
    load_weights(made, weight_arrays(policy))
    states = states_for(policy)
    if not alike(outputs_of(policy, states), outputs_of(made, states)):
        raise _draws(network)


def _draws(network: str) -> UserError:
    return UserError(
        f"network {network!r} draws numbers that are no floating-point weights or persistent "
        "buffers; other processes would draw others: make them persistent float buffers, or draw "
        "them from a fixed seed"
    )


def with_named(config: RunConfig, parts: Parts | None = None) -> Parts:
    """Return `parts` and, behind them, the links and correctors that a configuration names.

    Raises:
        UserError: one cannot be made, or is none.
    """
    parts = parts or Parts()
    settings = config.learner
    corrector = parts.corrector
    if corrector is None:  # refuses what it cannot make
        corrector = make_corrector(settings.corrector, rho=settings.clip_rho, c=settings.clip_c)
    added = [make_own("own: corrector", path, "mine:Capped") for path in config.own.correctors]
    for path, each in zip(config.own.correctors, added, strict=True):
        if not callable(getattr(each, "correct", None)):
            raise UserError(f"own: corrector {path!r}: {type(each).__name__} has no `correct`")
    return replace(
        parts,
        corrector=CorrectorChain([*corrector.correctors, *added]),
        links=(*parts.links, *named_links(config)),
    )


def named_links(config: RunConfig) -> list[Link]:
    """Return the compressors that a configuration names, made anew.

    Raises:
        UserError: one cannot be made.
    """
    return [make_own("own: link", path, "mine:WeightClipping") for path in config.own.links]


def named_indicators(config: RunConfig) -> list[Indicator]:
    """Return the indicators that a configuration names, made anew.

    Raises:
        UserError: one cannot be made.
    """
    return [make_own("own: indicator", path, "mine:BestReturn") for path in config.own.indicators]
