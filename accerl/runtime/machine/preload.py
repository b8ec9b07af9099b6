"""What the server imports that forks processes with torch, see `forks`; nothing else does."""

from __future__ import annotations

import atexit
import os

import torch._dynamo  # noqa: F401

# Taking torch down would last a second in which nobody needs it. Forks end without this.
atexit.register(os._exit, 0)
