"""Frames to tables: baselines, order, and what is absent."""

import polars as pl
import pytest

from evaluator.report import tables
from evaluator.report.page import ReportData

GROUP = tables.Group("staicc-normal", "normal", "vanilla")


def test_the_majority_share_counts_each_request_once_however_many_methods_predicted_it(report_data: ReportData) -> None:
    spaces = tables.label_spaces(report_data.predictions)  # two definitions, so each request stands there twice
    assert spaces.select("dataset", "majority").rows() == [("abc", 0.75), ("mid", 0.75), ("zoo", 0.75)]
    of_some = report_data.predictions.filter(pl.col("gold") == 1).with_columns(method=pl.lit("other"))
    assert tables.label_spaces(pl.concat([report_data.predictions, of_some])).equals(spaces)


def test_chance_is_one_over_the_label_space_even_for_labels_that_never_occur(report_data: ReportData) -> None:
    baselines = tables.baselines_by_dataset(tables.label_spaces(report_data.predictions), GROUP)
    assert baselines["abc"] == tables.Baselines(n_labels=4, chance=0.25, majority=0.75)


def test_datasets_the_benchmark_does_not_name_follow_by_name(report_data: ReportData) -> None:
    assert tables.dataset_order(report_data.metrics, ["mid", "absent"]) == ["mid", "abc", "zoo"]


def test_a_definition_without_metrics_has_no_table(report_data: ReportData) -> None:
    metrics = report_data.metrics.filter(pl.col("definition") != "released")
    found = tables.result_tables(metrics, {}, ["zoo", "mid", "abc"])
    assert [table.definition for table in found] == ["paper", "published"]


def test_a_metric_that_was_not_measured_on_a_dataset_leaves_its_cell_empty(report_data: ReportData) -> None:
    metrics = report_data.metrics.filter(~((pl.col("dataset") == "abc") & (pl.col("metric") == "macro_f1")))
    (table, *_) = tables.result_tables(metrics, {}, ["zoo", "abc"])
    empty = {row.dataset for row, cell in table.column("macro_f1") if cell is None}
    assert empty == {"abc"}


def test_metrics_without_a_title_follow_under_their_own_name(report_data: ReportData) -> None:
    metrics = report_data.metrics.with_columns(pl.col("metric").replace("accuracy", "contextual_bias"))
    (table, *_) = tables.result_tables(metrics, {}, ["zoo"])
    assert [tables.metric_title(name) for name in table.metrics][-1] == "Contextual bias"


def test_a_pair_of_labels_that_never_occurred_counts_zero(report_data: ReportData) -> None:
    spaces = tables.label_spaces(report_data.predictions)
    (zoo,) = tables.confusion_tables(report_data.confusion, spaces, GROUP, ["zoo"])
    assert zoo == tables.ConfusionTable("zoo", ("cat", "dog"), ((6, 0), (2, 0)))


@pytest.mark.parametrize(
    ("metric", "lower"), [("expected_calibration_error", True), ("nll_loss", True), ("accuracy", False)]
)
def test_errors_and_losses_are_better_low(metric: str, lower: bool) -> None:
    assert tables.lower_is_better(metric) is lower
