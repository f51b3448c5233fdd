"""Group predictions by part, dataset, method and definition, and measure each group once, for all tables of a run.

The module also decomposes Brier score and log loss into the loss from miscalibration and the remaining loss:

Brier score = reliability - resolution + uncertainty, and log loss = calibration + refinement. Requests are grouped by
predicted label and by the ten confidence bins of the calibration error, and

    reliability  is the mean squared distance between a group's mean label probabilities and its label frequencies,
    calibration  the mean Kullback-Leibler divergence of these frequencies from these probabilities, in nats,
    uncertainty  the Brier score of predicting the overall label frequencies for every request,
    resolution   reliability + uncertainty - Brier score, and
    refinement   log loss - calibration: the log loss that would remain if all groups were calibrated.

The sums are therefore exact, and differences between probabilities within a group count in resolution and refinement.

Label frequencies of few requests differ from probabilities by chance, which makes plain estimates of reliability and
calibration too large. The jackknife over queries removes this bias, so both are around 0 for a calibrated model and can
be negative. A group with requests of a single query gives no information about calibration and counts as calibrated.
Intervals are value -+ t x standard error, from the same jackknife.

Sources: Murphy 1973, "A new vector partition of the probability score"; Bröcker 2009, "Reliability, sufficiency, and
the decomposition of proper scores", for scores other than Brier's. For forecasts of few values and one request a query,
reliability and uncertainty are those of Ferro & Fricker 2012, "A bias-corrected decomposition of the Brier score".
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import polars as pl
from scipy.special import rel_entr

from evaluator.arrays import Floats, Ints
from evaluator.config import Definition
from evaluator.errors import MetricError
from evaluator.metrics.classification import (
    DEFINITIONS,
    METRICS,
    N_BINS,
    Measured,
    jackknife,
    metric_values,
    per_request_columns,
    statistic_sums,
)
from evaluator.metrics.guessing import guesses
from evaluator.schemas import GROUP_METRICS, LABEL_SPACES, LABEL_SPACES_KEY, PREDICTIONS

Divergence = Callable[[Floats, Floats], Floats]
"""Takes the sums [..., n_labels] of label probabilities and of one-hot true labels over the requests of a group;
returns the group's contribution to the sum of divergences, [...]."""

SCORE_PARTS = (
    "brier_reliability",
    "brier_resolution",
    "brier_uncertainty",
    "log_loss_calibration",
    "log_loss_refinement",
)


def score_parts(requests: pl.DataFrame, n_labels: int) -> dict[str, Measured]:
    """Return SCORE_PARTS with bias corrected and standard errors, both by a jackknife over queries.

    Args:
        requests: per_request_columns of one dataset and method.
        n_labels: size of the label space.

    Where the log loss is infinite, its calibration is infinite and its refinement undefined (NaN).
    """
    probs = requests.select(f"p{label}" for label in range(n_labels)).to_numpy()
    true = np.eye(n_labels)[requests["gold"].to_numpy()]
    losses = requests.select(0.0 - pl.col("true_label_prob").log()).to_series().to_numpy()
    query = np.unique(requests["query_id"].to_numpy(), return_inverse=True)[1]
    n_queries = int(query.max()) + 1

    # Every quantity below is an array [1 + n_queries, ...]: over all requests, then without each query in turn.
    def left_out(total: Floats, falls: Floats) -> Floats:
        """Return a total, then the total without each query; `falls` are the decreases, [n_queries, ...]."""
        return np.concatenate([total[None], total - falls]) if n_queries > 1 else total[None]

    def sums(per_request: Floats) -> Floats:
        by_query = np.zeros((n_queries, *per_request.shape[1:]))
        np.add.at(by_query, query, per_request)
        return left_out(by_query.sum(axis=0), by_query)

    def divergence_of(groups: list[tuple[Ints, Floats]], divergence: Divergence) -> Floats:
        """Return the mean divergence over requests; omitting a query changes only the groups with its requests."""
        total, falls = np.zeros(()), np.zeros(n_queries)
        for queries, by_query in groups:
            of_group = divergence(*np.split(by_query.sum(axis=0), 2))
            falls[queries] += of_group - divergence(*np.split(_sums_without_one(by_query), 2, axis=1))
            total = total + of_group
        return left_out(total, falls) / n

    n = sums(np.ones(len(query)))
    closed_bin = pl.col("bin").fill_null(N_BINS - 1)  # a confidence of exactly 1 is in the last bin
    group = requests.select(pl.col("pred") * N_BINS + closed_bin).to_series().to_numpy()
    groups = _groups(np.hstack([probs, true]), query, group)
    brier = sums(((probs - true) ** 2).sum(axis=1)) / n
    reliability = divergence_of(groups, lambda probs, true: ((probs - true) ** 2).sum(axis=-1) / true.sum(axis=-1))
    uncertainty = 1 - ((sums(true) / n[:, None]) ** 2).sum(axis=1)
    calibration, refinement = np.array([math.inf]), np.array([math.nan])
    if np.isfinite(losses).all():
        calibration = divergence_of(groups, lambda probs, true: rel_entr(true, probs).sum(axis=-1))
        refinement = sums(losses) / n - calibration
    parts = (reliability, reliability + uncertainty - brier, uncertainty, calibration, refinement)
    measured = {}
    for name, (value, *without_one) in zip(SCORE_PARTS, parts, strict=True):
        # Subtract the jackknife bias; unlike the score itself, a part has no limits.
        error, bias = jackknife(value, np.array(without_one))
        value -= bias or 0.0
        measured[name] = Measured(float(value), error, n_queries - 1, "symmetric", lowest=-math.inf, highest=math.inf)
    return measured


def _groups(columns: Floats, query: Ints, group: Ints) -> list[tuple[Ints, Floats]]:
    """Return the queries of each group, and the sum of the columns over each of its queries, [queries, 2 * n_labels].

    Groups with requests of a single query are left out: they count as calibrated.
    """
    rows = pl.DataFrame(columns).with_columns(group=group, query=query)
    # maintain_order, because otherwise the last digit of a sum varies from run to run.
    sums = rows.group_by("group", "query", maintain_order=True).sum().sort("group", "query")
    by_group = (part.drop("group") for part in sums.partition_by("group") if part.height > 1)
    return [(part["query"].to_numpy(), part.drop("query").to_numpy()) for part in by_group]


def _sums_without_one(rows: Floats) -> Floats:
    """Return for each row the sum of all other rows.

    The sum is not a subtraction from the total, which would lose the digits of tiny probabilities.
    """
    before, after = np.zeros_like(rows), np.zeros_like(rows)
    before[1:] = np.cumsum(rows[:-1], axis=0)
    after[:-1] = np.cumsum(rows[:0:-1], axis=0)[::-1]
    return before + after


GROUP = ["suite", "part", "dataset", "method"]
"""Columns that identify a group of predictions with one value of each metric."""

VARIED = ("noise_rate", "template", "demonstration_set")
"""Columns that a part can vary."""

_ROWS = [name for name in PREDICTIONS if name not in (*GROUP, "definition", "prompt_id", "label_names")]
_PROMPT = pl.when(pl.col("prompt_id").is_not_null()).then(pl.col("prompt_id").hash()).alias("prompt_id")
"""Hash of the prompt id: metrics only need to know whether two prompts of a query differ."""
_GOLD_TEXT = pl.col("label_names").list.get(pl.col("gold"), null_on_oob=True).hash().alias("gold_text")
"""Hash of the true label's name."""


@dataclass(frozen=True)
class PredictionGroup:
    """All predictions of one method on one dataset of one part, under one definition."""

    key: dict[str, str]  # values of GROUP and "definition"
    label_names: list[str]
    # Columns of PREDICTIONS that are not in `key`, without label_names, sorted by position; prompt_id is a hash. With
    # gold_text where label names differ between rows.
    rows: pl.DataFrame

    @property
    def definition(self) -> str:
        return self.key["definition"]

    @property
    def n_labels(self) -> int:
        return len(self.label_names)

    @property
    def where(self) -> str:
        """Return the name of the group in error messages."""
        return ", ".join(self.key.values())

    @property
    def sizes(self) -> dict[str, int]:
        """Return the number of queries and of requests."""
        return {"n_queries": self.rows["query_id"].n_unique(), "n_requests": self.rows.height}

    @cached_property
    def requests(self) -> pl.DataFrame:
        """Return per_request_columns of the rows; raise as per_request_columns does."""
        return per_request_columns(self.rows, self.n_labels, self.definition, self.where)

    @cached_property
    def metrics(self) -> dict[str, Measured]:
        """Return METRICS of the requests."""
        return metric_values(self.requests, self.n_labels, METRICS)

    @cached_property
    def repeated_requests(self) -> pl.DataFrame:
        """Return per_request_columns with VARIED, for a part that varies one of them; raise as per_request_columns.

        Under `released` the check of probabilities is applied to each noise rate separately, and to all templates or
        demonstration sets together, as in the toolkit.
        """
        if self.rows["noise_rate"].n_unique() == 1:
            return self.requests.hstack(self.rows.select(VARIED))
        return pl.concat(
            per_request_columns(rows, self.n_labels, self.definition, self.where).hstack(rows.select(VARIED))
            for rows in self.rows.partition_by("noise_rate", maintain_order=True)
        )


def prediction_groups(predictions: pl.LazyFrame | pl.DataFrame) -> Iterator[PredictionGroup]:
    """Yield the predictions of each part, dataset and method, sorted by these, under each definition.

    Predictions of definition "released" are measured under "released" and "published", other predictions under their
    own definition. A scan of files is read dataset by dataset, so that only one dataset is in memory.

    Args:
        predictions: schema PREDICTIONS.

    Raises MetricError where the label spaces of a dataset differ in size.
    """
    rows = predictions.lazy()
    for (suite, part, dataset), spaces in label_spaces_table(rows).group_by(LABEL_SPACES_KEY, maintain_order=True):
        sizes = spaces["label_names"].list.len().unique().sort().to_list()
        if len(sizes) != 1:
            where = f"{suite}, {part}, {dataset}"
            raise MetricError(f"{where}: a dataset has one label space, but label_names have {sizes} entries.")
        of_dataset = rows.filter(suite=suite, part=part, dataset=dataset)
        names = spaces["label_names"][0].to_list()
        is_by_place = names == [f"option {place}" for place in range(1, len(names) + 1)]
        columns = ["method", "definition", *_ROWS, _PROMPT, *[_GOLD_TEXT] * is_by_place]
        answers = of_dataset.select(columns).collect()
        for method, predicted in answers.select("method", "definition").unique().sort("method", "definition").rows():
            # Sorted and in one chunk, because floating-point sums depend on the order of rows and on chunks.
            of_method = answers.filter(method=method, definition=predicted).drop("method", "definition")
            of_method = of_method.sort("position").rechunk()
            for definition, rules in DEFINITIONS.items():
                if rules.predictions == predicted:
                    key = {"suite": suite, "part": part, "dataset": dataset, "method": method, "definition": definition}
                    yield PredictionGroup(key, names, of_method)


def label_spaces_table(predictions: pl.LazyFrame | pl.DataFrame) -> pl.DataFrame:
    """Return the label space of each suite, part and dataset: LABEL_SPACES, sorted by its key.

    Where label names differ between rows but not in their number, the labels are named by position: option 1, option
    2, ... A dataset whose label spaces differ in size has several rows.

    Args:
        predictions: schema PREDICTIONS.
    """
    rows = predictions.lazy().select(LABEL_SPACES.names()).unique().sort(LABEL_SPACES_KEY).collect(engine="streaming")
    n_spaces, size = pl.len().over(LABEL_SPACES_KEY), pl.col("label_names").list.len()
    differ = (n_spaces > 1) & (size.n_unique().over(LABEL_SPACES_KEY) == 1)
    places = pl.int_ranges(1, size + 1).list.eval(pl.format("option {}", pl.element()))
    named = rows.with_columns(label_names=pl.when(differ).then(places).otherwise("label_names"))
    return named.unique(maintain_order=True)


Measure = Callable[[PredictionGroup], dict[str, Measured]]
"""Returns the metrics of one group of predictions, by name."""


class Reading(NamedTuple):
    """The unit and the meaning of a diagnostic's value, for readers of a report."""

    unit: str
    meaning: str  # what a higher value, or its sign, means


@dataclass(frozen=True, kw_only=True)
class Diagnostic:
    """A measure of one part besides the classification metrics, under every definition except "published"."""

    part: str
    measure: Measure
    metric: str = ""  # name of the headline metric; empty if there is none
    title: str = ""  # title of the headline metric
    lower_is_better: bool = False
    readings: Mapping[Definition, Reading] = field(default_factory=dict)  # reading of the headline metric
    titles: Mapping[str, str] = field(default_factory=dict)  # titles of other metrics, by name
    varies: str | None = None  # column of schemas.GROUP_METRICS that the part varies


@dataclass(frozen=True)
class MeasuredGroup:
    """The measured values of one group for all tables of a run, without its predictions."""

    key: Mapping[str, str]  # values of GROUP and "definition"
    n_labels: int
    sizes: Mapping[str, int]  # n_queries and n_requests
    measured: dict[str, Measured]  # metrics and diagnostics by name
    variations: list[pl.DataFrame]  # GROUP_METRICS: METRICS at each noise rate, template or demonstration set
    # None in a part without classification metrics:
    guesses: Mapping[str, object] | None = None  # guessing.GUESSES
    bins: pl.DataFrame | None = None  # columns bin, n_requests, and the sums of confidence and correct
    confusion: pl.DataFrame | None = None  # columns gold, pred, n_requests; only pairs that occur
    queries: pl.DataFrame | None = None  # columns query_id, and means over its requests of correct and true_label_prob


def measured_groups(
    predictions: pl.LazyFrame | pl.DataFrame,
    parts: Collection[str] | None = None,
    diagnostics: Iterable[Diagnostic] = (),
    further: Callable[[PredictionGroup], None] | None = None,
) -> list[MeasuredGroup]:
    """Measure every group of predictions once.

    Args:
        predictions: schema PREDICTIONS; a scan of files is read dataset by dataset.
        parts: names of the parts with classification metrics; None: all parts.
        diagnostics: diagnostics of any parts; a group is measured by the diagnostics of its part.
        further: called with every group, for tables of a suite.

    Raises MetricError where no group is measured, or a definition does not accept a row.
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
    diagnosed = MeasuredGroup(group.key, group.n_labels, group.sizes, measured, variations)
    if not is_classification:
        return diagnosed
    requests, n_requests = group.requests, pl.len().alias("n_requests")
    # maintain_order, because otherwise the last digit of a sum varies from run to run.
    by_bin, by_query = (requests.group_by(name, maintain_order=True) for name in ("bin", "query_id"))
    return replace(
        diagnosed,
        measured=group.metrics | score_parts(requests, diagnosed.n_labels) | measured,
        guesses=guesses(requests.hstack(group.rows.select("^gold_text$")), diagnosed.n_labels),
        bins=by_bin.agg(n_requests, pl.col("confidence", "correct").sum()),
        confusion=requests.group_by("gold", "pred").agg(n_requests),
        queries=by_query.agg(pl.col("correct").cast(pl.Float64).mean(), pl.col("true_label_prob").mean()),
    )


def _variations(group: PredictionGroup, varied: str) -> Iterator[pl.DataFrame]:
    """Yield a frame of GROUP_METRICS for each metric of METRICS, with a row for each level of the column `varied`."""
    sums = statistic_sums(group.repeated_requests, group.n_labels, METRICS, [varied])
    shared = {column: pl.lit(value) for column, value in group.key.items()}
    levels = {column: pl.lit(None) for column in VARIED} | {varied: pl.col(varied)}
    for name, metric in METRICS.items():
        measured = {"metric": pl.lit(name), "value": metric.value(group.n_labels), "n_requests": pl.col("n")}
        yield sums.select(**shared, **levels, **measured).select(GROUP_METRICS.names()).cast(GROUP_METRICS)
