"""Compute the longest common prefixes of adjacent token rows, for prefix order and token floors."""

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

Tokens = npt.NDArray[np.int32]
Offsets = npt.NDArray[np.int64]

WINDOW = 128
"""Tokens of a row that are compared in one step."""
ROWS = 1024
"""Rows that are compared in one step: their windows are half a MiB, which stays in the cache of a core."""


def shared_prefix_lengths(tokens: Tokens, offsets: Offsets) -> npt.NDArray[np.int32]:
    """Return the number of leading tokens that every row shares with the row above it; 0 for the first row.

    Rows are stored flat, as in an Arrow list column: row i is tokens[offsets[i]:offsets[i + 1]]. Rows may be empty and
    unsorted, and the first row may begin after the first token.

    Rows are compared with the rows above them in batches, window after window, until they differ. A loop that Numba
    compiles is a few times faster, but importing Numba takes longer than comparing a hundred million tokens.

    Args:
        tokens: [n_tokens], int32.
        offsets: [n_rows + 1], int64, never decreasing, from 0 to n_tokens.

    Returns:
        [n_rows], int32.

    Raises:
        TypeError: for another dtype.
        ValueError: for another shape, or offsets that decrease or lie outside tokens.
    """
    check_rows(tokens, offsets)
    starts, lengths = offsets[:-1], np.diff(offsets)
    shared = np.zeros(lengths.size, dtype=np.int32)
    shorter = np.minimum(lengths[1:], lengths[:-1])  # tokens that a row and the row above it both have
    for first in range(1, lengths.size, ROWS):
        last = min(first + ROWS, lengths.size)
        begin = starts[first - 1]
        windows = sliding_window_view(np.append(tokens[begin : offsets[last]], np.zeros(WINDOW, np.int32)), WINDOW)
        alike, position = np.arange(first, last), 0  # rows that agree with the row above in every position so far
        while alike.size:
            differs = windows[starts[alike] - begin + position] != windows[starts[alike - 1] - begin + position]
            n_equal = np.where(differs.any(axis=1), differs.argmax(axis=1), WINDOW)
            # A window may reach beyond the end of a row.
            shared[alike] = np.minimum(position + n_equal, shorter[alike - 1])
            position += WINDOW
            alike = alike[(n_equal == WINDOW) & (shorter[alike - 1] > position)]
    return shared


def check_rows(tokens: Tokens, offsets: Offsets) -> None:
    """Check the arrays of a flat column of token rows. Raises as shared_prefix_lengths does."""
    for name, array, dtype in (("tokens", tokens, np.int32), ("offsets", offsets, np.int64)):
        if array.dtype != dtype:
            raise TypeError(f"{name} must be {np.dtype(dtype)}, got {array.dtype}.")
        if array.ndim != 1:
            raise ValueError(f"{name} must have one axis, got shape {array.shape}.")
    if offsets.size == 0:
        raise ValueError("offsets must hold n_rows + 1 numbers, got none; without rows it is [0].")
    if offsets[0] < 0 or offsets[-1] > tokens.size:
        raise ValueError(f"offsets must lie within the {tokens.size} tokens, got {offsets[0]} to {offsets[-1]}.")
    falls = np.flatnonzero(offsets[1:] < offsets[:-1])
    if falls.size:
        raise ValueError(f"offsets must never decrease, but row {falls[0]} ends before it begins.")
