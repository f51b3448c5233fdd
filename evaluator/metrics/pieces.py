"""Rows that are measured, whole or, where they are many, in pieces of whole queries that are read one after the other.

Everything that is measured of queries adds up, or is a mean over them, so that a few passes over pieces are enough.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Generic, Literal, TypeVar

import numpy as np
import polars as pl

T = TypeVar("T")
U = TypeVar("U")
Engine = Literal["in-memory", "streaming"]

ROWS_IN_PIECE = 262_144
"""Rows in memory at a time, about; a piece holds all rows of its queries."""


class Pieces(Generic[T]):
    """Frames, or what is made of each, which are made again each time; a single one is kept.

    All rows of a query are in one piece.
    """

    def __init__(self, makers: Sequence[Callable[[], T]]) -> None:
        self._makers = makers
        self._only = [make() for make in makers] if len(makers) == 1 else None

    def __iter__(self) -> Iterator[T]:
        return iter(self._only) if self._only else (make() for make in self._makers)

    @property
    def is_whole(self) -> bool:
        """Whether there is a single piece."""
        return self._only is not None

    def map(self, function: Callable[[T], U]) -> "Pieces[U]":
        """Return what a function makes of each piece."""
        makers = [partial(_kept, one) for one in self._only] if self._only else self._makers
        return Pieces([partial(_applied, function, make) for make in makers])


class Frames(Pieces[pl.DataFrame]):
    """Rows of scans, which are read again each time; of a single one, the frame is kept."""

    def __init__(self, scans: Sequence[pl.LazyFrame]) -> None:
        self._scans = scans
        engine: Engine = "in-memory" if len(scans) == 1 else "streaming"
        super().__init__([partial(_collected, scan, engine) for scan in scans])

    @property
    def columns(self) -> list[str]:
        """Return the names of the columns."""
        return self._scans[0].collect_schema().names()

    def select(self, *columns: str | pl.Expr) -> "Frames":
        """Return columns of the same rows; only those are read."""
        scans = [frame.lazy() for frame in self] if self.is_whole else self._scans
        return Frames([scan.select(columns) for scan in scans])

    def sorted(self, column: str) -> "Frames":
        """Return the rows of each frame in the order of a column."""
        if self.is_whole:
            (frame,) = self
            return self if frame[column].is_sorted() else Frames([frame.lazy().sort(column)])
        return Frames([scan.sort(column) for scan in self._scans])


def in_pieces(rows: "pl.DataFrame | Pieces[pl.DataFrame]") -> Pieces[pl.DataFrame]:
    """Return rows as pieces: a frame as a single one."""
    return Pieces([partial(_kept, rows)]) if isinstance(rows, pl.DataFrame) else rows


def pieces_of_queries(rows: pl.LazyFrame, n_rows: int) -> Frames:
    """Return rows with the column `query_id` in pieces of about ROWS_IN_PIECE rows, in the order of queries.

    Args:
        n_rows: their number; up to ROWS_IN_PIECE of them are one piece, in their order.
    """
    if n_rows <= ROWS_IN_PIECE:
        return Frames([rows])
    query = pl.col("query_id")
    ids = rows.select(query).collect(engine="streaming").to_series().to_numpy()
    starts = np.unique(np.sort(ids)[ROWS_IN_PIECE::ROWS_IN_PIECE]).tolist()
    if not starts:
        return Frames([rows])
    between = [query.is_between(low, high, closed="left") for low, high in pairwise(starts)]
    return Frames([rows.filter(condition) for condition in (query < starts[0], *between, query >= starts[-1])])


def _collected(rows: pl.LazyFrame, engine: Engine) -> pl.DataFrame:
    return rows.collect(engine=engine).rechunk()  # sums would depend on the chunks


def _kept(one: T) -> T:
    return one


def _applied(function: Callable[[T], U], make: Callable[[], T]) -> U:
    return function(make())
