"""Compute shared prefix lengths with Numba: compare a row with the row above it up to the first difference.

The kernel uses one thread and compares one token per step. Several threads or tokens would be faster
(benchmarks/kernels/shared_prefix.py times this kernel), but a thread pool would remain in a process that may later fork
engine workers.
"""

from typing import Any

import numba
import numpy as np
import numpy.typing as npt
from numba import types

# Read-only arrays, because Arrow's buffers are read-only; writable arrays are accepted as well. With an exact signature
# Numba compiles on import, so that a broken compiler fails then and not during a run.
SIGNATURE = types.Array(types.int32, 1, "C")(
    types.Array(types.int32, 1, "C", readonly=True), types.Array(types.int64, 1, "C", readonly=True)
)


def _shared_prefix_lengths(tokens: npt.NDArray[np.int32], offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    n_rows = offsets.size - 1
    shared = np.zeros(n_rows, dtype=np.int32)
    for row in range(1, n_rows):
        above, here, end = offsets[row - 1], offsets[row], offsets[row + 1]
        shorter = min(here - above, end - here)
        length = 0
        while length < shorter and tokens[above + length] == tokens[here + length]:
            length += 1
        shared[row] = length
    return shared


try:
    shared_prefix_lengths: Any = numba.njit(SIGNATURE, cache=True)(_shared_prefix_lengths)
except (RuntimeError, OSError):  # there is no writable folder for the cache, so every process compiles
    shared_prefix_lengths = numba.njit(SIGNATURE)(_shared_prefix_lengths)
