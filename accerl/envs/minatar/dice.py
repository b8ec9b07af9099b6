"""Dice: a stream of random numbers for each environment, read by all of them at once."""

from __future__ import annotations

from typing import Any

import numpy as np

from accerl.seeds import Role, stream

BLOCK = 1024
"""words that are drawn ahead for each environment"""
_LARGEST_DOUBLE = 2.0**53
_LOW_BITS = 2.0**26


class Dice:
    """N Mersenne twisters that give what `numpy.random.RandomState` would, draw for draw.

    A double in [0, 1) takes two words of a stream, an integer below n as many as it needs until
    the lowest bits of one are below n. So games that are played here and one by one have equal
    luck, whatever the others draw meanwhile.
    """

    def __init__(self, num_envs: int) -> None:
        self._streams = [np.random.MT19937(0) for _ in range(num_envs)]
        self._words = np.zeros((num_envs, BLOCK), dtype=np.uint32)
        self._doubles = np.zeros((num_envs, BLOCK))  # of the words here and after it
        self._next = np.full(num_envs, BLOCK)
        self._first = BLOCK * np.arange(num_envs)
        self._furthest = BLOCK  # at least as far as anybody has read

    def seed(self, seed: int) -> None:
        """Begin anew; every environment has a stream of its own."""
        self._streams = [
            np.random.MT19937(stream(seed, Role.EPISODES, index))
            for index in range(len(self._streams))
        ]
        self._next[:] = self._furthest = BLOCK

    def uniforms(self) -> np.ndarray:
        """Return a double in [0, 1) for each environment, [N]."""
        self._reserve(2)
        drawn = self._doubles.take(self._first + self._next)
        self._next += 2
        self._furthest += 2
        return drawn

    def uniform(self, env: int) -> float:
        """Return a double in [0, 1) for one environment."""
        self._reserve(2)
        drawn = self._doubles.item(env, self._next.item(env))
        self._advance(env, 2)
        return drawn

    def below(self, env: int, bound: int) -> int:
        """Return an integer in [0, bound) for one environment."""
        mask = (1 << (bound - 1).bit_length()) - 1
        while mask:  # with one possible value nothing is drawn
            self._reserve(1)
            drawn = self._words.item(env, self._next.item(env)) & mask
            self._advance(env, 1)
            if drawn < bound:
                return drawn
        return 0

    def _advance(self, env: int, words: int) -> None:
        self._next[env] += words
        self._furthest = max(self._furthest, self._next.item(env))

    def _reserve(self, words: int) -> None:
        """Have that many unread words in every stream, and one more."""
        if self._furthest + words < BLOCK:
            return
        for words_of, bits, read in zip(self._words, self._streams, self._next, strict=True):
            words_of[: BLOCK - read] = words_of[read:].copy()
            words_of[BLOCK - read :] = bits.random_raw(int(read))
        self._next[:] = self._furthest = 0
        self._read_doubles()

    def _read_doubles(self) -> None:
        high, low = self._words[:, :-1] >> 5, self._words[:, 1:] >> 6
        self._doubles[:, :-1] = (high * _LOW_BITS + low) / _LARGEST_DOUBLE

    def state_dict(self) -> dict[str, Any]:
        """Return the streams, and what was drawn ahead of them."""
        return {
            "streams": [bits.state for bits in self._streams],
            "words": self._words.copy(),
            "next": self._next.copy(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state returned by `state_dict`."""
        for bits, saved in zip(self._streams, state["streams"], strict=True):
            bits.state = saved
        self._words[:], self._next[:] = state["words"], state["next"]
        self._furthest = int(self._next.max())
        self._read_doubles()
