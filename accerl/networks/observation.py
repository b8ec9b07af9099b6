"""ObservationSpec: what environments show and networks see, for processes that need no torch."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

SMALLEST_PIXELS = 36
"""side of an image that the paper's three convolutions leave a pixel of"""
ATARI_STACK = (4, 84, 84)
"""what environments of Atari's games that stack frames themselves show"""


@dataclass(frozen=True)
class ObservationSpec:
    """Shape and type of one observation, and how the network sees a uint8 one.

    uint8 observations enter as ``(pixel - centre) / unit``. Most pixels of a game are background:
    taking it away, and dividing by what varies rather than by 255, made Pong learn twice as fast
    (see `accerl.envs.random_play.measure_pixels`). It costs nothing: all of it folds into the
    first layer.
    """

    shape: tuple[int, ...]
    dtype: str  # "uint8" or "float32"
    centre: int = 0
    unit: float = 255.0
    frames: int = field(default=1, compare=False)
    """of which each is a stack, oldest first; 1: its channels are what they are"""

    @staticmethod
    def of_states(states: np.ndarray) -> ObservationSpec:
        """Return what recorded states [N, *shape] are, with a centre and unit of their own."""
        shape, dtype = states.shape[1:], str(states.dtype)
        if dtype != "uint8":
            return ObservationSpec(shape, dtype)
        return ObservationSpec(shape, dtype, *centre_and_unit(states[:: 1 + len(states) // 256]))

    @property
    def size_bytes(self) -> int:
        """What one observation takes in memory."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    @property
    def is_pixels(self) -> bool:
        """Whether observations are images [C, H, W] large enough for the paper's convolutions."""
        return len(self.shape) == 3 and min(self.shape[1:]) >= SMALLEST_PIXELS


def centre_and_unit(pixels: np.ndarray) -> tuple[int, float]:
    """Return the median of pixels, which is background, and their standard deviation."""
    return int(np.median(pixels)), float(pixels.std()) or 255.0
