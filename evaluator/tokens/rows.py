"""Rows of a table of tokens that need not fit into memory: their numbers are in memory, and one piece of the table."""

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import polars as pl

from evaluator.schemas import TOKENS
from evaluator.store.tables import ROWS_PER_SLICE


class TokenRows:
    """Rows of schemas.TOKENS in prefix order; a pickle holds the rows themselves, for hosts without the files.

    Args:
        tokens: the whole table.
        numbers: of its rows that belong to this set, ascending, int32 of [n_rows]; None: all.
    """

    def __init__(self, tokens: pl.LazyFrame, numbers: npt.NDArray[np.int32] | None = None) -> None:
        self._tokens = tokens
        self._numbers = np.arange(_height(tokens), dtype=np.int32) if numbers is None else numbers
        self._last_piece: dict[int, pl.DataFrame] = {}  # first row -> the piece that was read last, for all subsets

    @property
    def height(self) -> int:
        return len(self._numbers)

    def frames(self) -> Iterator[pl.DataFrame]:
        """Yield the rows, piece by piece; without rows, nothing."""
        for first, places in self._pieces():
            if first not in self._last_piece:
                self._last_piece.clear()  # before the next is read
                self._last_piece[first] = self._tokens.slice(first, ROWS_PER_SLICE).collect()
            piece = self._last_piece[first]
            yield piece if len(places) == piece.height else piece[places]

    def frame(self) -> pl.DataFrame:
        """Return all rows."""
        return pl.concat([*self.frames()] or [TOKENS.to_frame()])

    def columns(self, expression: pl.Expr) -> Iterator[pl.Series]:
        """Yield an expression over the rows, piece by piece; only the columns that it needs are read."""
        for first, places in self._pieces():
            yield self._tokens.slice(first, ROWS_PER_SLICE).select(expression).collect().to_series().gather(places)

    def column(self, expression: pl.Expr) -> pl.Series:
        """Return an expression over all rows."""
        return pl.concat(
            [*self.columns(expression)] or [TOKENS.to_frame().select(expression).to_series()], rechunk=True
        )

    def filter(self, predicate: pl.Expr) -> "TokenRows":
        """Return the rows for which the predicate is true."""
        return self.where(self.column(predicate.fill_null(False)).to_numpy())

    def where(self, mask: npt.NDArray[np.bool_]) -> "TokenRows":
        """Return the rows where the mask, one entry a row, is true."""
        return self._subset(self._numbers[mask])

    def slice(self, first: int, n_rows: int) -> "TokenRows":
        """Return `n_rows` rows from the row `first` on."""
        return self._subset(self._numbers[first : first + n_rows])

    def _subset(self, numbers: npt.NDArray[np.int32]) -> "TokenRows":
        rows = TokenRows(self._tokens, numbers)
        rows._last_piece = self._last_piece
        return rows

    def _pieces(self) -> Iterator[tuple[int, npt.NDArray[np.int32]]]:
        """Yield the first row of each piece of the table that has some of the rows, and their places in it."""
        for piece in np.unique(self._numbers // ROWS_PER_SLICE).tolist():
            first = piece * ROWS_PER_SLICE
            start, end = np.searchsorted(self._numbers, [first, first + ROWS_PER_SLICE])
            yield first, self._numbers[start:end] - first

    def __reduce__(self) -> tuple[Callable[[pl.DataFrame], "TokenRows"], tuple[pl.DataFrame]]:
        return _rows_of, (self.frame(),)


def _rows_of(tokens: pl.DataFrame) -> TokenRows:
    return TokenRows(tokens.lazy())


def _height(tokens: pl.LazyFrame) -> int:
    return int(tokens.select(pl.len()).collect().item())


def ragged(rows: pl.Series) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """Return the flat values and the offsets of a List[i32] column, without a copy."""
    column = rows.rechunk().to_arrow()
    return column.values.to_numpy(), column.offsets.to_numpy()
