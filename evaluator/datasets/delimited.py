"""Read text tables with a separator between cells (CSV, RFC 4180), as spreadsheets and other programs write them.

The separator is detected from the first rows. Lines end in CR, LF or both.
"""

import codecs
import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from evaluator.errors import DatasetError

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}

_SNIFFED_ROWS = 50
_MAX_NAME = 60  # maximum number of characters of a column name; a longer cell in the first row is data


class _Dialect(NamedTuple):
    separator: str
    spaced: bool = False  # whether a space after a separator is dropped from the cell

    def records(self, lines: Iterator[str]) -> Iterator[list[str]]:
        return csv.reader(lines, delimiter=self.separator, skipinitialspace=self.spaced, strict=True)


def delimited_table(path: Path, content: bytes) -> tuple[list[str], Iterator[list[str]]]:
    """Return the column names, and an iterator over the rows, blank rows included.

    Every row has one cell per column; the missing cells of a short row are "".

    Raises DatasetError, naming file and row, for bytes that are not UTF-8 and for a file without a row of names; while
    rows are read, for unbalanced quotes and for a row with more cells than columns.
    """
    _require_utf8(path, content)
    csv.field_size_limit(max(csv.field_size_limit(), len(content)))  # a cell may be a whole book
    rows = _names_and_rows(path, content)
    names = next(rows, None)
    if names is None:
        raise DatasetError(f"{path} holds no rows.")
    return names, rows


def is_headerless(names: Sequence[str], rows: Iterable[Sequence[str | None]]) -> bool:
    """Return whether the column names look like a row of data: a long text, a number, or a cell that a row repeats."""
    if any(len(name) > _MAX_NAME or re.fullmatch(r"[-+]?[0-9]+([.,][0-9]+)?", name) for name in names):
        return True
    return any(name and name == cell for row in rows for name, cell in zip(names, row, strict=True))


def _opened(content: bytes) -> tuple[_Dialect, Iterator[str]]:
    """Return the dialect, and the lines of the table."""
    lines = _lines(content)
    stated = re.fullmatch(r"sep=(.)[\r\n]*", next(lines, ""))  # Excel writes such a first line
    return (_Dialect(stated[1]), lines) if stated else (_sniffed(content), _lines(content))


def _lines(content: bytes) -> Iterator[str]:
    return io.TextIOWrapper(io.BytesIO(content), "utf-8-sig", newline="")


def _sniffed(content: bytes) -> _Dialect:
    """Return the dialect with the most plausible separator, judged by the first rows.

    The best separator splits the first row, then gives all rows the same number of cells, then gives the most cells.
    A comma if no separator splits the first row.
    """

    def fit(separator: str) -> tuple[bool, bool, int]:
        widths = [len(record) for record in _first_records(content, separator)] or [0]
        return widths[0] > 1, len(set(widths)) == 1, widths[0]

    separator = max(SEPARATORS, key=fit)
    _, *others = next(iter(_first_records(content, separator)), [""])
    return _Dialect(separator, spaced=bool(others) and all(name.startswith(" ") for name in others))


def _first_records(content: bytes, separator: str) -> list[list[str]]:
    """Return the first rows that are not blank; reading stops at an unbalanced quote."""
    records: list[list[str]] = []
    with suppress(csv.Error):
        records.extend(islice(filter(any, _Dialect(separator).records(_lines(content))), _SNIFFED_ROWS))
    return records


def _names_and_rows(path: Path, content: bytes) -> Iterator[list[str]]:
    """Yield the column names, then the rows. Raises DatasetError as delimited_table does."""
    dialect, lines = _opened(content)
    names, number = list[str](), 0  # column names, and the number of the current row
    try:
        for record in dialect.records(lines):
            if not names and any(record):
                names = record
                yield names
            elif names:
                if any(record[len(names) :]):
                    raise DatasetError(
                        f"{path}, row {number} (from 0) has {len(record)} cells, and the table {len(names)} columns, "
                        f"separated by {SEPARATORS.get(dialect.separator, repr(dialect.separator))}. Put a cell that "
                        'holds the separator in double quotes ("), and write a quote within it as "".'
                    )
                yield [*record, *[""] * (len(names) - len(record))][: len(names)]
                number += 1
    except csv.Error as error:
        where = f"{path}, row {number} (from 0)" if names else f"{path}, names of columns"
        what = "has no end" if "end of data" in str(error) else "ends before its cell does"
        backslash = ', and not \\"' if b'\\"' in content else ""
        raise DatasetError(
            f'{where}: a cell begins with a quote (") that {what}. Put the whole cell in quotes, and write a quote '
            f'within it as ""{backslash}.'
        ) from None


def _require_utf8(path: Path, content: bytes) -> None:
    """Raise DatasetError, naming row and column, for bytes that are not UTF-8."""
    head = content[:64]
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or head.count(0) > len(head) // 4:
        raise DatasetError(f"{path} is in UTF-16, and UTF-8 is read. Save the file as UTF-8.")
    try:
        content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        text = error.object  # without a byte order mark
        where = _cell_at(text[: error.start])
        raise DatasetError(
            f"{path}{where}: the byte 0x{text[error.start]:02x} is no UTF-8. Save the file as UTF-8."
        ) from None


def _cell_at(before: bytes) -> str:
    """Return the row and the column, for messages, of the cell at which the text `before` ends."""
    try:
        dialect, lines = _opened(before + b"?")
        names, *rows = dialect.records(lines)
        return f", row {len(rows) - 1} (from 0), column {names[len(rows[-1]) - 1]}" if rows else ", names of columns"
    except (csv.Error, IndexError):  # a cell is too long for the reader, or a row has more cells than names
        return ""
