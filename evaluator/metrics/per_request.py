"""Turn predictions into the per-request columns that metrics are computed from, under one definition."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import polars as pl

from evaluator.errors import MetricError
from evaluator.metrics.base import sum_in_order
from evaluator.metrics.calibration_error import confidence_bin
from evaluator.metrics.checks import require_distributions, require_finite, require_gold, require_label_space
from evaluator.metrics.toolkit_formulas import passes_published_check, passes_released_check, softmax_of_rows
from evaluator.schemas import PREDICTIONS

GROUP = ["suite", "part", "dataset", "method"]
"""Columns that identify a group of predictions with one value of each metric."""

REQUEST_COLUMNS = ("position", "query_id", "gold", "label_probs")
"""Columns of PREDICTIONS that per_request_columns are made of."""

MEASURED_COLUMNS = (
    *REQUEST_COLUMNS,
    pl.when(pl.col("prompt_id").is_not_null()).then(pl.col("prompt_id").hash()).alias("prompt_id"),
    pl.col("label_names").list.len().alias("n_labels"),
)
"""Columns of PREDICTIONS that the metrics of classification read. Of prompts only whether those of a query differ
matters, so that ids are numbers, and of label spaces their size."""

DIAGNOSED_COLUMNS = tuple(name for name in PREDICTIONS if name not in (*GROUP, "definition", "prompt_id"))
"""Columns of PREDICTIONS that diagnostics read."""


@dataclass(frozen=True, kw_only=True)
class DefinitionRules:
    """How a definition measures label probabilities."""

    predictions: str  # `definition` of the predictions that it measures
    last_bin_closed: bool  # whether ECE counts a confidence of exactly 1
    check: Callable[[pl.DataFrame], bool] | None
    """Whether a matrix of label probabilities stays as it is; else the softmax of its rows is taken. None: rows must be
    distributions already."""


DEFINITIONS: dict[str, DefinitionRules] = {
    "paper": DefinitionRules(predictions="paper", check=None, last_bin_closed=True),
    "released": DefinitionRules(predictions="released", check=passes_released_check, last_bin_closed=False),
    "published": DefinitionRules(predictions="released", check=passes_published_check, last_bin_closed=False),
}


class GroupRows(NamedTuple):
    """Columns of PREDICTIONS of one part, dataset, method and definition, without those that identify the group."""

    key: dict[str, str]  # GROUP and "definition", that of the predictions
    rows: pl.DataFrame

    @property
    def sizes(self) -> dict[str, int]:
        """Return the number of queries and of requests."""
        return {"n_queries": self.rows["query_id"].n_unique(), "n_requests": self.rows.height}


@dataclass(frozen=True)
class PredictionGroup:
    """All predictions of one part and dataset by one method, under one definition."""

    key: dict[str, str]  # GROUP and "definition"
    n_labels: int
    rows: pl.DataFrame  # columns of PREDICTIONS, by position

    @property
    def definition(self) -> str:
        return self.key["definition"]

    @property
    def where(self) -> str:
        """Return a name of the group for messages."""
        return ", ".join(self.key.values())

    @cached_property
    def repeated_requests(self) -> pl.DataFrame:
        """The per_request_columns with `noise_rate`, `template` and `demonstration_set`, of a part that varies these.

        Under `released` the toolkit's check of probabilities is applied to each noise rate separately, and to all
        templates or demonstration sets together, as in the toolkit. Raises as per_request_columns.
        """
        rows = self.rows
        is_one = rows["noise_rate"].n_unique() == 1  # to part the rows would copy them
        by_noise_rate = [rows] if is_one else rows.partition_by("noise_rate", maintain_order=True)
        return pl.concat(
            per_request_columns(some, self.n_labels, self.definition, self.where).hstack(
                some.select("noise_rate", "template", "demonstration_set")
            )
            for some in by_noise_rate
        )


class MeasuredGroup(NamedTuple):
    """All requests of one dataset by one method, under one definition."""

    key: dict[str, str]  # GROUP and "definition"
    n_labels: int
    requests: pl.DataFrame  # per_request_columns


def require_definition(definition: str) -> DefinitionRules:
    """Return the rules of a definition; raise MetricError for an unknown one."""
    if definition not in DEFINITIONS:
        raise MetricError(f"There is no definition {definition!r}; choose one of {', '.join(DEFINITIONS)}.")
    return DEFINITIONS[definition]


def by_group(
    predictions: pl.LazyFrame | pl.DataFrame,
    columns: Sequence[str | pl.Expr] = MEASURED_COLUMNS,
    parts: Collection[str] | None = None,
) -> Iterator[GroupRows]:
    """Yield columns of one part, dataset, method and definition after the other: one dataset of a part is in memory.

    Args:
        predictions: schema PREDICTIONS; a scan of files is read group by group.
        columns: those that are read besides the columns that identify the group; query_id is one of them.
        parts: those that are wanted; None: all.
    """
    key = [*GROUP, "definition"]
    rows = predictions.lazy().select(*key, *columns)
    names = [name for name in rows.collect_schema().names() if name not in key]
    if parts is not None:
        rows = rows.filter(pl.col("part").is_in([*parts]))
    keys = rows.select(key).unique().sort(key).collect(engine="streaming")
    for in_part in keys.partition_by("suite", "part", "dataset", maintain_order=True):
        suite, part, dataset, _, _ = in_part.row(0)
        of_dataset = rows.filter(suite=suite, part=part, dataset=dataset).collect()  # all groups in one read
        for group_key in in_part.iter_rows(named=True):
            answered = of_dataset.filter(method=group_key["method"], definition=group_key["definition"])
            yield GroupRows(group_key, answered.select(names).rechunk())  # sums would depend on the chunks


def prediction_groups(predictions: pl.DataFrame | GroupRows, definition: str) -> Iterator[PredictionGroup]:
    """Yield each part, dataset and method of PREDICTIONS that `definition` measures, in the order of the table's key.

    Raises MetricError where a dataset has several label spaces.
    """
    rules = require_definition(definition)
    groups = [predictions] if isinstance(predictions, GroupRows) else _groups(predictions)
    for group in groups:
        if group.key["definition"] == rules.predictions:
            key = group.key | {"definition": definition}
            n_labels = _n_labels(group.rows, ", ".join(key.values()))
            # Sorted, so that floating-point sums do not depend on the order of the rows.
            is_sorted = group.rows["position"].is_sorted()
            yield PredictionGroup(key, n_labels, group.rows if is_sorted else group.rows.sort("position").rechunk())


def _groups(predictions: pl.DataFrame) -> list[GroupRows]:
    """Return the predictions of each GROUP and definition; nothing is copied where those of each are neighbours."""
    key = [*GROUP, "definition"]
    is_new = predictions.select(pl.any_horizontal(pl.col(name).ne_missing(pl.col(name).shift()) for name in key))
    starts = is_new.to_series().arg_true()
    names = [tuple(map(str, row)) for row in predictions.select(key)[starts].iter_rows()]
    if len({*names}) < len(names):
        parts = predictions.partition_by(key, as_dict=True)
        groups = {tuple(map(str, values)): rows for values, rows in parts.items()}
    else:
        edges = pairwise([*starts.to_list(), predictions.height])
        groups = {name: predictions[start:end] for name, (start, end) in zip(names, edges, strict=True)}
    return [GroupRows(dict(zip(key, name, strict=True)), groups[name].rechunk()) for name in sorted(groups)]


def measured_groups(predictions: pl.DataFrame | GroupRows, definition: str) -> Iterator[MeasuredGroup]:
    """Yield prediction_groups with their per_request_columns; predictions are of classification parts."""
    for group in prediction_groups(predictions, definition):
        yield MeasuredGroup(
            group.key, group.n_labels, per_request_columns(group.rows, group.n_labels, definition, group.where)
        )


def label_matrix(predictions: pl.DataFrame, n_labels: int, definition: str, where: str) -> pl.DataFrame:
    """Return label_probs as one Float64 column a label: p0, p1, ...

    Raises MetricError for rows that `definition` does not accept.
    """
    check = require_definition(definition).check
    require_label_space(predictions["label_probs"], n_labels, where)
    matrix = predictions.select(pl.col("label_probs").list.get(i).alias(f"p{i}") for i in range(n_labels))
    require_finite(matrix, where)
    if check is None:
        require_distributions(matrix, where)
    return matrix


def per_request_columns(
    predictions: pl.DataFrame, n_labels: int, definition: str, where: str, *, softmaxed: bool | None = None
) -> pl.DataFrame:
    """Return one row a request: query_id, gold, pred, correct, true_label_prob, squared_error, confidence and bin.

    The bin is null for a request in no bin. The label probabilities are in the columns p0, p1, ...

    Args:
        predictions: columns query_id, gold and label_probs (List[f64] of n_labels), of one dataset and method.
        where: name of the rows, for messages.
        softmaxed: whether the definition takes the softmax of label probabilities; None: these are all rows, and tell.

    Raises:
        MetricError: rows that `definition` does not accept, or gold labels outside the label space.
    """
    rules = require_definition(definition)
    matrix = label_matrix(predictions, n_labels, definition, where)
    require_gold(predictions["gold"], n_labels, where)
    if softmaxed is None:
        softmaxed = rules.check is not None and not rules.check(matrix)
    if softmaxed:
        matrix = softmax_of_rows(matrix)

    labels = matrix.columns
    confidence, gold, pred = pl.col("confidence"), pl.col("gold"), pl.col("pred")
    # coalesce takes the first value that is not null, hence the first of equally probable labels, as in the toolkit.
    most_probable = pl.coalesce(pl.when(pl.col(name) == confidence).then(i) for i, name in enumerate(labels))
    of_gold = pl.coalesce(pl.when(gold == i).then(pl.col(name)) for i, name in enumerate(labels))
    errors = ((pl.col(name) - (gold == i).cast(pl.Float64)).pow(2) for i, name in enumerate(labels))
    return (
        predictions.select("query_id", "gold")
        .hstack(matrix)
        .with_columns(confidence=pl.max_horizontal(labels), true_label_prob=of_gold, squared_error=sum_in_order(errors))
        .with_columns(
            pred=most_probable.cast(pl.Int64),
            bin=confidence_bin(confidence, last_bin_closed=rules.last_bin_closed),
        )
        .with_columns(correct=pred == gold)
    )


def _n_labels(rows: pl.DataFrame, where: str) -> int:
    size = pl.col("n_labels") if "n_labels" in rows.columns else pl.col("label_names").list.len()
    sizes = rows.select(size.unique().sort()).to_series().to_list()
    if len(sizes) != 1:
        raise MetricError(f"{where}: a dataset has one label space, but label_names have {sizes} entries.")
    return int(sizes[0])
