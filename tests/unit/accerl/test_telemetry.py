"""Nothing that is installed with the package reports to its makers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SWITCH = "ORT_DISABLE_TELEMETRY"
DECIDE = ("CI", SWITCH, "XDG_CACHE_HOME")
"""variables that decide whether ONNX Runtime reports, and where it keeps what it has yet to send"""


def kept_at_home(home: Path) -> set[str]:
    """Return the names of what a process leaves at home that has all engines."""
    environment = {name: value for name, value in os.environ.items() if name not in DECIDE}
    subprocess.run(
        [sys.executable, "-c", "import accerl.compress.engine"],
        env={**environment, "HOME": str(home)},
        check=True,
    )
    return {path.name for path in home.rglob("*")}


def test_onnx_runtime_reports_nothing(tmp_path: Path) -> None:
    assert not kept_at_home(tmp_path)


@pytest.mark.parametrize("switch", ["0", "1"])
def test_what_a_user_has_decided_holds(switch: str, tmp_path: Path) -> None:
    code = f"import os, accerl; print(os.environ[{SWITCH!r}])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, SWITCH: switch},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"{switch}\n"
