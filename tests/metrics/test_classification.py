"""classification_metrics against hand-worked numbers, scikit-learn and an independent calibration error."""

import math
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
from sklearn.metrics import accuracy_score, brier_score_loss, f1_score, log_loss

from evaluator.config import Definition
from evaluator.errors import MetricError
from evaluator.metrics import METRICS, classification_metrics
from evaluator.metrics.classification import N_REQUESTS, statistic_sums

# Five requests over three labels; the most probable label and whether it is right:
#   gold 0  .70 .20 .10 -> 0 right     gold 0  .25 .50 .25 -> 1 wrong     gold 1  .10 .60 .30 -> 1 right
#   gold 1  .45 .35 .20 -> 0 wrong     gold 2  .00 .00 1.0 -> 2 right
PROBS = [[0.7, 0.2, 0.1], [0.25, 0.5, 0.25], [0.1, 0.6, 0.3], [0.45, 0.35, 0.2], [0.0, 0.0, 1.0]]
GOLD = [0, 0, 1, 1, 2]


def test_accuracy_is_the_share_of_right_predictions() -> None:
    assert classification_metrics(PROBS, GOLD)["accuracy"] == pytest.approx(3 / 5)


def test_true_label_probability_is_the_mean_probability_of_gold() -> None:
    # (.70 + .25 + .60 + .35 + 1.0) / 5 = 2.90 / 5
    assert classification_metrics(PROBS, GOLD)["true_label_probability"] == pytest.approx(0.58)


def test_macro_f1_is_the_mean_of_f1_over_labels() -> None:
    # label 0: P 1/2, R 1/2, F1 1/2; label 1: the same; label 2: P 1, R 1, F1 1; mean 2/3
    assert classification_metrics(PROBS, GOLD)["macro_f1"] == pytest.approx(2 / 3)


def test_calibration_error_is_the_weighted_gap_over_ten_bins() -> None:
    # [.4, .5): .45 wrong, gap .45; [.5, .6): .50 wrong, gap .50; [.6, .7): .60 right, gap .40;
    # [.7, .8): .70 right, gap .30; [.9, 1]: 1.0 right, gap 0; each bin holds 1 of 5: (.45 + .50 + .40 + .30) / 5 = .33
    assert classification_metrics(PROBS, GOLD)["expected_calibration_error"] == pytest.approx(0.33)


def test_brier_score_is_the_mean_squared_distance_from_the_true_label() -> None:
    # .3^2 + .2^2 + .1^2 = .14; .75^2 + .5^2 + .25^2 = .875; .1^2 + .4^2 + .3^2 = .26;
    # .45^2 + .65^2 + .2^2 = .665; 0; their mean is 1.94 / 5
    assert classification_metrics(PROBS, GOLD)["brier_score"] == pytest.approx(0.388)


def test_log_loss_is_minus_the_mean_log_probability_of_gold_in_nats() -> None:
    # -(ln .7 + ln .25 + ln .6 + ln .35 + ln 1) / 5 = (.3566749 + 1.3862944 + .5108256 + 1.0498221) / 5
    assert classification_metrics(PROBS, GOLD)["log_loss"] == pytest.approx(0.6607234, abs=1e-7)


def test_a_true_label_of_probability_zero_makes_the_log_loss_infinite_and_certainty_makes_it_zero() -> None:
    assert classification_metrics([[1.0, 0.0], [0.5, 0.5]], [1, 0])["log_loss"] == math.inf
    assert str(classification_metrics([[1.0, 0.0]], [0])["log_loss"]) == "0.0"


def test_right_and_wrong_in_one_bin_balance_each_other() -> None:
    # Both in [.7, .8): accuracy 1/2, mean confidence (.70 + .78) / 2 = .74, gap .24
    metrics = classification_metrics([[0.7, 0.3], [0.78, 0.22]], [0, 1])
    assert metrics["expected_calibration_error"] == pytest.approx(0.24)


@pytest.mark.parametrize("definition", ["paper", "released", "published"])
def test_a_confidence_of_exactly_one_is_in_no_bin_and_one_below_it_is_in_the_last(definition: Definition) -> None:
    # Bins are [(b - 1) / 10, b / 10) in the paper, below table 2, and in the toolkit. Both rows are wrong; the gap of
    # the second is all but 1, over two rows.
    probs, gold = [[1.0, 0.0], [0.0, 1.0]], [1, 0]
    assert classification_metrics(probs, gold, definition)["expected_calibration_error"] == 0.0
    probs[1] = [2**-40, 1 - 2**-40]
    assert classification_metrics(probs, gold, definition)["expected_calibration_error"] == pytest.approx(0.5)


def test_the_calibration_error_is_that_of_exact_arithmetic_over_half_open_bins() -> None:
    random = np.random.default_rng(5)
    for _ in range(50):
        parts = [random.integers(0, 17, size=3) for _ in range(20)]
        rows = [[Fraction(int(x), 16) for x in (a, b, 16 - a - b)] for a, b, _ in parts if a + b <= 16]
        gold = random.integers(0, 3, size=len(rows)).tolist()
        gaps = dict.fromkeys(range(10), Fraction(0))
        for row, label in zip(rows, gold, strict=True):
            if max(row) < 1:
                gaps[int(10 * max(row))] += (row.index(max(row)) == label) - max(row)
        expected = sum(map(abs, gaps.values())) / len(rows)
        measured = classification_metrics([[float(x) for x in row] for row in rows], gold)
        assert measured["expected_calibration_error"] == pytest.approx(float(expected), abs=1e-12)


def test_of_equally_probable_labels_the_first_is_predicted() -> None:
    assert classification_metrics([[0.4, 0.4, 0.2]], [0])["accuracy"] == 1.0
    assert classification_metrics([[0.4, 0.4, 0.2]], [1])["accuracy"] == 0.0


def test_a_label_that_is_never_true_nor_predicted_counts_as_zero_in_macro_f1() -> None:
    # label 0: F1 1, label 1: F1 1, label 2 is absent: 0; mean 2/3
    assert classification_metrics([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1]], [0, 1])["macro_f1"] == pytest.approx(2 / 3)


def test_one_row_that_misses_the_exact_sum_softmaxes_all_rows_when_released_and_none_when_published() -> None:
    # .7 + .2 + .1 from left to right is .9999999999999999, so `released` softmaxes both rows.
    # softmax(1, 0, 0) gives gold e / (e + 2) = .5761168848; softmax(.7, .2, .1) gives gold
    # 1 / (1 + e^-.5 + e^-.6) = 1 / (1 + .6065306597 + .5488116361) = .4639634280; their mean is .5200401564
    probs, gold = [[1.0, 0.0, 0.0], [0.7, 0.2, 0.1]], [0, 0]
    assert classification_metrics(probs, gold, "released")["true_label_probability"] == pytest.approx(
        0.5200401564, abs=1e-9
    )
    assert classification_metrics(probs, gold, "published")["true_label_probability"] == pytest.approx(0.85)
    assert classification_metrics(probs, gold)["true_label_probability"] == pytest.approx(0.85)


@pytest.mark.parametrize("n_labels", [2, 3, 6])
def test_agrees_with_scikit_learn_and_a_plain_calibration_error(n_labels: int) -> None:
    rng = np.random.default_rng(n_labels)
    probs = rng.dirichlet(np.full(n_labels, 0.5), 500)
    gold = rng.integers(0, n_labels - 1, 500)  # the last label is never true
    pred = probs.argmax(1)
    metrics = classification_metrics(probs, gold)
    assert metrics["accuracy"] == pytest.approx(accuracy_score(gold, pred), abs=1e-12)
    macro_f1 = f1_score(gold, pred, labels=range(n_labels), average="macro", zero_division=0)
    assert metrics["macro_f1"] == pytest.approx(macro_f1, abs=1e-12)
    assert metrics["true_label_probability"] == pytest.approx(probs[np.arange(500), gold].mean(), abs=1e-12)
    assert metrics["expected_calibration_error"] == pytest.approx(_calibration_error(probs, gold), abs=1e-12)
    labels = list(range(n_labels))
    brier = brier_score_loss(gold, probs, labels=labels, scale_by_half=False)
    assert metrics["brier_score"] == pytest.approx(brier, abs=1e-12)
    assert metrics["log_loss"] == pytest.approx(log_loss(gold, probs, labels=labels), abs=1e-12)


def _calibration_error(probs: np.ndarray, gold: np.ndarray) -> float:
    confidence, right = probs.max(1), probs.argmax(1) == gold
    counts, _ = np.histogram(confidence, bins=10, range=(0, 1))
    confidences, _ = np.histogram(confidence, bins=10, range=(0, 1), weights=confidence)
    rights, _ = np.histogram(confidence, bins=10, range=(0, 1), weights=right.astype(float))
    held = counts > 0
    gaps = np.abs(rights[held] / counts[held] - confidences[held] / counts[held])
    return float(counts[held] / len(gold) @ gaps)


@pytest.mark.parametrize(
    "as_given", [np.asarray, list, pl.Series, lambda rows: pl.Series(np.asarray(rows)), lambda rows: tuple(rows)]
)
def test_arrays_lists_and_series_give_the_same_numbers(as_given: Any) -> None:
    assert classification_metrics(as_given(PROBS), as_given(GOLD)) == classification_metrics(PROBS, GOLD)


def test_the_keys_are_the_registered_metrics() -> None:
    assert list(classification_metrics(PROBS, GOLD)) == list(METRICS)


@pytest.mark.parametrize(
    ("probs", "gold", "message"),
    [
        ([[0.5, 0.5], [0.5, 0.6]], [0, 1], r"distributions.*1 of 2 are not, the first at row 1: \[0\.5, 0\.6\]"),
        ([[1.2, -0.2]], [0], r"none negative.*\[1\.2, -0\.2\]"),
        ([[0.5, 0.5], [0.5, 0.5]], [0, 2], r"from 0 to 1; 1 of 2 are not, the first at row 1: 2"),
        ([[0.5, 0.5]], [-1], r"from 0 to 1.*: -1"),
        ([[0.5, float("nan")]], [0], r"finite.*\[0\.5, nan\]"),
        ([[0.5, None]], [0], "finite"),
        ([[float("inf"), 0.5]], [0], "finite"),
        ([[0.5, 0.5]], [0, 1], "1 rows and gold has 2"),
        ([[0.5, 0.5], [1.0]], [0, 0], r"shape \[n, n_labels\]"),
        ([0.5, 0.5], [0, 1], r"shape \[n, n_labels\].*got \[2\]"),
        ([], [], r"neither of them 0"),
        ([["a", "b"]], [0], "numbers"),
        ([[0.5, 0.5]], [0.0], "integers.*float64"),
        ([[0.5, 0.5]], [[0]], r"shape \[n\].*\[1, 1\]"),
        ([[0.5, 0.5], [0.5, 0.5]], [[0], [0, 1]], "one label index a row"),
        (np.array([[0.5 + 0.5j, 0.5]]), [0], "must be numbers .*complex numbers are none"),
    ],
)
def test_input_that_cannot_be_measured_is_refused_with_its_place(probs: Any, gold: Any, message: str) -> None:
    with pytest.raises(MetricError, match=message):
        classification_metrics(probs, gold)


@pytest.mark.parametrize("definition", ["released", "published"])
def test_numbers_that_are_not_finite_are_refused_under_every_definition(definition: Any) -> None:
    with pytest.raises(MetricError, match="finite"):
        classification_metrics([[0.5, float("nan")]], [0], definition)


def test_an_unknown_definition_is_refused_with_the_known_ones() -> None:
    with pytest.raises(MetricError, match=r"'papers'. Did you mean 'paper'\? There are: paper, released, published"):
        classification_metrics(PROBS, GOLD, "papers")  # type: ignore[arg-type]


@pytest.mark.parametrize("definition", [None, ["paper"]])
def test_a_definition_that_is_no_text_is_refused_with_the_known_ones(definition: Any) -> None:
    with pytest.raises(MetricError, match=r"There is no definition .* There are: paper, released, published"):
        classification_metrics([[0.5, 0.5]], [0], definition)


def test_rows_rounded_to_single_precision_are_distributions() -> None:
    probs = np.random.default_rng(0).dirichlet(np.ones(6), 200).astype(np.float32)
    assert 0 <= classification_metrics(probs, np.zeros(200, dtype=int))["accuracy"] <= 1


def test_a_statistic_that_is_a_constant_counts_every_request_also_those_without_a_query() -> None:
    requests = pl.DataFrame({"dataset": ["a", "a", "b"], "query_id": [None, 1, None]})
    counts: Any = SimpleNamespace(statistics=lambda _n_labels: N_REQUESTS)
    assert statistic_sums(requests, 2, {"counted": counts}, ["dataset"]).rows() == [("a", 2.0), ("b", 1.0)]
