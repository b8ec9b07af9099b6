"""Batches of a Box space's observations as networks see them: typed, grey, sized, stacked."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from gymnasium.spaces import Box

from accerl.envs.config import EnvConfig
from accerl.errors import UserError
from accerl.networks.observation import ATARI_STACK, ObservationSpec

GREY = np.array([0.299, 0.587, 0.114], dtype=np.float32)
"""luminance of red, green and blue (ITU-R BT.601)"""
IMAGE_SIDE = 8
"""a uint8 array [H, W] whose sides are at least so long is an image"""
CONVOLVED_SIDE = 5
"""images whose sides are shorter are flattened: two 3x3 convolutions would not fit"""


class Observations:
    """Turns what the environments show [B, *space.shape] into [B, *spec.shape].

    uint8 stays uint8, all else becomes float32. Images are [C, H, W]: of the first and the last
    axis, the shorter one counts channels; the last one does where the first two alone are equal, as
    the sides of a board are. Resized bytes fill 0 to 255, however high the space counts. Stacked
    images are one beside the other on the channel axis, newest last; anything else gets a new
    first axis, and is flattened if it would look like an image then.

    Raises:
        UserError: the configuration asks of this space what goes with images only, or it is empty.
    """

    def __init__(self, space: Box, num_envs: int, config: EnvConfig) -> None:
        self._dtype = np.dtype(np.uint8 if space.dtype == np.uint8 else np.float32)
        self._grayscale = config.grayscale
        self._weights: tuple[np.ndarray, np.ndarray] | None = None
        self._brightest = 255.0
        if self._dtype == np.uint8 and space.high.size:
            self._brightest = max(float(space.high.max()), 1.0)
        shape = tuple(space.shape)
        if 0 in shape:
            raise UserError(
                f"env: observations have shape {list(shape)}, which holds no number; look at what "
                "the environment and its wrappers leave of them"
            )
        self._channels_last, image = _as_image(shape, self._dtype)
        if image is not None:
            shape = self._image_shape(image, config)
        elif config.grayscale or config.resize:
            raise UserError(
                "env: grayscale and resize go with images, and observations have shape "
                f"{list(shape)}"
            )
        self._own = shape
        self._stack = config.frame_stack
        joined = (self._stack * shape[0], *shape[1:]) if len(shape) == 3 else (self._stack, *shape)
        whole = joined if self._stack > 1 else shape or (1,)
        # A matrix that is stacked, or a small board, looks like an image and is none.
        if len(whole) == 3 and (image is None or min(whole[1:]) < CONVOLVED_SIDE):
            whole = (math.prod(whole),)
        self.spec = ObservationSpec(whole, self._dtype.name)
        """of one observation, as networks see it"""
        # Of other channels nobody knows that they are frames: they may be planes of a board.
        stack = ATARI_STACK[0] if whole == ATARI_STACK else 1
        if self.spec.is_pixels:
            self.spec = replace(self.spec, frames=self._stack if self._stack > 1 else stack)
        self._frames = np.zeros((num_envs, self._stack, *shape), self._dtype)

    def _image_shape(self, shape: tuple[int, int, int], config: EnvConfig) -> tuple[int, ...]:
        channels, height, width = shape
        if config.grayscale:
            if channels != 3:
                raise UserError(f"env: grayscale needs images of 3 channels, these have {channels}")
            channels = 1
        if config.resize:
            side = config.resize
            self._weights = area_weights(height, side), area_weights(width, side)
            height = width = side
        if min(height, width) < CONVOLVED_SIDE:
            return (channels * height * width,)
        return channels, height, width

    def first(self, obs: np.ndarray) -> np.ndarray:
        """Return the observations of new episodes."""
        self._frames[:] = self._convert(obs)[:, None]
        return self._joined()

    def next(self, obs: np.ndarray, done: np.ndarray) -> np.ndarray:
        """Return the observations of a step; where `done` [B], an episode begins with them."""
        new = self._convert(obs)
        if self._stack == 1:
            self._frames[:, 0] = new
        else:
            self._frames[:, :-1] = self._frames[:, 1:]
            self._frames[:, -1] = new
            self._frames[done] = new[done, None]
        return self._joined()

    def _joined(self) -> np.ndarray:
        return self._frames.reshape(len(self._frames), *self.spec.shape).copy()

    def _convert(self, obs: np.ndarray) -> np.ndarray:
        if self._channels_last:
            obs = np.moveaxis(obs, -1, 1)
        if self._grayscale:
            obs = np.einsum("bchw,c->bhw", obs.astype(np.float32), GREY)[:, None]
        if self._weights is not None:
            rows, columns = self._weights
            obs = rows @ obs.astype(np.float32, copy=False) @ columns.T
            if self._dtype == np.uint8:  # of planes of ones, averages would be rounded to nothing
                obs *= 255.0 / self._brightest
        if self._dtype == np.uint8 and obs.dtype != np.uint8:
            obs = np.rint(obs)
        return obs.astype(self._dtype, copy=False).reshape(len(obs), *self._own)


def _as_image(shape: tuple[int, ...], dtype: np.dtype) -> tuple[bool, tuple[int, int, int] | None]:
    """Return whether channels are last, and [C, H, W] of what counts as an image, else None."""
    if len(shape) == 2 and dtype == np.uint8 and min(shape) >= IMAGE_SIDE:
        return False, (1, *shape)
    if len(shape) != 3:
        return False, None
    if shape[2] < shape[0] or shape[0] == shape[1] != shape[2]:
        return True, (shape[2], shape[0], shape[1])
    return False, (shape[0], shape[1], shape[2])


def area_weights(length: int, side: int) -> np.ndarray:
    """Return what each of `side` cells takes of each of `length` pixels [side, length]."""
    edges = np.arange(side + 1) * (length / side)
    pixels = np.arange(length)
    low = np.maximum(edges[:-1, None], pixels)
    high = np.minimum(edges[1:, None], pixels + 1)
    return (np.clip(high - low, 0.0, None) * (side / length)).astype(np.float32)
