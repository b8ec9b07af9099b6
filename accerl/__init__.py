"""AcceRL: network compression inside actor-learner deep reinforcement learning.

The package implements the five components of the AcceRL paper (Zhang, 2022): Actor, Learner,
Compressor, Corrector and Monitor, and the runtimes that wire them into one inner run.
"""

__version__ = "0.1.0"
