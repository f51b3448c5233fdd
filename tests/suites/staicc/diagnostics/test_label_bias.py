"""Biases against hand-worked numbers, SciPy and the StaICC toolkit's own functions."""

import math
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal
from scipy import stats
from StaICC.util import functional

from evaluator.errors import MetricError
from evaluator.metrics.groups import prediction_groups
from evaluator.suites.staicc.label_bias import absent_labels
from tests.strategies import distributions
from tests.suites.staicc.diagnostics.part_predictions import interval, part_predictions, values
from tests.suites.staicc.measured import staicc_metrics
from tests.toolkit import plain_summation  # noqa: F401

pytestmark = pytest.mark.usefixtures("plain_summation")

SIZES = [(n_labels, seed) for n_labels in range(2, 7) for seed in range(2)]


def table_of(part: str, rows: Any, gold: list[int], definition: str = "paper") -> pl.DataFrame:
    """Metrics of one answer a query."""
    return staicc_metrics(part_predictions(part, [[rows]], gold, definition))


def random_rows(n_labels: int, seed: int, n: int = 300) -> tuple[list[list[float]], list[int]]:
    rng = np.random.default_rng(seed)
    rows = rng.dirichlet(np.full(n_labels, 0.4), n).tolist()
    return rows, [*range(n_labels), *rng.integers(0, n_labels, n - n_labels).tolist()]


@pytest.mark.parametrize("part", ["contextual", "domain"])
def test_prior_bias_worked_by_hand(part: str) -> None:
    # Entropies log 2 and 0: minus their mean is -(log 2)/2 = -0.346574. The mean is (3/4, 1/4), of entropy
    # 3/4 log(4/3) + 1/4 log 4 = 0.562335.
    rows = [[0.5, 0.5], [1.0, 0.0]]
    assert values(table_of(part, rows, [0, 1])) == {f"{part}_bias": pytest.approx(-0.346574, abs=1e-6)}
    released = values(table_of(part, rows, [0, 1], "released"), "released")
    assert released == {f"{part}_bias": pytest.approx(0.562335, abs=1e-6)}


@pytest.mark.parametrize(("n_labels", "seed"), SIZES)
def test_prior_bias_of_the_paper_is_minus_scipys_mean_entropy(n_labels: int, seed: int) -> None:
    rows, gold = random_rows(n_labels, seed)
    expected = -stats.entropy(rows, axis=1).mean()
    assert values(table_of("contextual", rows, gold))["contextual_bias"] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(("n_labels", "seed"), SIZES)
def test_released_prior_bias_is_the_toolkits(n_labels: int, seed: int) -> None:
    rows, gold = random_rows(n_labels, seed)
    theirs = functional.bias_mean_entropy_metric(gold, rows)
    found = values(table_of("contextual", rows, gold, "released"), "released")["contextual_bias"]
    assert found == pytest.approx(theirs, abs=1e-9)


def test_those_tables_go_through_the_toolkits_softmax_and_past_it() -> None:
    means = [functional.two_dimensional_list_mean(random_rows(*size)[0]) for size in SIZES]
    assert {functional.probability_vector_check(mean) for mean in means} == {True, False}


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_released_biases_are_the_toolkits_on_adversarial_tables(data: st.DataObject) -> None:
    n_labels = data.draw(st.integers(2, 6))
    exact = distributions(n_labels)
    nudged = exact.map(lambda row: [row[0] + 1e-16, *row[1:]])
    rows = data.draw(st.lists(exact | nudged, min_size=n_labels, max_size=12))
    gold = [place % n_labels for place in range(len(rows))]
    found = values(table_of("domain", rows, gold, "released"), "released")
    assert found["domain_bias"] == pytest.approx(functional.bias_mean_entropy_metric(gold, rows), abs=1e-9)
    found = values(table_of("normal", rows, gold, "released"), "released")
    try:
        theirs = functional.post_bias_dl_metric(gold, rows)
    except ValueError:  # the logarithm of 0: a label that no row gives any probability
        theirs = math.nan
    assert found["empirical_bias"] == pytest.approx(theirs, abs=1e-9, nan_ok=True)


def test_empirical_bias_worked_by_hand() -> None:
    # Mean (3/4, 1/4) against shares (1/4, 3/4): 3/4 log 3 + 1/4 log(1/3) = (log 3)/2 = 0.549306.
    rows = [[1.0, 0.0], [1.0, 0.0], [0.5, 0.5], [0.5, 0.5]]
    for definition in ("paper", "released"):
        found = values(table_of("normal", rows, [0, 1, 1, 1], definition), definition)["empirical_bias"]
        assert found == pytest.approx(0.549306, abs=1e-6)


@pytest.mark.parametrize(("n_labels", "seed"), SIZES)
def test_empirical_bias_is_scipys_relative_entropy_and_the_toolkits(n_labels: int, seed: int) -> None:
    rows, gold = random_rows(n_labels, seed)
    found = values(table_of("normal", rows, gold))["empirical_bias"]
    assert found == pytest.approx(stats.entropy(np.mean(rows, axis=0), np.bincount(gold)), abs=1e-9)
    released = values(table_of("normal", rows, gold, "released"), "released")["empirical_bias"]
    assert released == pytest.approx(functional.post_bias_dl_metric(gold, rows), abs=1e-9)


def test_a_label_that_is_never_given_any_probability_adds_nothing() -> None:
    # Mean (1, 0) against (1/2, 1/2): log 2. The toolkit takes the logarithm of 0.
    rows, gold = [[1.0, 0.0]] * 2, [0, 1]
    assert values(table_of("normal", rows, gold))["empirical_bias"] == pytest.approx(math.log(2))
    with pytest.raises(ValueError):
        functional.post_bias_dl_metric(gold, rows)
    assert math.isnan(values(table_of("normal", rows, gold, "released"), "released")["empirical_bias"])


def absent_in(predictions: pl.DataFrame) -> pl.DataFrame:
    groups = prediction_groups(predictions)
    return pl.concat(absent_labels(group) for group in groups if group.key["definition"] != "published")


def test_a_label_that_no_query_has_makes_the_bias_infinite_and_is_named() -> None:
    rows, gold = [[0.5, 0.25, 0.25], [0.25, 0.25, 0.5]], [0, 0]
    with pytest.raises(ZeroDivisionError):
        functional.post_bias_dl_metric(gold, rows)
    frame = pl.concat([part_predictions("normal", [[rows]], gold, name) for name in ("paper", "released")])
    table = staicc_metrics(frame)
    assert values(table)["empirical_bias"] == math.inf
    assert values(table, dataset="mean")["empirical_bias"] == math.inf
    assert math.isnan(values(table, "released")["empirical_bias"])
    assert interval(table, "empirical_bias") == interval(table, "empirical_bias", "mean") == (None, None)
    key = {"suite": "suite", "part": "normal", "dataset": "a", "method": "vanilla"}
    expected = [
        key | {"definition": definition, "label_name": f"label {label}", "mean_probability": probability}
        for definition in ("paper", "released")
        for label, probability in ((1, 0.25), (2, 0.375))
    ]
    assert_frame_equal(absent_in(frame), pl.DataFrame(expected))


def test_where_every_label_is_asked_for_or_never_given_none_is_named() -> None:
    assert absent_in(part_predictions("normal", [[[[1.0, 0.0], [1.0, 0.0]]]], [0, 0])).is_empty()
    assert absent_in(part_predictions("normal", [[[[0.5, 0.5], [0.5, 0.5]]]], [0, 1])).is_empty()


def test_a_bias_that_hangs_on_one_query_may_be_anything() -> None:
    # Without the only query of label 1 it is infinite.
    table = table_of("normal", [[0.75, 0.25]] * 5, [0, 0, 0, 0, 1])
    assert interval(table, "empirical_bias") == (0.0, math.inf)


def test_the_interval_of_the_prior_bias_is_students_over_the_means_of_queries() -> None:
    rng = np.random.default_rng(3)
    probs = rng.dirichlet([1.0, 1.0, 1.0], (1, 2, 40))
    table = staicc_metrics(part_predictions("contextual", probs, [0] * 40))
    of_query = -stats.entropy(probs[0], axis=-1).mean(axis=0)
    expected = stats.t.interval(0.95, 39, of_query.mean(), stats.sem(of_query))
    assert interval(table, "contextual_bias") == pytest.approx(expected, rel=1e-9)


def test_an_interval_ends_where_no_bias_can_lie_beyond() -> None:
    low, high = interval(table_of("contextual", [[0.5, 0.5], [1.0, 0.0], [1.0, 0.0]], [0, 0, 0]), "contextual_bias")
    # -log(2)/3 -+ 4.303 x log(2)/3 would reach from -1.23 to 0.76; entropies of two labels lie between 0 and log 2.
    assert (low, high) == (-math.log(2), 0.0)


def test_gold_labels_do_not_matter_where_nothing_is_asked() -> None:
    frame = part_predictions("contextual", [[[[0.5, 0.5], [1.0, 0.0]]]], [0, 1])
    assert_frame_equal(staicc_metrics(frame.with_columns(gold=pl.lit(None, pl.Int64))), staicc_metrics(frame))


@pytest.mark.parametrize("part", ["contextual", "normal"])
def test_rows_that_are_no_distributions_are_refused_under_the_paper(part: str) -> None:
    with pytest.raises(MetricError, match=r"distributions.* 1 of 2 are not, the first at row 1: \[0\.9, 0\.2\]"):
        table_of(part, [[0.5, 0.5], [0.9, 0.2]], [0, 1])
