"""What all studies refuse before they write anything, and how a study is named as a command."""

from __future__ import annotations

import shutil
from collections.abc import Collection
from pathlib import Path

from accerl.errors import UserError, did_you_mean
from studies.jobs.executor import check_workers
from studies.storage import open_storage

LAST_SEED = 2**32 - 1
"""that samplers can begin with"""


def check_options(
    study: str,
    budgets: Collection[str],
    *,
    budget: str,
    seed: int,
    workers: int,
    cluster: str = "",
    storage: str = "",
    tunes: bool = False,
) -> None:
    """Refuse options that no run of a study could begin with.

    Args:
        study: its name.
        budgets: names of those that it has.
        budget: that is asked for.
        seed: of whatever.
        workers: jobs at once; 0: one for every core.
        cluster: address of a Ray cluster.
        storage: where Optuna is to keep its trials.
        tunes: whether the study has any.

    Raises:
        UserError: the budget or the cluster does not exist, a number is not allowed, or the storage
            is not needed or cannot be opened.
    """
    if budget not in budgets:
        raise UserError(f"--budget {budget!r} does not exist; {did_you_mean(budget, [*budgets])}")
    check_workers(workers, cluster)
    if storage and not tunes:
        raise UserError(f"{study} tunes nothing with Optuna: leave --storage out")
    if storage:
        open_storage(storage)
    check_seed(seed)


def check_seed(seed: int) -> None:
    """Refuse what samplers cannot begin with.

    Raises:
        UserError: the seed does not fit into 32 bits.
    """
    if not 0 <= seed <= LAST_SEED:
        raise UserError(f"--seed must lie between 0 and {LAST_SEED}, got {seed}")


def check_disk(out: Path, needed: int) -> None:
    """Refuse a folder on a disk that would be full before the study is over.

    Args:
        out: the folder; it need not exist yet.
        needed: bytes.

    Raises:
        UserError: fewer are free.
    """
    path = out.absolute()
    free = shutil.disk_usage(next(place for place in (path, *path.parents) if place.exists())).free
    if free < needed:
        raise UserError(
            f"{out}: {free / 1e6:,.0f} MB are free and the study needs some {needed / 1e6:,.0f}; "
            "make room or give another --out"
        )


def study_command(study: str, budget: str, seed: int, profile: str = "") -> str:
    """Return the command line that makes a study again."""
    options = f"--budget {budget} --seed {seed}" + (f" --profile {profile}" if profile else "")
    return f"accerl study run {study} {options} --out DIR"
