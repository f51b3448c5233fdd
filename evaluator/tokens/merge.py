"""Put token rows in prefix order that do not fit into memory: sort them in runs, and merge the runs range by range."""

from bisect import bisect_left
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, NamedTuple

import polars as pl

from evaluator.errors import WriteError
from evaluator.files.whole import reason
from evaluator.store.prefix_order import prefix_order
from evaluator.tokens.rows import ragged

BATCH_ROWS = 1_024
"""Rows of a run that are read together; the context of the first of them is kept in memory."""

Context = list[int]


class Range(NamedTuple):
    """Consecutive rows in prefix order."""

    rows: pl.DataFrame  # schemas.TOKENS
    before: Context | None  # the rows that follow have this context or a later one; None: no rows follow


class SortedRuns:
    """Rows of schemas.TOKENS, which are added run by run and come back in prefix order.

    Rows with equal contexts come back in the order in which they were added, those with ask "last_tokens" after all
    others. If there are several runs, they are kept in a file without a name, which vanishes with this process.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder  # in which the file is
        self._only: pl.DataFrame | None = None
        self._file: IO[bytes] | None = None
        self._runs: list[_Run] = []

    def add(self, rows: pl.DataFrame) -> None:
        """Add rows, in any order. Raises WriteError where they cannot be written."""
        rows = _sorted(rows)
        if self._only is None and not self._runs:
            self._only = rows
            return
        new = [rows] if self._only is None else [self._only, rows]
        self._only = None
        try:
            self._file = self._file or TemporaryFile(dir=self._folder)  # noqa: SIM115 (open while runs are)
            self._runs += [_Run(run, self._file) for run in new]
        except OSError as error:
            raise WriteError(
                f"Tokens cannot be sorted in {self._folder}: {reason(error)}. Make room there, and run the same "
                "command again."
            ) from error

    def ranges(self, n_rows: int) -> Iterator[Range]:
        """Yield all rows, once, in ranges of about `n_rows`."""
        if self._only is not None:
            yield Range(self._only, None)
            return
        firsts = sorted(first for run in self._runs for first in run.firsts)
        bounds = dict.fromkeys(map(tuple, firsts[:: max(n_rows // BATCH_ROWS, 1)][1:]))
        for before in [*map(list, bounds), None]:
            taken = [run.take(before) for run in self._runs if run.comes(before)]
            if taken:
                yield Range(_sorted(pl.concat(taken)), before)
        if self._file:
            self._file.close()


def _sorted(rows: pl.DataFrame) -> pl.DataFrame:
    is_last = pl.col("ask") == "last_tokens"
    rows = pl.concat([rows.filter(~is_last), rows.filter(is_last)])
    return rows[prefix_order(*ragged(rows["context"]))]


class _Run:
    """Sorted rows in a file, which are taken from the first to the last."""

    def __init__(self, rows: pl.DataFrame, file: IO[bytes]) -> None:
        self._file = file
        self._places: list[tuple[int, int]] = []  # of each batch in the file: first byte, and bytes
        self.firsts: list[Context] = rows["context"].gather_every(BATCH_ROWS).to_list()
        for batch in rows.iter_slices(BATCH_ROWS):
            content = BytesIO()
            batch.write_ipc(content, compression="lz4")
            self._places.append((file.seek(0, 2), file.write(content.getbuffer())))
        self._n_read = 0
        self._left = rows.clear()

    def comes(self, before: Context | None) -> bool:
        """Return whether rows are left whose context comes before the given one; None: any."""
        if before is None or self._left.height:
            return True
        return self._n_read < len(self.firsts) and self.firsts[self._n_read] < before

    def take(self, before: Context | None) -> pl.DataFrame:
        """Return the rows that are left whose context comes before the given one; None: all."""
        parts = [self._left]
        while self._n_read < len(self.firsts) and (before is None or self.firsts[self._n_read] < before):
            start, size = self._places[self._n_read]
            self._file.seek(start)
            parts.append(pl.read_ipc(BytesIO(self._file.read(size))))
            self._n_read += 1
        rows = pl.concat(parts)
        end = rows.height if before is None else n_before(rows["context"], before)
        self._left = rows[end:]
        return rows[:end]


def n_before(contexts: pl.Series, bound: Context) -> int:
    """Return how many of these contexts, which are in prefix order, come before another."""
    return bisect_left(range(len(contexts)), bound, key=lambda row: contexts[row].to_list())
