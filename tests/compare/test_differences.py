"""Paired differences against SciPy's interval with two more pairs, simulation, and the runs' own accuracies."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from scipy.optimize import brentq
from scipy.stats import binom, binomtest, nct, ttest_1samp
from scipy.stats import t as student

from evaluator.compare import differences as differences_of_runs
from evaluator.compare.differences import (
    ADJUSTED,
    NOTHING_SHARED,
    Shared,
    equivalence_table,
    estimated_differences,
    method_differences,
    paired_differences,
    query_differences,
)
from evaluator.compare.results import comparison_table, require_equal_queries
from evaluator.compare.schema import DIFFERENCES, DIFFERENCES_KEY, EQUIVALENCE, EQUIVALENCE_KEY
from evaluator.errors import ConfigError
from evaluator.metrics.groups import measured_groups
from evaluator.run.compare import read_runs
from evaluator.statistics.paired import adjusted_estimate, paired_test
from evaluator.statistics.paired import interval as interval_with_test
from tests.compare.run_folders import LABELS, N_QUERIES, predictions, results_of, write_run


def estimated_of(folders: list[Path], shared: Shared = NOTHING_SHARED) -> pl.DataFrame:
    runs = read_runs(folders)
    return estimated_differences([run.model for run in runs], results_of(runs), comparison_table(runs), shared)


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


def with_two_more(d: np.ndarray[Any, Any], metric: str) -> tuple[float, float]:
    """The t interval with one more pair of each sign: of size 1, or of probabilities of the largest size (SciPy)."""
    size = 1.0 if metric == "accuracy" else np.abs(d).max()
    low, high = ttest_1samp([*d, size, -size], 0).confidence_interval(0.95)
    return max(low, -1.0), min(high, 1.0)


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
def test_two_models_differ_by_the_mean_over_queries_with_the_interval_of_two_more_pairs(
    differences: pl.DataFrame, run_folders: list[Path], dataset: str, metric: str
) -> None:
    column = ["accuracy", "true_label_probability"].index(metric)
    tiny, mid = (per_query(run_folders[place], dataset, "topk")[column] for place in (0, 2))
    low, high = with_two_more(tiny - mid, metric)
    found = between(differences, ("acme/tiny", "topk"), ("acme/mid", "topk"), dataset=dataset, metric=metric)
    assert found["difference"] == pytest.approx(float(np.mean(tiny - mid)), abs=1e-12)
    if (found["p_value"] <= 0.05) and low < 0 < high:
        low, high = (
            (found["ci_low"], high) if found["difference"] > 0 else (low, found["ci_high"])
        )  # to the test's side
    assert (found["ci_low"], found["ci_high"]) == (pytest.approx(low), pytest.approx(high))
    assert found["n_queries"] == N_QUERIES


def test_a_method_differs_from_vanilla_within_one_model(differences: pl.DataFrame, run_folders: list[Path]) -> None:
    topk, vanilla = (per_query(run_folders[1], "abc", method)[1] for method in ("topk", "vanilla"))
    low, high = with_two_more(topk - vanilla, "true_label_probability")
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


def test_the_mean_has_the_interval_of_all_datasets_with_two_more_pairs_altogether(
    differences: pl.DataFrame, run_folders: list[Path]
) -> None:
    sides = ("acme/tiny", "vanilla"), ("acme/small", "vanilla")
    mean = between(differences, *sides, dataset="mean", metric="true_label_probability")
    own = [
        per_query(run_folders[0], name, "vanilla")[1] - per_query(run_folders[1], name, "vanilla")[1] for name in LABELS
    ]
    # Half a pair more in each of four datasets: 12.5 pairs of which half a one is as large as the largest.
    means = [d.sum() / 12.5 for d in own]
    squares = [((d**2).sum() + 0.5 * np.abs(d).max() ** 2) / 12.5 for d in own]
    errors = [(square - m**2) / 11.5 for square, m in zip(squares, means, strict=True)]
    freedom = sum(errors) ** 2 / sum(error**2 / 11.5 for error in errors)
    reach = student.ppf(0.975, freedom) * math.sqrt(sum(errors)) / 4
    assert (mean["ci_low"], mean["ci_high"]) == pytest.approx((np.mean(means) - reach, np.mean(means) + reach))
    assert mean["difference"] == pytest.approx(np.mean([d.mean() for d in own]))
    assert mean["n_queries"] == 4 * N_QUERIES


def test_the_error_of_a_mean_is_that_of_a_sum_of_independent_datasets() -> None:
    rows = pl.DataFrame({"d": [[0.0, 1.0, 1.0]] * 2, "difference": [0.5, 0.7], "standard_error": [0.3, 0.4]})
    others = (*ADJUSTED, "mean_size", "mean_square")
    rows = rows.with_columns(test=pl.lit("t"), n_queries=3, **dict.fromkeys(others, pl.lit(1.0)))
    assert differences_of_runs._mean_difference(rows)["standard_error"] == pytest.approx(0.25)


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


def test_the_interval_is_that_of_a_mean_over_queries_and_two_more() -> None:
    # Differences 1, 0, 0 and -1, of four queries, and 1 and -1: mean 0, SD sqrt(4/5), SE sqrt(4/5/6) = .365148; t at 5
    # degrees of freedom is 2.57058.
    reach = 2.57058 * 0.365148
    assert interval([(1, 0), (1, 1), (0, 0), (0, 1)]) == pytest.approx((0, -reach, reach), abs=1e-5)


def test_the_interval_ends_where_a_difference_of_accuracies_does() -> None:
    assert interval([(1, 0), (1, 0), (1, 1)])[2] == 1


def test_where_no_two_queries_differ_the_interval_still_leaves_room() -> None:
    _, low, high = interval([(1.0, 1.0)] * 100)
    assert low == -high
    assert 0.025 < high < 0.04  # a share of .036 gives no difference in 100 queries with probability .025
    _, low, high = interval([(1.0, 0.0)] * 100)
    assert (0.93 < low < 0.97, high) == (True, 1)


def multinomial_pairs(seed: int) -> pl.DataFrame:
    """Groups of one to eighty queries with each side right at random, from rare to frequent differences."""
    rng = np.random.default_rng(seed)
    n, prompts = int(rng.integers(1, 80)), int(rng.integers(1, 4))
    shares = rng.dirichlet([rng.uniform(0.05, 2), rng.uniform(0.05, 2), rng.uniform(0.5, 20)])
    right = rng.choice([1.0, -1.0, 0.0], (n, prompts), p=shares).mean(1)
    likely = right * rng.random(n)
    queries = paired([(value, 0) for value in right.tolist()])
    return queries.with_columns(dataset=pl.lit(f"d{seed}"), true_label_prob=likely)


def test_zero_is_outside_the_interval_exactly_where_the_test_rejects_it() -> None:
    rows = query_differences(pl.concat(multinomial_pairs(seed) for seed in range(400)))
    rows = rows.filter(pl.col("ci_low").is_not_null())
    excluded = (rows["ci_low"] > 0) | (rows["ci_high"] < 0)
    assert {*rows["test"]} == {"McNemar", "sign flips", "t"}
    assert 100 < excluded.sum() < rows.height - 100
    assert (excluded == (rows["p_value"] <= 0.05)).all()
    assert (rows["ci_high"] - rows["ci_low"] > 1e-9).all()
    assert rows.filter(pl.col("difference").is_between("ci_low", "ci_high")).height == rows.height


@pytest.mark.parametrize(("n", "better", "worse"), [(64, 0.05, 0), (512, 0.01, 0), (100, 0.2, 0.1), (30, 0.5, 0.1)])
def test_intervals_of_differences_hold_what_they_say(n: int, better: float, worse: float) -> None:
    # Exactly, over all counts of better and worse answers.
    held = total = 0.0
    for n_better in range(n + 1):
        of_better = binom.pmf(n_better, n, better)
        counts = np.arange(n - n_better + 1)
        masses = of_better * binom.pmf(counts, n - n_better, worse / (1 - better))
        for n_worse, mass in zip(counts[masses > 1e-7], masses[masses > 1e-7], strict=True):
            d = np.repeat([1.0, -1.0, 0.0], [n_better, n_worse, n - n_better - n_worse])
            low, high = interval_with_test(float(d.mean()), adjusted_estimate(d), paired_test(d).p_value)
            total += mass
            held += mass * (low <= better - worse <= high)
    assert total > 0.9999
    assert held >= 0.93


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
    # The noise of single answers counts with the sets.
    parts = of_queries - of_both, of_sets + of_both
    t = math.sqrt((parts[0] * student.ppf(0.975, 11) ** 2 + parts[1] * student.ppf(0.975, 3) ** 2) / variance)
    freedom = brentq(lambda degrees: student.ppf(0.975, degrees) - t, 3, 11)
    error = math.sqrt(variance)
    assert row["difference"].item() == pytest.approx(mean)
    assert row["ci_high"].item() - mean == pytest.approx(t * error)
    assert row["p_value"].item() == pytest.approx(2 * student.sf(abs(mean) / error, freedom))
    assert row["test"].item() == "two-way t"


def test_a_part_with_shared_sets_is_crossed_between_models_and_not_between_methods(run_folders: list[Path]) -> None:
    found = paired_differences(estimated_of(run_folders[:2], Shared(sets=[("staicc-normal", "normal")])))
    is_between = pl.col("model_a") != pl.col("model_b")
    assert found.filter(is_between)["test"].unique().to_list() == ["two-way t"]  # of means as well
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
    d = per_query(run_folders[0], "zoo", "vanilla")[1] - per_query(run_folders[2], "zoo", "vanilla")[1]
    sides = ("acme/tiny", "vanilla"), ("acme/mid", "vanilla")
    found = between(differences, *sides, dataset="zoo", metric="true_label_probability")
    if found["test"] == "t":
        plain = np.std(d, ddof=1) / math.sqrt(len(d))
        critical = student.isf(0.025 / found["n_tests"], len(d) + 1)
        power = nct.sf(critical, len(d) + 1, found["min_detectable"] / plain)
        assert power >= 0.8
    fewer_tests = paired_differences(estimated_of(run_folders[:2]))
    alike = between(fewer_tests, ("acme/tiny", "vanilla"), ("acme/small", "vanilla"), dataset="zoo")
    of_more = between(differences, ("acme/tiny", "vanilla"), ("acme/small", "vanilla"), dataset="zoo")
    assert alike["n_tests"] < of_more["n_tests"]
    assert alike["min_detectable"] <= of_more["min_detectable"]


@pytest.mark.parametrize(("n", "halves", "wholes"), [(128, 0.3, 0.1), (400, 0.1, 0.02), (60, 0.5, 0.2)])
def test_means_over_two_prompts_are_detected_with_the_stated_power(n: int, halves: float, wholes: float) -> None:
    rng = np.random.default_rng(11)
    sizes = np.repeat([0.5, 1.0, 0.0], np.rint([n * halves, n * wholes, n * (1 - halves - wholes)]).astype(int))
    signs = np.where(np.arange(len(sizes)) % 2, 1, -1)
    rows = query_differences(paired([(value, 0) for value in (sizes * signs).tolist()])).filter(metric="accuracy")
    wanted = paired_differences(rows.with_columns(is_repeat=False))["min_detectable"].item()
    better = (1 + wanted / sizes.mean()) / 2
    drawn = rng.choice(sizes, (2_000, n)) * np.where(rng.random((2_000, n)) < better, 1, -1)
    power = np.mean([paired_test(d).p_value <= 0.05 for d in drawn])
    assert 0.76 <= power <= 0.84  # 80% and two standard errors of a simulation, and of a half flip that is none


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
    with pytest.raises(ConfigError, match=r"a and .*b have different prompts: 96 of 96, .*staicc-normal / normal, abc"):
        require_equal_queries(runs, results_of(runs))


def test_prompts_that_a_method_chooses_by_the_model_may_differ(tmp_path: Path) -> None:
    chosen = pl.when(pl.col("method") == "topk").then(pl.lit("by the model")).otherwise("prompt_id")
    folders = [
        write_run(tmp_path / "a", "acme/a", predictions(0.5, seed=1)),
        write_run(tmp_path / "b", "acme/b", predictions(0.5, seed=1).with_columns(prompt_id=chosen)),
    ]
    runs = read_runs(folders)
    require_equal_queries(runs, results_of(runs))
