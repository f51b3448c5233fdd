"""Compute the longest common prefixes of adjacent token rows, for prefix order and token floors."""

import functools
import logging
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from evaluator_kernels import record_choice
from evaluator_kernels.shared_prefix import reference

Tokens = npt.NDArray[np.int32]
Offsets = npt.NDArray[np.int64]
Kernel = Callable[[Tokens, Offsets], npt.NDArray[np.int32]]

_log = logging.getLogger(__name__)


def shared_prefix_lengths(tokens: Tokens, offsets: Offsets) -> npt.NDArray[np.int32]:
    """Return the number of leading tokens that every row shares with the row above it; 0 for the first row.

    Rows are stored flat, as in an Arrow list column: row i is tokens[offsets[i]:offsets[i + 1]]. Rows may be empty and
    unsorted, and the first row may begin after the first token.

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
    # This copies a slice with a step and a buffer at an unaligned address; other arrays are not copied.
    tokens = np.require(tokens, requirements=("C", "ALIGNED"))
    offsets = np.require(offsets, requirements=("C", "ALIGNED"))
    return _kernel()(tokens, offsets)


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


@functools.cache
def _kernel() -> Kernel:
    """Return the compiled kernel, or the reference if Numba cannot be used.

    The first call imports and thereby compiles the kernel.
    """
    try:
        from evaluator_kernels.shared_prefix.numba_kernel import shared_prefix_lengths as compiled
    except Exception as error:  # Numba can fail in many ways, and the reference gives the same numbers
        _log.warning("Shared prefixes fall back to the NumPy reference, because Numba cannot be used: %r", error)
        record_choice("shared_prefix", "numpy")
        return reference.shared_prefix_lengths
    record_choice("shared_prefix", "numba")
    kernel: Kernel = compiled
    return kernel
