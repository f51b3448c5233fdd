"""The table of rank correlations against SciPy on the run folders' own numbers."""

from itertools import combinations
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy.stats import spearmanr

from evaluator.compare.across_models import NOT_INDEPENDENT, rank_correlations
from evaluator.compare.results import comparison_table
from evaluator.compare.schema import RANK_CORRELATIONS, RANK_CORRELATIONS_KEY
from evaluator.run.compare import read_runs
from tests.compare.run_folders import LABELS, diagnostics, predictions, write_run


def values(folders: list[Path], metric: str, datasets: list[str], definition: str = "paper") -> list[float]:
    """Return vanilla's values in the tables of the runs, models outermost."""
    tables = [pl.read_parquet(folder / "tables" / "metrics.parquet") for folder in folders]
    return [
        table.filter(dataset=dataset, metric=metric, method="vanilla", definition=definition)["value"].item()
        for table in tables
        for dataset in datasets
    ]


@pytest.fixture(scope="module")
def correlations(run_folders: list[Path]) -> pl.DataFrame:
    return rank_correlations(comparison_table(read_runs(run_folders)))


def of(correlations: pl.DataFrame, a: str, b: str, **chosen: str) -> dict[str, object]:
    pair = {a, b}
    return correlations.filter(pl.col("a").is_in(pair), pl.col("b").is_in(pair), **chosen).row(0, named=True)


def test_every_pair_of_measures_stands_once_for_each_definition_and_kind_of_points(correlations: pl.DataFrame) -> None:
    assert correlations.schema == RANK_CORRELATIONS
    assert correlations.equals(correlations.sort(RANK_CORRELATIONS_KEY))
    measures = correlations.filter(between="measures")
    for _, own in measures.group_by("definition", "over"):
        names = sorted(set(own["a"]) | set(own["b"]))
        assert {"accuracy", "contextual_bias", "sampling_consistency", "true_label_probability"} <= set(names)
        assert sorted(own.select("a", "b").rows()) == list(combinations(names, 2))
    assert len(set(measures["definition"])) * len(set(measures["over"])) == 6


@pytest.mark.parametrize("definition", ["paper", "released", "published"])
def test_over_models_the_points_are_means_over_datasets(
    correlations: pl.DataFrame, run_folders: list[Path], definition: str
) -> None:
    # Contextual bias is hand-made and its mean not in the runs' tables: that of -.9 + .1 x place x (-1)^place + .01 d.
    bias = [-0.885, -0.985, -0.685, -1.185]
    likely = values(run_folders, "true_label_probability", ["mean"], definition)
    found = of(correlations, "contextual_bias", "true_label_probability", definition=definition, over="models")
    assert found["rho"] == pytest.approx(spearmanr(bias, likely).statistic)
    assert (found["n_points"], found["n_models"], found["reason"]) == (4, 4, None)
    # By all 24 orders: with rho = -.4 twice the share of those that are at most as much, 2 x 9 / 24.
    assert (found["rho"], found["p_value"]) == (pytest.approx(-0.4), pytest.approx(0.75))


def test_over_models_and_datasets_every_dataset_of_a_model_is_a_point_without_a_p_value(
    correlations: pl.DataFrame, run_folders: list[Path]
) -> None:
    consistency, accuracy = (values(run_folders, m, list(LABELS)) for m in ("sampling_consistency", "accuracy"))
    chosen = {"definition": "paper", "over": "models and datasets"}
    found = of(correlations, "accuracy", "sampling_consistency", **chosen)
    assert found["rho"] == pytest.approx(spearmanr(consistency, accuracy).statistic)
    assert (found["n_points"], found["n_models"]) == (16, 4)
    assert (found["p_value"], found["reason"]) == (None, NOT_INDEPENDENT)


def test_between_models_the_points_are_accuracies_on_datasets(
    correlations: pl.DataFrame, run_folders: list[Path]
) -> None:
    first, second = (values([folder], "accuracy", list(LABELS)) for folder in run_folders[:2])
    found = of(correlations, "acme/tiny", "acme/small", between="models", definition="paper")
    assert found["rho"] == pytest.approx(spearmanr(np.round(first, 12), np.round(second, 12)).statistic)
    assert (found["measure"], found["n_points"]) == ("accuracy", 4)
    assert correlations.filter(between="models", definition="paper").height == 6


def test_a_model_with_the_same_accuracy_everywhere_correlates_with_none(correlations: pl.DataFrame) -> None:
    # The largest model answers every query right.
    found = of(correlations, "acme/tiny", "acme/large", between="models", definition="paper")
    assert (found["rho"], found["p_value"]) == (None, None)
    assert found["reason"] == "one of them is the same everywhere"


def test_points_at_which_either_value_is_undefined_are_left_out(tmp_path: Path) -> None:
    folders = []
    for place, name in enumerate(("a", "b", "c", "d")):
        rows = diagnostics({"staicc-bias / contextual": [0.1 * place, 0.2, 0.3, 0.4]})
        if name == "d":
            rows = rows.with_columns(value=pl.lit(float("nan")))
        folders.append(write_run(tmp_path / name, f"acme/{name}", predictions(0.3 * place, seed=place), rows))
    found = of(
        rank_correlations(comparison_table(read_runs(folders))),
        "accuracy",
        "contextual_bias",
        definition="paper",
        over="models",
    )
    assert (found["n_points"], found["n_models"]) == (3, 3)


def test_two_models_have_correlations_over_models_and_datasets_alone(run_folders: list[Path]) -> None:
    found = rank_correlations(comparison_table(read_runs(run_folders[:2]))).filter(between="measures")
    over_models = found.filter(over="models")
    assert over_models["rho"].null_count() == over_models.height
    assert over_models["reason"].unique().to_list() == ["2 points, and it takes 3"]
    assert found.filter(over="models and datasets")["rho"].null_count() < over_models.height
