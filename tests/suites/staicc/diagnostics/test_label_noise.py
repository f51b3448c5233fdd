"""The slope of metrics over noise rates, against hand-worked numbers, SciPy and the StaICC toolkit's own functions."""

from fractions import Fraction

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest
from scipy import stats
from sklearn.metrics import f1_score
from StaICC.util import functional

from benchmarks.embedded_model.evaluation import noise_slope
from evaluator.errors import MetricError
from evaluator.suites.staicc import robustness
from evaluator.suites.staicc.robustness import RELEASED_RATES
from tests.suites.staicc.diagnostics.part_predictions import Probs, interval, part_predictions, values
from tests.suites.staicc.measured import staicc_metrics
from tests.toolkit import plain_summation  # noqa: F401

pytestmark = pytest.mark.usefixtures("plain_summation")

RATES = (0.0, 0.25, 0.5, 0.75, 1.0)


def answers(correct_by_query: dict[int, list[list[bool]]], rates: tuple[float, ...] = RATES) -> pl.DataFrame:
    """One row an answer, from [demonstration set][rate] of each query."""
    rows = [
        {"query_id": query, "noise_rate": rate, "correct": correct}
        for query, sets in correct_by_query.items()
        for of_set in sets
        for rate, correct in zip(rates, of_set, strict=True)
    ]
    return pl.DataFrame(rows)


def test_a_slope_and_its_interval_worked_by_hand():
    # Rates 0, 1: a query's slope is (answer at 1) - (answer at 0): -1, 0, -1. Their mean is -2/3, their standard
    # deviation sqrt(((1/3)^2 + (2/3)^2 + (1/3)^2) / 2) = sqrt(1/3); t(2) at 97.5% is 4.302653.
    frame = answers({0: [[True, False]], 1: [[True, True]], 2: [[True, False]]}, rates=(0.0, 1.0))
    result = noise_slope(frame)
    reach = 4.302653 * (1 / 3) ** 0.5 / 3**0.5
    assert result.slope == pytest.approx(-2 / 3)
    assert result.ci_low == pytest.approx(-2 / 3 - reach, rel=1e-6)
    assert result.ci_high == pytest.approx(-2 / 3 + reach, rel=1e-6)


def test_the_slope_is_that_of_the_least_squares_line_through_the_accuracies():
    random = np.random.default_rng(0)
    correct = random.random((60, 2, 5)) < np.linspace(0.8, 0.4, 5)
    frame = answers({query: sets.tolist() for query, sets in enumerate(correct)})
    assert noise_slope(frame).slope == pytest.approx(stats.linregress(RATES, correct.mean((0, 1))).slope, rel=1e-12)


def test_the_interval_holds_the_true_slope_in_about_95_of_100_samples():
    random = np.random.default_rng(1)
    held = 0
    for _ in range(300):
        ease = random.uniform(
            -0.2, 0.2, (40, 1, 1)
        )  # answers to one query go together: they are no independent evidence
        correct = random.random((40, 2, 5)) < np.linspace(0.7, 0.5, 5) + ease
        frame = answers({query: sets.tolist() for query, sets in enumerate(correct)})
        slope = noise_slope(frame)
        held += slope.ci_low <= -0.2 <= slope.ci_high
    assert 0.92 <= held / 300 <= 0.98


def test_rows_in_another_order_give_the_same_slope():
    random = np.random.default_rng(2)
    frame = answers({query: sets.tolist() for query, sets in enumerate(random.random((30, 2, 5)) < 0.6)})
    shuffled = noise_slope(frame.sample(fraction=1, shuffle=True, seed=0))
    assert shuffled == pytest.approx(noise_slope(frame), rel=1e-12)


def test_gler_is_the_accuracy_lost_from_no_wrong_label_to_only_wrong_ones() -> None:
    # Of four queries 4, 3, 2, 1, 0 right at the five rates: the line falls from 1 to 0, and gler is 1. The toolkit's
    # axis 1, .75, .25, -.5, -1.5 has the mean 0, squares that add up to 4.125 and products with the accuracies
    # 1 + .5625 + .125 - .125 + 0 = 1.5625.
    right = np.arange(4) < np.array([4, 3, 2, 1, 0])[:, None]
    probs = np.where(right[:, None, :, None], [0.75, 0.25], [0.25, 0.75])
    assert values(staicc_metrics(part_predictions("gler", probs, [0] * 4)))["gler"] == pytest.approx(1.0)
    released = staicc_metrics(part_predictions("gler", probs, [0] * 4, "released"))
    assert values(released, "released")["gler"] == pytest.approx(1.5625 / 4.125)


def test_gler_is_printed_in_points_per_tenth_and_on_the_toolkits_axis_too() -> None:
    # The same answers at the true rates fall by 10 points per 0.1 of noise. Table 3 prints ten times table 7:
    # 0.13 and 0.0127, 0.98 and 0.0986.
    right = np.arange(4) < np.array([4, 3, 2, 1, 0])[:, None]
    probs = np.where(right[:, None, :, None], [0.75, 0.25], [0.25, 0.75])
    for definition, per_tenth in (("paper", 10.0), ("released", 15.625 / 4.125)):
        table = staicc_metrics(part_predictions("gler", probs, [0] * 4, definition))
        found = values(table, definition)
        assert found["gler_per_tenth"] == pytest.approx(per_tenth)
        assert found["gler_toolkit_axis"] == pytest.approx(1.5625 / 4.125)
        low, high = interval(table, "gler")
        assert interval(table, "gler_per_tenth") == pytest.approx((10 * low, 10 * high))


def answers_of_four_queries(n_shots: int, wrong_counts: tuple[int, ...], n_right: tuple[int, ...]) -> pl.DataFrame:
    """Predictions on four queries of label 0, of which so many are right at each of the five rates."""
    right = np.arange(4) < np.array(n_right)[:, None]
    probs = np.where(right[:, None, :, None], [0.75, 0.25], [0.25, 0.75])
    return part_predictions("gler", probs, [0] * 4, n_shots=n_shots, wrong_counts=wrong_counts)


# At the rates 0, 1/4, 1/2, 3/4, 1 of n_shots demonstrations, halves up, so many labels x are wrong. Accuracies are
# 1, 3/4, 1/2, 1/4, 0, of mean 1/2. The slope for each wrong label is (sum of x y - sum of x / 2) / (sum of x^2 -
# (sum of x)^2 / 5), and gler is minus n_shots times as much.
@pytest.mark.parametrize(
    ("n_shots", "wrong_counts", "expected"),
    [
        (1, (0, 0, 1, 1, 1), Fraction(5, 8)),  # (3/4 - 3/2) / (3 - 9/5) = -5/8
        (2, (0, 1, 1, 2, 2), Fraction(25, 28)),  # (7/4 - 3) / (10 - 36/5) = -25/56
        (3, (0, 1, 2, 2, 3), Fraction(105, 104)),  # (9/4 - 4) / (18 - 64/5) = -35/104
        (4, (0, 1, 2, 3, 4), Fraction(1)),  # (5/2 - 5) / (30 - 20) = -1/4
        (5, (0, 1, 3, 4, 5), Fraction(325, 344)),  # (13/4 - 13/2) / (51 - 169/5) = -65/344
        (6, (0, 2, 3, 5, 6), Fraction(75, 76)),  # (17/4 - 8) / (74 - 256/5) = -25/152
        (7, (0, 2, 4, 5, 7), Fraction(595, 584)),  # (19/4 - 9) / (94 - 324/5) = -85/584
        (8, (0, 2, 4, 6, 8), Fraction(1)),  # (5 - 10) / (120 - 80) = -1/8
    ],
)
def test_gler_is_over_the_shares_of_labels_that_are_wrong_in_the_prompts(
    n_shots: int, wrong_counts: tuple[int, ...], expected: Fraction
) -> None:
    assert robustness.wrong_counts(n_shots, "paper") == wrong_counts
    table = staicc_metrics(answers_of_four_queries(n_shots, wrong_counts, (4, 3, 2, 1, 0)))
    assert values(table)["gler"] == pytest.approx(float(expected), rel=1e-12)


@pytest.mark.parametrize(
    ("n_shots", "wrong_counts"), [(1, (0, 0, 1, 1, 1)), (2, (0, 1, 1, 2, 2)), (2, (0, 0, 1, 1, 2))]
)
def test_gler_is_one_where_every_query_is_right_as_often_as_labels_are(
    n_shots: int, wrong_counts: tuple[int, ...]
) -> None:
    # The last counts are those of released prompts, which are rounded down.
    n_right = tuple(4 - 4 * count // n_shots for count in wrong_counts)
    table = staicc_metrics(answers_of_four_queries(n_shots, wrong_counts, n_right))
    assert values(table)["gler"] == pytest.approx(1.0)


def test_gler_is_undefined_without_demonstrations() -> None:
    table = staicc_metrics(answers_of_four_queries(0, (0, 0, 0, 0, 0), (3, 3, 3, 3, 3)))
    assert np.isnan(values(table)["gler"])


def test_prompts_of_one_rate_with_different_numbers_of_wrong_labels_are_refused() -> None:
    rows = answers_of_four_queries(4, (0, 1, 2, 3, 4), (4, 3, 2, 1, 0))
    odd = rows.with_columns(n_wrong_labels=pl.when(position=7).then(2).otherwise("n_wrong_labels"))
    with pytest.raises(MetricError, match="the prompts of a noise rate must have the same number"):
        staicc_metrics(odd)


def noisy_answers(n_labels: int, seed: int, n_queries: int = 40) -> tuple[Probs, npt.NDArray[np.int64]]:
    """Probabilities [rate, set, query, label] that favour the gold label less and less, and gold labels."""
    rng = np.random.default_rng(seed)
    gold = rng.integers(0, n_labels, n_queries)
    scores = rng.normal(size=(5, 2, n_queries, n_labels))
    scores += np.linspace(2, -1, 5)[:, None, None, None] * np.eye(n_labels)[gold]
    weights = np.exp(scores)
    return weights / weights.sum(axis=-1, keepdims=True), gold


def four_metrics(probs: Probs, gold: npt.NDArray[np.int64]) -> dict[str, float]:
    """By scikit-learn and NumPy, from [n, label]."""
    n_labels = probs.shape[1]
    pred, confidence = probs.argmax(axis=1), probs.max(axis=1)
    gaps = np.bincount((confidence * 10).astype(int).clip(0, 9), weights=(pred == gold) - confidence)
    return {
        "gler": float(np.mean(pred == gold)),
        "gler_true_label_probability": float(probs[np.arange(len(gold)), gold].mean()),
        "gler_macro_f1": f1_score(gold, pred, labels=range(n_labels), average="macro", zero_division=0),
        "gler_expected_calibration_error": float(np.abs(gaps).sum() / len(gold)),
    }


@pytest.mark.parametrize("n_labels", [2, 3, 6])
def test_gler_of_every_metric_is_minus_scipys_slope(n_labels: int) -> None:
    probs, gold = noisy_answers(n_labels, seed=n_labels)
    at_rates = [four_metrics(rows.reshape(-1, n_labels), np.tile(gold, 2)) for rows in probs]
    expected = {
        name: pytest.approx(-stats.linregress(RATES, [rate[name] for rate in at_rates]).slope, abs=1e-9)
        for name in at_rates[0]
    }
    accuracies = [rate["gler"] for rate in at_rates]
    expected["gler_per_tenth"] = pytest.approx(-10 * stats.linregress(RATES, accuracies).slope, abs=1e-9)
    expected["gler_toolkit_axis"] = pytest.approx(stats.linregress(RELEASED_RATES, accuracies).slope, abs=1e-9)
    assert values(staicc_metrics(part_predictions("gler", probs, gold))) == expected


@pytest.mark.parametrize("n_labels", [2, 3, 6])
def test_released_gler_is_the_toolkits(n_labels: int) -> None:
    probs, gold = noisy_answers(n_labels, seed=n_labels)
    probs[:2] = np.eye(n_labels)[probs[:2].argmax(axis=-1)]  # these two rates pass the toolkit's check, others do not
    functions = {
        "gler": functional.accuracy,
        "gler_true_label_probability": functional.averaged_truelabel_likelihood,
        "gler_macro_f1": functional.macro_F1,
        "gler_expected_calibration_error": functional.expected_calibration_error_1,
    }
    matrices = [rows.reshape(-1, n_labels).tolist() for rows in probs]
    assert [functional.probability_matrix_check(rows) for rows in matrices] == [True, True, False, False, False]
    axis = [1.0]
    for step in range(1, 5):
        axis.append(axis[-1] - step / 4)
    theirs = {
        name: functional.linear_regression(axis, [metric([*gold, *gold], rows) for rows in matrices])[0]
        for name, metric in functions.items()
    }
    found = values(staicc_metrics(part_predictions("gler", probs, gold, "released")), "released")
    as_printed = {"gler_per_tenth": 10 * theirs["gler"], "gler_toolkit_axis": theirs["gler"]}
    assert found == pytest.approx(theirs | as_printed, abs=1e-9)
    assert list(RELEASED_RATES) == axis


def test_gler_and_the_slope_of_answers_are_one_number_with_opposite_signs() -> None:
    probs, gold = noisy_answers(3, seed=1)
    frame = part_predictions("gler", probs, gold)
    table = staicc_metrics(frame)
    slope = noise_slope(frame.with_columns(correct=pl.col("pred") == pl.col("gold")))
    found = (values(table)["gler"], *interval(table, "gler"))
    assert found == pytest.approx((-slope.slope, -slope.ci_high, -slope.ci_low), rel=1e-9)


def test_the_interval_of_gler_is_students_over_the_slopes_of_queries() -> None:
    probs, gold = noisy_answers(3, seed=2)
    correct = probs.argmax(axis=-1) == gold
    slopes = [-stats.linregress(RATES, correct[:, :, query].mean(axis=1)).slope for query in range(len(gold))]
    expected = stats.t.interval(0.95, len(gold) - 1, np.mean(slopes), stats.sem(slopes))
    assert interval(staicc_metrics(part_predictions("gler", probs, gold)), "gler") == pytest.approx(expected)


def test_another_noise_rate_than_the_benchmarks_is_refused() -> None:
    with pytest.raises(MetricError, match=r"noise rates must be among .*got \[0.0, .*, 1.25\]"):
        staicc_metrics(part_predictions("gler", np.full((6, 1, 2, 2), 0.5), [0, 1]))
