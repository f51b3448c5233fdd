"""Compute 95% intervals, clustered by query: requests of one query share its text and are not independent.

Where both queries and templates are random samples, both are clusters (two_way_standard_error).

All intervals are deterministic: no resampling, no seed. An interval generalises to other queries of the same kind with
the same model and protocol (Miller 2024, "Adding Error Bars to Evals", section on clustering).

Two kinds of metrics are biased on finitely many requests, and have special intervals (reduced_bias):

- Sums of gaps in bins. Even where a model is perfectly calibrated, accuracy and mean confidence of a bin differ, and
  the calibration error adds up the absolute values of these gaps. Its value on n requests, as the papers define it, is
  therefore too high on average, possibly by many standard errors. docs/coverage.md has simulations.
- Distances from a limit, such as a divergence from 0. At the limit the derivative of a distance is 0: the distance is a
  quadratic form of sampling errors, which move it in one direction only. There the value is biased, and its standard
  error does not measure its error.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from scipy.special import chndtrinc, gammaincinv, ndtr, stdtridf, stdtrit

from evaluator.arrays import Bools, Floats, Ints
from evaluator.schemas import MEAN_OVER_DATASETS, METRICS_KEY

CONFIDENCE_LEVEL = 0.95
NO_VARIATION = 1e-12
"""A standard error below this is rounding error: no two queries differ."""

FEW = 3
"""Largest number of wrong (or right) answers for which the limit on that side is that of a Poisson count."""

Z = 1.959963984540054
"""Normal quantile of a two-sided 95% interval."""

EXTRA_VARIANCE = 0.25
"""Variance that is added to the variance of the sum of all gaps, in squared requests. The count of few wrong answers is
skewed: without the addition, one wrong answer of 32 would refute a calibrated confidence of 0.997, although one or more
occur in 9% of such samples."""

STEPS = 60  # steps of bisection, enough for all digits

UPPER = (1 + CONFIDENCE_LEVEL) / 2
"""Quantile of the upper end of an interval."""

FAR = 12.0
"""A distance of at least this many times its bias is far from the limit: the jackknife interval suffices."""

_ENDS = dict.fromkeys(("reduced_bias", "ci_low", "ci_high"), pl.Float64())
ESTIMATES = pl.Schema({**dict.fromkeys(METRICS_KEY, pl.String()), **_ENDS})

Row = Mapping[str, Any]
"""A row with METRICS_KEY and the fields of classification.Measured."""


def two_way_standard_error(
    cells: Floats, attributes: Sequence[Sequence[int]] | None = None, *, template_weight: float = 1.0
) -> tuple[float | None, float]:
    """Return the standard error and degrees of freedom of the mean of all cells, with queries and templates as samples.

    Args:
        cells: [Q, T], one number a query and template, each query answered with each template.
        attributes: where templates are rows of an orthogonal array, the values of each template's attributes,
            [T][attributes]. The sample then consists of attribute values: a mean over the nine rows of L9 is a mean
            over three values of each of four attributes, with four times the variance of a mean over nine independent
            templates.
        template_weight: factor of V_template; 1 + T where the mean is compared with one more template.

    V = V_query + V_template - V_both x number of attributes, but not below V_query or the V_template of one attribute,
    where V_query is the variance of the queries' means divided by the number of queries, V_template the sum over
    attributes of the variance of their values' means divided by the number of values, and V_both the residual variance
    of the cells divided by Q x T. Without V_both, the noise of single answers would be counted more than once.
    Templates that are no orthogonal array have one attribute, the template itself. The standard error is None with a
    single query or a single value of an attribute.

    Sources: Cameron, Gelbach & Miller 2011, "Robust inference with multiway clustering", and Owen & Eckles 2012,
    "Bootstrapping data arrays of arbitrary order", for the sum. Their last term also includes 1/T of the
    variance between queries; it is excluded here, so that V is unbiased on complete tables, as in a two-way analysis of
    variance with random effects. Degrees of freedom: after Cochran 1964, "Approximate significance levels of the
    Behrens-Fisher test" (_joint_degrees). V_template, noise included, has the t of one attribute's values, because a
    single attribute, or chance, may be its only cause: with two templates t is 12.7.
    """
    query_means, template_means = cells.mean(axis=1), cells.mean(axis=0)
    n_queries, n_templates = cells.shape
    variances, freedom = attribute_variances(template_means, attributes)
    if n_queries < 2 or n_templates < 2 or not freedom.all():
        return None, 0.0
    by_query, by_both = query_means.var(ddof=1) / n_queries, _noise(cells)
    # Every attribute's variance and the queries' variance contain the noise of single answers; V must contain it once.
    n_attributes = template_weight * len(variances)
    by_values = template_weight * float(variances.sum()) - (n_attributes - 1) * by_both
    by_template = max(by_values, float(variances.max()))
    by_query_alone = max(by_query - by_both, 0.0)
    variance = max(by_query_alone + by_template, by_query)
    return math.sqrt(variance), _joint_degrees(by_query_alone, n_queries - 1, by_template, freedom.min())


def _joint_degrees(by_query: float, degrees: float, by_template: float, of_templates: float) -> float:
    """Return the degrees of freedom at which t^2 is the mean of the t^2 of both variances, weighted by the variances.

    Cochran 1964 weights t in the same way, not t^2. Satterthwaite's degrees of freedom for the sum would be too many
    where few templates agree by chance: their variance is then underestimated and has little weight.
    """
    ends = sorted((float(degrees), float(of_templates)))
    if not by_query + by_template > 0:
        return ends[0]
    squares = stdtrit([degrees, of_templates], UPPER) ** 2
    t = math.sqrt((by_query * squares[0] + by_template * squares[1]) / (by_query + by_template))
    joint = float(stdtridf(UPPER, t))
    return min(max(joint, ends[0]), ends[1]) if math.isfinite(joint) else ends[1]


def _noise(cells: Floats) -> float:
    """Return the residual variance of cells [Q, T] divided by their number: the part of V from single answers."""
    residuals = cells - cells.mean(axis=1)[:, None] - cells.mean(axis=0) + cells.mean()
    n_queries, n_templates = cells.shape
    return float((residuals**2).sum() / ((n_queries - 1) * (n_templates - 1)) / cells.size)


def attribute_variances(template_means: Floats, attributes: Sequence[Sequence[int]] | None) -> tuple[Floats, Ints]:
    """Return the variance of the mean over templates from each attribute's values, and its degrees of freedom.

    Args:
        template_means: [T], the mean over queries for each template.
        attributes: as for two_way_standard_error.

    Returns two arrays [attributes].
    """
    table = np.arange(len(template_means))[:, None] if attributes is None else np.asarray(attributes)
    variances, degrees = [], []
    for values in table.T:
        means = np.array([template_means[values == value].mean() for value in np.unique(values)])
        variances.append(means.var(ddof=1) / len(means) if len(means) > 1 else 0.0)
        degrees.append(len(means) - 1)
    return np.array(variances), np.array(degrees)


def total_standard_error(
    standard_error: float, degrees_of_freedom: float, cells: Floats, attributes: Sequence[Sequence[int]] | None = None
) -> tuple[float | None, float]:
    """Return the standard error and degrees of freedom of a mean with one template, drawn at random from templates.

    Args:
        standard_error, degrees_of_freedom: of the mean over queries with its template held fixed.
        cells: [Q, T], answers of queries with each of several templates, from which the variance of templates is
            estimated.
        attributes: as for two_way_standard_error.

    The variance between templates is the sum over attributes of the variance of their values, minus the noise of single
    answers; it is added to the variance over queries. Degrees of freedom are Cochran's (_joint_degrees), with
    Satterthwaite's for all attributes together. The standard error is None with a single query or template.
    """
    n_queries, n_templates = cells.shape
    if min(n_queries, n_templates) < 2:
        return None, 0.0
    variances, freedom = attribute_variances(cells.mean(axis=0), attributes)
    # The variance of a mean over k values, times k, is the variance of a single value.
    of_one = (freedom + 1) * variances
    by_template = max(float((of_one - (freedom + 1) * _noise(cells)).sum()), 0.0)
    # Satterthwaite's degrees of freedom of the sum over attributes.
    scatter = float((of_one**2 / freedom).sum())
    of_templates = float(of_one.sum()) ** 2 / scatter if scatter else float(freedom.min())
    joint = _joint_degrees(standard_error**2, degrees_of_freedom, by_template, of_templates)
    return math.sqrt(standard_error**2 + by_template), joint


def with_intervals(rows: pl.DataFrame) -> pl.DataFrame:
    """Add ci_low and ci_high to rows with the columns of classification.Measured and n_queries.

    All forms use t at degrees_of_freedom, lie between `lowest` and `highest` and contain the value:

    - "score" is Wilson's interval for the effective sample size n* = value (1 - value) / SE^2, with values scaled to
      [0, 1]; near the limits it keeps its coverage, and the symmetric interval does not. With at most FEW effective
      answers on the side of a limit, x = n* share or n* (1 - share), Wilson's end on that side is too close to the
      value. It is then moved out to the expectation with which a Poisson count reaches x with probability 5%, if that
      is farther out (Brown, Cai & DasGupta 2001, "Interval estimation for a binomial proportion", section 4.1.1).
    - "log" is value x exp(-+ t x SE / value), the symmetric form for the logarithm of a value above 0, for means of
      skewed losses, which are below their expectation more often than above.
    - all other forms are "symmetric": value -+ t x SE, cut at these limits.

    Where no two queries differ, SE = 0 does not mean certainty: all forms are then Wilson's with n* = n_queries, the
    widest interval for numbers between the limits with this mean, whose variance is at most value (1 - value).
    The interval is null for a single query, for a value that is not finite, and for an SE of 0 with an infinite limit.

    Sources: Franco et al. 2019, "Comparative study of confidence intervals for proportions in complex sample surveys",
    who recommend Wilson's form with n*; Kott 2017, "A note on Wilson coverage intervals for proportions estimated from
    complex samples".
    """
    names = ("value", "standard_error", "degrees_of_freedom", "n_queries", "lowest", "highest")
    value, se, degrees, n_queries, lowest, highest = (rows[name].cast(pl.Float64).to_numpy() for name in names)
    form, span, varies = rows["interval"].to_numpy(), highest - lowest, se >= NO_VARIATION
    # A single query has 0 degrees of freedom, for which t has no quantile; its interval is null in any case.
    t = stdtrit(np.maximum(degrees, 1), UPPER)
    with np.errstate(all="ignore"):  # every form is computed for all rows, also where it is undefined
        # Wilson's interval is for shares: scale the value to [0, 1].
        share = (value - lowest) / span
        spread = np.maximum(share * (1 - share), 0.0)
        n = np.where(varies, spread / (se / span) ** 2, n_queries)
        # n* is 0 where macro-F1 is 1 but depends on one query of a label. No term divides by n*: the result is [0, 1].
        centre = (n * share + t**2 / 2) / (n + t**2)
        half_width = t * np.sqrt(n * spread + t**2 / 4) / (n + t**2)
        score_low = lowest + span * np.fmin(centre - half_width, _poisson_limits(n * share, n))
        score_high = lowest + span * np.fmax(centre + half_width, 1 - _poisson_limits(n * (1 - share), n))
        use_log, reach = (form == "log") & (value > 0), t * se
        t_low = np.where(use_log, value * np.exp(-reach / value), value - reach)
        t_high = np.where(use_log, value * np.exp(reach / value), value + reach)
        use_score = (form == "score") | ~varies
        low, high = np.where(use_score, score_low, t_low), np.where(use_score, score_high, t_high)
        is_defined = ~np.isnan(se) & np.isfinite(value) & (varies | np.isfinite(span))
        low = np.where(is_defined, np.fmin(np.clip(low, lowest, highest), value), np.nan)
        high = np.where(is_defined, np.fmax(np.clip(high, lowest, highest), value), np.nan)
    return rows.with_columns(pl.Series("ci_low", low).fill_nan(None), pl.Series("ci_high", high).fill_nan(None))


def mean_over_queries(column: str, form: str, limits: tuple[float, float]) -> dict[str, pl.Expr]:
    """Return expressions for the columns that with_intervals reads, for the mean of a column over independent queries.

    Args:
        column: name of a column with one row a query.
        form: classification.IntervalForm.
        limits: the lowest and the highest possible value.
    """
    value, n = pl.col(column).cast(pl.Float64), pl.len().cast(pl.Float64)
    return {
        "value": value.mean(),
        "standard_error": value.std() / n.sqrt(),
        "degrees_of_freedom": n - 1,
        "n_queries": n,
        "interval": pl.lit(form),
        "lowest": pl.lit(limits[0]),
        "highest": pl.lit(limits[1]),
    }


def mean_of_intervals(independent: pl.Expr | bool = True) -> dict[str, pl.Expr]:
    """Return expressions for value, ci_low and ci_high of the plain mean over the D rows of a group.

    For independent rows, the distance from the mean to a limit is the root sum of squares of the rows' distances,
    divided by D: with symmetric intervals this is SE = sqrt(sum SE^2)/D, and one-sided intervals stay one-sided. For
    dependent rows it is the mean of the rows' distances, an upper bound under any dependence: SE <= sum SE/D. The
    limits are null where a row has no interval.

    Source: Zou & Donner 2008, "Construction of confidence limits about effect measures" (their MOVER for a sum).
    """
    value, low, high = pl.col("value"), pl.col("ci_low"), pl.col("ci_high")
    has_intervals = low.is_not_null().all()
    distance_down, distance_up = (
        pl.when(independent).then(distance.pow(2).sum().sqrt() / pl.len()).otherwise(distance.mean())
        for distance in (value - low, high - value)
    )
    return {
        "value": value.mean(),
        "ci_low": pl.when(has_intervals).then(value.mean() - distance_down),
        "ci_high": pl.when(has_intervals).then(value.mean() + distance_up),
    }


def mean_over_datasets(
    datasets: pl.DataFrame, key: Sequence[str], *, independent: pl.Expr | bool = True, **more: pl.Expr
) -> pl.DataFrame:
    """Return the means over datasets by mean_of_intervals, one row for each value of the key without `dataset`.

    Args:
        datasets: rows of single datasets.
        key: key columns of the table, `dataset` among them.
        independent: whether the datasets of a mean are independent; questions about the same inputs are not.
        more: further columns of a mean.
    """
    by = [name for name in key if name != "dataset"]
    means = datasets.sort("dataset").group_by(by, maintain_order=True).agg(**mean_of_intervals(independent), **more)
    return means.with_columns(dataset=pl.lit(MEAN_OVER_DATASETS))


def _poisson_limits(counts: Floats, n: Floats) -> Floats:
    """Return the share of n at which a Poisson count reaches `counts` with probability 5%; NaN for 0 and above FEW."""
    is_few = (counts > 0) & (counts <= FEW)
    limits = gammaincinv(np.where(is_few, counts, 1.0), 1 - CONFIDENCE_LEVEL)
    return np.asarray(np.where(is_few, limits, np.nan) / np.maximum(n, 1e-300))


class Bins(NamedTuple):
    """Confidence bins: arrays [bins] for one dataset, or [rows, bins], padded with bins of share 0."""

    share: Floats  # share of all requests
    accuracy: Floats
    confidence: Floats  # mean confidence
    n: Floats  # effective number of independent requests
    extra: Floats  # the bin's part of EXTRA_VARIANCE, in the unit of the squared calibration error


class CalibrationErrors(NamedTuple):
    """Estimates of true calibration errors, arrays [rows]."""

    reduced_bias: Floats
    ci_low: Floats
    ci_high: Floats


def calibration_errors(bins: Bins) -> CalibrationErrors:
    """Estimate the sum over bins of share x |accuracy - mean confidence| on infinitely many requests, for all rows.

    For given true gaps, the absolute value of an observed gap has the mean and variance of a folded normal variable
    (Leone, Nelson & Nottingham 1961). Observed gaps are shrunk towards 0, all by the same number of standard errors;
    the estimates are the sums of the shrunken gaps at which, with the shrunken gaps as true gaps,

    - `reduced_bias`: the folded-normal means add up to the observed sum. 0 where a calibrated model is expected to show
      an observed sum at least as large.
    - `ci_low`: the observed sum is the 97.5% quantile of the gamma distribution with the total mean and variance.

    `ci_high` is the observed sum plus the root sum of squares of the distances to the farther end of Wilson's interval
    in each bin (Zou & Donner 2008). A larger bound is not needed: whatever the signs of the true gaps, the observed sum
    is at least the sum of the observed gaps with these signs, which is unbiased.

    Kumar, Liang & Ma 2019, "Verified Uncertainty Calibration", debias the sum of squared gaps; the papers measured here
    add up absolute gaps. Their bootstrap for absolute gaps, and twice the observed sum minus its expectation, remove
    less than half of the bias of a calibrated model.
    """
    share, confidence = np.maximum(bins.share, 1e-300), bins.confidence
    difference = bins.accuracy - confidence
    gaps = bins.share * np.abs(difference)
    observed = gaps.sum(axis=1)
    n = np.maximum(bins.n, 1e-300)
    scale = np.maximum(_deviation(bins.share, confidence, n), 1e-12)
    largest = (gaps / scale).max(axis=1)

    def shrunk(threshold: Floats) -> tuple[Floats, Floats, Floats]:
        """Return the sum of the gaps shrunk by `threshold` standard errors; mean and variance of the observed sum."""
        true = np.maximum(gaps - threshold[:, None] * scale, 0.0)
        true[threshold >= largest] = 0.0  # exactly 0, without rounding errors
        accuracy = np.clip(confidence + np.sign(difference) * true / share, 0.0, 1.0)
        mean, variance = _folded_normal(true, _deviation(bins.share, accuracy, n))
        return true.sum(axis=1), mean.sum(axis=1), variance.sum(axis=1) + bins.extra.sum(axis=1)

    def reaches(threshold: Floats) -> Bools:
        """Return whether the 97.5% quantile of the gamma distribution is at least the observed sum."""
        _, mean, variance = shrunk(threshold)
        mean = np.maximum(mean, 1e-300)
        return np.asarray(variance / mean * gammaincinv(mean**2 / variance, UPPER) >= observed)

    reduced_bias = shrunk(_last(lambda threshold: shrunk(threshold)[1] >= observed, largest))[0]
    low = shrunk(_last(reaches, largest))[0]
    return CalibrationErrors(reduced_bias, low, np.minimum(observed + _distance_up(bins, difference, n), 1.0))


def _distance_up(bins: Bins, difference: Floats, n: Floats) -> Floats:
    """Return the distance from the observed sum of gaps to the upper end of its interval, [rows]."""
    # The distance in each bin from the gap to the farther end of Wilson's interval.
    spread = Z * np.sqrt(n * bins.accuracy * (1 - bins.accuracy) + Z**2 / 4)
    ends = ((n * bins.accuracy + Z**2 / 2 + sign * spread) / (n + Z**2) for sign in (-1, 1))
    low, high = (np.abs(end - bins.confidence) for end in ends)
    distances = bins.share * (np.maximum(low, high) - np.abs(difference))
    # The share of requests in each bin is a random quantity as well: its part of the variance.
    gaps = bins.share * np.abs(difference)
    of_shares = (gaps * np.abs(difference)).sum(axis=1) - gaps.sum(axis=1) ** 2
    total = np.maximum(bins.n.sum(axis=1), 1e-300)
    return np.asarray(np.sqrt((distances**2).sum(axis=1) + Z**2 * np.maximum(of_shares, 0.0) / total))


def _deviation(share: Floats, accuracy: Floats, n: Floats) -> Floats:
    """Return the standard error of each bin's gap x share."""
    return np.asarray(share * np.sqrt(accuracy * (1 - accuracy) / n))


def _folded_normal(mean: Floats, deviation: Floats) -> tuple[Floats, Floats]:
    """Return the mean and variance of |x| for normal x with this mean and standard deviation."""
    ratio = np.minimum(mean / np.maximum(deviation, 1e-300), 1e3)
    folded = deviation * np.sqrt(2 / np.pi) * np.exp(-(ratio**2) / 2) + mean * (2 * ndtr(ratio) - 1)
    return folded, np.maximum(mean**2 + deviation**2 - folded**2, 0.0)


def _last(is_reached: Callable[[Floats], Bools], largest: Floats) -> Floats:
    """Return the largest threshold up to `largest` for which `is_reached` is true, by bisection, [rows]."""
    low, high = np.zeros_like(largest), largest
    at_end = is_reached(largest)
    for _ in range(STEPS):
        middle = (low + high) / 2
        reached = is_reached(middle)
        low, high = np.where(reached, middle, low), np.where(reached, high, middle)
    return np.where(at_end, largest, low)


def reduced_bias(rows: Iterable[Row]) -> pl.DataFrame:
    """Estimate every metric of the interval forms "bins" and "distance": ESTIMATES, with the means over datasets.

    The biases of datasets have the same sign and do not cancel in a mean as errors do, so a mean over datasets is
    estimated from all of its datasets at once. A metric that cannot be estimated (_is_estimable) has no row, and
    neither has a mean over datasets with such a metric.
    """
    # Collect the rows of each dataset, and of each mean over datasets, in order of dataset.
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in sorted(rows, key=lambda row: row["dataset"]):
        for dataset in (row["dataset"], MEAN_OVER_DATASETS):
            groups.setdefault(tuple({**row, "dataset": dataset}[name] for name in METRICS_KEY), []).append(row)
    tables = [ESTIMATES.to_frame()]
    for form, estimate in (("bins", _calibration), ("distance", _distances)):
        of_form = {key: members for key, members in groups.items() if members[0]["interval"] == form}
        estimable = {key: members for key, members in of_form.items() if all(map(_is_estimable, members))}
        if estimable:
            keys = pl.DataFrame([*estimable], schema=METRICS_KEY, orient="row")
            estimates = zip(_ENDS, estimate([*estimable.values()]), strict=True)
            tables.append(keys.with_columns(**dict(estimates)))
    return pl.concat(tables)


def with_estimates(table: pl.DataFrame, estimates: pl.DataFrame) -> pl.DataFrame:
    """Add `reduced_bias` to rows with METRICS_KEY and an interval; an estimate's interval replaces the row's interval.

    Where the value lies outside the new interval, the interval is extended to it.

    Args:
        table: rows with METRICS_KEY, value, ci_low and ci_high.
        estimates: ESTIMATES, as reduced_bias returns.
    """
    joined = table.join(estimates, on=METRICS_KEY, how="left", suffix="_reduced_bias", maintain_order="left")
    low = pl.col("ci_low_reduced_bias").clip(upper_bound=pl.col("value"))
    high = pl.col("ci_high_reduced_bias").clip(lower_bound=pl.col("value"))
    extended = joined.with_columns(ci_low=pl.coalesce(low, "ci_low"), ci_high=pl.coalesce(high, "ci_high"))
    return extended.drop("ci_low_reduced_bias", "ci_high_reduced_bias")


def _is_estimable(row: Row) -> bool:
    """Return whether value and standard error are finite, with two or more queries and, for "bins", a non-empty bin."""
    has_bins = row["interval"] != "bins" or row["bins"].share.size > 0
    error = row["standard_error"]
    is_defined = error is not None and bool(np.isfinite([row["value"], error]).all())
    # A distance with a standard error of 0 cannot be estimated: its interval would have no width.
    return has_bins and is_defined and (row["interval"] == "bins" or error > NO_VARIATION)


def _calibration(groups: Sequence[Sequence[Row]]) -> tuple[Floats, Floats, Floats]:
    """Estimate the calibration errors of all groups, where a group is one dataset or all datasets of a mean, [groups].

    A mean over n datasets is a sum over the bins of all datasets, with every share divided by n.
    """
    joined = []
    for group in groups:
        n = len(group)
        bins = [row["bins"]._replace(share=row["bins"].share / n, extra=row["bins"].extra / n**2) for row in group]
        joined.append([np.concatenate(arrays) for arrays in zip(*bins, strict=True)])
    # Pad the rows with empty bins to the same length.
    width = max(len(share) for share, *_ in joined)
    fields = zip(*joined, strict=True)
    padded = (np.array([np.pad(array, (0, width - len(array))) for array in field]) for field in fields)
    return calibration_errors(Bins(*padded))


def _distances(groups: Sequence[Sequence[Row]]) -> tuple[Floats, Floats, Floats]:
    """Estimate distances of metrics from the limit that their bias points away from, [groups] as in _calibration."""
    names = ("value", "bias", "standard_error", "degrees_of_freedom", "bias_freedom", "lowest", "highest")
    columns = []
    for group in groups:
        numbers = np.array([[row[name] for name in names] for row in group], dtype=np.float64)
        value, bias, error, degrees, freedom, lowest, highest = numbers.T
        # A divergence (no upper limit) is measured from its lower limit 0, an entropy from its upper limit.
        sign, limit = (1.0, lowest) if np.isinf(highest[0]) else (-1.0, highest)
        single = distances(sign * (value - limit), sign * bias, error, degrees, freedom)
        estimate, low, high = single.reduced_bias.mean(), single.ci_low.mean(), single.ci_high.mean()
        if len(group) > 1:  # a mean over datasets: root sum of squares of the standard errors
            reach = Z * float(np.sqrt((single.standard_error**2).sum())) / len(group)
            low, high = estimate - reach, estimate + reach
        distance = np.clip([estimate, low, high], 0.0, highest.mean() - lowest.mean())
        ends = limit.mean() + sign * distance
        columns.append([ends[0], ends[1:].min(), ends[1:].max()])
    estimates, low, high = np.transpose(columns)
    return estimates, low, high


class Distances(NamedTuple):
    """Estimates of true distances, arrays [n]."""

    reduced_bias: Floats  # unbiased up to 1/Q^2, so negative in about half of the samples whose true distance is 0
    standard_error: Floats  # standard error of `reduced_bias`, valid also where the true distance is 0
    ci_low: Floats  # 0 or more
    ci_high: Floats


def freedom(errors: Floats, scale: Floats) -> float:
    """Return the degrees of freedom of a quadratic form of mean errors (Satterthwaite 1946).

    The form is the sum over labels of (mean error over queries)^2 / scale.

    Args:
        errors: [queries, labels]; their expectations are 0 where the true distance is 0.
        scale: [labels], 0 or more.
    """
    if len(errors) < 2:
        return 1.0
    # Labels of scale 0 have no probability and no queries: leave them out.
    present = scale > 0
    scaled = np.cov(errors[:, present], rowvar=False) / np.sqrt(np.outer(scale[present], scale[present]))
    scaled = np.atleast_2d(scaled)
    squares = float((scaled**2).sum())
    return float(np.trace(scaled)) ** 2 / squares if squares > 0 else 1.0


def distances(value: Floats, bias: Floats, standard_error: Floats, degrees: Floats, bias_freedom: Floats) -> Distances:
    """Return distances with reduced bias and their 95% intervals, each the union of two intervals:

    - reduced_bias -+ t x jackknife standard error, which is correct far from the limit, and is used alone for values of
      FAR x bias or more;
    - the interval of the noncentrality of a chi-squared variable with `bias_freedom` degrees of freedom, scaled so that
      it exceeds its noncentrality by `bias` on average. It is correct at the limit, where the value is such a quadratic
      form.

    Args:
        value: [n], distances on finitely many requests, 0 or more.
        bias, standard_error, degrees: [n], bias, standard error and its degrees of freedom of the value, by a jackknife
            over queries.
        bias_freedom: [n], degrees of freedom of the distance at the limit, as `freedom` returns.
    """
    reduced_bias = value - bias
    scale = np.maximum(bias, 1e-300) / bias_freedom
    reach = stdtrit(np.maximum(degrees, 1), UPPER) * standard_error
    is_near = (bias > 0) & (value < FAR * bias)
    quantile = np.where(is_near, value, scale) / scale
    low, high = (scale * chndtrinc(quantile, bias_freedom, p) for p in (UPPER, 1 - UPPER))
    return Distances(
        reduced_bias,
        np.maximum(standard_error, np.where(bias > 0, scale * np.sqrt(2 * bias_freedom), 0.0)),
        np.maximum(np.where(is_near, np.minimum(low, reduced_bias - reach), reduced_bias - reach), 0.0),
        np.maximum(np.where(is_near, np.maximum(high, reduced_bias + reach), reduced_bias + reach), 0.0),
    )
