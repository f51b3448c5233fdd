"""Sort rows that do not fit into memory: in runs, which are merged range by range."""

import weakref
from bisect import bisect_left
from collections.abc import Callable, Iterator
from io import BytesIO
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, NamedTuple

import polars as pl

from evaluator.errors import WriteError
from evaluator.files.whole import reason

BATCH_ROWS = 1_024
"""Rows of a run that are read together; the key of the first of them is kept in memory."""

Key = Any
"""A value of the column that rows are sorted by: a text, or a list of token ids."""


class Range(NamedTuple):
    """Consecutive rows in order."""

    rows: pl.DataFrame
    before: Key | None  # the rows that follow have this key or a later one; None: no rows follow


class SortedRuns:
    """Rows that are added run by run and come back sorted; rows with the same key come back in one range.

    If there are several runs, they are kept in an unnamed temporary file, which vanishes with this process.

    Args:
        folder: of the file; made if it is missing.
        key: column that rows are sorted by. Python must compare its values as `sort` does.
        sort: sorts rows by the key; rows with equal keys in any order that it needs. None: equal ones as added.
    """

    def __init__(self, folder: Path, key: str, sort: Callable[[pl.DataFrame], pl.DataFrame] | None = None) -> None:
        self._folder, self._key = folder, key
        self._sort = sort or (lambda rows: rows.sort(key, maintain_order=True))
        self._file: IO[bytes] | None = None
        self._runs: list[_Run] = []

    def add(self, rows: pl.DataFrame) -> None:
        """Add rows, in any order. Raises WriteError where they cannot be written."""
        self._runs.append(_Run(self._sort(rows), self._key))
        if len(self._runs) == 1:
            return
        try:
            if self._file is None:
                self._folder.mkdir(parents=True, exist_ok=True)
                self._file = TemporaryFile(dir=self._folder)  # noqa: SIM115 (open while runs are)
                weakref.finalize(self, self._file.close)
                self._runs[0].move_to(self._file)
            self._runs[-1].move_to(self._file)
        except OSError as error:
            raise WriteError(
                f"Rows cannot be sorted in {self._folder}: {reason(error)}. Make room there, and run the same "
                "command again."
            ) from error

    def ranges(self, n_rows: int) -> Iterator[Range]:
        """Yield all rows, once, in ranges of about `n_rows`; one at least if any rows, even none, were added."""
        firsts = sorted(first for run in self._runs for first in run.firsts)
        bounds = [bound for bound, _ in groupby(firsts[:: max(n_rows // BATCH_ROWS, 1)][1:])]
        for before in [*bounds, None]:
            if any(run.comes(before) for run in self._runs):
                yield Range(self.take(before), before)

    def take(self, before: Key | None) -> pl.DataFrame:
        """Return the rows that were not taken yet and whose key comes before the given one, sorted; None: all."""
        taken = [run.take(before) for run in self._runs]
        return taken[0] if len(taken) == 1 else self._sort(pl.concat(taken))


def merged(first: SortedRuns, *others: SortedRuns, n_rows: int) -> Iterator[tuple[pl.DataFrame, ...]]:
    """Yield the rows of several that are sorted by the same key, in ranges of about `n_rows` rows of the first.

    Rows of the same key come together.
    """
    for rows, before in first.ranges(n_rows):
        yield rows, *(other.take(before) for other in others)


class _Run:
    """Sorted rows, in memory or in a file, which are taken from the first to the last."""

    def __init__(self, rows: pl.DataFrame, key: str) -> None:
        self._key = key
        self.firsts: list[Key] = rows[key].gather_every(BATCH_ROWS).to_list()
        self._n_read, self._left = len(self.firsts), rows

    def move_to(self, file: IO[bytes]) -> None:
        """Write all rows to a file, from which they are read when they are taken."""
        self._file = file
        self._places: list[tuple[int, int]] = []  # of each batch in the file: first byte, and bytes
        for batch in self._left.iter_slices(BATCH_ROWS):
            content = BytesIO()
            batch.write_ipc(content, compression="lz4")
            self._places.append((file.seek(0, 2), file.write(content.getbuffer())))
        self._n_read, self._left = 0, self._left.clear()

    def comes(self, before: Key | None) -> bool:
        """Return whether rows are left whose key comes before the given one; None: any."""
        if before is None:
            return True
        if self._left.height:
            return n_before(self._left[self._key].head(1), before) == 1
        return self._n_read < len(self.firsts) and self.firsts[self._n_read] < before

    def take(self, before: Key | None) -> pl.DataFrame:
        """Return the rows that are left whose key comes before the given one; None: all."""
        parts = [self._left]
        while self._n_read < len(self.firsts) and (before is None or self.firsts[self._n_read] < before):
            start, size = self._places[self._n_read]
            self._file.seek(start)
            parts.append(pl.read_ipc(BytesIO(self._file.read(size))))
            self._n_read += 1
        rows = pl.concat(parts)
        end = rows.height if before is None else n_before(rows[self._key], before)
        self._left = rows[end:]
        return rows[:end]


def n_before(keys: pl.Series, bound: Key) -> int:
    """Return how many of these keys, which are in order, come before another."""
    return bisect_left(range(len(keys)), bound, key=lambda row: keys.slice(row, 1).to_list()[0])
