"""Controller: the outer problem (compress how hard, and when?) and policies that solve it."""

from __future__ import annotations

import gymnasium

ENV_ID = "accerl/CompressionControl-v0"

if ENV_ID not in gymnasium.registry:
    gymnasium.register(id=ENV_ID, entry_point="controller.env.make:make_env")
