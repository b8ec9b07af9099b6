"""One thread per test process, property tests that fail the same way twice, real databases."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest

from tests.fixtures.own_games import write_package
from tests.fixtures.studies.postgres import Server, programs, started_server

# Pools read these once, when they are imported: set them before torch and ONNX Runtime load.
for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_name] = "1"
os.environ.setdefault("WANDB_MODE", "offline")
# Processes of pytest-xdist have it; what is printed is to be as wide in them as elsewhere.
for _name in ("COLUMNS", "FORCE_COLOR", "TTY_COMPATIBLE"):
    os.environ.pop(_name, None)

pytest_plugins = ["tests.fixtures.reports.browser"]


def pytest_configure() -> None:
    import torch
    from hypothesis import settings

    torch.set_num_threads(1)
    settings.register_profile("local", deadline=None)
    settings.register_profile("ci", deadline=None, derandomize=True)
    settings.load_profile("ci" if os.environ.get("CI") else "local")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what needs PostgreSQL where there is none; in CI that is a failure instead."""
    if programs() is not None or os.environ.get("CI"):
        return
    left_out = [item for item in items if item.get_closest_marker("postgres")]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if not item.get_closest_marker("postgres")]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was left out: at the end, as neither -q nor pytest-xdist shows a header."""
    from tests.fixtures.reports.browser import CHROMIUM  # a plugin: pytest imports it first

    if os.environ.get("CI"):
        return
    missing = {"chromium": CHROMIUM is None, "postgresql": programs() is None}
    for package in (name for name, is_missing in missing.items() if is_missing):
        terminalreporter.write_line(
            f"no {package} here: tests that need it are left out (apt-get install {package})"
        )


@pytest.fixture(scope="session", autouse=True)
def _no_measured_profiles(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What the user has measured of this machine is none of the tests' business."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ACCERL_HOME", str(tmp_path_factory.mktemp("home")))
        yield


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A PostgreSQL server."""
    with started_server() as server:
        yield server


@pytest.fixture(scope="session")
def own_games(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A package of environments on the path, see `tests.fixtures.own_games`."""
    folder = tmp_path_factory.mktemp("games")
    write_package(folder)
    sys.path.insert(0, str(folder))
    yield
    sys.path.remove(str(folder))
