"""Convolutions on integers that compute several neighbouring columns as if they were channels.

ONNX Runtime's integer convolution computes blocks of 16 channels and 6 places. With 8 channels half
of each block is idle, and with 4 input channels finding the inputs takes longer than multiplying
them. A kernel that is wider by zeros and steps k columns at once puts out k times the channels;
read as [B, H, W, C], that is the same image. A convolution of 4 into 8 channels takes a third of
the time.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from accerl.compress.graphs.operators import Window

BLOCK = 16
"""channels that are computed together"""
SHALLOW, WIDE = 64, 48
"""products per output below which finding inputs dominates, and the channels that are best then"""
MOST = 8


class Wider(NamedTuple):
    """A convolution of several columns at once."""

    columns: int
    window: Window

    def weight(self, narrow: Tensor) -> Tensor:
        """Return weights [k O, I, H, W + (k - 1) stride] for those of one column [O, I, H, W]."""
        outputs, inputs, height, width = narrow.shape
        step = self.window.strides[1] // self.columns
        wide = torch.zeros(
            (self.columns * outputs, inputs, height, self.window.kernel[1]), dtype=narrow.dtype
        )
        for column in range(self.columns):
            rows = slice(column * outputs, (column + 1) * outputs)
            wide[rows, :, :, column * step : column * step + width] = narrow
        return wide


def widen(shape: tuple[int, ...], window: Window, groups: int, width: int) -> Wider:
    """Return how many columns a convolution should compute at once.

    Args:
        shape: of its weights [O, I, H, W].
        window: its own.
        groups: of its channels.
        width: of its output.
    """
    outputs, products = shape[0], shape[1] * shape[2] * shape[3]
    aim = WIDE if products < SHALLOW else BLOCK
    possible = [k for k in range(1, MOST + 1) if width % k == 0]
    if groups > 1 or window.dilations[1] > 1 or outputs >= aim:
        return Wider(1, window)
    columns = next((k for k in possible if k * outputs >= aim), possible[-1])
    (height, narrow), (down, step) = window.kernel, window.strides
    kernel = (height, narrow + (columns - 1) * step)
    wide = Window(kernel, (down, columns * step), window.pads, window.dilations)
    return Wider(columns, wide)
