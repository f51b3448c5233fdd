"""The long table: what each run measured, on what they have in common."""

import math
from pathlib import Path

import polars as pl
import pytest

from evaluator.compare.across_models import with_measure
from evaluator.compare.results import comparison_table
from evaluator.compare.schema import COMPARISON, COMPARISON_KEY
from evaluator.run.compare import read_runs
from tests.compare.run_folders import LABELS, diagnostics, predictions, write_run

KEY = ["suite", "part", "dataset", "method", "metric", "definition"]


def test_every_row_of_every_run_is_there_as_the_run_has_it_but_for_its_means(run_folders: list[Path]) -> None:
    table = comparison_table(read_runs(run_folders))
    assert table.schema == COMPARISON
    assert table.equals(table.sort(COMPARISON_KEY))
    assert not table.select(COMPARISON_KEY).is_duplicated().any()
    for number, folder in enumerate(run_folders, start=1):
        columns = [*KEY, "value", "ci_low", "ci_high", "chance", "n_queries", "n_requests"]
        metrics = pl.read_parquet(folder / "tables" / "metrics.parquet").filter(pl.col("dataset") != "mean")
        own = table.filter(pl.col("dataset") != "mean", number=number)
        assert own.select(columns).equals(metrics.select(columns).sort(KEY))
        assert own.select("model", "run", "n_parameters", "dtype").unique().rows() == [
            (f"acme/{folder.name}", folder.name, 10 ** (5 + number), "float32")
        ]


def test_a_mean_over_datasets_that_all_have_is_the_runs_own(run_folders: list[Path]) -> None:
    runs = read_runs(run_folders)
    means = comparison_table(runs).filter(dataset="mean", method="topk", metric="macro_f1", definition="released")
    for run in runs:
        own = run.metrics.filter(dataset="mean", method="topk", metric="macro_f1", definition="released")
        assert own.height == 1
        assert means.filter(number=run.number).select(own.columns[:10]).rows() == own.select(own.columns[:10]).rows()


def test_means_are_over_common_datasets_alone(tmp_path: Path) -> None:
    # Contextual bias is measured of a on zoo, mid and odd, of b on zoo and mid: the means are those of zoo and mid.
    values = {"a": (("zoo", "mid", "odd"), [0.2, 0.4, 0.9]), "b": (("zoo", "mid"), [0.1, 0.5])}
    place = "staicc-bias / contextual"
    folders = [
        write_run(tmp_path / name, f"acme/{name}", predictions(1, seed=1), diagnostics({place: own}, datasets))
        for name, (datasets, own) in values.items()
    ]
    table = comparison_table(read_runs(folders)).filter(metric="contextual_bias", definition="paper")
    assert sorted(set(table["dataset"])) == ["mean", "mid", "zoo"]
    means = table.filter(dataset="mean").sort("number")
    assert means["value"].to_list() == pytest.approx([0.3, 0.3])
    # Each limit is .1 away from its value; root of the sum of squares over two: sqrt(.01 + .01) / 2 = .0707.
    assert means["ci_high"].to_list() == pytest.approx([0.3 + math.sqrt(0.02) / 2] * 2)
    assert means["n_queries"].to_list() == [24, 24]


def test_a_mean_over_values_that_are_biased_has_no_interval(tmp_path: Path) -> None:
    rows = diagnostics({"staicc-bias / contextual": [0.1, 0.2, 0.3, 0.4]})
    biased = rows.with_columns(reduced_bias=pl.col("value") - 0.05)
    folders = [write_run(tmp_path / name, f"acme/{name}", predictions(1, seed=1), biased) for name in ("a", "b")]
    table = comparison_table(read_runs(folders))
    means = table.filter(metric="contextual_bias", dataset="mean")
    assert means["value"].to_list() == pytest.approx([0.25] * means.height)
    assert means["ci_low"].null_count() == means["ci_high"].null_count() == means.height > 0


def test_a_mean_over_a_value_that_is_undefined_is_undefined(tmp_path: Path) -> None:
    rows = diagnostics({"staicc-bias / contextual": [0.1, 0.2, 0.3, 0.4]})
    unknown = rows.with_columns(value=pl.when(pl.col("dataset") != "abc").then("value"))
    folders = [
        write_run(tmp_path / name, f"acme/{name}", predictions(1, seed=1), own)
        for name, own in (("a", rows), ("b", unknown))
    ]
    table = comparison_table(read_runs(folders)).filter(metric="contextual_bias", definition="paper", dataset="mean")
    assert table.sort("number")["value"].to_list() == [pytest.approx(0.25), None]


def test_what_one_run_alone_measured_is_kept(tmp_path: Path) -> None:
    rows = diagnostics({"staicc-bias / contextual": [0.1] * len(LABELS)})
    folders = [
        write_run(tmp_path / "a", "acme/a", predictions(1, seed=1), rows),
        write_run(tmp_path / "b", "acme/b", predictions(1, seed=2)),
    ]
    table = comparison_table(read_runs(folders)).filter(metric="contextual_bias", definition="paper")
    assert table["model"].unique().to_list() == ["acme/a"]
    assert table.height == len(LABELS) + 1


def test_a_metric_of_several_parts_is_named_with_its_part() -> None:
    rows = pl.DataFrame(
        [("s", "normal", "accuracy"), ("s", "noisy", "accuracy"), ("s", "noisy", "gler")],
        schema=["suite", "part", "metric"],
        orient="row",
    )
    assert with_measure(rows)["measure"].to_list() == ["accuracy (s / normal)", "accuracy (s / noisy)", "gler"]
