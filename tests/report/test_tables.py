"""Frames to tables: baselines, order, and what is absent."""

import polars as pl
import pytest

from evaluator.report import tables
from evaluator.report.metric_texts import MetricText, MetricTexts
from tests.report.made_run import MadeRun

GROUP = tables.Group("staicc-normal", "normal", "vanilla")


def test_the_datasets_that_are_better_than_guessing_are_counted_without_their_mean(report_data: MadeRun) -> None:
    metrics = report_data.table("metrics").with_columns(
        better_than_guessing=pl.when(pl.col("metric") == "accuracy").then(pl.col("dataset") != "zoo")
    )
    (table, *_) = tables.result_tables(metrics, {}, ["zoo", "mid", "abc"])
    assert table.better_than_guessing() == ["mid", "abc"]
    assert [row.dataset for row in table.tested] == ["zoo", "mid", "abc", "mean"]
    assert table.n_tests == 4


def test_datasets_the_benchmark_does_not_name_follow_by_name(report_data: MadeRun) -> None:
    assert tables.dataset_order(report_data.table("metrics"), ["mid", "absent"]) == ["mid", "abc", "zoo"]


def test_a_definition_without_metrics_has_no_table(report_data: MadeRun) -> None:
    metrics = report_data.table("metrics").filter(pl.col("definition") != "released")
    found = tables.result_tables(metrics, {}, ["zoo", "mid", "abc"])
    assert [table.definition for table in found] == ["paper", "published"]


def test_a_metric_that_was_not_measured_on_a_dataset_leaves_its_cell_empty(report_data: MadeRun) -> None:
    metrics = report_data.table("metrics").filter(~((pl.col("dataset") == "abc") & (pl.col("metric") == "macro_f1")))
    (table, *_) = tables.result_tables(metrics, {}, ["zoo", "abc"])
    empty = {row.dataset for row, cell in table.column("macro_f1") if cell is None}
    assert empty == {"abc"}


def test_metrics_without_a_title_follow_under_their_own_name(report_data: MadeRun) -> None:
    metrics = report_data.table("metrics").with_columns(pl.col("metric").replace("accuracy", "nll_loss"))
    (table, *_) = tables.result_tables(metrics, {}, ["zoo"])
    assert [table.texts.title(name) for name in table.metrics][-1] == "Nll loss"


def test_a_pair_of_labels_that_never_occurred_counts_zero(report_data: MadeRun) -> None:
    spaces = report_data.table("label_spaces")
    (zoo,) = tables.confusion_tables(report_data.table("confusion"), spaces, GROUP, ["zoo"])
    assert zoo == tables.ConfusionTable("zoo", ("cat", "dog"), ((6, 0), (2, 0)))


@pytest.mark.parametrize(
    ("metric", "lower"),
    [("expected_calibration_error", True), ("nll_loss", True), ("accuracy", False), ("some_bias", True)],
)
def test_errors_and_losses_are_better_low_and_so_is_what_says_so(metric: str, lower: bool) -> None:
    texts = MetricTexts({"some_bias": MetricText("Some bias", lower_is_better=True)})
    assert texts.lower_is_better(metric) is lower
