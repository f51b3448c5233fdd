"""Draw the same random numbers and samples as the StaICC toolkit, bit for bit, without a list copy for every sample."""

import numpy as np

from evaluator.arrays import Floats, Ints

SEED = 42
MULTIPLIER = 1664525
INCREMENT = 1013904223
MODULUS = 2**32

SAMPLES_TOGETHER = 65_536
"""Number of samples that are drawn at once; drawing needs several times the memory of the samples."""


class Lcg:
    """The linear congruential generator x -> (a x + b) mod 2**32 with the constants of Numerical Recipes.

    Every draw advances the state by one step, so the result of a call depends on all earlier calls.
    """

    def __init__(self, seed: int = SEED) -> None:
        self._state = np.uint32(seed)

    def floats(self, n: int) -> Floats:
        """Return the next n draws in [0, 1), shape [n], as exact float64 numbers, because the state has 32 bits."""
        # i steps at once are x -> a^i x + b (1 + a + ... + a^(i-1)); the overflow of uint32 is the modulus.
        powers = np.cumprod(np.full(n, MULTIPLIER, dtype=np.uint32), dtype=np.uint32)
        sums = np.cumsum(np.concatenate([np.ones(min(n, 1), dtype=np.uint32), powers[:-1]]), dtype=np.uint32)
        states = powers * self._state + np.uint32(INCREMENT) * sums
        if n:
            self._state = states[-1]
        return states / MODULUS

    def samples(self, n_samples: int, n_draws: int, size: int) -> Ints:
        """Draw n_samples samples without replacement from range(size); shape [n_samples, n_draws], in drawn order.

        The toolkit pops every draw from a copy of the list. This gives the same numbers in
        O(n_draws log^2 n_draws) per sample. Raises ValueError unless 0 <= n_draws <= size.
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
    """Return the positions that popped items had in the list before any item was popped.

    Blocks of draws are merged pairwise. `first` and `later` hold positions in the list as it was before the first draw
    of their own block; a merge converts `later` to positions before the removals of `first`.

    Args:
        ranks: [n_samples, n_draws], the arguments of successive calls of `list.pop`; every row pops from a list of its
            own.

    Returns:
        Positions, [n_samples, n_draws].
    """
    n_samples, n_draws = ranks.shape
    padded = 1 << max(n_draws - 1, 0).bit_length()
    places = np.zeros((n_samples, padded), dtype=np.int64)  # padding draws are last, so they do not change other draws
    places[:, :n_draws] = ranks
    row_offset = int(ranks.max(initial=0)) + padded + 1  # above all positions, so that one sorted array holds all rows
    width = 1
    while width < padded:
        blocks = places.reshape(-1, 2, width)
        first, later = blocks[:, 0], blocks[:, 1]
        row = np.arange(len(blocks))[:, None]
        # In sorted order, the j-th removed position has (position - j) remaining items before it.
        survivors = np.sort(first) - np.arange(width) + row * row_offset
        blocks[:, 1] += np.searchsorted(survivors.ravel(), later + row * row_offset, side="right") - row * width
        width *= 2
    return places[:, :n_draws]
