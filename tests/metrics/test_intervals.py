"""Intervals: worked examples, a published one, and how often they hold the truth."""

import math
from collections.abc import Sequence
from functools import cache

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest
from scipy import stats

from evaluator.metrics import METRICS
from evaluator.metrics.classification import IntervalForm, Measured, Metric, jackknife, metric_values
from evaluator.metrics.intervals import (
    mean_of_intervals,
    total_standard_error,
    two_way_standard_error,
    with_intervals,
)
from evaluator.schemas import PREDICTIONS
from evaluator.templates.template import ORTHOGONAL_ARRAY
from tests.metrics.measured import metrics_of

MEAN = pl.col("x") / pl.col("n")


def jackknifed(per_query: pl.DataFrame, value: pl.Expr) -> Measured:
    """The value over the sums of the columns, with one row a query."""
    metric = Metric(
        statistics=lambda _: {name: pl.col(name) for name in per_query.columns},
        value=lambda _: value,
        interval="symmetric",
    )
    return metric_values(per_query.with_row_index("query_id"), 2, {"value": metric})["value"]


def interval(
    value: float,
    standard_error: float | None,
    n_queries: int,
    form: IntervalForm = "score",
    limits: tuple[float, float] = (0.0, 1.0),
) -> tuple[float | None, ...]:
    measured = Measured(value, standard_error, n_queries - 1, form, *limits)
    row = pl.DataFrame([measured._asdict() | {"n_queries": n_queries}], schema_overrides={"standard_error": pl.Float64})
    return with_intervals(row).select("ci_low", "ci_high").row(0)


def test_jackknife_of_a_mean_is_its_standard_error() -> None:
    # x = 1, 2, 3, 6: mean 3, sum of squares 4 + 1 + 0 + 9 = 14, variance 14/3, SE^2 = 14 / (3 x 4) = 7/6
    per_query = pl.DataFrame({"x": [1.0, 2.0, 3.0, 6.0], "n": [1.0] * 4})
    assert jackknifed(per_query, MEAN).standard_error == pytest.approx(math.sqrt(7 / 6))


def test_jackknife_bias_of_a_variance_is_what_division_by_n_takes_away() -> None:
    # x = 1, 2, 3, 6: mean square 50/4 - 9 = 7/2, unbiased 14/3: bias -7/6; the jackknife's is exact for a variance.
    per_query = pl.DataFrame({"x": [1.0, 2.0, 3.0, 6.0], "n": [1.0] * 4}).with_columns(squares=pl.col("x") ** 2)
    variance = pl.col("squares") / pl.col("n") - (pl.col("x") / pl.col("n")) ** 2
    assert jackknifed(per_query, variance).bias == pytest.approx(-7 / 6)


def test_jackknife_of_a_clustered_mean_is_the_standard_error_of_query_means() -> None:
    rng = np.random.default_rng(0)
    x = rng.random((50, 2)) + rng.random((50, 1))
    per_query = pl.DataFrame({"x": x.sum(1), "n": [2.0] * 50})
    assert jackknifed(per_query, MEAN).standard_error == pytest.approx(stats.sem(x.mean(1)))


def test_one_query_has_no_standard_error_and_no_interval() -> None:
    alone = jackknifed(pl.DataFrame({"x": [1.0], "n": [2.0]}), MEAN)
    assert (alone.value, alone.standard_error, alone.bias) == (0.5, None, None)
    assert interval(0.5, None, 1) == (None, None)


@pytest.mark.parametrize("value", [0.02, 0.3, 0.5, 0.97])
def test_score_interval_of_independent_trials_is_wilsons(value: float) -> None:
    # With so many queries t is z to four digits. SE^2 = p (1 - p) / n makes n* = n.
    n = 100_000
    wilson = stats.binomtest(round(value * n), n).proportion_ci(method="wilson")
    assert interval(value, math.sqrt(value * (1 - value) / n), n) == pytest.approx((wilson.low, wilson.high), abs=1e-7)


def test_score_interval_counts_what_clustered_requests_are_worth() -> None:
    # p = .8, SE = .04: n* = .16 / .0016 = 100; 25 queries: t(24) = 2.063899, t^2 = 4.259678
    # centre (80 + 2.129839) / 104.259678 = .787744; half 2.063899 sqrt(16 + 1.064919) / 104.259678 = .081775
    assert interval(0.8, 0.04, 25) == pytest.approx((0.705969, 0.869519), abs=2e-6)


def test_all_right_is_not_certainty() -> None:
    # n* = 50 queries, t(49) = 2.009575, t^2 = 4.038393: low = 50 / 54.038393, high = 1
    assert interval(1.0, 0.0, 50) == pytest.approx((50 / 54.038393, 1.0), abs=1e-6)


@pytest.mark.parametrize("form", ["score", "symmetric"])
def test_no_difference_between_queries_gives_the_widest_interval_not_the_narrowest(form: IntervalForm) -> None:
    # As 50 independent queries with p = .5 would: n* = 50, t^2 = 4.038393;
    # half 2.009575 sqrt(12.5 + 1.009598) / 54.038393 = .136685
    assert interval(0.5, 0.0, 50, form) == pytest.approx((0.5 - 0.136685, 0.5 + 0.136685), abs=2e-6)


def test_symmetric_interval_is_cut_at_the_range() -> None:
    # t(24) x .04 = .082556
    assert interval(0.3, 0.04, 25, "symmetric") == pytest.approx((0.217444, 0.382556), abs=1e-6)
    assert interval(0.02, 0.04, 25, "symmetric") == pytest.approx((0.0, 0.102556), abs=1e-6)


@pytest.mark.parametrize("n_wrong", [1, 2, 3])
def test_with_few_wrong_answers_the_upper_end_leaves_room_for_none(n_wrong: int) -> None:
    # The Poisson mean with which so many come up with probability 5%, a gamma quantile; Wilson's end is farther in.
    n = 100_000
    share = n_wrong / n
    low, high = interval(1 - share, math.sqrt(share * (1 - share) / n), n)
    assert high == pytest.approx(1 - stats.gamma.ppf(0.05, n_wrong) / n, abs=1e-9)
    wilson = stats.binomtest(n - n_wrong, n).proportion_ci(method="wilson")
    assert high > wilson.high
    assert low == pytest.approx(wilson.low, abs=1e-7)
    mirrored = interval(share, math.sqrt(share * (1 - share) / n), n)
    assert (high, low) == pytest.approx(tuple(1 - end for end in mirrored if end is not None))


def test_two_way_standard_error_of_an_orthogonal_array_counts_values_not_templates() -> None:
    # Four templates of two attributes: 0 0, 0 1, 1 0, 1 1, with means 1, 2, 4, 5 and no other differences but those of
    # two queries, 1 apart. Values of the first attribute have means 1.5, 4.5: variance 4.5, over 2: 2.25; of the second
    # 2.5, 3.5: 0.5, over 2: 0.25. Queries: 0.5 / 2 = 0.25 with one degree of freedom. V = 2.75. Values have
    # the one degree of freedom of an attribute.
    cells = np.array([[0.5], [1.5]]) + np.array([0.5, 1.5, 3.5, 4.5]) - 0.5
    standard_error, freedom = two_way_standard_error(cells, [(0, 0), (0, 1), (1, 0), (1, 1)])
    assert standard_error == pytest.approx(math.sqrt(2.75))
    of_queries, of_values = stats.t.ppf(0.975, [1, 1]) ** 2
    assert stats.t.ppf(0.975, freedom) ** 2 == pytest.approx((0.25 * of_queries + 2.5 * of_values) / 2.75)


def test_total_standard_error_adds_the_variance_of_one_template_worked_by_hand() -> None:
    # Queries down, templates across: 0 2 / 2 6 / 4 4: means of templates 2, 4, variance 2; noise 2 / 3 of a mean over
    # three answers. One template: 2 - 2/3 = 4/3 at one degree of freedom. With a standard error of 1 at two degrees:
    # V = 1 + 4/3 = 7/3, and t^2 is the mean of both.
    cells = np.array([[0.0, 2.0], [2.0, 6.0], [4.0, 4.0]])
    standard_error, freedom = total_standard_error(1.0, 2, cells)
    assert standard_error == pytest.approx(math.sqrt(7 / 3))
    of_queries, of_templates = stats.t.ppf(0.975, [2, 1]) ** 2
    assert stats.t.ppf(0.975, freedom) ** 2 == pytest.approx((of_queries + 4 / 3 * of_templates) / (7 / 3))
    assert total_standard_error(1.0, 2, cells[:, :1]) == (None, 0.0)
    # Templates whose means are equal vary less than the noise of single answers, and add nothing.
    assert total_standard_error(1.0, 2, np.array([[0.0, 2.0], [2.0, 0.0]])) == pytest.approx((1.0, 2.0))


def test_macro_f1_of_one_that_hangs_on_one_query_is_known_to_nothing() -> None:
    assert interval(1.0, 0.3, 20) == pytest.approx((0.0, 1.0))


def test_a_value_that_needs_one_query_to_be_finite_has_no_finite_standard_error() -> None:
    assert jackknife(0.5, np.array([0.5, math.inf, 0.5]))[0] == math.inf
    assert interval(0.5, math.inf, 3, "symmetric", (0.0, math.inf)) == (0.0, math.inf)


def test_intervals_are_cut_at_the_limits_of_their_metric() -> None:
    # t(24) x .04 = .082556
    assert interval(-0.05, 0.04, 25, "symmetric", (-1.2, 1.2)) == pytest.approx((-0.132556, 0.032556), abs=1e-6)
    assert interval(-0.05, 0.04, 25, "symmetric", (-0.7, 0.0)) == pytest.approx((-0.132556, 0.0), abs=1e-6)
    assert interval(0.05, 0.04, 25, "symmetric", (0.0, math.inf)) == pytest.approx((0.0, 0.132556), abs=1e-6)


@pytest.mark.parametrize("standard_error", [0.04, 0.0])
def test_a_score_interval_scales_with_the_limits(standard_error: float) -> None:
    low, high = interval(0.8, standard_error, 25)
    assert low is not None
    assert high is not None
    stretched = interval(-1 + 3 * 0.8, 3 * standard_error, 25, limits=(-1.0, 2.0))
    assert stretched == pytest.approx((-1 + 3 * low, -1 + 3 * high))


def test_nothing_is_known_where_nothing_varies_and_nothing_bounds_it_or_the_value_is_not_finite() -> None:
    unbounded = (0.0, math.inf)
    assert interval(0.5, 0.0, 25, "symmetric", unbounded) == (None, None)
    assert interval(math.inf, math.inf, 25, "symmetric", unbounded) == (None, None)
    assert interval(math.nan, 0.1, 25, "symmetric", unbounded) == (None, None)


def test_two_way_standard_error_worked_by_hand() -> None:
    # Queries down: 0 2 / 2 6 / 4 4. Means of queries 1, 4, 4 (variance 3, over 3: 1), of templates 2, 4 (variance 2,
    # over 2: 1), of all 3. What both leave: 0 0 / -1 1 / 1 -1, squares 4 over (3-1)(2-1) = 2, over 6 cells: 1/3.
    # V = 1 + 1 - 1/3 = 5/3: 1 of templates with one degree of freedom, 2/3 of queries with two; t^2 is their mean.
    standard_error, degrees_of_freedom = two_way_standard_error(np.array([[0.0, 2.0], [2.0, 6.0], [4.0, 4.0]]))
    assert standard_error == pytest.approx(math.sqrt(5 / 3))
    of_queries, of_templates = stats.t.ppf(0.975, [2, 1]) ** 2
    assert stats.t.ppf(0.975, degrees_of_freedom) ** 2 == pytest.approx((2 / 3 * of_queries + of_templates) / (5 / 3))


def test_two_way_standard_error_is_never_below_that_of_queries_or_templates_alone() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        cells = rng.random((12, 4))
        standard_error, _degrees_of_freedom = two_way_standard_error(cells)
        alone = stats.sem(cells.mean(axis=1)), stats.sem(cells.mean(axis=0))
        assert standard_error is not None
        assert standard_error >= max(alone) * (1 - 1e-12)


def test_two_way_standard_error_takes_two_queries_and_two_templates() -> None:
    assert two_way_standard_error(np.array([[0.5, 1.0]]))[0] is None
    assert two_way_standard_error(np.array([[0.5], [1.0]]))[0] is None
    assert two_way_standard_error(np.full((3, 3), 0.5)) == (0.0, 2.0)


@pytest.mark.parametrize("spread", [0.0, 0.03, 0.12])
def test_two_way_intervals_hold_the_mean_over_all_queries_and_templates(spread: float) -> None:
    rng = np.random.default_rng(3)
    rows = []
    for _ in range(2_000):
        ease = 0.6 + rng.uniform(-0.2, 0.2, (64, 1)) + spread * rng.choice([-1.0, 1.0], 9)
        cells = (rng.random((64, 9)) < ease).astype(np.float64)
        measured = Measured(float(cells.mean()), *two_way_standard_error(cells), "score", 0.0, 1.0)
        rows.append(measured._asdict() | {"n_queries": 64})
    held = with_intervals(pl.DataFrame(rows)).select(pl.lit(0.6).is_between("ci_low", "ci_high").mean()).item()
    assert 0.94 <= held <= 0.99  # where templates do not differ, it can only be too careful


def test_mean_of_symmetric_intervals_has_the_root_sum_of_squares_over_their_number() -> None:
    # half-widths .3 and .4 over two datasets: sqrt(.09 + .16) / 2 = .25
    rows = pl.DataFrame({"value": [0.5, 0.6], "ci_low": [0.2, 0.2], "ci_high": [0.8, 1.0]})
    assert rows.select(**mean_of_intervals()).row(0) == pytest.approx((0.55, 0.3, 0.8))


def test_mean_of_one_sided_intervals_stays_one_sided() -> None:
    # Both at 1 and open below: down sqrt(.06^2 + .08^2) / 2 = .05, up 0
    rows = pl.DataFrame({"value": [1.0, 1.0], "ci_low": [0.94, 0.92], "ci_high": [1.0, 1.0]})
    assert rows.select(**mean_of_intervals()).row(0) == pytest.approx((1.0, 0.95, 1.0))


# How often intervals hold the truth: many runs of one imagined model whose true metrics a huge sample gives.
N_LABELS, N_RUNS, N_QUERIES = 3, 250, 80
MODELS = {"dataset-0": (3.0, 1.0), "dataset-1": (3.0, 1.6)}  # sharpness, signal: overconfident, about 60% and 75% right
Draw = tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]


def draw(rng: np.random.Generator, n_queries: int, sharpness: float, signal: float) -> Draw:
    """gold [query] and label probabilities [query, set, label]; a query's two requests share half their noise."""
    gold = rng.integers(0, N_LABELS, n_queries)
    of_query, of_request = (rng.normal(size=(n_queries, repeats, N_LABELS)) for repeats in (1, 2))
    evidence = (of_query + of_request) / math.sqrt(2) + signal * np.eye(N_LABELS)[gold][:, None, :]
    weights = np.exp(sharpness * (evidence - evidence.max(axis=-1, keepdims=True)))
    return gold, weights / weights.sum(axis=-1, keepdims=True)


def true_metrics(rng: np.random.Generator, sharpness: float, signal: float) -> dict[str, float]:
    gold, probs = draw(rng, 300_000, sharpness, signal)
    gold, probs = np.repeat(gold, 2), probs.reshape(-1, N_LABELS)
    pred, confidence = probs.argmax(1), probs.max(1)
    f1 = [2 * np.mean((pred == c) & (gold == c)) / (np.mean(pred == c) + np.mean(gold == c)) for c in range(N_LABELS)]
    gaps = np.bincount((confidence * 10).astype(int).clip(0, 9), weights=(pred == gold) - confidence, minlength=10)
    return {
        "accuracy": float(np.mean(pred == gold)),
        "true_label_probability": float(probs[np.arange(len(gold)), gold].mean()),
        "macro_f1": float(np.mean(f1)),
        "expected_calibration_error": float(np.abs(gaps).sum() / len(gold)),
        "brier_score": float(((probs - np.eye(N_LABELS)[gold]) ** 2).sum(axis=1).mean()),
        "log_loss": float(-np.log(probs[np.arange(len(gold)), gold]).mean()),
    }


def predictions(
    places: Sequence[tuple[str, str]], gold: npt.NDArray[np.int64], probs: npt.NDArray[np.float64]
) -> pl.DataFrame:
    """PREDICTIONS of a part and a dataset for each place: gold [place, query], probs [place, query, set, label]."""
    of_place, query_id, of_set = (index.ravel() for index in np.indices(probs.shape[:3]))
    flat = probs.reshape(-1, N_LABELS)
    columns = {
        "suite": "suite",
        "part": np.array([part for part, _ in places])[of_place],
        "dataset": np.array([dataset for _, dataset in places])[of_place],
        "method": "vanilla",
        "definition": "paper",
        "position": 2 * query_id + of_set,
        "query_id": query_id,
        "demonstration_set": of_set,
        "n_shots": 2,
        "template": 0,
        "noise_rate": 0.0,
        "n_wrong_labels": 0,
        "prompt_id": (2 * query_id + of_set).astype(str),
        "gold": np.repeat(gold, 2),
        "pred": flat.argmax(1),
        "label_probs": flat,
    }
    frame = pl.DataFrame(columns).with_columns(label_names=pl.lit(["a", "b", "c"]))
    return frame.select(PREDICTIONS.names()).cast(PREDICTIONS)


@cache
def simulated() -> tuple[pl.DataFrame, dict[tuple[str, str], float]]:
    """Metrics tables of all runs (part: the run), and the truth by dataset and metric."""
    rng = np.random.default_rng(2)
    places = [(str(run), dataset) for run in range(N_RUNS) for dataset in MODELS]
    gold, probs = zip(*(draw(rng, N_QUERIES, *MODELS[dataset]) for _, dataset in places), strict=True)
    runs = predictions(places, np.array(gold), np.array(probs))
    truth = {(d, m): v for d, model in MODELS.items() for m, v in true_metrics(rng, *model).items()}
    means = {("mean", m): sum(truth[d, m] for d in MODELS) / len(MODELS) for m in METRICS}
    return metrics_of(runs), truth | means


@pytest.mark.exhaustive  # tests/metrics/test_interval_coverage.py simulates the interval of each
@pytest.mark.parametrize("metric", [name for name in METRICS if name != "expected_calibration_error"])
def test_intervals_hold_the_truth_about_as_often_as_they_say(metric: str) -> None:
    table, truth = simulated()
    rows = table.filter(metric=metric)
    true_value = pl.col("dataset").replace_strict({d: v for (d, m), v in truth.items() if m == metric})
    held = rows.select("dataset", held=true_value.is_between(pl.col("ci_low"), pl.col("ci_high")))
    of_datasets, of_mean = held["dataset"] != "mean", held["dataset"] == "mean"
    for rows_held in (held.filter(of_datasets)["held"], held.filter(of_mean)["held"]):
        two_standard_errors = 2 * math.sqrt(0.95 * 0.05 / len(rows_held))
        assert rows_held.mean() == pytest.approx(0.95, abs=two_standard_errors)


@pytest.mark.parametrize("n_sets", [2, 3])
@pytest.mark.parametrize(("n_queries", "spread"), [(64, 0.8), (512, 0.3), (64, 0.0)])
def test_two_way_intervals_over_two_or_three_sets_hold_what_they_say(
    n_sets: int, n_queries: int, spread: float
) -> None:
    rng = np.random.default_rng(5)
    # Right with a logistic chance of query and set; the truth is the mean over many of both.
    truth = (1 / (1 + np.exp(-0.8 - rng.normal(0, math.hypot(1, spread), 2_000_000)))).mean()
    rows = []
    for _ in range(1_500):
        ease = 0.8 + rng.normal(0, 1, (n_queries, 1)) + rng.normal(0, spread, n_sets)
        cells = (rng.random((n_queries, n_sets)) < 1 / (1 + np.exp(-ease))).astype(np.float64)
        measured = Measured(float(cells.mean()), *two_way_standard_error(cells), "score", 0.0, 1.0)
        rows.append(measured._asdict() | {"n_queries": n_queries})
    held = with_intervals(pl.DataFrame(rows)).select(pl.lit(truth).is_between("ci_low", "ci_high").mean()).item()
    assert held >= 0.93


@pytest.mark.parametrize(("n_queries", "spread"), [(64, 0.08), (512, 0.08)])
def test_means_over_an_array_of_templates_hold_what_they_say_where_one_attribute_matters(
    n_queries: int, spread: float
) -> None:
    rng, rows = np.random.default_rng(6), []
    first = [levels[0] for levels in ORTHOGONAL_ARRAY]
    for _ in range(1_000):
        ease = 0.6 + rng.choice([-0.15, 0.15], (n_queries, 1)) + rng.normal(0, spread, 3)[first]
        cells = (rng.random((n_queries, 9)) < ease).astype(np.float64)
        measured = Measured(float(cells.mean()), *two_way_standard_error(cells, ORTHOGONAL_ARRAY), "score", 0.0, 1.0)
        rows.append(measured._asdict() | {"n_queries": n_queries})
    held = with_intervals(pl.DataFrame(rows)).select(pl.lit(0.6).is_between("ci_low", "ci_high").mean()).item()
    assert held >= 0.93
