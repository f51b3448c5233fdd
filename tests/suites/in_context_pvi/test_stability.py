"""Which runs are compared with which, against SciPy run by run."""

from itertools import combinations

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from scipy import stats

from evaluator.suites.in_context_pvi.correlations import (
    consistency_table,
    models_table,
    one_way_table,
    pairs_table,
    repeated_measures_table,
)
from evaluator.suites.in_context_pvi.schema import PVI_CONSISTENCY, PVI_KEY, PVI_MODELS, PVI_PAIRS
from evaluator.suites.in_context_pvi.summary import judged_queries, summary_table
from tests.suites.in_context_pvi.pvi_answers import random_table

TABLE = random_table(4, 60, missing=True)
RUNS = [(n_shots, number) for n_shots in (2, 4) for number in range(3)]


def values(table: pl.DataFrame, dataset: str, n_shots: int, number: int, definition: str = "paper") -> np.ndarray:
    own = table.filter(dataset=dataset, n_shots=n_shots, demonstration_set=number, definition=definition).sort(
        "query_id"
    )
    return own["pvi_bits"].cast(pl.Float64).fill_null(float("nan")).to_numpy()


def both(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    known = np.isfinite(first) & np.isfinite(second)
    return first[known], second[known]


def test_every_two_runs_of_a_dataset_and_definition_are_correlated_as_by_scipy() -> None:
    found = pairs_table(TABLE)
    assert found.schema == PVI_PAIRS
    assert found.height == 2 * 3 * 15
    own = found.filter(dataset="b", definition="paper")
    ends = own.select("first_n_shots", "first_demonstration_set", "second_n_shots", "second_demonstration_set").rows()
    assert ends == [(*first, *second) for first, second in combinations(RUNS, 2)]
    for row in own.to_dicts():
        first = values(TABLE, "b", row["first_n_shots"], row["first_demonstration_set"])
        second = values(TABLE, "b", row["second_n_shots"], row["second_demonstration_set"])
        pair = both(first, second)
        assert row["n"] == len(pair[0]) < 60
        pearson, spearman = stats.pearsonr(*pair), stats.spearmanr(*pair)
        assert (row["pearson"], row["spearman"]) == pytest.approx((pearson.statistic, spearman.statistic))
        assert (row["pearson_p"], row["spearman_p"]) == pytest.approx((pearson.pvalue, spearman.pvalue), rel=1e-6)


def test_what_differs_between_two_runs_is_named() -> None:
    rows = pairs_table(TABLE).filter(dataset="a", definition="paper")
    named = {
        (
            (row["first_n_shots"], row["first_demonstration_set"]),
            (row["second_n_shots"], row["second_demonstration_set"]),
        ): row["across"]
        for row in rows.to_dicts()
    }
    assert named[(2, 0), (2, 1)] == "sets"
    assert named[(2, 1), (4, 1)] == "shots"
    assert named[(2, 1), (4, 2)] == "both"
    assert sorted(named.values()) == ["both"] * 6 + ["sets"] * 6 + ["shots"] * 3


def test_the_strength_of_correlations_is_counted_over_cases_whose_pairs_are_averaged() -> None:
    pairs = pairs_table(TABLE)
    found = consistency_table(pairs)
    assert found.schema == PVI_CONSISTENCY
    assert found.select("definition", "across", "coefficient").rows() == [
        (definition, across, coefficient)
        for definition in ("label_space", "paper", "released")
        for across in ("sets", "shots")
        for coefficient in ("pearson", "spearman")
    ]
    for coefficient, correlation in (("pearson", stats.pearsonr), ("spearman", stats.spearmanr)):
        across_sets = [
            np.mean(
                [
                    correlation(*both(values(TABLE, name, n, i), values(TABLE, name, n, j))).statistic
                    for i, j in combinations(range(3), 2)
                ]
            )
            for name in "ab"
            for n in (2, 4)
        ]
        across_shots = [
            correlation(*both(values(TABLE, name, 2, i), values(TABLE, name, 4, i))).statistic
            for name in "ab"
            for i in range(3)
        ]
        for across, cases in (("sets", across_sets), ("shots", across_shots)):
            row = found.row(by_predicate=(pl.col("across") == across) & (pl.col("coefficient") == coefficient)
                            & (pl.col("definition") == "paper"), named=True)  # fmt: skip
            assert (row["n"], row["n_undefined"]) == (len(cases), 0)
            assert (row["mean"], row["median"]) == pytest.approx((np.mean(cases), np.median(cases)))
            assert row["strong_share"] == np.mean(np.array(cases) > 0.6)
            assert row["weak_share"] == np.mean(np.array(cases) < 0.3)


def test_models_are_compared_run_by_run_on_the_queries_they_share() -> None:
    other = random_table(9, 50)
    found = models_table({"small": TABLE, "large": other, "same": TABLE})
    assert found.schema == PVI_MODELS
    assert found.height == 36 * 3
    row = found.row(by_predicate=pl.all_horizontal(
        pl.col("dataset") == "a", pl.col("n_shots") == 4, pl.col("demonstration_set") == 2,
        pl.col("definition") == "paper",
        pl.col("first") == "large", pl.col("second") == "small"), named=True)  # fmt: skip
    pair = both(values(other, "a", 4, 2), values(TABLE, "a", 4, 2)[:50])
    assert row["n"] == len(pair[0])
    assert (row["pearson"], row["pearson_p"]) == pytest.approx(tuple(stats.pearsonr(*pair)), rel=1e-6)
    same = found.filter(first="same", second="small")
    assert same["pearson"].to_list() == pytest.approx([1] * 36)
    counted = consistency_table(pairs_table(TABLE), found).filter(across="models", coefficient="pearson")
    assert counted["n"].to_list() == [12] * 3


def test_the_published_analysis_of_variance_is_of_mean_pvis_of_right_predictions() -> None:
    found = one_way_table(summary_table(TABLE, judged_queries(TABLE))).filter(dataset="a", definition="paper")
    right = TABLE.filter(pl.col("correct"), dataset="a", definition="paper").drop_nulls("pvi_bits")
    means = [
        [right.filter(n_shots=n, demonstration_set=i)["pvi_bits"].to_numpy().mean() for n in (2, 4)] for i in range(3)
    ]
    expected = stats.f_oneway(*means)
    row = found.row(0, named=True)
    assert (row["f"], row["p"]) == pytest.approx((expected.statistic, expected.pvalue))
    assert (row["df_between"], row["df_within"]) == (2, 3)


def test_repeated_measures_are_over_queries_with_a_pvi_behind_every_set() -> None:
    found = repeated_measures_table(TABLE).filter(dataset="b", n_shots=2, definition="paper").row(0, named=True)
    matrix = np.stack([values(TABLE, "b", 2, number) for number in range(3)], axis=1)
    kept = matrix[np.isfinite(matrix).all(axis=1)]
    assert (found["n_queries"], found["n_left_out"]) == (len(kept), 60 - len(kept))
    # Two-way analysis of variance without replication, from its sums of squares.
    total = ((kept - kept.mean()) ** 2).sum()
    sets = len(kept) * ((kept.mean(axis=0) - kept.mean()) ** 2).sum()
    rest = total - sets - 3 * ((kept.mean(axis=1) - kept.mean()) ** 2).sum()
    f = (sets / 2) / (rest / (2 * (len(kept) - 1)))
    assert (found["f"], found["p"]) == pytest.approx((f, stats.f.sf(f, 2, 2 * (len(kept) - 1))))


def test_one_set_and_one_number_of_shots_have_no_pairs_and_no_variance() -> None:
    alone = TABLE.filter(n_shots=2, demonstration_set=0)
    assert pairs_table(alone).height == 0
    assert consistency_table(pairs_table(alone)).height == 0
    assert one_way_table(summary_table(alone, judged_queries(alone)))["f"].is_nan().all()
    assert repeated_measures_table(alone)["f"].is_nan().all()


def test_demonstrations_of_other_sources_are_never_compared_with_one_another() -> None:
    chosen = random_table(8, 60).with_columns(demonstrations=pl.lit("hardest"))
    both_sources = pl.concat([TABLE, chosen]).sort(PVI_KEY)
    pairs = pairs_table(both_sources)
    models = {"one": both_sources, "two": both_sources.with_columns(-pl.col("pvi_bits"))}
    tables = [
        (pairs_table, pairs),
        (lambda table: consistency_table(pairs_table(table)), consistency_table(pairs)),
        (
            lambda table: one_way_table(summary_table(table, judged_queries(table))),
            one_way_table(summary_table(both_sources, judged_queries(both_sources))),
        ),
        (repeated_measures_table, repeated_measures_table(both_sources)),
    ]
    for measure, found in tables:
        for source, alone in (("random", TABLE), ("hardest", chosen)):
            assert_frame_equal(found.filter(demonstrations=source), measure(alone))
        assert found.height == 2 * measure(TABLE).height
    across = models_table(models)
    assert across.group_by("demonstrations").len().sort("demonstrations").rows() == [("hardest", 36), ("random", 36)]
    counted = consistency_table(pairs, across).filter(across="models", coefficient="pearson", definition="paper")
    assert counted.select("demonstrations", "n", "mean").rows() == [("hardest", 12, -1.0), ("random", 12, -1.0)]
