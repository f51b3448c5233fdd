"""Paired differences against SciPy's one-sample t interval over queries, and against the runs' own accuracies."""

import math
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from scipy.optimize import brentq
from scipy.stats import binomtest, ttest_1samp
from scipy.stats import t as student

from evaluator.compare.differences import (
    equivalence_table,
    estimated_differences,
    method_differences,
    paired_differences,
    query_differences,
)
from evaluator.compare.results import comparison_table, require_equal_prompts
from evaluator.compare.schema import DIFFERENCES, DIFFERENCES_KEY, EQUIVALENCE, EQUIVALENCE_KEY
from evaluator.errors import ConfigError
from evaluator.metrics import measured_groups
from evaluator.run.compare import read_runs
from tests.compare.run_folders import LABELS, N_QUERIES, predictions, results_of, write_run


def estimated_of(folders: list[Path], shared_sets: Collection[tuple[str, str]] = ()) -> pl.DataFrame:
    runs = read_runs(folders)
    return estimated_differences([run.model for run in runs], results_of(runs), comparison_table(runs), shared_sets)


def differences_of(folders: list[Path]) -> pl.DataFrame:
    return paired_differences(estimated_of(folders))


@pytest.fixture(scope="module")
def differences(run_folders: list[Path]) -> pl.DataFrame:
    return differences_of(run_folders)


def between(differences: pl.DataFrame, a: tuple[str, str], b: tuple[str, str], **chosen: str) -> dict[str, Any]:
    sides = {"model_a": a[0], "method_a": a[1], "model_b": b[0], "method_b": b[1]}
    return differences.filter(**sides, **({"metric": "accuracy", "definition": "paper"} | chosen)).row(0, named=True)


def per_query(folder: Path, dataset: str, method: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Accuracy and probability of the true label of each query under `paper`, worked from the predictions in NumPy."""
    rows = pl.read_parquet(folder / "tables" / "predictions.parquet")
    rows = rows.filter(dataset=dataset, method=method, definition="paper").sort("query_id", "position")
    right = (rows["pred"] == rows["gold"]).to_numpy().astype(float)
    likely = np.array([p[g] for p, g in zip(rows["label_probs"].to_list(), rows["gold"].to_list(), strict=True)])
    return right.reshape(N_QUERIES, -1).mean(1), likely.reshape(N_QUERIES, -1).mean(1)


def test_all_pairs_of_models_and_every_method_against_vanilla_are_there(differences: pl.DataFrame) -> None:
    assert differences.schema == DIFFERENCES
    assert differences.equals(differences.sort(DIFFERENCES_KEY))
    # 6 pairs under 2 methods and topk within 4 models, on 4 datasets and their mean, 2 metrics and 3 definitions.
    assert differences.height == (6 * 2 + 4) * 5 * 2 * 3
    models = ["acme/tiny", "acme/small", "acme/mid", "acme/large"]
    for a, b in differences.filter(pl.col("model_a") != pl.col("model_b")).select("model_a", "model_b").unique().rows():
        assert models.index(a) < models.index(b)


@pytest.mark.parametrize("dataset", LABELS)
@pytest.mark.parametrize("metric", ["accuracy", "true_label_probability"])
def test_two_models_differ_by_the_mean_over_queries_with_its_t_interval(
    differences: pl.DataFrame, run_folders: list[Path], dataset: str, metric: str
) -> None:
    column = ["accuracy", "true_label_probability"].index(metric)
    tiny, mid = (per_query(run_folders[place], dataset, "topk")[column] for place in (0, 2))
    expected = ttest_1samp(tiny - mid, 0)
    low, high = expected.confidence_interval(0.95)
    found = between(differences, ("acme/tiny", "topk"), ("acme/mid", "topk"), dataset=dataset, metric=metric)
    assert found["difference"] == pytest.approx(float(np.mean(tiny - mid)), abs=1e-12)
    assert (found["ci_low"], found["ci_high"]) == (pytest.approx(low), pytest.approx(high))
    assert found["n_queries"] == N_QUERIES


def test_a_method_differs_from_vanilla_within_one_model(differences: pl.DataFrame, run_folders: list[Path]) -> None:
    topk, vanilla = (per_query(run_folders[1], "abc", method)[1] for method in ("topk", "vanilla"))
    low, high = ttest_1samp(topk - vanilla, 0).confidence_interval(0.95)
    sides = ("acme/small", "topk"), ("acme/small", "vanilla")
    found = between(differences, *sides, dataset="abc", metric="true_label_probability")
    assert (found["ci_low"], found["ci_high"]) == (pytest.approx(low), pytest.approx(high))


@pytest.mark.parametrize("definition", ["paper", "released", "published"])
def test_a_difference_is_that_of_the_runs_own_numbers(
    differences: pl.DataFrame, run_folders: list[Path], definition: str
) -> None:
    tables = [pl.read_parquet(folder / "tables" / "metrics.parquet") for folder in run_folders]
    for metric in ("accuracy", "true_label_probability"):
        for dataset in (*LABELS, "mean"):
            chosen = {"dataset": dataset, "metric": metric, "definition": definition}
            small, large = (tables[i].filter(method="vanilla", **chosen)["value"].item() for i in (1, 3))
            found = between(differences, ("acme/small", "vanilla"), ("acme/large", "vanilla"), **chosen)
            assert found["difference"] == pytest.approx(small - large, abs=1e-12)


def test_the_mean_has_the_root_of_summed_squares_as_its_interval(differences: pl.DataFrame) -> None:
    sides = ("acme/tiny", "vanilla"), ("acme/small", "vanilla")
    metric = "true_label_probability"
    rows = [between(differences, *sides, dataset=dataset, metric=metric) for dataset in LABELS]
    mean = between(differences, *sides, dataset="mean", metric=metric)
    assert mean["difference"] == pytest.approx(sum(row["difference"] for row in rows) / 4)
    squares = sum((row["ci_high"] - row["difference"]) ** 2 for row in rows)
    assert mean["ci_high"] - mean["difference"] == pytest.approx(math.sqrt(squares) / 4)
    assert mean["n_queries"] == 4 * N_QUERIES


def test_a_run_compared_and_alone_gains_the_same_over_vanilla(tmp_path: Path) -> None:
    """topk answers each query once and vanilla twice, as in StaICC."""
    asked = [
        predictions(0.5, seed=seed).filter((pl.col("method") != "topk") | (pl.col("demonstration_set") == 0))
        for seed in (1, 2)
    ]
    folders = [write_run(tmp_path / name, f"acme/{name}", own) for name, own in zip("ab", asked, strict=True)]
    compared = differences_of(folders)
    for run in read_runs(folders):
        alone = method_differences(measured_groups(run.table("predictions")), run.metrics, run.model)
        assert alone.height == 5 * 2 * 3  # datasets and their mean, metrics, definitions
        corrected = ["p_holm", "n_tests", "min_detectable"]  # for the tests of one run, or of both
        of_model = compared.filter(model_a=run.model, model_b=run.model)
        assert_frame_equal(alone.drop(corrected), of_model.drop(corrected))
        assert (of_model["n_tests"] == 2 * alone["n_tests"]).all()


def paired(queries: list[tuple[float, float]]) -> pl.DataFrame:
    """One dataset: of each query how correct a and b are."""
    names = {"suite": "s", "part": "p", "dataset": "d", "definition": "paper"}
    sides = {"model_a": "a", "method_a": "vanilla", "model_b": "b", "method_b": "vanilla"}
    rows = [
        names | sides | {"query_id": query, "correct": a, "correct_b": b, "true_label_prob": a, "true_label_prob_b": b}
        for query, (a, b) in enumerate(queries)
    ]
    return pl.DataFrame(rows)


def interval(queries: list[tuple[float, float]]) -> tuple[float, float | None, float | None]:
    rows = query_differences(paired(queries)).filter(metric="accuracy")
    return rows.select("difference", "ci_low", "ci_high").row(0)


def test_the_interval_is_that_of_a_mean_over_queries() -> None:
    # Differences 0, .1 and .2: mean .1, SD .1, SE .1 / sqrt(3) = .0577350; t at 2 degrees of freedom is 4.30265.
    found = interval([(0.5, 0.5), (0.6, 0.5), (0.7, 0.5)])
    assert found == pytest.approx((0.1, 0.1 - 4.30265 * 0.057735, 0.1 + 4.30265 * 0.057735), abs=1e-5)


def test_the_interval_ends_where_a_difference_of_accuracies_does() -> None:
    # Differences 1, 1 and 0: mean 2/3, SE = .57735 / sqrt(3) = 1/3, and 2/3 + 4.30265 / 3 > 1.
    assert interval([(1, 0), (1, 0), (1, 1)]) == pytest.approx((2 / 3, 2 / 3 - 4.30265 / 3, 1), abs=1e-5)


def test_where_no_two_queries_differ_the_interval_still_leaves_room() -> None:
    # Wilson's upper limit for none of 100, with t at 99 degrees of freedom.
    t = student.ppf(0.975, 99)
    unseen = t**2 / (100 + t**2)
    same = interval([(1.0, 1.0)] * 100)
    assert same == pytest.approx((0, -unseen, unseen))
    better = interval([(1.0, 0.0)] * 100)
    assert better == pytest.approx((1, 1 - 2 * unseen, 1))


def test_one_query_alone_has_no_interval() -> None:
    assert interval([(0.5, 0)]) == (0.5, None, None)


def test_answers_of_one_prompt_a_query_have_mcnemars_exact_test() -> None:
    row = query_differences(paired([(1, 0)] * 9 + [(0, 1)] * 2 + [(1, 1)] * 20)).filter(metric="accuracy")
    assert row["test"].item() == "McNemar"
    assert row["p_value"].item() == pytest.approx(binomtest(9, 11).pvalue)


def test_two_models_after_shared_sets_are_compared_over_queries_and_sets_crossed() -> None:
    random = np.random.default_rng(5)
    cells = np.clip(random.normal(0.1, 0.2, (12, 1)) + random.normal(0, 0.2, 4) + random.normal(0, 0.3, (12, 4)), -1, 1)
    grid = [
        paired([(value, 0) for value in cells[:, column]]).with_columns(n_shots=2, demonstration_set=column)
        for column in range(4)
    ]
    row = query_differences(pl.concat(grid).sample(fraction=1, shuffle=True, seed=0)).filter(metric="accuracy")
    # Variances of a mean over a complete two-way table with both factors random; Cochran's mean of both t.
    mean, by_query, by_set = cells.mean(), cells.mean(1, keepdims=True), cells.mean(0)
    of_queries = ((by_query - mean) ** 2).sum() / 11 / 12
    of_both = ((cells - by_query - by_set + mean) ** 2).sum() / 33 / 48
    of_sets = ((by_set - mean) ** 2).sum() / 3 / 4 - of_both
    assert min(of_queries - of_both, of_sets) > 0
    variance = of_queries + of_sets
    t = math.sqrt((of_queries * student.ppf(0.975, 11) ** 2 + of_sets * student.ppf(0.975, 3) ** 2) / variance)
    freedom = brentq(lambda degrees: student.ppf(0.975, degrees) - t, 3, 11)
    error = math.sqrt(variance)
    assert row["difference"].item() == pytest.approx(mean)
    assert row["ci_high"].item() - mean == pytest.approx(t * error)
    assert row["p_value"].item() == pytest.approx(2 * student.sf(abs(mean) / error, freedom))
    assert row["test"].item() == "two-way t"


def test_a_part_with_shared_sets_is_crossed_between_models_and_not_between_methods(run_folders: list[Path]) -> None:
    found = paired_differences(estimated_of(run_folders[:2], [("staicc-normal", "normal")]))
    is_between = pl.col("model_a") != pl.col("model_b")
    assert found.filter(is_between, pl.col("dataset") != "mean")["test"].unique().to_list() == ["two-way t"]
    assert "two-way t" not in found.filter(~is_between)["test"].unique().to_list()


def test_tests_between_models_and_between_methods_are_corrected_apart(differences: pl.DataFrame) -> None:
    of_metric = differences.filter(metric="accuracy", definition="paper")
    for between, n_tests in (
        (pl.col("model_a") != pl.col("model_b"), 6 * 2 * 5),
        (pl.col("model_a") == pl.col("model_b"), 4 * 5),
    ):
        rows = of_metric.filter(between)
        assert rows["n_tests"].unique().to_list() == [n_tests] == [rows.height]
        # Holm by hand: in order, times what is left, never below the one before.
        expected, so_far = {}, 0.0
        for place, p_value in enumerate(sorted(rows["p_value"])):
            so_far = max(so_far, min(1.0, p_value * (n_tests - place)))
            expected[p_value] = so_far
        assert rows["p_holm"].to_list() == pytest.approx([expected[p_value] for p_value in rows["p_value"]])


def test_the_mean_of_equally_large_datasets_is_tested_over_all_their_queries(
    differences: pl.DataFrame, run_folders: list[Path]
) -> None:
    d = np.concatenate(
        [
            per_query(run_folders[0], name, "vanilla")[0] - per_query(run_folders[2], name, "vanilla")[0]
            for name in LABELS
        ]
    )
    found = between(differences, ("acme/tiny", "vanilla"), ("acme/mid", "vanilla"), dataset="mean")
    # Halves, because each query has two requests: all signs by repeated convolution.
    units = np.rint(2 * np.abs(d)).astype(int)
    masses = np.ones(1)
    for unit in units[units > 0]:
        masses = np.convolve(masses, np.bincount([0, 2 * unit]) / 2)
    sums = np.arange(len(masses)) - units.sum()
    p_value = masses[np.abs(sums) >= abs(2 * d.sum()) - 1e-9].sum()
    assert (found["test"], found["p_value"]) == ("sign flips", pytest.approx(p_value))


def test_the_detectable_difference_depends_on_how_queries_vary_and_on_the_number_of_tests(
    differences: pl.DataFrame, run_folders: list[Path]
) -> None:
    d = per_query(run_folders[0], "zoo", "vanilla")[0] - per_query(run_folders[2], "zoo", "vanilla")[0]
    found = between(differences, ("acme/tiny", "vanilla"), ("acme/mid", "vanilla"), dataset="zoo")
    error = np.std([*d, 1, -1], ddof=1) / math.sqrt(len(d) + 2)
    t = student.ppf(1 - 0.025 / found["n_tests"], len(d) + 1) + student.ppf(0.8, len(d) + 1)
    assert found["min_detectable"] == pytest.approx(min(1, t * error))


def test_a_margin_tests_every_difference_of_accuracy_from_both_sides(run_folders: list[Path]) -> None:
    found = equivalence_table(estimated_of(run_folders), 0.25)
    assert found.schema == EQUIVALENCE
    assert found.equals(found.sort(EQUIVALENCE_KEY))
    assert found.height == (6 * 2 + 4) * 5 * 3
    d = per_query(run_folders[1], "abc", "vanilla")[0] - per_query(run_folders[3], "abc", "vanilla")[0]
    sides = {"model_a": "acme/small", "method_a": "vanilla", "model_b": "acme/large", "method_b": "vanilla"}
    row = found.filter(**sides, dataset="abc", definition="paper").row(0, named=True)
    # Bonett and Price's two added pairs; no error below that of a share of the margin; one of twelve pairs off.
    adjusted = [*d, 1, -1]
    error = max(np.std(adjusted, ddof=1) / math.sqrt(14), math.sqrt(0.25 * 0.75 / 12))
    no_worse, no_better = (student.sf((0.25 + side * np.mean(adjusted) - 1 / 12) / error, 13) for side in (1, -1))
    assert (row["p_no_worse"], row["p_equivalent"]) == pytest.approx((no_worse, max(no_worse, no_better)))
    assert row["difference"] == pytest.approx(d.mean())
    assert (found["p_no_worse_holm"] >= found["p_no_worse"]).all()
    expected = [
        "equivalent" if both <= 0.05 else "no worse" if one <= 0.05 else "not shown"
        for one, both in found.select("p_no_worse_holm", "p_equivalent_holm").rows()
    ]
    assert found["shown"].to_list() == expected


def test_a_mean_over_one_dataset_is_the_same_test_and_is_counted_once(tmp_path: Path) -> None:
    folders = [
        write_run(tmp_path / name, f"acme/{name}", predictions(skill, seed=1, datasets=["zoo"], methods=["vanilla"]))
        for name, skill in (("a", 0.1), ("b", 2.0))
    ]
    found = differences_of(folders)
    assert found["n_tests"].unique().to_list() == [1]
    columns = ["p_value", "p_holm", "test", "min_detectable", "difference"]
    zoo, mean = (found.filter(dataset=name).select("metric", "definition", *columns) for name in ("zoo", "mean"))
    assert_frame_equal(zoo, mean)
    equivalence = equivalence_table(estimated_of(folders), 0.1)
    assert equivalence.filter(definition="paper")["p_no_worse"].n_unique() == 1


def test_only_what_both_models_have_is_paired(tmp_path: Path) -> None:
    folders = [
        write_run(tmp_path / "a", "acme/a", predictions(0.5, seed=1, datasets=["zoo", "mid"])),
        write_run(tmp_path / "b", "acme/b", predictions(0.5, seed=2, datasets=["zoo", "abc"], methods=["vanilla"])),
    ]
    found = differences_of(folders).filter(metric="accuracy", definition="paper")
    models = found.filter(model_a="acme/a", model_b="acme/b")
    assert models.select("dataset", "method_a").rows() == [("mean", "vanilla"), ("zoo", "vanilla")]
    assert set(found.filter(model_b="acme/a").select("dataset", "method_a").rows()) <= {
        (dataset, "topk") for dataset in ("mean", "mid", "zoo")
    }


def test_other_prompts_at_the_same_places_are_refused_naming_both(tmp_path: Path) -> None:
    folders = [
        write_run(tmp_path / name, f"acme/{name}", predictions(0.5, seed=1, prompts=name)) for name in ("a", "b")
    ]
    runs = read_runs(folders)
    with pytest.raises(ConfigError, match=r"a and .*b have different prompts: 96 of 192 .*staicc-normal / normal, abc"):
        require_equal_prompts(runs, results_of(runs))


def test_prompts_that_a_method_chooses_by_the_model_may_differ(tmp_path: Path) -> None:
    chosen = pl.when(pl.col("method") == "topk").then(pl.lit("by the model")).otherwise("prompt_id")
    folders = [
        write_run(tmp_path / "a", "acme/a", predictions(0.5, seed=1)),
        write_run(tmp_path / "b", "acme/b", predictions(0.5, seed=1).with_columns(prompt_id=chosen)),
    ]
    runs = read_runs(folders)
    require_equal_prompts(runs, results_of(runs))
