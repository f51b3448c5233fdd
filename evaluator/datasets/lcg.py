"""Draw the toolkit's random numbers and samples, bit for bit, without copying a list for every sample."""

import numpy as np

from evaluator.arrays import Floats, Ints

SEED = 42
MULTIPLIER = 1664525
INCREMENT = 1013904223
MODULUS = 2**32

SAMPLES_TOGETHER = 65_536
"""Samples that are drawn at once, which takes several times their memory."""


class Lcg:
    """The linear congruential generator x -> (a x + b) mod 2**32 with the constants of Numerical Recipes.

    Every draw takes one step, so what a call returns depends on all calls before it.
    """

    def __init__(self, seed: int = SEED) -> None:
        self._state = np.uint32(seed)

    def floats(self, n: int) -> Floats:
        """Return the next n draws, shape [n], each in [0, 1) and exact: 32 bits fit a float64."""
        # i steps at once are x -> a^i x + b (1 + a + ... + a^(i-1)); uint32 wraps, which is the modulus.
        powers = np.cumprod(np.full(n, MULTIPLIER, dtype=np.uint32), dtype=np.uint32)
        sums = np.cumsum(np.concatenate([np.ones(min(n, 1), dtype=np.uint32), powers[:-1]]), dtype=np.uint32)
        states = powers * self._state + np.uint32(INCREMENT) * sums
        if n:
            self._state = states[-1]
        return states / MODULUS

    def samples(self, n_samples: int, n_draws: int, size: int) -> Ints:
        """Draw from range(size) without replacement, n_samples times over; shape [n_samples, n_draws], in drawn order.

        The toolkit pops each draw from a copy of the list; this gives the same in O(n_draws log^2 n_draws) a sample.
        """
        if not 0 <= n_draws <= size:
            raise ValueError(f"Cannot draw {n_draws} of {size} without replacement.")
        left = size - np.arange(n_draws)
        places = np.empty((n_samples, n_draws), dtype=np.int64)
        for block in np.array_split(places, range(SAMPLES_TOGETHER, n_samples, SAMPLES_TOGETHER)):
            # Multiply in float64 and round down, as the toolkit does: integer arithmetic would give other numbers.
            ranks = (self.floats(block.size).reshape(block.shape) * left).astype(np.int64)
            block[:] = places_before_removals(ranks)
        return places


def places_before_removals(ranks: Ints) -> Ints:
    """Return the places of popped items in the list before anything was popped.

    Args:
        ranks: [n_samples, n_draws], the argument of each `list.pop` in turn; each row pops from a separate list.

    Returns the same shape. Blocks of draws are merged pairwise: `first` and `later` both hold places in the list as it
    was when their own block began, and a merge carries `later` back over the removals of `first`.
    """
    n_samples, n_draws = ranks.shape
    padded = 1 << max(n_draws - 1, 0).bit_length()
    places = np.zeros((n_samples, padded), dtype=np.int64)  # draws past the end come last, and so change no other
    places[:, :n_draws] = ranks
    row_offset = int(ranks.max(initial=0)) + padded + 1  # above all places, so that rows can share one sorted array
    width = 1
    while width < padded:
        blocks = places.reshape(-1, 2, width)
        first, later = blocks[:, 0], blocks[:, 1]
        row = np.arange(len(blocks))[:, None]
        # In sorted order, the j-th removed place has (place - j) surviving items before it.
        survivors = np.sort(first) - np.arange(width) + row * row_offset
        removed_before = np.searchsorted(survivors.ravel(), later + row * row_offset, side="right") - row * width
        blocks[:, 1] += removed_before
        width *= 2
    return places[:, :n_draws]
