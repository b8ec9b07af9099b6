"""One thread per test process, and property tests that fail the same way twice."""

from __future__ import annotations

import os

# Pools read these once, when they are imported: set them before torch and ONNX Runtime load.
for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_name] = "1"
os.environ.setdefault("WANDB_MODE", "offline")

pytest_plugins = ["tests.fixtures.browser"]


def pytest_configure() -> None:
    import torch
    from hypothesis import settings

    torch.set_num_threads(1)
    settings.register_profile("local", deadline=None)
    settings.register_profile("ci", deadline=None, derandomize=True)
    settings.load_profile("ci" if os.environ.get("CI") else "local")
