"""Lines over numbers of parameters against the textbook's formulas in NumPy."""

import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy.stats import t as student

from evaluator.compare.across_models import scaling_lines, scaling_points
from evaluator.compare.differences import estimated_differences, paired_differences
from evaluator.compare.results import comparison_table
from evaluator.compare.schema import SCALING
from evaluator.run.compare import read_runs
from tests.compare.run_folders import results_of


def points_of(folders: list[Path]) -> pl.DataFrame:
    runs = read_runs(folders)
    comparison = comparison_table(runs)
    estimated = estimated_differences([run.model for run in runs], results_of(runs), comparison)
    return scaling_points(comparison, paired_differences(estimated))


def points(values: list[float], counts: list[int | None]) -> pl.DataFrame:
    about = {"of": "value", "measure": "accuracy", "method": "vanilla", "definition": "paper"}
    rows = [
        about | {"number": place, "n_parameters": count, "value": value}
        for place, (value, count) in enumerate(zip(values, counts, strict=True), start=1)
    ]
    return pl.DataFrame(rows, schema_overrides={"n_parameters": pl.Int64, "value": pl.Float64})


def test_values_are_means_under_vanilla_and_improvements_paired_differences(run_folders: list[Path]) -> None:
    found = points_of(run_folders).filter(definition="released")
    values = found.filter(of="value", measure="accuracy")
    assert values.select("model", "method", "n_parameters").rows()[1] == ("acme/small", "vanilla", 10**7)
    improvements = found.filter(of="improvement")
    assert set(improvements["method"]) == {"topk"}
    for folder, value, improvement in zip(run_folders, values["value"], improvements["value"], strict=True):
        metrics = pl.read_parquet(folder / "tables" / "metrics.parquet")
        own = metrics.filter(dataset="mean", metric="accuracy", definition="released")
        accuracy = dict(own.select("method", "value").rows())
        assert value == pytest.approx(accuracy["vanilla"])
        assert improvement == pytest.approx(accuracy["topk"] - accuracy["vanilla"], abs=1e-12)


def test_a_line_is_that_of_least_squares_with_the_slopes_t_interval(run_folders: list[Path]) -> None:
    own = points_of(run_folders).filter(of="value", measure="true_label_probability", definition="paper")
    x, y = own["n_parameters"].log10().to_numpy(), own["value"].to_numpy()
    slope, intercept = np.polyfit(x, y, 1)
    residual = float(np.sum((y - intercept - slope * x) ** 2))
    half_width = student.ppf(0.975, 2) * math.sqrt(residual / 2 / np.sum((x - x.mean()) ** 2))
    lines = scaling_lines(own)
    assert lines.schema == SCALING
    found = lines.row(0, named=True)
    assert (found["slope"], found["intercept"]) == (pytest.approx(slope), pytest.approx(intercept))
    assert (found["ci_low"], found["ci_high"]) == (
        pytest.approx(slope - half_width),
        pytest.approx(slope + half_width),
    )
    assert (found["n_models"], found["reason"]) == (4, None)


@pytest.mark.parametrize(
    ("counts", "n_models", "reason"),
    [
        ([10, 100, 100, 100], 4, "2 different numbers of parameters, and a line takes 3"),
        ([10, 100, None, None], 2, "2 different numbers of parameters, and a line takes 3"),
        ([10, 10, 10, 10], 4, "1 different number of parameters, and a line takes 3"),
    ],
)
def test_fewer_than_three_numbers_of_parameters_have_no_line(
    counts: list[int | None], n_models: int, reason: str
) -> None:
    found = scaling_lines(points([0.1, 0.2, 0.4, 0.3], counts)).row(0, named=True)
    assert (found["slope"], found["n_models"], found["reason"]) == (None, n_models, reason)


@pytest.mark.parametrize("values", [[0.5, 0.5, 0.5], [0.1, 0.2, 0.3]])
def test_points_on_a_line_have_a_slope_but_no_interval(values: list[float]) -> None:
    found = scaling_lines(points(values, [10, 100, 1000])).row(0, named=True)
    assert found["slope"] == pytest.approx(values[1] - values[0])
    assert (found["ci_low"], found["ci_high"]) == (None, None)
    assert found["reason"].startswith("no interval")


def test_infinite_and_undefined_values_are_not_on_the_line() -> None:
    values = [0.1, float("inf"), 0.2, float("nan"), 0.4]
    found = scaling_lines(points(values, [10, 20, 100, 200, 1000])).row(0, named=True)
    assert found["n_models"] == 3
    # Over 1, 2, 3 tenfolds: (.4 - .1) / 2.
    assert found["slope"] == pytest.approx(0.15)
