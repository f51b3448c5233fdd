"""Methods against vanilla within one run, against SciPy's one-sample t interval over queries and two more."""

from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy.stats import ttest_1samp

from evaluator.compare.differences import method_differences
from evaluator.compare.schema import DIFFERENCES, DIFFERENCES_KEY
from evaluator.metrics.groups import measured_groups
from tests.compare.run_folders import LABELS, N_QUERIES, predictions
from tests.metrics.measured import metrics_of

METHODS = ("vanilla", "topk", "knn_centroid")


def of(answers: pl.DataFrame) -> pl.DataFrame:
    return method_differences(measured_groups(answers), metrics_of(answers), "acme/tiny")


@pytest.fixture(scope="module")
def answers() -> pl.DataFrame:
    """As in StaICC, topk answers each query once and the others twice."""
    all_rows = predictions(0.5, seed=3, methods=METHODS)
    return all_rows.filter((pl.col("method") != "topk") | (pl.col("demonstration_set") == 0))


@pytest.fixture(scope="module")
def differences(answers: pl.DataFrame) -> pl.DataFrame:
    return of(answers)


def per_query(answers: pl.DataFrame, dataset: str, method: str) -> np.ndarray[Any, Any]:
    """The accuracy of each query under `paper`, by NumPy."""
    rows = answers.filter(dataset=dataset, method=method, definition="paper").sort("query_id", "demonstration_set")
    right = (rows["pred"] == rows["gold"]).to_numpy().astype(float)
    return np.asarray(right.reshape(N_QUERIES, -1).mean(axis=1))


def test_every_other_method_is_there_against_vanilla(differences: pl.DataFrame) -> None:
    assert differences.schema == DIFFERENCES
    assert differences.equals(differences.sort(DIFFERENCES_KEY))
    assert set(differences["method_a"]) == {"topk", "knn_centroid"}
    assert set(differences["method_b"]) == {"vanilla"}
    assert set(differences["model_a"]) == set(differences["model_b"]) == {"acme/tiny"}
    assert differences.height == 2 * (len(LABELS) + 1) * 2 * 3  # with the mean; metrics and definitions


@pytest.mark.parametrize("method", ["topk", "knn_centroid"])
@pytest.mark.parametrize("dataset", LABELS)
def test_a_query_counts_once_however_often_a_method_answers_it(
    differences: pl.DataFrame, answers: pl.DataFrame, dataset: str, method: str
) -> None:
    gained = per_query(answers, dataset, method) - per_query(answers, dataset, "vanilla")
    low, high = ttest_1samp([*gained, 1, -1], 0).confidence_interval(0.95)
    found = differences.filter(dataset=dataset, method_a=method, metric="accuracy", definition="paper")
    row = found.row(0, named=True)
    assert row["difference"] == pytest.approx(float(gained.mean()), abs=1e-12)
    if row["p_value"] <= 0.05 and low < 0 < high:
        low, high = (row["ci_low"], high) if row["difference"] > 0 else (low, row["ci_high"])  # to the test's side
    assert (row["ci_low"], row["ci_high"]) == (pytest.approx(max(low, -1)), pytest.approx(min(high, 1)))
    assert row["n_queries"] == N_QUERIES


def test_differences_are_those_of_the_runs_own_metrics(differences: pl.DataFrame, answers: pl.DataFrame) -> None:
    metrics = metrics_of(answers)
    values = {
        tuple(key): value for *key, value in metrics.select("dataset", "metric", "definition", "method", "value").rows()
    }
    assert differences["metric"].n_unique() > 1
    for dataset, metric, definition, method, difference in differences.select(
        "dataset", "metric", "definition", "method_a", "difference"
    ).iter_rows():
        expected = values[dataset, metric, definition, method] - values[dataset, metric, definition, "vanilla"]
        assert difference == pytest.approx(expected, abs=1e-12)


def test_a_method_that_follows_one_definition_is_compared_under_that_one(answers: pl.DataFrame) -> None:
    of_paper = answers.filter((pl.col("method") != "topk") | (pl.col("definition") == "paper"))
    found = of(of_paper)
    assert set(found.filter(method_a="topk")["definition"]) == {"paper"}
    assert set(found.filter(method_a="knn_centroid")["definition"]) == {"paper", "released", "published"}


@pytest.mark.parametrize("methods", [["vanilla"], ["topk", "knn_centroid"]])
def test_without_vanilla_or_with_nothing_beside_it_there_is_no_difference(
    answers: pl.DataFrame, methods: list[str]
) -> None:
    found = of(answers.filter(pl.col("method").is_in(methods)))
    assert found.is_empty()
    assert found.schema == DIFFERENCES
