"""The metrics table and the tables a report draws, on small hand-made predictions."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from evaluator.errors import MetricError
from evaluator.metrics import METRICS
from evaluator.metrics.classification import sum_in_order
from evaluator.metrics.groups import SCORE_PARTS, prediction_groups
from evaluator.schemas import MEAN_OVER_DATASETS, METRICS_KEY, PREDICTIONS
from evaluator.schemas import METRICS as METRICS_SCHEMA
from tests.metrics.measured import confusion_of, metrics_of, reliability_of
from tests.suites.staicc.measured import staicc_metrics


def predictions(dataset: str, probs: list[list[float]], gold: list[int], **columns: Any) -> pl.DataFrame:
    """Each query tested twice in a row; every column can be replaced."""
    n = len(gold)
    frame = {
        "suite": "suite",
        "part": "part",
        "dataset": dataset,
        "method": "vanilla",
        "definition": "paper",
        "position": range(n),
        "query_id": [i // 2 for i in range(n)],
        "demonstration_set": [i % 2 for i in range(n)],
        "n_shots": 2,
        "template": 0,
        "noise_rate": 0.0,
        "n_wrong_labels": 0,
        "prompt_id": [f"{dataset}-{i}" for i in range(n)],
        "gold": gold,
        "pred": [row.index(max(row)) for row in probs],
        "label_names": [[f"label {i}" for i in range(len(probs[0]))]] * n,
        "label_probs": probs,
    }
    return pl.DataFrame(frame | columns, schema_overrides=PREDICTIONS)


def value_of(table: pl.DataFrame, metric: str, dataset: str, definition: str = "paper", column: str = "value") -> float:
    row = table.filter(
        pl.col("metric") == metric, pl.col("dataset") == dataset, pl.col("definition") == definition
    ).row(0, named=True)
    return float(row[column])


ALL_METRICS = {*METRICS, *SCORE_PARTS}
BINARY = predictions("a", [[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.6, 0.4]], [0, 0, 1, 1])  # 3 of 4 right
TERNARY = predictions("b", [[0.5, 0.3, 0.2], [0.2, 0.5, 0.3]], [0, 0])  # 1 of 2 right


def test_table_has_the_declared_schema_and_is_sorted_by_its_key() -> None:
    table = metrics_of(pl.concat([TERNARY, BINARY]))
    assert table.schema == METRICS_SCHEMA
    assert_frame_equal(table, table.sort(METRICS_KEY))
    assert table.height == 3 * len(ALL_METRICS)  # two datasets and their mean


def test_mean_is_the_plain_mean_over_datasets_whatever_their_size() -> None:
    table = metrics_of(pl.concat([BINARY, TERNARY]))
    assert value_of(table, "accuracy", "a") == 0.75
    assert value_of(table, "accuracy", "b") == 0.5
    assert value_of(table, "accuracy", MEAN_OVER_DATASETS) == 0.625  # not 4 of 6
    assert value_of(table, "accuracy", MEAN_OVER_DATASETS, column="n_requests") == 6
    assert value_of(table, "accuracy", MEAN_OVER_DATASETS, column="n_queries") == 3


def test_mean_over_one_dataset_is_that_dataset_with_its_interval() -> None:
    table = metrics_of(BINARY)
    of_dataset, of_mean = (table.filter(dataset=name).drop("dataset") for name in ("a", MEAN_OVER_DATASETS))
    assert_frame_equal(of_dataset, of_mean, abs_tol=1e-15)


def test_released_predictions_give_released_and_published_and_none_of_the_paper() -> None:
    table = metrics_of(BINARY.with_columns(definition=pl.lit("released")))
    assert table["definition"].unique().sort().to_list() == ["published", "released"]


def test_paper_and_released_are_measured_on_their_own_predictions() -> None:
    # The last token alone may rank labels otherwise: here it gets the fourth request right.
    released = BINARY.with_columns(
        definition=pl.lit("released"),
        label_probs=pl.Series([[0.75, 0.25], [0.75, 0.25], [0.25, 0.75], [0.25, 0.75]]),
    )
    table = metrics_of(pl.concat([BINARY, released]))
    assert value_of(table, "accuracy", "a") == 0.75
    assert value_of(table, "accuracy", "a", "released") == value_of(table, "accuracy", "a", "published") == 1.0


def repeated(part: str) -> pl.DataFrame:
    """BINARY asked twice more, at another noise rate, with another template and behind other demonstrations, under both
    definitions."""
    others = {"template": pl.lit(1, pl.Int64), "noise_rate": pl.lit(0.5)}
    again = BINARY.with_columns(pl.col("position") + 4, pl.col("demonstration_set") + 2, **others)
    twice = pl.concat([BINARY, again])
    both = [twice.with_columns(definition=pl.lit(definition)) for definition in ("paper", "released")]
    return pl.concat(both).with_columns(part=pl.lit(part))


DIAGNOSED = {
    "contextual": {"contextual_bias"},
    "domain": {"domain_bias"},
    "gler": {"gler", "gler_true_label_probability", "gler_macro_f1", "gler_expected_calibration_error"}
    | {"gler_per_tenth", "gler_toolkit_axis"},
    "template": {"template_consistency", "accuracy_mean_over_templates", "accuracy_sd_over_templates"},
    "sampling": {"sampling_consistency", "accuracy_mean_over_demonstration_sets"},
}


@pytest.mark.parametrize("part", DIAGNOSED)
def test_a_diagnosed_part_has_its_diagnostics_alone_without_baselines_and_without_published(part: str) -> None:
    table = staicc_metrics(repeated(part))
    assert table.schema == METRICS_SCHEMA
    expected = {(metric, definition) for metric in DIAGNOSED[part] for definition in ("paper", "released")}
    assert set(table.select("metric", "definition").iter_rows()) == expected
    assert table.height == 2 * len(expected)  # the dataset and the mean
    assert table.select("chance", "max_random", "tries", "verdict").null_count().row(0) == (table.height,) * 4
    assert table.select("n_queries", "n_requests").unique().rows() == [(2, 8)]


def test_normal_has_the_empirical_bias_beside_the_metrics_of_every_part() -> None:
    table = staicc_metrics(repeated("normal"))
    shown = set(table.select("metric", "definition").iter_rows())
    of_all = {(metric, definition) for metric in ALL_METRICS for definition in ("paper", "released", "published")}
    assert shown == of_all | {("empirical_bias", "paper"), ("empirical_bias", "released")}
    assert set(staicc_metrics(repeated("in_domain"))["metric"]) == ALL_METRICS


def test_parts_of_a_run_change_nothing_of_each_other_but_the_number_of_tests() -> None:
    parts = [*DIAGNOSED, "normal", "in_domain"]
    together = staicc_metrics(pl.concat(map(repeated, parts)))
    apart = pl.concat(staicc_metrics(repeated(part)) for part in parts).sort(METRICS_KEY)
    corrected = [
        "p_holm",
        "n_tests",
        "better_than_uniform",
        "n_needed",
        "p_majority_holm",
        "better_than_guessing",
        "verdict",
    ]
    assert_frame_equal(together.drop(corrected), apart.drop(corrected))
    accuracies = together.filter(metric="accuracy")
    assert accuracies["n_tests"].unique().to_list() == [4]  # two tests of one dataset in two parts


def test_methods_and_parts_have_their_own_means() -> None:
    other = TERNARY.with_columns(method=pl.lit("contextual"))
    table = metrics_of(pl.concat([BINARY, other])).filter(dataset=MEAN_OVER_DATASETS, metric="accuracy")
    assert dict(table.select("method", "value").iter_rows()) == {"contextual": 0.5, "vanilla": 0.75}


def test_lazy_predictions_give_the_same_table() -> None:
    assert_frame_equal(metrics_of(BINARY.lazy()), metrics_of(BINARY))


def test_files_of_datasets_are_read_one_after_the_other_and_give_the_same_table(tmp_path: Path) -> None:
    frames = [predictions(name, [[0.9, 0.1], [0.2, 0.8], [0.4, 0.6]], [0, 1, 0]) for name in ("b", "a")]
    for number, frame in enumerate(frames):
        frame.write_parquet(tmp_path / f"{number}.parquet")
    scanned = pl.scan_parquet(tmp_path / "*.parquet")
    assert [group.key["dataset"] for group in prediction_groups(scanned)] == ["a", "b"]
    assert_frame_equal(metrics_of(scanned), metrics_of(pl.concat(frames)))


def test_groups_come_in_the_order_of_their_key_with_their_rows() -> None:
    other = BINARY.with_columns(method=pl.lit("contextual"))
    groups = list(prediction_groups(pl.concat([BINARY, other, TERNARY])))
    assert [(group.key["dataset"], group.key["method"]) for group in groups] == [
        ("a", "contextual"), ("a", "vanilla"), ("b", "vanilla")
    ]  # fmt: skip
    rows = groups[1].rows
    assert_frame_equal(rows.drop("prompt_id"), BINARY.select(rows.drop("prompt_id").columns))


def test_one_query_alone_has_a_value_and_no_interval() -> None:
    table = metrics_of(pl.concat([BINARY, TERNARY]))
    of_ternary = table.filter(dataset="b")
    assert of_ternary["value"].null_count() == 0
    assert of_ternary["ci_low"].null_count() == of_ternary["ci_high"].null_count() == len(ALL_METRICS)
    # A mean that stands on it has none either.
    assert table.filter(dataset=MEAN_OVER_DATASETS)["ci_low"].null_count() == len(ALL_METRICS)


def test_rows_that_are_not_distributions_are_refused_with_dataset_and_method() -> None:
    broken = BINARY.with_columns(label_probs=pl.Series([[0.9, 0.2], [0.8, 0.2], [0.3, 0.7], [0.6, 0.5]]))
    with pytest.raises(MetricError, match=r"suite, part, a, vanilla, paper: .* 2 of 4 .* row 0: \[0\.9, 0\.2\]"):
        metrics_of(broken)


def test_rows_of_another_length_than_the_label_space_are_refused() -> None:
    with pytest.raises(MetricError, match=r"must hold 2 numbers a row.* row 2: \[1\.0\]"):
        metrics_of(predictions("a", [[0.5, 0.5], [0.5, 0.5], [1.0]], [0, 0, 0]))


def test_a_dataset_with_two_label_spaces_is_refused() -> None:
    names = pl.Series([["x", "y"], ["x", "y"], ["x", "y"], ["x", "y", "z"]])
    with pytest.raises(MetricError, match=r"one label space.*\[2, 3\]"):
        metrics_of(BINARY.with_columns(label_names=names))


@pytest.mark.parametrize("frame", [BINARY.clear(), BINARY.with_columns(definition=pl.lit("published"))])
def test_nothing_to_measure_is_an_error(frame: pl.DataFrame) -> None:
    with pytest.raises(MetricError, match="nothing to measure"):
        metrics_of(frame)


def test_reliability_has_every_bin_and_the_means_of_those_that_hold_requests() -> None:
    # Confidences .9 right, .8 right, .7 right, .6 wrong: one request in each of the bins 6 to 9.
    table = reliability_of(BINARY)
    assert table["bin"].to_list() == list(range(10))
    assert table["n_requests"].to_list() == [0, 0, 0, 0, 0, 0, 1, 1, 1, 1]
    assert table["mean_confidence"].to_list() == [None] * 6 + [0.6, 0.7, 0.8, 0.9]
    assert table["accuracy"].to_list() == [None] * 6 + [0.0, 1.0, 1.0, 1.0]


def test_reliability_adds_up_to_the_calibration_error() -> None:
    frame = predictions("a", [[0.72, 0.28], [0.78, 0.22], [0.3, 0.7], [1.0, 0.0]], [0, 1, 1, 0])
    weighted_gap = (pl.col("accuracy") - pl.col("mean_confidence")).abs() * pl.col("n_requests") / 4
    total = reliability_of(frame).select(weighted_gap.sum()).item()
    assert total == pytest.approx(value_of(metrics_of(frame), "expected_calibration_error", "a"))


def test_confusion_counts_every_pair_of_labels_also_those_that_never_occur() -> None:
    table = confusion_of(pl.concat([BINARY, TERNARY]))
    counts = {tuple(row) for row in table.select("dataset", "gold", "pred", "n_requests").iter_rows()}
    binary = {("a", 0, 0, 2), ("a", 0, 1, 0), ("a", 1, 0, 1), ("a", 1, 1, 1)}
    ternary = {("b", g, p, int((g, p) in {(0, 0), (0, 1)})) for g in range(3) for p in range(3)}
    assert counts == binary | ternary
    assert table.height == 4 + 9


@pytest.mark.parametrize("make", [reliability_of, confusion_of])
def test_a_run_without_paper_predictions_has_empty_report_tables(make: Any) -> None:
    assert make(BINARY.with_columns(definition=pl.lit("released"))).height == 0


def test_terms_of_a_row_are_added_from_first_to_last_so_that_the_last_digit_never_changes() -> None:
    # In doubles 1e16 + 1 is 1e16. From first to last: ((1e16 + 1) - 1e16) + 1 = 1; in pairs it would be 0.
    rows = pl.DataFrame({"a": [1e16] * 1000, "b": 1.0, "c": -1e16, "d": 1.0})
    assert rows.select(sum_in_order(map(pl.col, rows.columns)))["a"].unique().to_list() == [1.0]


def test_no_metric_adds_in_the_order_of_threads() -> None:
    expressions = (metric.value(6) for metric in METRICS.values())
    assert not [text for text in map(str, expressions) if "sum_horizontal" in text]
