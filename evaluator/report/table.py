"""Define the tables of pages: a frame of values, and columns that say how to show them.

Also define the titles and directions of metrics, arrange metrics as frames with a row for each dataset, and define the
columns that show them.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import polars as pl
from markupsafe import Markup

from evaluator.errors import plural
from evaluator.metrics.guessing import VERDICTS
from evaluator.random_baselines.max_random import TAIL_TO_TELL, Verdict
from evaluator.schemas import MEAN_OVER_DATASETS

Row = Mapping[str, Any]
"""A row of a frame, or the fields of a struct in it: column -> value."""


def number(value: float | None, digits: int = 3) -> str:
    """Return a number with `digits` decimals; a dash for None, "undefined" for NaN, ∞ for infinity."""
    if value is None:
        return "–"
    if math.isnan(value):
        return "undefined"
    return f"{value:.{digits}f}".replace("-", "−").replace("inf", "∞")


def signed(value: float | None, digits: int = 3) -> str:
    """Return a number with its sign, as `number` formats it; zero has no sign."""
    return f"{'+' if value and value > 0 else ''}{number(value, digits)}"


def interval(low: float | None, high: float | None) -> str:
    """Return both ends of an interval as a text; "no interval" if an end is None."""
    if low is None or high is None:
        return "no interval"
    return f"{number(low)}{' to ' if low < 0 or high < 0 else '–'}{number(high)}"


def signed_interval(low: float | None, high: float | None) -> str:
    """Return both ends of the interval of a difference, with signs; "no interval" if an end is None."""
    return "no interval" if low is None or high is None else f"{signed(low)} to {signed(high)}"


def count(value: int | None) -> str:
    """Return a whole number in groups of three digits; a dash for None."""
    return "–" if value is None else f"{value:,}"


def percent(value: float | None) -> str:
    """Return a share in percent with one decimal, or as many as distinguish it from 0% and 100%; a dash for None."""
    if value is None:
        return "–"
    shown = [number(100 * value, digits) for digits in range(1, 9)]
    return next((text for text in shown if not 0 < value < 1 or 0 < float(text) < 100), shown[0]) + "%"


def limit_text(value: float | None) -> str:
    """Return a threshold with four digits, or as many as distinguish it from 1; a dash for None.

    Answers with probabilities just below 1 can be used as well, which "1" would deny.
    """
    shown = ("–" if value is None else f"{value:.{digits}g}" for digits in range(4, 18))
    return next(text for text in shown if value is None or value >= 1 or float(text) < 1)


def p_text(value: float | None) -> str:
    """Return a p-value with three decimals, "< 0.001" for smaller ones; a dash for None."""
    return "–" if value is None else f"{value:.3f}" if value >= 0.001 else "< 0.001"


def significant(value: float | None) -> str:
    """Return a number with two significant digits, for example a drift; a dash for None, "undefined" for NaN."""
    return "–" if value is None else "undefined" if math.isnan(value) else f"{value:.2g}".replace("-", "−")


def probability(log10: float | None) -> str:
    """Return a probability, given its log10: with three decimals, or at 0.001 and below as a power of ten in HTML."""
    if log10 is None:
        return "–"
    return f"{10**log10:.3f}" if log10 > -3 else Markup("10<sup>−{}</sup>").format(f"{-log10:.1f}")


def marked(template: str, *values: object) -> Markup:
    """Fill the {} of an HTML template with values, which are escaped."""
    return Markup(template).format(*values)  # noqa: S704  (templates are literals of this package)


_RIGHT_TO_LEFT = re.compile("W(?: *W)*".replace("W", r"[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]"))


def text(value: object) -> str:
    """Return a value as a text; a dash for None and "".

    Words that are written from right to left are isolated (U+2068, U+2069): a number after them would else be shown
    before them, at the name of a neighbour.
    """
    return "–" if value in (None, "") else _RIGHT_TO_LEFT.sub("\u2068\\g<0>\u2069", str(value))


def plain(value: object) -> str:
    """Return a value by its type: bool as yes or no, int as `count`, float as `number`, others as `text`."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return count(value) if isinstance(value, int) else number(value) if isinstance(value, float) else text(value)


def digits(n: int) -> Callable[[float | None], str]:
    """Return a function that formats numbers with n decimals."""
    return partial(number, digits=n)


@dataclass(frozen=True)
class Column:
    """A column of a table on a page: its title, and how its cells are made from the rows of the frame.

    A cell whose value is null shows a dash. The reader sorts by the values at full precision.
    """

    title: str
    value: str = ""  # column of the frame with the values
    _: KW_ONLY
    show: Callable[[Any], str] = plain  # returns the text of a value
    cell: Callable[[Row], str] | None = None  # returns the text of a cell that depends on more than the value
    of: str = ""  # column of structs; `value` and all other column names are then fields of the struct
    note: str | Sequence[str] = ()  # lines below the title
    interval: tuple[str, str] | None = None  # columns of the ends of an interval, which is shown below the value
    below: str | Sequence[Callable[[Row], str]] = ()  # column, or functions that return lines; "" is left out
    tip: Callable[[Row], str] | None = None  # returns the tooltip
    bold: bool | Callable[[Row], bool] = False  # whether all cells are bold, or a function of the row
    style: str | Callable[[Row], str] = "number"  # CSS classes of the cells
    head: str = ""  # CSS class of the title; "": the first class of the cells
    data: Mapping[str, str] = field(default_factory=dict)  # data attribute of the cells -> column
    dataset: str = ""  # dataset of all cells: hidden while the reader has not chosen it

    @property
    def head_style(self) -> str | None:
        """Return the CSS class of the title: `head`, else the first class of `style`, "number" if it is a function."""
        return self.head or ("number" if callable(self.style) else self.style.partition(" ")[0]) or None

    @property
    def notes(self) -> Sequence[str]:
        """Return the lines below the title."""
        return [self.note] if self.note and isinstance(self.note, str) else self.note


def line(value: str, show: Callable[[Any], str] = number) -> Callable[[Row], str]:
    """Return a function for Column.below: the text of the column `value`, "" if it is null."""
    return lambda row: "" if row[value] is None else show(row[value])


def ends_column(title: str, low: str, high: str, **more: Any) -> Column:
    """Return a column of intervals, whose ends are in the columns `low` and `high`."""
    return Column(title, low, cell=lambda row: interval(row[low], row[high]), data={"low": low, "high": high}, **more)


def text_column(title: str, value: str, *, style: str = "", **more: Any) -> Column:
    """Return a column of texts, which are aligned to the left."""
    return Column(title, value, style=style, **more)


def row_name(value: object) -> str:
    """Return the name of a dataset, or "Mean over datasets"."""
    return "Mean over datasets" if value == MEAN_OVER_DATASETS else str(value)


DATASET = Column("Dataset", "dataset", show=row_name, style="")
"""The first column of most tables."""


@dataclass(frozen=True)
class Table:
    """A table on a page. The first column names the rows; the reader can sort by every column.

    If the frame has a column `dataset`, a row is hidden while the reader has not chosen its dataset.
    """

    rows: pl.DataFrame
    columns: Sequence[Column]
    _: KW_ONLY
    caption: str = ""
    style: str = "metrics"  # CSS classes
    data: Mapping[str, object] = field(default_factory=dict)  # data attributes
    row_data: Mapping[str, str] = field(default_factory=dict)  # data attribute of rows -> column
    foot: pl.DataFrame | None = None  # rows below the others, which the reader cannot sort
    is_mean_last: bool = False  # whether the rows of MEAN_OVER_DATASETS are the foot
    groups: Sequence[tuple[str, int]] = ()  # titles above groups of columns: title and number of columns
    absent: str = ""  # text that replaces a table without rows; "": its head is shown

    @property
    def body(self) -> list["ShownRow"]:
        """Return the rows above the foot as the template shows them."""
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
        return _attributes(data), [shown_cell(column, row) for column in self.columns]


class ShownCell(NamedTuple):
    """A cell as the template shows it."""

    text: str
    below: Sequence[str]  # lines below the text
    is_bold: bool
    attributes: Mapping[str, object]  # HTML attributes: name -> value


ShownRow = tuple[Mapping[str, object], Sequence[ShownCell]]
"""A row as the template shows it: HTML attributes and cells."""


def shown_cell(column: Column, row: Row) -> ShownCell:
    """Return the cell of a row in a column; a dash if the struct or the value is null."""
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
    data = {"number": f"{column.of} {column.value}".strip() or None, "value": value}
    data |= {name: fields[source] for name, source in {**ends, **column.data}.items()}
    data |= {"tip": column.tip(fields) if column.tip else None}
    style = column.style if isinstance(column.style, str) else column.style(fields)
    attributes = {"class": style or None, **of_dataset, **_attributes(data)}
    shown = column.cell(fields) if column.cell else column.show(value)
    return ShownCell(shown, below, column.bold(fields) if callable(column.bold) else column.bold, attributes)


def _attributes(data: Mapping[str, object]) -> dict[str, object]:
    """Return the data attributes of an HTML element, with numbers as JavaScript reads them; None is left out."""
    return {f"data-{name}": _script_text(value) for name, value in data.items() if value is not None}


def _script_text(value: object) -> str:
    return repr(value).replace("inf", "Infinity") if isinstance(value, float) else str(value)


class MetricText(NamedTuple):
    """Title and direction of a metric on a page."""

    title: str
    lower_is_better: bool = False
    is_headline: bool = True  # False: shown in a folded table, and not compared between models


METRIC_TEXTS = {
    "accuracy": MetricText("Accuracy"),
    "true_label_probability": MetricText("True-label probability"),
    "macro_f1": MetricText("Macro-F1"),
    "expected_calibration_error": MetricText("Calibration error", lower_is_better=True),
    "brier_score": MetricText("Brier score", lower_is_better=True, is_headline=False),
    "brier_reliability": MetricText("Reliability (Brier)", lower_is_better=True, is_headline=False),
    "brier_resolution": MetricText("Resolution (Brier)", is_headline=False),
    "brier_uncertainty": MetricText("Uncertainty (Brier)", is_headline=False),
    "log_loss": MetricText("Log loss, nats", lower_is_better=True, is_headline=False),
    "log_loss_calibration": MetricText("Calibration (log loss), nats", lower_is_better=True, is_headline=False),
    "log_loss_refinement": MetricText("Refinement (log loss), nats", lower_is_better=True, is_headline=False),
    "label_mass_median": MetricText("Label mass, median", is_headline=False),
    "label_mass_5th_percentile": MetricText("Label mass, 5th percentile", is_headline=False),
}
"""Core metric -> its title and direction, in the order of the columns."""


@dataclass(frozen=True)
class MetricTexts:
    """Titles of core metrics and of metrics of suites; metrics without a title are shown by name, after the others."""

    named: Mapping[str, MetricText] = field(default_factory=lambda: METRIC_TEXTS)  # metric -> texts, in order

    def title(self, metric: str) -> str:
        return self.named[metric].title if metric in self.named else metric.replace("_", " ").capitalize()

    def lower_is_better(self, metric: str) -> bool:
        return metric.endswith(("_error", "_loss")) or (metric in self.named and self.named[metric].lower_is_better)

    def is_headline(self, metric: str) -> bool:
        return metric not in self.named or self.named[metric].is_headline

    def headlines(self, metrics: pl.DataFrame, *, others: bool = False) -> pl.DataFrame:
        """Return the rows of schemas.METRICS whose metric is a headline; with `others`, the other rows."""
        names = [name for name in set(metrics["metric"]) if self.is_headline(name) != others]
        return metrics.filter(pl.col("metric").is_in(names))

    def in_order(self, metrics: Iterable[str]) -> tuple[str, ...]:
        present = set(metrics)
        return (*(name for name in self.named if name in present), *sorted(present - self.named.keys()))


CORE_TITLES = MetricTexts()
"""Titles of the core metrics only."""

GROUP = ["suite", "part", "method"]
"""Columns that identify a results table; a group has one table for each definition, with a row for each dataset."""

DEFINITIONS = {
    "paper": "the papers' formulas. Every token of a label is scored, and probabilities are taken as they are.",
    "released": (
        "what the released toolkit computes. A label's last token alone is scored, and probabilities pass through "
        "a second softmax wherever one row misses a sum of 1."
    ),
    "published": "what the published tables were made with, to compare with: as released, without the second softmax.",
    "floored": "the papers' formulas, with reported zeros raised to half the step that probabilities were rounded to.",
}
"""Definition -> its meaning, in the order of the control on the page that switches definitions."""

VERDICT_MARKS = dict(zip(VERDICTS, "●◐○", strict=True))
"""Verdict on a mean accuracy (metrics.guessing.VERDICTS) -> its mark, from best to worst."""

POSITION_MARKS: dict[Verdict, str] = {"above both": "●", "between": "◐", "below both": "○"}
"""Position of the best accuracy relative to two expected accuracies -> its mark in table 1 of Yauney & Mimno 2024."""


def dataset_order(metrics: pl.DataFrame, benchmark_order: Sequence[str]) -> list[str]:
    """Return the measured datasets in the order of the benchmark, then any others by name."""
    measured = set(metrics["dataset"]) - {MEAN_OVER_DATASETS}
    named = [name for name in benchmark_order if name in measured]
    return named + sorted(measured.difference(named))


def in_order(rows: pl.DataFrame, datasets: Sequence[str], *by: str) -> pl.DataFrame:
    """Return the rows of the datasets, sorted by the order of `datasets` and then by `by`; the mean is last.

    Rows of other datasets are left out, and so is the mean if the rows have a single dataset.
    """
    mean = [MEAN_OVER_DATASETS] if len({*rows["dataset"]} - {MEAN_OVER_DATASETS}) != 1 else []
    order = pl.Enum(list(dict.fromkeys([*datasets, *mean])))
    kept = rows.filter(pl.col("dataset").is_in(order.categories.to_list()))
    return kept.sort(pl.col("dataset").cast(order), *by, maintain_order=True)


def by_definition(metrics: pl.DataFrame, datasets: Sequence[str]) -> Iterator[tuple[str, pl.DataFrame]]:
    """Yield each measured definition, in the order of DEFINITIONS, with its table of results.

    Args:
        metrics: schemas.METRICS of one suite, part and method.
        datasets: names of datasets, in the order of the rows.

    Yields:
        The definition, and a frame with a row for each dataset and last the mean: `dataset`, and for each metric a
        column of structs, whose fields are the columns of schemas.METRICS; null where the metric was not measured.
    """
    for definition in DEFINITIONS:
        measured = metrics.filter(definition=definition).with_columns(pl.col("value").fill_null(float("nan")))
        cells = measured.select("dataset", "metric", cell=pl.struct(pl.exclude("dataset")))
        # Two suites that share a part can both measure a metric; the values are equal, so the last is as good.
        rows = in_order(cells.pivot("metric", index="dataset", values="cell", aggregate_function="last"), datasets)
        if set(rows["dataset"]) - {MEAN_OVER_DATASETS}:
            yield definition, rows


def metric_column(metric: str, texts: MetricTexts) -> Column:
    """Return the column of a metric, values with intervals, for a frame of by_definition."""
    title = texts.title(metric)
    return Column(
        title=title,
        value="value",
        of=metric,
        interval=("ci_low", "ci_high"),
        below=(line("reduced_bias", lambda value: f"reduced-bias {number(value)}"),),
        tip=lambda cell: f"{title} {value_tip(cell)}",
        style="number metric",
        data={"metric": "metric"},
    )


def mean_items(cells: Mapping[str, Row], texts: MetricTexts) -> list[dict[str, object]]:
    """Return the variables of summary.html: name, number and lines (interval, baselines, verdict) of each metric.

    Args:
        cells: metric -> its row of schemas.METRICS, the mean over datasets or a single dataset; in order of the page.
        texts: titles of metrics.
    """
    items: list[dict[str, object]] = []
    for metric, cell in cells.items():
        lines = [interval(cell["ci_low"], cell["ci_high"])]
        lines += [f"reduced-bias {number(cell['reduced_bias'])}"] if cell["reduced_bias"] is not None else []
        if metric == "accuracy":
            lines.append(f"chance {number(cell['chance'])}, majority label {number(cell['majority'])}")
            if verdict := cell["verdict"]:
                uniform, majority = p_text(cell["p_holm"]), p_text(cell["p_majority_holm"])
                lines.append(f"{VERDICT_MARKS[verdict]} {verdict}")
                lines.append(f"against uniform guessing p {uniform}, against the majority label p {majority}")
        elif metric == "true_label_probability" and "accuracy" in cells:
            lines.append(f"chance {number(cells['accuracy']['chance'])}")
        else:
            lines.append("lower is better" if texts.lower_is_better(metric) else "higher is better")
        items.append({"name": texts.title(metric), "number": number(cell["value"]), "lines": lines})
    return items


def value_tip(cell: Row) -> str:
    """Describe a row of metrics: value at full precision, interval, numbers of queries and requests."""
    ends = interval(cell["ci_low"], cell["ci_high"])
    sizes = f"{plural(cell['n_queries'], 'query')} in {plural(cell['n_requests'], 'request')}"
    return f"{cell['value']}, 95% interval {ends}, {sizes}"


def lower_is_better(metrics: Sequence[str], texts: MetricTexts) -> str:
    """Return a sentence "TITLE: lower is better." for each such metric, each with a space in front."""
    return "".join(f" {texts.title(name)}: lower is better." for name in metrics if texts.lower_is_better(name))


POSITION = Column(
    title="Position",
    value="log10_tail",
    cell=lambda row: f"{POSITION_MARKS[row['verdict']]} {row['verdict']}",
    style="verdict",
    data={"verdict": "verdict"},
)
"""Column of the position of a best accuracy (POSITION_MARKS), which is not a test; it is sorted by log10_tail."""


def told(p_holm: float) -> str:
    """Return "yes" if a test is significant at the 5% level, else "no".

    Args:
        p_holm: p-value after Holm's correction.
    """
    return "yes" if p_holm <= TAIL_TO_TELL else "no"


def _tested(title: str, p: str, p_holm: str, about: str, data: Mapping[str, str]) -> Column:
    """Return a column of test results: yes or no, and the p-value after Holm's correction.

    Args:
        title: title of the column.
        p, p_holm: columns of the p-value before and after the correction.
        about: words that follow the p-value in the tooltip.
        data: data attribute -> column.
    """

    def tip(row: Row) -> str:
        return f"p {row[p]}{about}; {row[p_holm]} after Holm's correction for {plural(row['n_tests'], 'test')}."

    below = (line(p_holm, lambda value: f"p {p_text(value)}"),)
    return Column(title, p_holm, show=told, note="after Holm", below=below, tip=tip, style="tested", data=data)


_OF_TEST = {"better": "better_than_uniform", "p": "p_value", "tests": "n_tests"}
_OF_TEST |= {"lower": "accuracy_lower_bound", "needed": "n_needed"}
TESTED = _tested("Better than uniform guessing", "p_value", "p_holm", "", _OF_TEST)
"""Column of the tests of accuracies against uniform guessing."""

_PAIRED = ", paired, of the best constant answer"
MAJORITY_TESTED = _tested("Better than majority", "p_majority", "p_majority_holm", _PAIRED, {"p": "p_majority"})
"""Column of the tests of mean accuracies against the majority label."""

NEEDED = Column(
    title="Queries needed",
    value="accuracy_lower_bound",
    cell=lambda row: count(row["n_needed"]),
    note="lower bound",
    below="accuracy_lower_bound",
    data={"needed": "n_needed"},
)
"""Column of the number of queries that a test against guessing needs, with the lower bound of the true accuracy."""

BASELINES = [
    Column("Chance", "chance", of="accuracy", data={"chance": "chance", "random": "max_random"}),
    Column("Majority", "majority", of="accuracy", data={"majority": "majority"}),
    replace(
        POSITION,
        title="Verdict",
        of="accuracy",
        cell=lambda row: f"{VERDICT_MARKS[row['verdict']]} {row['verdict']}",
        below=(line("log10_tail", lambda log10: Markup("tail {}").format(probability(log10))),),
        tip=lambda row: (
            f"Accuracy {row['value']}, chance {row['chance']}. On {row['n_queries']:,} queries one random classifier "
            f"gets at least this far with probability 10^{row['log10_tail']:.3f}."
        ),
        data={"verdict": "verdict", "tries": "tries"},
    ),
    replace(TESTED, title="Uniform", of="accuracy"),
    replace(MAJORITY_TESTED, title="Majority", of="accuracy", style="against-majority"),
]
"""Columns to the right of a mean accuracy: its baselines, its verdict, and the two tests that decide the verdict."""
