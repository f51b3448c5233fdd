"""Define tables of a page: a frame of numbers, and columns that say how to show them. Every page shows them alike."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Any, NamedTuple

import polars as pl
from markupsafe import Markup

from evaluator.schemas import MEAN_OVER_DATASETS

Row = Mapping[str, Any]
"""A row of a frame: column -> value."""


def number(value: float | None, digits: int = 3) -> str:
    """Return a number with so many digits after the point; a dash for None."""
    if value is None:
        return "–"
    if math.isnan(value):
        return "undefined"
    return f"{value:.{digits}f}".replace("-", "−").replace("inf", "∞")


def signed(value: float | None, digits: int = 3) -> str:
    """Return a number with its sign; zero has none."""
    return f"{'+' if value and value > 0 else ''}{number(value, digits)}"


def interval(low: float | None, high: float | None) -> str:
    """Return both ends of an interval."""
    if low is None or high is None:
        return "no interval"
    return f"{number(low)}{' to ' if low < 0 or high < 0 else '–'}{number(high)}"


def signed_interval(low: float | None, high: float | None) -> str:
    """Return both ends of the interval of a difference."""
    return "no interval" if low is None or high is None else f"{signed(low)} to {signed(high)}"


def count(value: int | None) -> str:
    """Return a whole number, in groups of three digits."""
    return "–" if value is None else f"{value:,}"


def percent(value: float | None) -> str:
    """Return a share in percent."""
    return "–" if value is None else f"{number(100 * value, 1)}%"


def p_text(value: float | None) -> str:
    """Return a p-value with three decimals."""
    return "–" if value is None else f"{value:.3f}" if value >= 0.001 else "< 0.001"


def significant(value: float | None) -> str:
    """Return a number with two significant digits, as small p-values and drifts need."""
    return "–" if value is None else "undefined" if math.isnan(value) else f"{value:.2g}".replace("-", "−")


def probability(log10: float | None) -> str:
    """Return a probability, given its logarithm; one below a thousandth as a power of ten."""
    if log10 is None:
        return "–"
    return f"{10**log10:.3f}" if log10 > -3 else Markup("10<sup>−{}</sup>").format(f"{-log10:.1f}")


def marked(template: str, *values: object) -> Markup:
    """Fill a template of HTML; the values are escaped."""
    return Markup(template).format(*values)  # noqa: S704  (templates are literals of this package)


def plural(n: int, noun: str) -> str:
    """Return a count with its noun."""
    return f"{n:,} {noun}{'s' * (n != 1)}"


def text(value: object) -> str:
    """Return a value as it is, a dash where there is none."""
    return "–" if value in (None, "") else str(value)


def plain(value: object) -> str:
    """Return a value as its type asks for: whole numbers in groups of three digits, others with three decimals."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return count(value) if isinstance(value, int) else number(value) if isinstance(value, float) else text(value)


def digits(n: int) -> Callable[[float | None], str]:
    """Return the format of numbers with n digits after the point."""
    return partial(number, digits=n)


@dataclass(frozen=True)
class Column:
    """A column of a table: its title, and how a cell is made of a row of the frame.

    A cell without value is a dash. A reader sorts by the values at full precision. Numbers are on the right.
    """

    title: str
    value: str = ""  # column of the frame
    _: KW_ONLY
    show: Callable[[Any], str] = plain  # text of a value
    cell: Callable[[Row], str] | None = None  # text of a cell, where it takes more than the value
    of: str = ""  # column of structs: `value` and all other names are fields of these
    note: str | Sequence[str] = ()  # lines below the title
    interval: tuple[str, str] | None = None  # columns of both ends of the interval, which is shown below the value
    below: str | Sequence[Callable[[Row], str]] = ()  # column, or texts, below the value; an empty one is left out
    tip: Callable[[Row], str] | None = None  # text for the pointer
    bold: Callable[[Row], bool] = lambda _row: False
    style: str | Callable[[Row], str] = "number"  # CSS classes of the cells
    head: str = ""  # CSS class of the title
    data: Mapping[str, str] = field(default_factory=dict)  # data attribute -> column
    dataset: str = ""  # dataset that the whole column is about

    @property
    def head_style(self) -> str | None:
        """Return the CSS class of the title: its own, or the first of the cells, which are numbers if it varies."""
        return self.head or ("number" if callable(self.style) else self.style.partition(" ")[0]) or None

    @property
    def notes(self) -> Sequence[str]:
        """Return the lines below the title."""
        return [self.note] if self.note and isinstance(self.note, str) else self.note


def line(value: str, show: Callable[[Any], str] = number) -> Callable[[Row], str]:
    """Return a line below another value: the values of a column, none where one is missing."""
    return lambda row: "" if row[value] is None else show(row[value])


def text_column(title: str, value: str, *, style: str = "", **more: Any) -> Column:
    """Return a column of texts, which are on the left."""
    return Column(title, value, style=style, **more)


def row_name(value: object) -> str:
    """Return the name of a dataset, or what the row of means is called."""
    return "Mean over datasets" if value == MEAN_OVER_DATASETS else str(value)


DATASET = Column("Dataset", "dataset", show=row_name, style="")
"""The first column of most tables."""


@dataclass(frozen=True)
class Table:
    """A table of a page. The first column names the rows; a reader can sort by each column.

    Rows with a column `dataset` are hidden while the reader has not chosen their dataset.
    """

    rows: pl.DataFrame
    columns: Sequence[Column]
    _: KW_ONLY
    caption: str = ""
    style: str = "metrics"  # CSS classes
    data: Mapping[str, object] = field(default_factory=dict)  # data attributes
    row_data: Mapping[str, str] = field(default_factory=dict)  # data attribute of rows -> column
    foot: pl.DataFrame | None = None  # rows below the others, which are not sorted
    is_mean_last: bool = False  # the rows of the mean over datasets are the foot
    groups: Sequence[tuple[str, int]] = ()  # titles above those of so many columns each
    absent: str = ""  # text in place of a table without rows

    @property
    def body(self) -> list["ShownRow"]:
        """Return the rows as the template shows them."""
        rows = self.rows.filter(pl.col("dataset") != MEAN_OVER_DATASETS) if self.is_mean_last else self.rows
        return [self._shown(row) for row in rows.iter_rows(named=True)]

    @property
    def footer(self) -> list["ShownRow"]:
        """Return the rows of the foot."""
        foot = self.rows.filter(dataset=MEAN_OVER_DATASETS) if self.is_mean_last else self.foot
        return [] if foot is None else [self._shown(row, of_all=True) for row in foot.iter_rows(named=True)]

    def _shown(self, row: Row, *, of_all: bool = False) -> "ShownRow":
        data = {name: row[column] for name, column in self.row_data.items()}
        if not of_all and row.get("dataset") not in (None, MEAN_OVER_DATASETS):
            data["dataset"] = row["dataset"]
        return ShownRow(_attributes(data), [shown_cell(column, row) for column in self.columns])


class ShownCell(NamedTuple):
    """A cell as the template shows it."""

    text: str
    below: Sequence[str]
    is_bold: bool
    attributes: Mapping[str, object]


class ShownRow(NamedTuple):
    """A row as the template shows it."""

    attributes: Mapping[str, object]
    cells: Sequence[ShownCell]


def shown_cell(column: Column, row: Row) -> ShownCell:
    """Return the cell of a column in a row."""
    of_dataset = _attributes({"dataset": column.dataset or None})
    fields = row.get(column.of) if column.of else row
    if fields is None or (column.value and fields[column.value] is None):
        missing = "absent" if column.style in ("", "text") else "number absent"
        return ShownCell("–", (), False, {"class": missing, **of_dataset})
    value = fields[column.value] if column.value else None
    below = [interval(*(fields[name] for name in column.interval))] if column.interval else []
    lines = [line(column.below, plain)] if isinstance(column.below, str) else column.below
    below += [shown for show in lines if (shown := show(fields))]
    ends = dict(zip(("low", "high"), column.interval, strict=True)) if column.interval else {}
    data = {name: fields[source] for name, source in {**ends, **column.data}.items()}
    attributes = {
        "class": (column.style if isinstance(column.style, str) else column.style(fields)) or None,
        **of_dataset,
        **_attributes(
            {
                "number": f"{column.of} {column.value}".strip() or None,
                "value": value,
                **data,
                "tip": column.tip(fields) if column.tip else None,
            }
        ),
    }
    shown = column.cell(fields) if column.cell else column.show(value)
    return ShownCell(shown, below, column.bold(fields), attributes)


def _attributes(data: Mapping[str, object]) -> dict[str, object]:
    """Return data attributes; numbers as scripts read them."""
    return {f"data-{name}": _script_text(value) for name, value in data.items() if value is not None}


def _script_text(value: object) -> str:
    return repr(value).replace("inf", "Infinity") if isinstance(value, float) else str(value)
