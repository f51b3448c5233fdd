"""Group predictions by part, dataset, method and definition, and measure each group once, for all tables of a run."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import polars as pl

from evaluator.errors import MetricError
from evaluator.metrics.base import Measured, metric_values, statistic_sums
from evaluator.metrics.classification import METRICS
from evaluator.metrics.guessing import guesses
from evaluator.metrics.per_request import DEFINITIONS, per_request_columns
from evaluator.metrics.score_decomposition import score_parts
from evaluator.schemas import GROUP_METRICS, LABEL_SPACES, LABEL_SPACES_KEY, PREDICTIONS, Definition

GROUP = ["suite", "part", "dataset", "method"]
"""Columns that identify a group of predictions with one value of each metric."""

VARIED = ("noise_rate", "template", "demonstration_set")
"""Columns that a part can vary."""

_ROWS = [name for name in PREDICTIONS if name not in (*GROUP, "definition", "prompt_id", "label_names")]
_PROMPT = pl.when(pl.col("prompt_id").is_not_null()).then(pl.col("prompt_id").hash()).alias("prompt_id")
"""A number in place of an id: metrics only read whether two prompts of a query differ."""


@dataclass(frozen=True)
class PredictionGroup:
    """All predictions of one part and dataset by one method, under one definition."""

    key: dict[str, str]  # GROUP and "definition"
    label_names: list[str]
    rows: pl.DataFrame  # PREDICTIONS without the columns of `key` and label_names, by position; prompt_id is a hash

    @property
    def definition(self) -> str:
        return self.key["definition"]

    @property
    def n_labels(self) -> int:
        return len(self.label_names)

    @property
    def where(self) -> str:
        """Return a name of the group for messages."""
        return ", ".join(self.key.values())

    @property
    def sizes(self) -> dict[str, int]:
        """Return the number of queries and of requests."""
        return {"n_queries": self.rows["query_id"].n_unique(), "n_requests": self.rows.height}

    @cached_property
    def requests(self) -> pl.DataFrame:
        """The per_request_columns of the rows. Raises as per_request_columns."""
        return per_request_columns(self.rows, self.n_labels, self.definition, self.where)

    @cached_property
    def metrics(self) -> dict[str, Measured]:
        """METRICS of the requests."""
        return metric_values(self.requests, self.n_labels, METRICS)

    @cached_property
    def repeated_requests(self) -> pl.DataFrame:
        """The per_request_columns with `noise_rate`, `template` and `demonstration_set`, of a part that varies these.

        Under `released` the toolkit's check of probabilities is applied to each noise rate separately, and to all
        templates or demonstration sets together, as in the toolkit. Raises as per_request_columns.
        """
        if self.rows["noise_rate"].n_unique() == 1:
            return self.requests.hstack(self.rows.select(VARIED))
        return pl.concat(
            per_request_columns(rows, self.n_labels, self.definition, self.where).hstack(rows.select(VARIED))
            for rows in self.rows.partition_by("noise_rate", maintain_order=True)
        )


def prediction_groups(predictions: pl.LazyFrame | pl.DataFrame) -> Iterator[PredictionGroup]:
    """Yield the predictions of each part, dataset and method, sorted by these, under each definition.

    Predictions of definition "paper" are measured under "paper", those of "released" under "released" and "published".
    A scan of files is read dataset by dataset, so that one dataset is in memory.

    Args:
        predictions: schema PREDICTIONS.

    Raises MetricError where a dataset has several label spaces.
    """
    rows = predictions.lazy()
    for (suite, part, dataset), spaces in label_spaces_table(rows).group_by(LABEL_SPACES_KEY, maintain_order=True):
        sizes = spaces["label_names"].list.len().unique().sort().to_list()
        if len(sizes) != 1:
            where = f"{suite}, {part}, {dataset}"
            raise MetricError(f"{where}: a dataset has one label space, but label_names have {sizes} entries.")
        of_dataset = rows.filter(suite=suite, part=part, dataset=dataset)
        answers = of_dataset.select("method", "definition", *_ROWS, _PROMPT).collect()
        for method, predicted in answers.select("method", "definition").unique().sort("method", "definition").rows():
            # Sorted and in one chunk, because floating-point sums depend on the order of rows and on chunks.
            of_method = answers.filter(method=method, definition=predicted).drop("method", "definition")
            of_method = of_method.sort("position").rechunk()
            for definition, rules in DEFINITIONS.items():
                if rules.predictions == predicted:
                    key = {"suite": suite, "part": part, "dataset": dataset, "method": method, "definition": definition}
                    yield PredictionGroup(key, spaces["label_names"][0].to_list(), of_method)


def label_spaces_table(predictions: pl.LazyFrame | pl.DataFrame) -> pl.DataFrame:
    """Return the label space of each suite, part and dataset: LABEL_SPACES, sorted by its key. Takes PREDICTIONS.

    Labels that differ from row to row, as many in each, are named by their places: option 1, option 2, ...
    """
    rows = predictions.lazy().select(LABEL_SPACES.names()).unique().sort(LABEL_SPACES_KEY).collect(engine="streaming")
    n_spaces, size = pl.len().over(LABEL_SPACES_KEY), pl.col("label_names").list.len()
    differ = (n_spaces > 1) & (size.n_unique().over(LABEL_SPACES_KEY) == 1)
    places = pl.int_ranges(1, size + 1).list.eval(pl.format("option {}", pl.element()))
    named = rows.with_columns(label_names=pl.when(differ).then(places).otherwise("label_names"))
    return named.unique(maintain_order=True)


class Reading(NamedTuple):
    """Unit and direction of a diagnostic's value, for a reader."""

    unit: str
    meaning: str  # what a higher value, or its sign, means


@dataclass(frozen=True, kw_only=True)
class Diagnostic:
    """A measure of one part, other than the classification metrics; under "paper" and "released", never "published"."""

    part: str
    measure: Callable[[PredictionGroup], dict[str, Measured]]
    """Returns metrics by name of the predictions on one dataset by one method, under `paper` or `released`."""

    metric: str = ""  # name of the headline metric; empty without one
    title: str = ""  # of the headline
    lower_is_better: bool = False
    readings: Mapping[Definition, Reading] = field(default_factory=dict)  # of the headline
    titles: Mapping[str, str] = field(default_factory=dict)  # of other metrics
    varies: str | None = None  # column of schemas.GROUP_METRICS that the part varies


@dataclass(frozen=True, kw_only=True)
class MeasuredGroup:
    """All that the tables of a run state about one group, without its predictions."""

    key: Mapping[str, str]  # GROUP and "definition"
    n_labels: int
    sizes: Mapping[str, int]  # n_queries and n_requests
    measured: dict[str, Measured]  # metrics and diagnostics by name
    variations: list[pl.DataFrame]  # GROUP_METRICS: METRICS at each noise rate, template or demonstration set
    # Of classification; None of a part that only diagnostics measure:
    guesses: Mapping[str, object] | None = None  # guessing.GUESSES
    bins: pl.DataFrame | None = None  # bin, n_requests, and sums of confidence and of correct requests
    confusion: pl.DataFrame | None = None  # gold, pred, n_requests; only pairs that occur
    queries: pl.DataFrame | None = None  # query_id, and means over its requests of correct and true_label_prob


def measured_groups(
    predictions: pl.LazyFrame | pl.DataFrame,
    parts: Collection[str] | None = None,
    diagnostics: Iterable[Diagnostic] = (),
    further: Callable[[PredictionGroup], None] | None = None,
) -> list[MeasuredGroup]:
    """Measure every group of predictions once.

    Args:
        predictions: schema PREDICTIONS; a scan of files is read dataset by dataset.
        parts: names of classification parts; None: all are.
        diagnostics: each names the part that it measures, and the column that the part varies.
        further: reads every group as well, for tables of its suite.

    Raises MetricError: no predictions at all, rows that the definition does not accept.
    """
    measures, groups = list(diagnostics), []
    for group in prediction_groups(predictions):
        part = group.key["part"]
        of_part = [each for each in measures if each.part == part and group.definition != "published"]
        is_classification = parts is None or part in parts
        if is_classification or of_part:
            groups.append(_measured(group, of_part, is_classification=is_classification))
        if further:
            further(group)
    if not groups:
        present = predictions.lazy().select(pl.col("definition").unique().sort()).collect().to_series().to_list()
        raise MetricError(
            f"There is nothing to measure: predictions are needed under 'paper' or 'released', got {present}."
        )
    return groups


def _measured(group: PredictionGroup, diagnostics: Iterable[Diagnostic], *, is_classification: bool) -> MeasuredGroup:
    measured = {name: value for each in diagnostics for name, value in each.measure(group).items()}
    varied = {each.varies for each in diagnostics if each.varies}
    variations = [frame for column in varied for frame in _variations(group, column)]
    diagnosed = MeasuredGroup(
        key=group.key, n_labels=group.n_labels, sizes=group.sizes, measured=measured, variations=variations
    )
    if not is_classification:
        return diagnosed
    requests, n_requests = group.requests, pl.len().alias("n_requests")
    # maintain_order, because otherwise the last digit of a sum varies from run to run.
    by_bin, by_query = (requests.group_by(name, maintain_order=True) for name in ("bin", "query_id"))
    return replace(
        diagnosed,
        measured=group.metrics | score_parts(requests, group.n_labels) | measured,
        guesses=guesses(requests, group.n_labels),
        bins=by_bin.agg(n_requests, pl.col("confidence", "correct").sum()),
        confusion=requests.group_by("gold", "pred").agg(n_requests),
        queries=by_query.agg(pl.col("correct").cast(pl.Float64).mean(), pl.col("true_label_prob").mean()),
    )


def _variations(group: PredictionGroup, varied: str) -> Iterator[pl.DataFrame]:
    """Yield a frame of GROUP_METRICS for each metric of METRICS."""
    sums = statistic_sums(group.repeated_requests, group.n_labels, METRICS, [varied])
    shared = {column: pl.lit(value) for column, value in group.key.items()}
    levels = {column: pl.lit(None) for column in VARIED} | {varied: pl.col(varied)}
    for name, metric in METRICS.items():
        measured = {"metric": pl.lit(name), "value": metric.value(group.n_labels), "n_requests": pl.col("n")}
        yield sums.select(**shared, **levels, **measured).select(GROUP_METRICS.names()).cast(GROUP_METRICS)
