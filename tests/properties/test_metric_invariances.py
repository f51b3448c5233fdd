"""What holds for every registered metric, whatever the predictions."""

import math
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from evaluator.metrics import METRICS
from evaluator.metrics.classification import DEFINITIONS, STAICC_METRICS
from evaluator.metrics.groups import SCORE_PARTS
from evaluator.schemas import MEAN_OVER_DATASETS, METRICS_KEY
from tests.metrics.measured import metrics_of
from tests.strategies import diagnostic_tables, score_tables
from tests.suites.staicc.measured import staicc_group_metrics, staicc_metrics

examples = settings(max_examples=4)  # each measures all metrics at once, 0.1 s


@examples
@given(score_tables(), st.integers(0, 2**31))
def test_row_order_does_not_matter_to_the_last_bit(predictions: pl.DataFrame, seed: int) -> None:
    shuffled = predictions.sample(fraction=1.0, shuffle=True, seed=seed)
    assert_frame_equal(metrics_of(shuffled), metrics_of(predictions), check_exact=True)


@examples
@given(score_tables())
def test_every_metric_and_definition_is_there_within_its_range_and_inside_its_interval(
    predictions: pl.DataFrame,
) -> None:
    table = metrics_of(predictions)
    assert set(table["metric"]) == {*METRICS, *SCORE_PARTS}
    assert set(table["definition"]) == {*DEFINITIONS} - {"floored"}  # of imported answers alone
    # Parts of scores are estimates without bias, which may lie on either side of what they estimate.
    ranges = dict.fromkeys(STAICC_METRICS, (0.0, 1.0)) | {"brier_score": (0.0, 2.0), "log_loss": (0.0, math.inf)}
    for metric, value, low, high in table.select("metric", "value", "ci_low", "ci_high").iter_rows():
        lowest, highest = ranges.get(metric, (-math.inf, math.inf))
        assert lowest <= value <= highest or (math.isnan(value) and metric == "log_loss_refinement")
        assert low is None or lowest <= low <= value <= high <= highest


@examples
@given(score_tables())
def test_every_accuracy_of_a_dataset_has_a_verdict_that_fits_its_tests_and_no_other_metric_has(
    predictions: pl.DataFrame,
) -> None:
    table = metrics_of(predictions).filter(pl.col("dataset") != MEAN_OVER_DATASETS)
    value, chance = pl.col("value"), pl.col("chance")
    p_holm, p_majority = pl.col("p_holm"), pl.col("p_majority_holm")
    expected = pl.when(p_holm > 0.05).then(pl.lit("not better than uniform guessing"))
    expected = expected.when(p_majority > 0.05).then(pl.lit("better than uniform guessing"))
    of_accuracy = table.filter(metric="accuracy").with_columns(
        expected=expected.otherwise(pl.lit("better than guessing"))
    )
    assert of_accuracy["verdict"].to_list() == of_accuracy["expected"].to_list()
    assert of_accuracy.filter((pl.col("value") <= pl.col("majority")) & (p_majority <= 0.05)).is_empty()
    assert of_accuracy["max_random"].to_list() == pytest.approx(of_accuracy["chance"].to_list())
    assert (of_accuracy["log10_tail"] <= 0).all()
    bound = pl.col("accuracy_lower_bound")
    assert of_accuracy.filter(pl.col("n_needed").is_not_null() != (bound > chance + 1e-5)).is_empty()
    assert of_accuracy.filter((bound > value) | (p_holm < pl.col("p_value")) | (p_holm > 1)).is_empty()
    assert of_accuracy.filter(pl.col("better_than_uniform") != (p_holm <= 0.05)).is_empty()
    assert table.filter(pl.col("metric") != "accuracy")["verdict"].null_count() == table.height - of_accuracy.height


def permuted(rows: pl.DataFrame, random: Any) -> pl.DataFrame:
    """The same answers to labels in another order."""
    n_labels = len(rows["label_names"][0])
    order = list(range(n_labels))
    random.shuffle(order)
    return rows.with_columns(
        pl.col("label_probs", "label_names").list.gather(order),
        pl.col("gold", "pred").replace_strict(order, range(n_labels)),
    )


@examples
@given(score_tables(ties=False), st.randoms(use_true_random=False))
def test_permuting_the_label_space_changes_nothing(predictions: pl.DataFrame, random: Any) -> None:
    # Not under `released`: whether a row sums to exactly 1 depends on the order of its terms. Nor with ties, of which
    # the first label wins.
    definition_kept = pl.col("definition") != "released"
    datasets = [permuted(rows, random) for rows in predictions.partition_by("dataset")]
    assert_frame_equal(
        metrics_of(pl.concat(datasets)).filter(definition_kept),
        metrics_of(predictions).filter(definition_kept),
        abs_tol=1e-9,
    )


@examples
@given(diagnostic_tables(ties=False), st.randoms(use_true_random=False))
def test_permuting_the_label_space_changes_no_diagnostic(predictions: pl.DataFrame, random: Any) -> None:
    for table in (staicc_metrics, staicc_group_metrics):
        of_paper = [table(rows).filter(definition="paper") for rows in (permuted(predictions, random), predictions)]
        assert_frame_equal(*of_paper, abs_tol=1e-9)


@examples
@given(diagnostic_tables(), st.integers(0, 2**31))
def test_row_order_does_not_matter_to_diagnostics_to_the_last_bit(predictions: pl.DataFrame, seed: int) -> None:
    shuffled = predictions.sample(fraction=1.0, shuffle=True, seed=seed)
    for table in (staicc_metrics, staicc_group_metrics):
        assert_frame_equal(table(shuffled), table(predictions), check_exact=True)


@examples
@given(diagnostic_tables())
def test_every_diagnostic_is_within_its_range_and_inside_its_interval(predictions: pl.DataFrame) -> None:
    largest = math.log(len(predictions["label_names"][0]))
    table = staicc_metrics(predictions).filter(~pl.col("metric").is_in([*METRICS, *SCORE_PARTS]))
    ranges = {
        ("contextual_bias", "paper"): (-largest, 0.0),
        ("domain_bias", "paper"): (-largest, 0.0),
        ("contextual_bias", "released"): (0.0, largest),
        ("domain_bias", "released"): (0.0, largest),
        ("empirical_bias", "paper"): (0.0, math.inf),
        ("empirical_bias", "released"): (0.0, math.inf),
    }
    for metric, definition, value, low, high in table.select(
        "metric", "definition", "value", "ci_low", "ci_high"
    ).iter_rows():
        slopes = (-12.0, 12.0) if metric == "gler_per_tenth" else (-1.2, 1.2)
        lowest, highest = ranges.get((metric, definition), slopes if "gler" in metric else (0.0, 1.0))
        assert math.isnan(value) or lowest - 1e-12 <= value <= highest + 1e-12
        assert (low is None) == (high is None)
        if low is not None:
            assert lowest - 1e-12 <= low <= value <= high <= highest + 1e-12


@examples
@given(diagnostic_tables())
def test_asking_every_diagnostic_request_twice_adds_nothing_to_values_or_certainty(predictions: pl.DataFrame) -> None:
    # Not under `released`: whether a mean adds up to exactly 1 depends on how many rows it is of.
    once = predictions.filter(definition="paper")
    twice = pl.concat([once, once.with_columns(pl.col("position") + 1_000)])
    for table in (staicc_metrics, staicc_group_metrics):
        assert_frame_equal(table(twice), table(once).with_columns(pl.col("n_requests") * 2), abs_tol=1e-9)


@examples
@given(score_tables())
def test_asking_every_request_twice_adds_nothing_to_values_or_certainty(predictions: pl.DataFrame) -> None:
    again = predictions.with_columns(pl.col("position") + 1_000)
    once, twice = metrics_of(predictions), metrics_of(pl.concat([predictions, again]))
    n_requests = pl.col("n_requests")
    assert_frame_equal(twice, once.with_columns(n_requests * 2), abs_tol=1e-9)


@examples
@given(score_tables(max_datasets=1))
def test_another_dataset_moves_only_the_mean_and_what_is_corrected_for_the_number_of_tests(
    predictions: pl.DataFrame,
) -> None:
    other = predictions.with_columns(dataset=pl.lit("another"))
    both, alone = metrics_of(pl.concat([predictions, other])), metrics_of(predictions)
    corrected = (
        "n_tests",
        "p_holm",
        "better_than_uniform",
        "n_needed",
        "p_majority_holm",
        "better_than_guessing",
        "verdict",
    )
    assert_frame_equal(*(table.filter(dataset="dataset-0").drop(corrected) for table in (both, alone)))
    assert both.select(METRICS_KEY).is_unique().all()
