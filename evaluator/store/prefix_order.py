"""Prefix order of token rows, and the number of tokens to compute if no shared prefix is computed twice.

Rows are stored flat, as in an Arrow list column: row i is tokens[offsets[i]:offsets[i + 1]].

Why comparing a row with the row above is enough: let r come after q in lexicographic order and share s tokens with it.
Every row between them lies between q and r in that order, and whatever lies between two rows that begin with the same s
tokens begins with them too. So the row directly above r shares at least s tokens with r: in prefix order it shares as
much with r as any earlier row does.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from evaluator_kernels.shared_prefix import check_rows, shared_prefix_lengths

Tokens = npt.NDArray[np.int32]
Offsets = npt.NDArray[np.int64]

_SIGN_BIT = np.int32(np.iinfo(np.int32).min)


def prefix_order(tokens: Tokens, offsets: Offsets) -> npt.NDArray[np.int64]:
    """Return the permutation that sorts rows lexicographically by token; equal rows keep their order.

    A row comes directly before the rows that continue it.

    Args:
        tokens: int32 of [n_tokens].
        offsets: int64 of [n_rows + 1].

    Returns:
        int64 of [n_rows]: order[0] is the index of the first row.
    """
    check_rows(tokens, offsets)
    tokens, offsets = tokens[offsets[0] : offsets[-1]], offsets - offsets[0]
    # Big-endian bytes with the sign bit flipped compare like the integers, so sorting byte strings sorts the rows.
    keys = np.bitwise_xor(tokens, _SIGN_BIT, out=np.empty(tokens.size, dtype=">i4"))
    buffers = [None, pa.py_buffer(offsets * keys.itemsize), pa.py_buffer(keys)]
    rows = pa.LargeBinaryArray.from_buffers(pa.large_binary(), offsets.size - 1, buffers)
    return np.asarray(pc.array_sort_indices(rows).to_numpy(), dtype=np.int64)  # documented as a stable sort


def token_floor(tokens: Tokens, offsets: Offsets) -> int:
    """Return how many tokens must be computed if nothing is computed twice: the nodes of the trie of all rows.

    A token after its prefix is computed once, however many rows contain it. Raises ValueError unless rows are in prefix
    order.
    """
    shared = _shared_with_any_earlier_row(tokens, offsets)
    return int(offsets[-1] - offsets[0] - shared.sum(dtype=np.int64))


def block_floor(tokens: Tokens, offsets: Offsets, block_tokens: int) -> int:
    """Return how many tokens an engine computes that reuses whole blocks of `block_tokens` tokens and evicts none.

    A row reuses the whole blocks of the longest prefix that it shares with an earlier row, but never its last token: an
    engine must compute that one to predict from it (vLLM caps a hit at n - 1 tokens). So a repeated row costs at least
    one token here and none in token_floor. Raises ValueError unless rows are in prefix order.
    """
    if block_tokens < 1:
        raise ValueError(f"block_tokens must be 1 or more, got {block_tokens}.")
    shared = _shared_with_any_earlier_row(tokens, offsets)
    lengths = np.diff(offsets)
    reusable = np.minimum(shared, np.maximum(lengths - 1, 0))
    return int(lengths.sum() - (reusable // block_tokens * block_tokens).sum())


def _shared_with_any_earlier_row(tokens: Tokens, offsets: Offsets) -> npt.NDArray[np.int32]:
    """Return the length of the longest prefix that each row shares with any earlier row, int32 of [n_rows]."""
    shared = shared_prefix_lengths(tokens, offsets)
    _check_prefix_order(tokens, offsets, shared)
    return shared


def _check_prefix_order(tokens: Tokens, offsets: Offsets, shared: npt.NDArray[np.int32]) -> None:
    """Raise ValueError unless each row continues the row above it or first differs from it in a greater token."""
    parted = np.flatnonzero(shared[1:] < np.diff(offsets)[:-1]) + 1  # rows that do not continue the row above
    # Positions of the first tokens that differ, in the row above and in the row itself.
    above, here = offsets[parted - 1] + shared[parted], offsets[parted] + shared[parted]
    ended = here == offsets[parted + 1]  # such a row is a prefix of the one above
    wrong = parted[ended | (tokens[above] > tokens[np.where(ended, above, here)])]
    if wrong.size:
        raise ValueError(f"Row {wrong[0]} comes before row {wrong[0] - 1} in prefix order; sort by prefix_order first.")
