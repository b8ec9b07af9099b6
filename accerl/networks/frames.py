"""Frames: which of the frames in stacked observations are new, and stacks made of them again."""

from __future__ import annotations

import numpy as np


def new_frames(pieces: np.ndarray) -> np.ndarray:
    """Return which frames are new [T, B, stack]: the last of each stack, or a whole stack.

    A stack is new as a whole where it does not continue the one before it (a new episode), and at
    the first step.

    Args:
        pieces: consecutive observations [T, B, stack, N].
    """
    is_new = np.zeros(pieces.shape[:3], bool)
    is_new[0] = True
    is_new[1:, :, -1] = True
    if pieces.shape[2] > 1 and len(pieces) > 1:
        is_new[1:] |= ~_continues(pieces)[:, :, None]
    return is_new


def _continues(pieces: np.ndarray) -> np.ndarray:
    """Return whether each stack [T - 1, B] begins with the frames that the one before ends with."""
    if pieces.shape[-1] * pieces.itemsize % 8 == 0 and pieces.flags.c_contiguous:
        pieces = pieces.view(np.uint64)  # an eighth of the comparisons
    return (pieces[1:, :, :-1] == pieces[:-1, :, 1:]).all(axis=(2, 3))


def split(obs: np.ndarray, stack: int) -> tuple[np.ndarray, np.ndarray]:
    """Return every frame of stacked observations once [F, N], and what `join` needs besides.

    Args:
        obs: consecutive observations [T, B, stack, ...].
        stack: frames of each.

    Returns:
        The new frames, environment by environment, and which observations [T, B] are new as a
        whole.
    """
    pieces = obs.reshape(*obs.shape[:2], stack, -1)
    is_new = new_frames(pieces)
    return pieces.transpose(1, 0, 2, 3)[is_new.transpose(1, 0, 2)], is_new[:, :, 0]


def join(frames: np.ndarray, whole: np.ndarray, stack: int) -> np.ndarray:
    """Return the observations [T, B, stack, N] that `split` took apart."""
    counts = np.where(whole, stack, 1)
    last = np.cumsum(counts.T.reshape(-1)).reshape(whole.shape[::-1]).T - 1
    return frames[last[:, :, None] - np.arange(stack - 1, -1, -1)]
