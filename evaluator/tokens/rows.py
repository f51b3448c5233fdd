"""Rows of token shards that are read shard by shard: memory holds their numbers, and one shard."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from evaluator.schemas import TOKENS

RowNumbers = npt.NDArray[np.int32]
Kept = list[tuple[int, RowNumbers]]
"""The number of a shard, and the rows of it that are kept: for each shard of which some are."""


class TokenRows:
    """Rows of schemas.TOKENS in prefix order; a pickle holds the rows themselves, for hosts without the files."""

    def __init__(self, shards: "Shards", kept: Iterable[tuple[int, RowNumbers]]) -> None:
        self._shards = shards
        self._kept: Kept = [(number, rows) for number, rows in kept if len(rows)]

    @classmethod
    def of(cls, tokens: pl.DataFrame) -> "TokenRows":
        """Return the rows of a frame that is in memory."""
        return cls(Shards([tokens.lazy()]), [(0, np.arange(tokens.height, dtype=np.int32))])

    @classmethod
    def of_shards(cls, shards: Sequence[pl.LazyFrame]) -> "TokenRows":
        """Return all rows of these shards, in order."""
        heights = (shard.select(pl.len()).collect().item() for shard in shards)
        return cls(Shards(shards), enumerate(np.arange(height, dtype=np.int32) for height in heights))

    @property
    def height(self) -> int:
        return sum(len(kept) for _, kept in self._kept)

    def frames(self) -> Iterator[pl.DataFrame]:
        """Yield the rows, shard by shard; without rows, nothing."""
        for number, kept in self._kept:
            yield self._shards.rows(number, kept)

    def frame(self) -> pl.DataFrame:
        """Return all rows."""
        return pl.concat([*self.frames()] or [TOKENS.to_frame()])

    def columns(self, expression: pl.Expr) -> Iterator[pl.Series]:
        """Yield an expression over the rows, shard by shard."""
        for number, kept in self._kept:
            column = self._shards.evaluated(number, expression)
            yield column if len(kept) == len(column) else column.gather(kept)

    def column(self, expression: pl.Expr) -> pl.Series:
        """Return an expression over all rows."""
        return pl.concat(
            [*self.columns(expression)] or [TOKENS.to_frame().select(expression).to_series()], rechunk=True
        )

    def where(self, mask: npt.NDArray[np.bool_]) -> "TokenRows":
        """Return the rows where the mask, one entry a row, is true."""
        starts = np.cumsum([0, *(len(kept) for _, kept in self._kept)]).tolist()
        parts = zip(self._kept, starts, strict=False)
        kept = ((number, rows[mask[start : start + len(rows)]]) for (number, rows), start in parts)
        return TokenRows(self._shards, kept)

    def filter(self, predicate: pl.Expr) -> "TokenRows":
        """Return the rows for which the predicate is true."""
        return self.where(self.column(predicate.fill_null(False)).to_numpy())

    def slice(self, first: int, n_rows: int) -> "TokenRows":
        """Return `n_rows` rows from the row `first` on."""
        kept, before = [], 0
        for number, rows in self._kept:
            kept.append((number, rows[max(first - before, 0) : max(first + n_rows - before, 0)]))
            before += len(rows)
        return TokenRows(self._shards, kept)

    def __reduce__(self) -> tuple[Callable[[pl.DataFrame], "TokenRows"], tuple[pl.DataFrame]]:
        return TokenRows.of, (self.frame(),)


class Shards:
    """Token shards, of which the one that was read last stays in memory."""

    def __init__(self, shards: Sequence[pl.LazyFrame]) -> None:
        self._shards = shards
        self._last: tuple[int, pl.DataFrame] | None = None

    def rows(self, number: int, kept: RowNumbers) -> pl.DataFrame:
        """Return some rows of a shard."""
        if self._last is None or self._last[0] != number:
            self._last = None  # before the next is read
            self._last = number, self._shards[number].collect()
        frame = self._last[1]
        return frame if len(kept) == frame.height else frame[kept]

    def evaluated(self, number: int, expression: pl.Expr) -> pl.Series:
        """Return an expression over all rows of a shard; only the columns that it needs are read."""
        return self._shards[number].select(expression).collect().to_series()


def ragged(rows: pl.Series) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """Return the flat values and the offsets of a List[i32] column, without a copy."""
    column = rows.rechunk().to_arrow()
    return column.values.to_numpy(), column.offsets.to_numpy()
