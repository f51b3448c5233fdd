"""Read rows of a token table that need not fit into memory, and count the tokens of a store.

TokenRows keeps row numbers and one piece of the table in memory. The floor of a store is the number of tokens that must
be computed if no shared prefix is computed twice.

Prefix order is the lexicographic order of token rows; a row comes directly before the rows that continue it. In this
order it is enough to compare each row with the row above it. Proof: let row r come after row q and share its first s
tokens. Every row between two rows that begin with the same s tokens begins with these tokens too. So the row directly
above r shares at least s tokens with r, that is, at least as many as any earlier row.

Rows are stored flat, as in an Arrow list column: row i is tokens[offsets[i]:offsets[i + 1]].
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from evaluator.schemas import TOKENS
from evaluator.store import ROWS_PER_SLICE, id_numbers, kept, slices
from evaluator_kernels.shared_prefix import Offsets, Tokens, shared_prefix_lengths


class TokenRows:
    """A set of rows of schemas.TOKENS, in prefix order; pickled with the rows themselves, for hosts without the files.

    Args:
        tokens: the whole table.
        numbers: row numbers of the set in the table, ascending, int32 of [n_rows]; None: all rows.
    """

    def __init__(self, tokens: pl.LazyFrame, numbers: npt.NDArray[np.int32] | None = None) -> None:
        if numbers is None:
            numbers = np.arange(tokens.select(pl.len()).collect().item(), dtype=np.int32)
        self._tokens, self._numbers = tokens, numbers
        self._last_piece: dict[int, pl.DataFrame] = {}  # first row -> the piece read last; shared with subsets

    @property
    def height(self) -> int:
        return len(self._numbers)

    def frames(self) -> Iterator[pl.DataFrame]:
        """Yield the rows, one frame for each piece of the table that has some; nothing if there are no rows."""
        for first, places in self._pieces():
            if first not in self._last_piece:
                self._last_piece.clear()  # free its memory before the next piece is read
                self._last_piece[first] = self._tokens.slice(first, ROWS_PER_SLICE).collect()
            piece = self._last_piece[first]
            yield piece if len(places) == piece.height else piece[places]

    def frame(self) -> pl.DataFrame:
        """Return all rows."""
        return pl.concat([*self.frames()] or [TOKENS.to_frame()])

    def columns(self, expression: pl.Expr) -> Iterator[pl.Series]:
        """Evaluate an expression on the rows, and yield one series for each piece; reads only the columns needed."""
        for first, places in self._pieces():
            yield self._tokens.slice(first, ROWS_PER_SLICE).select(expression).collect().to_series().gather(places)

    def column(self, expression: pl.Expr) -> pl.Series:
        """Evaluate an expression on all rows."""
        return pl.concat(
            [*self.columns(expression)] or [TOKENS.to_frame().select(expression).to_series()], rechunk=True
        )

    def filter(self, predicate: pl.Expr) -> "TokenRows":
        """Return the rows for which the predicate is true."""
        return self.where(self.column(predicate.fill_null(False)).to_numpy())

    def where(self, mask: npt.NDArray[np.bool_]) -> "TokenRows":
        """Return the rows where the mask, bool of [n_rows], is true."""
        return self._subset(self._numbers[mask])

    def slice(self, first: int, n_rows: int) -> "TokenRows":
        """Return `n_rows` rows from the row `first` on."""
        return self._subset(self._numbers[first : first + n_rows])

    def _subset(self, numbers: npt.NDArray[np.int32]) -> "TokenRows":
        rows = TokenRows(self._tokens, numbers)
        rows._last_piece = self._last_piece
        return rows

    def _pieces(self) -> Iterator[tuple[int, npt.NDArray[np.int32]]]:
        """Yield each piece of the table that has some of the rows: number of its first row, positions of these rows."""
        for piece in np.unique(self._numbers // ROWS_PER_SLICE).tolist():
            first = piece * ROWS_PER_SLICE
            start, end = np.searchsorted(self._numbers, [first, first + ROWS_PER_SLICE])
            yield first, self._numbers[start:end] - first

    def __reduce__(self) -> tuple[Callable[[pl.DataFrame], "TokenRows"], tuple[pl.DataFrame]]:
        return _rows_of, (self.frame(),)


def _rows_of(tokens: pl.DataFrame) -> TokenRows:
    return TokenRows(tokens.lazy())


def ragged(rows: pl.Series) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """Return the flat values and the offsets of a List[i32] column, without a copy."""
    column = rows.rechunk().to_arrow()
    # Through Polars, because to_numpy of Arrow imports pandas.
    return pl.Series(column.values).to_numpy(), pl.Series(column.offsets).to_numpy()


BLOCK_SIZES = (16, 32, 128)
"""Block sizes, in tokens, for which the manifest has a floor.

They are vLLM's default on a GPU, the size that this package sets on a CPU, and vLLM's default on a CPU.
"""

ROWS_COUNTED = 16_384
"""Number of rows whose shared prefixes are counted at a time, which takes several times the memory of their tokens."""


@dataclass(frozen=True, kw_only=True)
class TokenTotals:
    """Token counts of a store, and the floors: tokens to compute if no shared prefix is computed twice."""

    request_tokens: int  # tokens of all requests; a prompt of several requests counts once for each request
    tokens: int  # tokens of all prompts, each prompt counted once
    floor_tokens: int  # floor if any prefix can be shared
    block_floor_tokens: dict[str, int]  # block size -> floor if only whole blocks are shared


def count_tokens(requests: pl.LazyFrame, tokens: pl.LazyFrame, folder: Path) -> TokenTotals:
    """Count the tokens of all requests and of the distinct prompts, and compute the floors.

    Args:
        requests: schemas.REQUESTS.
        tokens: schemas.TOKENS, in prefix order.
        folder: folder for temporary files.
    """
    # Number of tokens of each prompt. Rows with ask "last_tokens" repeat the context of another row.
    lengths = tokens.filter(pl.col("ask") != "last_tokens").select(
        id_numbers("prompt_id"), n=pl.col("context").list.len().cast(pl.Int64)
    )
    requested = requests.select(id_numbers("prompt_id")).join(lengths, on="prompt_id").select(pl.col("n").sum())
    totals = np.zeros(1 + len(BLOCK_SIZES), np.int64)
    # Hidden states are computed in a separate pass, which shares no cache with the pass of the log-likelihoods.
    above = dict.fromkeys((False, True), pl.Series(dtype=TOKENS["context"]))  # the last row of each pass so far
    with fed_rows(tokens, folder) as fed:
        for rows in slices(fed, ROWS_COUNTED):
            for is_state, last in above.items():
                # Put the last row of the previous slice on top; in prefix order no earlier row is needed.
                with_above = pl.concat([last, rows.filter(is_state=is_state)["context"]])
                # Drop rows that repeat the row above: an equal context is fed only once.
                in_order = ragged(with_above.filter(with_above.ne_missing(with_above.shift())))
                n_above = int(last.list.len().sum())  # tokens of the row on top, which are counted already
                totals += np.array(floors(*in_order, BLOCK_SIZES)) - n_above
                above[is_state] = with_above.tail(1)
    floor, *of_blocks = totals.tolist()
    return TokenTotals(
        request_tokens=requested.collect(engine="streaming").item(),
        tokens=lengths.select(pl.col("n").sum()).collect(engine="streaming").item(),
        floor_tokens=floor,
        block_floor_tokens=dict(zip(map(str, BLOCK_SIZES), of_blocks, strict=True)),
    )


@contextmanager
def fed_rows(tokens: pl.LazyFrame, folder: Path) -> Iterator[pl.LazyFrame]:
    """Yield a scan of the token sequences that a model must process: `context`, in prefix order, and `is_state`.

    These are the contexts, and for every continuation of several tokens the context followed by the continuation
    without its last token, which is predicted and never fed. Rows can repeat the row above.

    Args:
        tokens: schemas.TOKENS, in prefix order.
        folder: folder for temporary files.
    """
    is_state, n_tokens = pl.col("ask") == "state", pl.col("continuations").list.len()
    contexts = tokens.select("context", is_state=is_state)
    several = tokens.filter(pl.col("continuations").list.eval(pl.element().list.len() > 1).list.any())
    stems = several.explode("continuations").filter(n_tokens > 1)
    with_stem = pl.concat_list("context", pl.col("continuations").list.head(n_tokens - 1))
    with kept(stems.select(with_stem, is_state=is_state).sort("context"), folder) as longer:
        if longer.select(pl.len()).collect().item():
            with kept(contexts.merge_sorted(longer, "context"), folder) as rows:
                yield rows
        else:
            yield contexts


def floors(tokens: Tokens, offsets: Offsets, block_sizes: Sequence[int] = ()) -> list[int]:
    """Count the tokens that must be computed: the floor if any prefix is shared, then one for each block size.

    The first floor is the number of nodes of the trie of all rows: a token after its prefix is computed once, however
    many rows contain it. With blocks, an engine reuses whole blocks and evicts none. A row reuses the whole blocks of
    the longest prefix that it shares with an earlier row, but never its last token: an engine must compute the last
    token to predict the next one (vLLM reuses at most n - 1 of n tokens). So a repeated row costs at least one token
    with blocks and none in the first floor. Raises ValueError unless rows are in prefix order.
    """
    shared, lengths = _shared_with_any_earlier_row(tokens, offsets), np.diff(offsets)
    reusable = np.minimum(shared, np.maximum(lengths - 1, 0))
    reused = [shared, *[reusable // size * size for size in block_sizes]]
    return [int(lengths.sum() - n_tokens.sum(dtype=np.int64)) for n_tokens in reused]


def _shared_with_any_earlier_row(tokens: Tokens, offsets: Offsets) -> npt.NDArray[np.int32]:
    """Return the length of the longest prefix that each row shares with any earlier row, int32 of [n_rows].

    Raises ValueError unless each row continues the row above it or first differs from it in a greater token.
    """
    shared = shared_prefix_lengths(tokens, offsets)
    parted = np.flatnonzero(shared[1:] < np.diff(offsets)[:-1]) + 1  # rows that do not continue the row above
    # Positions in `tokens` of the first tokens that differ, in the row above and in the row itself.
    above, here = offsets[parted - 1] + shared[parted], offsets[parted] + shared[parted]
    ended = here == offsets[parted + 1]  # such a row is a prefix of the row above
    wrong = parted[ended | (tokens[above] > tokens[np.where(ended, above, here)])]
    if wrong.size:
        raise ValueError(f"Row {wrong[0]} comes before row {wrong[0] - 1} in prefix order; sort the rows first.")
    return shared
