"""Draw different ordered demonstration sets from a pool."""

import math
import random

import numpy as np

from evaluator.arrays import Ints
from evaluator.datasets.lcg import places_before_removals

MAX_LISTED = 2**16  # up to this number all sequences are shuffled; beyond it, numbers are drawn until enough differ


def demonstration_sequences(*, n_pool: int, n_shots: int, n_sequences: int, seed: int) -> Ints:
    """Draw different sequences of demonstrations: int64 of [n, n_shots], places in the pool.

    n is `n_sequences`, or the number of possible sequences if that is smaller. A smaller `n_sequences` gives the first
    rows of a larger one.
    """
    n_possible = math.perm(n_pool, n_shots)
    draw = random.Random(f"demonstrations, {n_shots} shots, seed {seed}")
    if n_possible <= MAX_LISTED:
        numbers = draw.sample(range(n_possible), n_possible)[:n_sequences]
    else:
        drawn: dict[int, None] = {}
        while len(drawn) < n_sequences:
            drawn[draw.randrange(n_possible)] = None
        numbers = list(drawn)
    return places_before_removals(_ranks(numbers, n_pool, n_shots))


def _ranks(numbers: list[int], n_pool: int, n_shots: int) -> Ints:
    """Write numbers in the mixed base n_pool, n_pool - 1, ...: each digit is a rank among the examples still left."""
    ranks = np.empty((len(numbers), n_shots), np.int64)
    for row, number in enumerate(numbers):
        for place in range(n_shots):
            number, ranks[row, place] = divmod(number, n_pool - place)
    return ranks
