"""Reference implementation in NumPy, which defines shared prefix lengths; the package describes the arguments."""

import numpy as np
import numpy.typing as npt


def shared_prefix_lengths(tokens: npt.NDArray[np.int32], offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    """Return shared prefix lengths: compare all rows at one position per step; drop a row at its first difference.

    Memory is a few numbers per row, however long the rows are.
    """
    starts, lengths = offsets[:-1], np.diff(offsets)
    shared = np.zeros(lengths.size, dtype=np.int32)
    rows = np.arange(1, lengths.size)  # rows that agree with the row above in all positions so far
    position = 0
    while rows.size:
        rows = rows[np.minimum(lengths[rows], lengths[rows - 1]) > position]
        rows = rows[tokens[starts[rows] + position] == tokens[starts[rows - 1] + position]]
        position += 1
        shared[rows] = position
    return shared
