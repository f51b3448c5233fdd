"""Turn predictions into the per-request columns that metrics are computed from, under one definition."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import polars as pl

from evaluator.errors import MetricError
from evaluator.metrics.base import sum_in_order
from evaluator.metrics.calibration_error import confidence_bin
from evaluator.metrics.checks import require_distributions, require_finite, require_gold, require_label_space
from evaluator.metrics.toolkit_formulas import published_probabilities, released_probabilities
from evaluator.schemas import PREDICTIONS

GROUP = ["suite", "part", "dataset", "method"]
"""Columns that identify a group of predictions with one value of each metric."""

MEASURED_COLUMNS = (
    "position",
    "query_id",
    "gold",
    "label_probs",
    pl.when(pl.col("prompt_id").is_not_null()).then(pl.col("prompt_id").hash()).alias("prompt_id"),
    pl.col("label_names").list.len().alias("n_labels"),
)
"""Columns of PREDICTIONS that the metrics of classification read. Of prompts only whether those of a query differ
matters, so that ids are numbers, and of label spaces their size."""

ROWS_TOGETHER = 65_536
"""Rows of a part and dataset up to which all its groups are read at once."""

DIAGNOSED_COLUMNS = tuple(name for name in PREDICTIONS if name not in (*GROUP, "definition", "prompt_id"))
"""Columns of PREDICTIONS that diagnostics read."""


@dataclass(frozen=True, kw_only=True)
class DefinitionRules:
    """How a definition measures label probabilities."""

    predictions: str  # `definition` of the predictions that it measures
    last_bin_closed: bool  # whether ECE counts a confidence of exactly 1
    transform: Callable[[pl.DataFrame], pl.DataFrame] | None
    """Transforms the matrix of label probabilities; None where its rows must be distributions already."""


DEFINITIONS: dict[str, DefinitionRules] = {
    "paper": DefinitionRules(predictions="paper", transform=None, last_bin_closed=True),
    "released": DefinitionRules(predictions="released", transform=released_probabilities, last_bin_closed=False),
    "published": DefinitionRules(predictions="released", transform=published_probabilities, last_bin_closed=False),
}


class PredictionGroup(NamedTuple):
    """All predictions of one part and dataset by one method, under one definition."""

    key: dict[str, str]  # GROUP and "definition"
    n_labels: int
    rows: pl.DataFrame  # PREDICTIONS, or those of its columns that by_group reads; by position

    @property
    def definition(self) -> str:
        return self.key["definition"]

    @property
    def where(self) -> str:
        """Return a name of the group for messages."""
        return ", ".join(self.key.values())


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
) -> Iterator[pl.DataFrame]:
    """Yield columns of one part, dataset, method and definition after the other: only those are in memory.

    Args:
        predictions: schema PREDICTIONS; a scan of files is read group by group.
        columns: those that are read besides the columns that identify the group.
        parts: those that are wanted; None: all.
    """
    key = [*GROUP, "definition"]
    rows = predictions.lazy().select(*key, *columns)
    names = [name for name in rows.collect_schema().names() if name not in key]
    if parts is not None:
        rows = rows.filter(pl.col("part").is_in([*parts]))
    place = key[:3]
    sizes = rows.group_by(key).agg(pl.len()).sort(key).collect(engine="streaming")
    for of_place in sizes.partition_by(place, maintain_order=True):
        # Each read takes time, so that small groups are read together.
        is_small = of_place["len"].sum() <= ROWS_TOGETHER
        for groups in [of_place] if is_small else of_place.iter_slices(1):
            shared = groups.select(place if is_small else key).row(0, named=True)
            found = rows.filter(**shared).select(*(name for name in key if name not in shared), *names).collect()
            found = found.rechunk()  # sums would depend on the chunks
            for *values, _ in groups.iter_rows():
                yield _one_group(found, dict(zip(key, values, strict=True)))


def _one_group(rows: pl.DataFrame, key: Mapping[str, str]) -> pl.DataFrame:
    """Return the rows of one group. As literals, the columns of its key take no memory."""
    left = {name: value for name, value in key.items() if name in rows.columns}
    group = (rows.filter(**left).rechunk() if left else rows).drop(left)
    return group.select(*(pl.lit(value).alias(name) for name, value in key.items()), pl.all())


def prediction_groups(predictions: pl.DataFrame, definition: str) -> Iterator[PredictionGroup]:
    """Yield each part, dataset and method of PREDICTIONS that `definition` measures, in the order of the table's key.

    Raises MetricError where a dataset has several label spaces.
    """
    rules = require_definition(definition)
    groups = {key[:-1]: rows for key, rows in _groups(predictions).items() if key[-1] == rules.predictions}
    for values in sorted(groups):
        key = dict(zip(GROUP, values, strict=True)) | {"definition": definition}
        # Sorted, so that floating-point sums do not depend on the order of the rows.
        rows = groups[values]
        rows = rows if rows["position"].is_sorted() else rows.sort("position")
        yield PredictionGroup(key, _n_labels(rows, ", ".join(key.values())), rows)


def _groups(predictions: pl.DataFrame) -> dict[tuple[str, ...], pl.DataFrame]:
    """Return the predictions of each GROUP and definition; nothing is copied where those of each are neighbours."""
    key = [*GROUP, "definition"]
    is_new = predictions.select(pl.any_horizontal(pl.col(name).ne_missing(pl.col(name).shift()) for name in key))
    starts = is_new.to_series().arg_true()
    names = [tuple(map(str, row)) for row in predictions.select(key)[starts].iter_rows()]
    if len({*names}) < len(names):
        parts = predictions.partition_by(key, as_dict=True)
        return {tuple(map(str, values)): rows for values, rows in parts.items()}
    edges = pairwise([*starts.to_list(), predictions.height])
    return {name: predictions[start:end] for name, (start, end) in zip(names, edges, strict=True)}


def measured_groups(predictions: pl.DataFrame, definition: str) -> Iterator[MeasuredGroup]:
    """Yield prediction_groups with their per_request_columns; predictions are of classification parts."""
    for group in prediction_groups(predictions, definition):
        requests = per_request_columns(group.rows, group.n_labels, definition, group.where)
        yield MeasuredGroup(group.key, group.n_labels, requests)


def label_matrix(predictions: pl.DataFrame, n_labels: int, definition: str, where: str) -> pl.DataFrame:
    """Return label_probs as one Float64 column a label: p0, p1, ...

    Raises MetricError for rows that `definition` does not accept.
    """
    rules = require_definition(definition)
    require_label_space(predictions["label_probs"], n_labels, where)
    matrix = predictions.select(pl.col("label_probs").list.get(i).alias(f"p{i}") for i in range(n_labels))
    require_finite(matrix, where)
    if rules.transform is None:
        require_distributions(matrix, where)
    return matrix


def per_request_columns(predictions: pl.DataFrame, n_labels: int, definition: str, where: str) -> pl.DataFrame:
    """Return one row a request: query_id, gold, pred, correct, true_label_prob, squared_error, confidence and bin.

    The bin is null for a request in no bin. The label probabilities are in the columns p0, p1, ...

    Args:
        predictions: columns query_id, gold and label_probs (List[f64] of n_labels), of one dataset and method.
        where: name of the rows, for messages.

    Raises:
        MetricError: rows that `definition` does not accept, or gold labels outside the label space.
    """
    rules = require_definition(definition)
    matrix = label_matrix(predictions, n_labels, definition, where)
    require_gold(predictions["gold"], n_labels, where)
    if rules.transform is not None:
        matrix = rules.transform(matrix)

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


def repeated_requests(group: PredictionGroup) -> pl.DataFrame:
    """Return per_request_columns with `noise_rate`, `template` and `demonstration_set`, for a part that varies these.

    Under `released` the toolkit's check of probabilities is applied to each noise rate separately, and to all templates
    or demonstration sets together, as in the toolkit.

    Raises as per_request_columns.
    """
    by_noise_rate = group.rows.partition_by("noise_rate", maintain_order=True)
    return pl.concat(
        per_request_columns(rows, group.n_labels, group.definition, group.where).hstack(
            rows.select("noise_rate", "template", "demonstration_set")
        )
        for rows in by_noise_rate
    )


def _n_labels(rows: pl.DataFrame, where: str) -> int:
    n_labels = rows["n_labels"] if "n_labels" in rows.columns else rows["label_names"].list.len()
    sizes = n_labels.unique().sort().to_list()
    if len(sizes) != 1:
        raise MetricError(f"{where}: a dataset has one label space, but label_names have {sizes} entries.")
    return int(sizes[0])
