"""Define the classification metrics by their names in the tables, and compute them from label probabilities.

Label probabilities are first turned into one row of columns a request, under one definition (per_request_columns). A
matrix of label probabilities is a frame with one Float64 column a label: p0, p1, ...

The definitions differ because the StaICC toolkit applies softmax to the *whole* matrix as soon as one row fails a
check, so that each row depends on all others. `released` uses the check of version 0.1.1, `published` the older check
with which the published tables must have been computed. `paper` and `floored` take the probabilities unchanged.

A metric is a function of per-request statistics that are summed. The same expression therefore gives the value over all
requests, over all requests but those of one query, and over any other group, so a value and its standard error always
follow the same formula.
"""

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from evaluator.arrays import Floats
from evaluator.config import Definition
from evaluator.errors import MetricError, unknown_name
from evaluator.metrics.intervals import EXTRA_VARIANCE, Bins

IntervalForm = Literal["score", "symmetric", "log", "bins", "distance"]
"""Shape of the 95% interval (intervals.py). "score": Wilson's score interval; "symmetric": value -+ t x standard error;
"log": the symmetric interval of the value's logarithm. For values that are biased on finitely many requests: "bins", a
sum of gaps in confidence bins, and "distance", a distance from one of the metric's limits."""

Limits = tuple[float, float]
"""The lowest and the highest possible value of a metric; infinite where it is unbounded."""

N_REQUESTS = {"n": pl.lit(1.0)}
"""Statistic that counts requests."""


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A classification metric; both of its functions take the number of labels.

    `statistics` returns expressions over the columns of per_request_columns, by name; metrics that use the same name
    share the sum. `value` returns an expression over these sums, which must not change when all sums are doubled.
    """

    statistics: Callable[[int], dict[str, pl.Expr]]
    value: Callable[[int], pl.Expr]
    interval: IntervalForm
    limits: Limits = (0.0, 1.0)


def mean_metric(
    name: str, of: pl.Expr | None = None, interval: IntervalForm = "score", limits: Limits = (0.0, 1.0)
) -> Metric:
    """Return the metric that is the mean over requests of the expression `of`, by default of the column `name`."""
    return Metric(
        statistics=lambda _n_labels: N_REQUESTS | {name: pl.col(name) if of is None else of},
        value=lambda _n_labels: pl.col(name) / pl.col("n"),
        interval=interval,
        limits=limits,
    )


def sum_in_order(terms: Iterable[pl.Expr]) -> pl.Expr:
    """Add the terms of each row from the first to the last; for selections, not for aggregations.

    `polars.sum_horizontal` adds in an order that can change from call to call, and with it the last digit. A nested
    expression a + b + c + ... takes Polars seconds for a thousand terms, and more than four times as long for twice as
    many.
    """
    first, *others = terms
    return pl.fold(first, operator.add, others, return_dtype=pl.Float64) if others else first


class Measured(NamedTuple):
    """The value of a metric for one group of requests, with everything that its interval depends on."""

    value: float
    standard_error: float | None  # None with a single query
    degrees_of_freedom: float  # degrees of freedom of the standard error
    interval: IntervalForm
    lowest: float  # limits of the metric
    highest: float
    bias: float | None = None  # jackknife estimate of the value's bias
    bias_freedom: float | None = None  # "distance" only: degrees of freedom of the distance if the true distance is 0
    bins: Bins | None = None  # "bins" only: the confidence bins
    sizes: Mapping[str, int] | None = None  # n_queries and n_requests of the value; None: those of the group
    over: str = "queries"  # sampled factors that the interval covers; templates are fixed unless named


def jackknife(value: float, without_one: Floats) -> tuple[float | None, float | None]:
    """Return the jackknife standard error and bias of a value from the values [Q] without each query in turn.

    Both are None with a single query; the bias is NaN or infinite where a value without one query is.

    SE^2 = (Q - 1)/Q x sum over queries of (value without the query - mean of these values)^2; infinite where a value
    without one query is not finite, because the metric then depends on that query alone. For a mean with equally many
    requests a query this is the clustered standard error of Miller 2024. Source: SAS/STAT, PROC SURVEYMEANS, "Jackknife
    Method", with a query as the sampling unit and no strata. Bias = (Q - 1) x (mean of the values without one query -
    value): the part of a smooth function's bias that shrinks as 1/Q (Quenouille 1956).
    """
    n_queries = len(without_one)
    if n_queries < 2:
        return None, None
    is_finite = np.isfinite(without_one).all()
    error = float(np.std(without_one)) * math.sqrt(n_queries - 1) if is_finite else math.inf
    return error, (n_queries - 1) * (float(without_one.mean()) - value)


def jackknifed(value: float, without_one: Floats, form: IntervalForm, limits: Limits) -> Measured:
    """Return a value with its jackknife standard error and bias, from the values [n_queries] that omit one query."""
    error, bias = jackknife(value, without_one)
    return Measured(value, error, len(without_one) - 1, form, *limits, bias=bias)


def statistic_sums(requests: pl.DataFrame, n_labels: int, metrics: Mapping[str, Metric], by: list[str]) -> pl.DataFrame:
    """Sum the statistics of the metrics over the requests of each group; return the sums with the columns `by`."""
    statistics = {
        name: statistic.cast(pl.Float64)
        for metric in metrics.values()
        for name, statistic in metric.statistics(n_labels).items()
    }
    # A constant in an aggregation would count once a group, so constants become columns with one value a request.
    constants = {name: statistic for name, statistic in statistics.items() if not statistic.meta.root_names()}
    sums = {name: (pl.col(name) if name in constants else statistic).sum() for name, statistic in statistics.items()}
    return requests.with_columns(**constants).group_by(by, maintain_order=True).agg(**sums)


def metric_values(requests: pl.DataFrame, n_labels: int, metrics: Mapping[str, Metric]) -> dict[str, Measured]:
    """Return each metric by name, with its standard error and bias by a jackknife that leaves out each query in turn.

    Args:
        requests: query_id and the columns that the metrics' statistics read, such as per_request_columns.
        metrics: metrics by name.
    """
    per_query = statistic_sums(requests, n_labels, metrics, ["query_id"])
    totals = per_query.drop("query_id").sum()
    values = [metric.value(n_labels).alias(name) for name, metric in metrics.items()]
    # Each metric of the sums over all requests, and of the sums without each query in turn.
    over_all = totals.select(values).row(0)
    left_out = per_query.select(pl.lit(totals[name]) - pl.col(name) for name in totals.columns).select(values)
    measured = {}
    for (name, metric), value, without_one in zip(metrics.items(), over_all, left_out, strict=True):
        bins = bins_of(requests) if metric.interval == "bins" else None
        measured[name] = jackknifed(value, without_one.to_numpy(), metric.interval, metric.limits)._replace(bins=bins)
    return measured


def bins_of(requests: pl.DataFrame) -> Bins:
    """Return the non-empty bins of per-request columns; a request in no bin only counts in the total of requests.

    Requests of one query are not independent. With r the gap of a request minus the mean gap of its bin, the effective
    number of n requests is n x sum r^2 / sum over queries of (sum of r)^2 (a design effect, Kish 1965), limited to
    between one and two a query.
    """
    in_bins = requests.drop_nulls("bin").group_by("bin", maintain_order=True)
    bins = in_bins.agg(pl.len(), pl.col("correct", "confidence").sum()).sort("bin")
    gap, has_bin = pl.col("correct").cast(pl.Float64) - pl.col("confidence"), pl.col("bin").is_not_null()
    # Residuals r of requests, and their sums within queries, give the effective number of requests.
    residual = pl.when(has_bin).then(gap - gap.mean().over("bin")).otherwise(0.0)
    residuals = requests.select("query_id", residual=residual)
    in_query = residuals.group_by("query_id", maintain_order=True).agg(pl.col("residual").sum())["residual"].to_numpy()
    n_requests, n_queries = requests.height, len(in_query)
    clustered, squares = float(in_query @ in_query), float((residuals["residual"] ** 2).sum())
    worth = n_requests * squares / clustered if clustered > 1e-12 * n_requests else n_queries
    size = bins["len"].to_numpy()
    share = size / n_requests
    n = share * np.clip(worth, n_queries, 2 * n_queries)
    extra = EXTRA_VARIANCE * share * (share / n) ** 2
    return Bins(share, bins["correct"].to_numpy() / size, bins["confidence"].to_numpy() / size, n, extra)


N_BINS = 10
BIN_EDGES = [b / N_BINS for b in range(N_BINS + 1)]

SUM_TOLERANCE = 1e-5
"""Largest deviation of a row's sum from 1; a float32 softmax over a label space stays well below it."""


def passes_released_check(matrix: pl.DataFrame) -> bool:
    """Return whether version 0.1.1 leaves a matrix unchanged: all entries lie in [0, 1] and each row sums to exactly 1.

    The sum is taken from left to right in double precision, as by Python's `sum` up to Python 3.11. Since 3.12 `sum`
    compensates for rounding, so that the toolkit's numbers can depend on the Python version.

    Source: StaICC 0.1.1, util/functional.py, probability_matrix_check.
    """
    sums_to_one = matrix.select((sum_in_order(map(pl.col, matrix.columns)) == 1).all()).item()
    return bool(sums_to_one) and passes_published_check(matrix)


def passes_published_check(matrix: pl.DataFrame) -> bool:
    """Return whether all entries lie in [0, 1]; sums are not checked.

    Source: StaICC 0.1.1, util/functional.py, the check that is commented out next to each metric.
    """
    return bool(matrix.select(pl.all_horizontal(pl.all().is_between(0, 1).all())).item())


@dataclass(frozen=True, kw_only=True)
class DefinitionRules:
    """The rules by which a definition measures label probabilities."""

    predictions: str  # value of `definition` in the predictions to measure
    check: Callable[[pl.DataFrame], bool] | None
    """Returns whether a matrix of label probabilities is used unchanged; otherwise softmax is applied to each row.
    None: rows must be probability distributions."""


DEFINITIONS: dict[str, DefinitionRules] = {
    "paper": DefinitionRules(predictions="paper", check=None),
    "released": DefinitionRules(predictions="released", check=passes_released_check),
    "published": DefinitionRules(predictions="released", check=passes_published_check),
    "floored": DefinitionRules(predictions="floored", check=None),
}


def per_request_columns(predictions: pl.DataFrame, n_labels: int, definition: str, where: str) -> pl.DataFrame:
    """Return one row a request: query_id, gold, pred, correct, true_label_prob, squared_error, confidence and bin.

    The label probabilities that the definition measures are in further columns p0, p1, ... The bin is null for a
    confidence outside all bins (confidence_bin).

    Args:
        predictions: columns query_id, gold and label_probs (List[f64] of n_labels), all of one dataset and method.
        n_labels: size of the label space.
        definition: key of DEFINITIONS.
        where: name of the predictions in error messages.

    Raises:
        MetricError: rows that `definition` does not accept, or gold labels outside the label space.
    """
    rules = _rules(definition)
    matrix = label_matrix(predictions, n_labels, definition, where)
    require_gold(predictions["gold"], n_labels, where)
    if rules.check and not rules.check(matrix):
        # The same operations in the same order as in the toolkit: a rounding error moves a confidence across an edge.
        exponentials = matrix.select((pl.all() - pl.max_horizontal(pl.all())).exp())
        matrix = exponentials.select(pl.all() / sum_in_order(map(pl.col, matrix.columns)))

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
        .with_columns(pred=most_probable.cast(pl.Int64), bin=confidence_bin(confidence))
        .with_columns(correct=pred == gold)
    )


def confidence_bin(confidence: pl.Expr, *, is_last_closed: bool = False) -> pl.Expr:
    """Return the index b in 0..9 of the bin [b / 10, (b + 1) / 10) that contains a confidence.

    The bins of Cho & Inoue 2025 (below table 2) and of their code are half-open, so that a confidence of exactly 1 is
    in no bin: its index is null, and in the ECE the request counts in the number of requests N only. With
    `is_last_closed`, our variant, it is in the last bin. Guo et al. 2017 use (b / 10, (b + 1) / 10] instead.
    """
    inner = pl.sum_horizontal((confidence >= edge).cast(pl.Int64) for edge in BIN_EDGES[1:-1])
    return inner if is_last_closed else pl.when(confidence < BIN_EDGES[-1]).then(inner)


def label_matrix(predictions: pl.DataFrame, n_labels: int, definition: str, where: str) -> pl.DataFrame:
    """Return label_probs as one Float64 column a label: p0, p1, ...

    Raises MetricError for an unknown definition, for predictions without rows, for a row whose length is not n_labels,
    for entries that are not finite, and under "paper" and "floored" for a row with a negative entry or a sum that
    differs from 1 by more than SUM_TOLERANCE.
    """
    check, label_probs = _rules(definition).check, predictions["label_probs"]
    if not len(label_probs):
        raise MetricError(f"{where}: there are no requests to measure.")
    lengths = f"{where}: label_probs must hold {n_labels} numbers a row, one a label"
    _refuse((label_probs.list.len() != n_labels).fill_null(True), label_probs, lengths)
    matrix = predictions.select(pl.col("label_probs").list.get(i).alias(f"p{i}") for i in range(n_labels))
    is_finite = matrix.select(pl.all_horizontal(pl.all().is_finite().fill_null(False))).to_series()
    _refuse(~is_finite, matrix, f"{where}: label_probs must be finite numbers")
    if check is None:
        sums_to_one = (pl.sum_horizontal(pl.all()) - 1).abs() <= SUM_TOLERANCE
        is_distribution = matrix.select(sums_to_one & (pl.min_horizontal(pl.all()) >= 0)).to_series()
        _refuse(
            ~is_distribution,
            matrix,
            f"{where}: label_probs must be probability distributions, none negative and each row summing to 1 within "
            f"{SUM_TOLERANCE:g} (definitions 'released' and 'published' accept other rows and apply softmax to them)",
        )
    return matrix


def require_gold(gold: pl.Series, n_labels: int, where: str) -> None:
    """Raise MetricError for gold labels that are missing or outside the label space."""
    is_label = gold.is_between(0, n_labels - 1).fill_null(False)
    _refuse(~is_label, gold, f"{where}: gold must be a label's index from 0 to {n_labels - 1}")


def _rules(definition: str) -> DefinitionRules:
    if not isinstance(definition, str) or definition not in DEFINITIONS:
        raise MetricError(unknown_name("There is no definition", str(definition), DEFINITIONS))
    return DEFINITIONS[definition]


def _refuse(bad: pl.Series, values: pl.Series | pl.DataFrame, rule: str) -> None:
    """Raise MetricError with the number of bad rows and the first of them; do nothing where no row is bad."""
    first = bad.arg_max()
    if first is not None and bad[first]:
        shown = list(values.row(first)) if isinstance(values, pl.DataFrame) else values.to_list()[first]
        raise MetricError(f"{rule}; {bad.sum()} of {len(bad)} are not, the first at row {first}: {shown}.")


ACCURACY = mean_metric("correct")
"""The share of requests whose most probable label is the true one; ties go to the first label.

Source: Cho & Inoue 2025 (StaICC), section 3.2.
"""

TRUE_LABEL_PROBABILITY = mean_metric("true_label_prob")
"""The mean probability of the true label; 1 / n_labels for uniform predictions.

It is a mean of probabilities, not the exponential of a mean logarithm. Source: Cho & Inoue 2025 (StaICC), section 3.2.
"""


def _f1_statistics(n_labels: int) -> dict[str, pl.Expr]:
    statistics = dict[str, pl.Expr]()
    for label in range(n_labels):
        is_gold, is_pred = pl.col("gold") == label, pl.col("pred") == label
        both = is_gold & is_pred
        statistics |= {f"true_positive_{label}": both, f"predicted_{label}": is_pred, f"gold_{label}": is_gold}
    return statistics


def _label_f1(label: int) -> pl.Expr:
    """Return the F1 of a label, 2PR / (P + R) = 2TP / (predicted + gold); 0 where it is neither predicted nor true."""
    predicted_and_gold = pl.col(f"predicted_{label}") + pl.col(f"gold_{label}")
    f1 = 2 * pl.col(f"true_positive_{label}") / predicted_and_gold
    return pl.when(predicted_and_gold > 0).then(f1).otherwise(0.0)


MACRO_F1 = Metric(
    statistics=_f1_statistics,
    value=lambda n_labels: sum_in_order(map(_label_f1, range(n_labels))) / n_labels,
    interval="score",
)
"""The unweighted mean of F1 over all labels of the label space, including labels that no request has (scikit-learn
omits those unless its argument `labels` is given).

Source: Cho & Inoue 2025 (StaICC), section 3.2: the mean of F1, not F1 of mean precision and mean recall.
"""


def _gaps(_n_labels: int) -> dict[str, pl.Expr]:
    gap = pl.col("correct").cast(pl.Float64) - pl.col("confidence")
    return N_REQUESTS | {f"gap_{b}": pl.when(pl.col("bin") == b).then(gap).otherwise(0.0) for b in range(N_BINS)}


EXPECTED_CALIBRATION_ERROR = Metric(
    statistics=_gaps,
    # |B|/N x |accuracy(B) - mean confidence(B)| is |sum over B of (correct - confidence)| / N.
    value=lambda _n_labels: sum_in_order(pl.col(f"gap_{b}").abs() for b in range(N_BINS)) / pl.col("n"),
    interval="bins",
)
"""Expected calibration error (ECE-1): the mean gap between confidence and accuracy, in 10 equal bins of confidence.

Sampling noise biases it upwards: even a perfectly calibrated model has an error above 0 on n requests. The interval and
the estimate of reduced bias are therefore about the error on infinitely many requests (intervals.py).

Source: Cho & Inoue 2025 (StaICC), section 3.2, after Naeini et al. 2015 and Guo et al. 2017.
"""

BRIER_SCORE = mean_metric("squared_error", limits=(0.0, 2.0))
"""The mean over requests of the squared distance between the label probabilities and the one-hot true label: 0 to 2,
and (n_labels - 1) / n_labels for uniform predictions. With two labels it is twice the Brier score of one label's
probability, which scikit-learn's `brier_score_loss` returns unless `scale_by_half=False`. Our metric, not StaICC's.

Under `released` and `published` the formula is the same, on the probabilities that this definition measures.

Source: Brier 1950, "Verification of forecasts expressed in terms of probability", as in scikit-learn's user guide.
"""

LOG_LOSS = mean_metric(
    "log_loss_nats",
    0.0 - pl.col("true_label_prob").log(),  # 0 - log p, because -log(1) would be printed as -0
    interval="log",
    limits=(0.0, math.inf),
)
"""The mean negative log-probability of the true label, in nats; log(n_labels) for uniform predictions. Probabilities
are over the label space. Infinite where a true label has probability 0; scikit-learn's `log_loss` replaces such a 0 by
the smallest step of the dtype instead. Our metric, not StaICC's.

Under `released` and `published` the formula is the same, on the probabilities that this definition measures.

Source: Good 1952, "Rational decisions", the logarithmic score, as in scikit-learn's user guide.
"""

METRICS: dict[str, Metric] = {
    "accuracy": ACCURACY,
    "true_label_probability": TRUE_LABEL_PROBABILITY,
    "macro_f1": MACRO_F1,
    "expected_calibration_error": EXPECTED_CALIBRATION_ERROR,
    "brier_score": BRIER_SCORE,
    "log_loss": LOG_LOSS,
}

STAICC_METRICS = ("accuracy", "true_label_probability", "macro_f1", "expected_calibration_error")
"""The metrics of Cho & Inoue 2025; Brier score and log loss are ours."""

REQUEST_COLUMNS = {"accuracy": "correct", "true_label_probability": "true_label_prob"}
"""Metrics that are means over requests, with the column of per_request_columns that they are the mean of."""


def classification_metrics(label_probs: Any, gold: Any, definition: Definition = "paper") -> dict[str, float]:
    """Compute METRICS of one dataset: StaICC's metrics, the Brier score and the log loss, as in the tables of a run.

    Args:
        label_probs: array-like [n, n_labels] (NumPy, nested lists, a Polars series of lists): a distribution over the
            label space in each row. Under "released" and "published" any finite numbers, as in the toolkit.
        gold: array-like [n] of integers, each an index into the label space.
        definition: "paper" (or "floored", which has the same formulas); "released", the formulas of the StaICC toolkit
            0.1.1; or "published", the formulas of the older version behind its published tables. The docstring of this
            module has the difference.

    Returns:
        accuracy, true_label_probability, macro_f1 and expected_calibration_error, each in [0, 1]; brier_score in
        [0, 2], log_loss in nats.

    Raises:
        MetricError: no rows, inconsistent shapes, gold labels outside the label space, entries that are not finite,
            rows that are not distributions, or an unknown definition.

    Sources: Cho & Inoue 2025 (StaICC), section 3.2; for Brier score and log loss see BRIER_SCORE and LOG_LOSS.
    """
    matrix = "label_probs must be numbers of shape [n, n_labels]"
    indices = "gold must be integers of shape [n], one label index a row"
    probs, labels = _array(label_probs, matrix, np.float64), _array(gold, indices)
    if probs.ndim != 2 or 0 in probs.shape:
        raise MetricError(f"{matrix}, neither of them 0; got {list(probs.shape)}.")
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise MetricError(f"{indices}; got {labels.dtype} of shape {list(labels.shape)}.")
    if len(probs) != len(labels):
        raise MetricError(f"label_probs has {len(probs)} rows and gold has {len(labels)}: the numbers must be equal.")
    columns = {"query_id": np.arange(len(labels)), "gold": labels.astype(np.int64), "label_probs": probs}
    frame, n_labels = pl.DataFrame(columns).cast({"label_probs": pl.List(pl.Float64)}), probs.shape[1]
    requests = per_request_columns(frame, n_labels, definition, definition)
    return {name: measured.value for name, measured in metric_values(requests, n_labels, METRICS).items()}


def _array(values: Any, rule: str, dtype: npt.DTypeLike = None) -> npt.NDArray[Any]:
    """Return values as an array; raise MetricError, whose message begins with `rule`, where this is impossible."""
    try:
        array = np.asarray(values.to_list() if isinstance(values, pl.Series) else values)
        if np.iscomplexobj(array):  # NumPy would drop the imaginary parts
            raise ValueError("complex numbers are none")
        return array if dtype is None else array.astype(dtype, copy=False)
    except (TypeError, ValueError) as error:
        raise MetricError(f"{rule}: {error}.") from error
