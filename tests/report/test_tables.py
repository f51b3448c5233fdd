"""Metrics to rows of datasets: order, what is absent, and titles."""

import polars as pl
import pytest

from evaluator.report.classification import confusion_matrix
from evaluator.report.methods import sign
from evaluator.report.table import (
    MAJORITY_TESTED,
    MetricText,
    MetricTexts,
    by_definition,
    dataset_order,
    limit_text,
    p_text,
    percent,
    plain,
    probability,
    value_tip,
)
from tests.report.made_run import MadeRun


def test_the_tip_of_a_value_has_its_interval_from_the_lower_end_and_its_sizes() -> None:
    cell = {"value": 0.5, "ci_low": 0.25, "ci_high": 0.625, "n_queries": 1_000, "n_requests": 2_000}
    assert value_tip(cell) == "0.5, 95% interval 0.250–0.625, 1,000 queries in 2,000 requests"


def test_datasets_the_benchmark_does_not_name_follow_by_name(report_data: MadeRun) -> None:
    assert dataset_order(report_data.table("metrics"), ["mid", "absent"]) == ["mid", "abc", "zoo"]


def test_a_definition_without_metrics_has_no_table(report_data: MadeRun) -> None:
    metrics = report_data.table("metrics").filter(pl.col("definition") != "released")
    assert [definition for definition, _ in by_definition(metrics, ["zoo", "mid", "abc"])] == ["paper", "published"]


def test_rows_are_in_the_order_of_datasets_and_the_mean_is_last(report_data: MadeRun) -> None:
    (_, rows), *_ = by_definition(report_data.table("metrics"), ["zoo", "mid", "abc"])
    assert rows["dataset"].to_list() == ["zoo", "mid", "abc", "mean"]


def test_a_metric_that_was_not_measured_on_a_dataset_leaves_its_cell_empty(report_data: MadeRun) -> None:
    metrics = report_data.table("metrics").filter(~((pl.col("dataset") == "abc") & (pl.col("metric") == "macro_f1")))
    (_, rows), *_ = by_definition(metrics, ["zoo", "abc"])
    assert rows.filter(pl.col("macro_f1").is_null())["dataset"].to_list() == ["abc"]


def test_metrics_without_a_title_follow_under_their_own_name() -> None:
    texts = MetricTexts()
    assert [texts.title(name) for name in texts.in_order(["nll_loss", "accuracy"])] == ["Accuracy", "Nll loss"]
    untitled = [*"hgfedcba"]
    assert texts.in_order([*untitled, "macro_f1"]) == ("macro_f1", *sorted(untitled))
    assert dataset_order(pl.DataFrame({"dataset": untitled}), ["g"]) == ["g", *"abcdefh"]


@pytest.mark.parametrize(("log10", "shown"), [(-2.0, "0.010"), (-3.0, "10<sup>−3.0</sup>"), (None, "–")])
def test_a_probability_of_a_thousandth_and_below_is_a_power_of_ten(log10: float | None, shown: str) -> None:
    assert probability(log10) == shown


def test_a_pair_of_labels_that_never_occurred_counts_zero(report_data: MadeRun) -> None:
    zoo = report_data.table("confusion").filter(dataset="zoo", method="vanilla")
    matrix = confusion_matrix("zoo", ("cat", "dog"), zoo)
    counts = {name: [cell.text for cell in cells if cell] for name, cells in matrix.rows}
    assert counts == {"cat": ["6", "0"], "dog": ["2", "0"]}


def test_a_cell_of_a_confusion_matrix_is_shaded_by_its_share_of_the_rows_of_its_gold_label() -> None:
    confusion = pl.DataFrame({"gold": [0, 0], "pred": [0, 1], "n_requests": [3, 1]})
    matrix = confusion_matrix("zoo", ("cat", "dog"), confusion)
    assert [[cell.share for cell in cells if cell] for _, cells in matrix.rows] == [[75, 25], [0, 0]]  # no dog
    assert [cell.tip for cell in matrix.rows[0][1] if cell] == [
        "gold cat, predicted cat: 3 of 4 (75.0%)",
        "gold cat, predicted dog: 1 of 4 (25.0%)",
    ]
    assert [[cell.style for cell in cells if cell] for _, cells in matrix.rows] == [["right", ""], ["", "right"]]


@pytest.mark.parametrize(
    ("metric", "lower"),
    [("expected_calibration_error", True), ("nll_loss", True), ("accuracy", False), ("some_bias", True)],
)
def test_errors_and_losses_are_better_low_and_so_is_what_says_so(metric: str, lower: bool) -> None:
    texts = MetricTexts({"some_bias": MetricText("Some bias", lower_is_better=True)})
    assert texts.lower_is_better(metric) is lower


@pytest.mark.parametrize(("value", "shown"), [(0.001, "0.001"), (0.000999, "< 0.001"), (1.0, "1.000"), (None, "–")])
def test_a_p_value_below_a_thousandth_is_named_as_such_and_a_thousandth_is_not(value: float | None, shown: str) -> None:
    assert p_text(value) == shown


@pytest.mark.parametrize(("p", "shown"), [(0.05, "yes"), (0.0501, "no")])
def test_an_accuracy_is_better_than_the_majority_label_where_p_is_5_percent_at_most(p: float, shown: str) -> None:
    assert (MAJORITY_TESTED.value, MAJORITY_TESTED.show(p)) == ("p_majority_holm", shown)


@pytest.mark.parametrize(
    ("p", "difference", "shown"), [(0.05, 0.1, "positive"), (0.05, -0.1, "negative"), (0.0501, 0.1, "unclear")]
)
def test_a_difference_has_a_sign_where_p_is_5_percent_at_most(p: float, difference: float, shown: str) -> None:
    assert sign({"p_holm": p, "difference": difference}) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        *((0.5, "50.0%"), (0.0, "0.0%"), (1.0, "100.0%"), (0.9994, "99.9%"), (0.0006, "0.1%"), (None, "–")),
        # An assurance of 1 - .05 / 150, and one error in a million.
        *((1 - 0.05 / 150, "99.97%"), (0.999999, "99.9999%"), (0.0004, "0.04%"), (1e-20, "0.0%")),
    ],
)
def test_a_share_in_percent_is_not_taken_for_none_or_all(value: float | None, shown: str) -> None:
    assert percent(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"), [(0.52274, "0.5227"), (0.99994, "0.9999"), (0.99996, "0.99996"), (1.0, "1"), (None, "–")]
)
def test_a_threshold_below_1_is_not_1(value: float | None, shown: str) -> None:
    assert limit_text(value) == shown


def test_a_number_after_a_word_written_from_right_to_left_stays_behind_it() -> None:
    isolated = "good 21, \u2068\u05d8\u05d5\u05d1 \u05de\u05d0\u05d3\u2069 22, \u2068\u0633\u0644\u0628\u064a\u2069 23"
    assert plain("good 21, \u05d8\u05d5\u05d1 \u05de\u05d0\u05d3 22, \u0633\u0644\u0628\u064a 23") == isolated
