"""Correlations across demonstration sets, numbers of shots and models against SciPy and by hand."""

import math
from itertools import combinations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from evaluator.errors import MetricError
from evaluator.statistics.correlation import correlation_p
from evaluator.suites.in_context_pvi.correlations import case_strengths, correlations, strengths
from evaluator.suites.in_context_pvi.schema import PVI_CORRELATIONS, PVI_STRENGTHS
from tests.shared_data import shared_data


def pvis(**levels: list[float | None]) -> pl.DataFrame:
    """One row a query of each level, all of model m."""
    frames = [
        pl.DataFrame({"query_id": range(len(own)), "pvi_bits": own}).with_columns(level=pl.lit(name), model=pl.lit("m"))
        for name, own in levels.items()
    ]
    return pl.concat(frames)


def test_three_queries_are_worked_by_hand() -> None:
    # x = 1 2 3, y = 1 3 2: deviations -1 0 1 and -1 1 0, so r = 1 / sqrt(2 * 2). With one degree of freedom t has
    # tails of 1 - 2 / pi atan(t), and t = r / sqrt(1 - r ** 2) = 1 / sqrt(3), whose atan is pi / 6.
    row = correlations(pvis(a=[1.0, 2, 3], b=[1.0, 3, 2]), across="level", by=["model"]).row(0, named=True)
    assert (row["first"], row["second"], row["n"]) == ("a", "b", 3)
    assert (row["pearson"], row["pearson_p"]) == pytest.approx((0.5, 2 / 3))
    assert (row["spearman"], row["spearman_p"]) == pytest.approx((0.5, 2 / 3))


@given(st.integers(0, 2**32 - 1), st.integers(4, 40), st.booleans())
def test_every_pair_of_levels_is_that_of_scipy(seed: int, n_queries: int, ties: bool) -> None:
    random = np.random.default_rng(seed)
    drawn = random.normal(7, 1, (3, n_queries)) + random.normal(0, 2, n_queries)
    values = drawn.round() if ties else drawn
    if (np.ptp(values, axis=1) == 0).any():
        return  # undefined; the next test is about that
    levels = dict(zip("abc", values.tolist(), strict=True))
    found = correlations(pvis(**levels).sample(fraction=1, shuffle=True, seed=seed), across="level", by=["model"])
    assert found.schema == pl.Schema({"model": pl.String(), **PVI_CORRELATIONS})
    assert found.select("first", "second").rows() == list(combinations("abc", 2))
    for row in found.iter_rows(named=True):
        pair = levels[row["first"]], levels[row["second"]]
        for name, expected in (("pearson", stats.pearsonr(*pair)), ("spearman", stats.spearmanr(*pair))):
            assert row[name] == pytest.approx(expected.statistic, abs=1e-12)
            # Where r is all but 1, its last digits decide how small p is.
            assert row[f"{name}_p"] == pytest.approx(expected.pvalue, rel=1e-6, abs=1e-9)


def test_what_is_not_finite_is_left_out_of_its_pairs_alone() -> None:
    rows = pvis(a=[1.0, 2, 3, 9], b=[1.0, 3, 2, -math.inf], c=[2.0, 4, 6, 18])
    found = correlations(rows, across="level", by=["model"])
    assert found.select("first", "second", "n").rows() == [("a", "b", 3), ("a", "c", 4), ("b", "c", 3)]
    assert found["pearson"].to_list() == pytest.approx([0.5, 1, 0.5])


def test_a_pvi_that_does_not_vary_has_no_correlation_and_two_queries_have_no_p() -> None:
    constant = correlations(pvis(a=[1.0, 2, 3], b=[4.0, 4, 4]), across="level", by=["model"])
    assert all(math.isnan(constant[name][0]) for name in ("pearson", "pearson_p", "spearman", "spearman_p"))
    seven = correlations(pvis(a=[float(n) for n in range(7)], b=[0.1] * 7), across="level", by=["model"])
    assert math.isnan(seven["pearson"][0])  # although the mean of seven times 0.1 is not 0.1
    two = correlations(pvis(a=[1.0, 2], b=[3.0, 4]), across="level", by=["model"])
    assert two["pearson"][0] == pytest.approx(1)
    assert math.isnan(two["pearson_p"][0])


def test_groups_are_kept_apart_and_levels_are_ordered_as_numbers() -> None:
    one = pl.DataFrame({"query_id": [0, 1, 2] * 2, "n_shots": [16] * 3 + [4] * 3, "pvi_bits": [1.0, 2, 3, 2, 4, 6]})
    both = pl.concat(
        [
            one.with_columns(dataset=pl.lit("b")),
            one.with_columns(dataset=pl.lit("a"), pvi_bits=pl.col("pvi_bits") * pl.Series([1, 1, 1, -1, -1, -1])),
        ]
    )
    found = correlations(both, across="n_shots", by=["dataset"])
    assert found.select("dataset", "first", "second").rows() == [("a", "4", "16"), ("b", "4", "16")]
    assert found["pearson"].to_list() == pytest.approx([-1, 1])
    assert found["pearson_p"].to_list() == pytest.approx([0, 0], abs=1e-7)


def test_a_query_that_stands_twice_is_refused() -> None:
    rows = pvis(a=[1.0, 2, 3])
    with pytest.raises(MetricError, match="level 'a', query_id 0 is in more than one row"):
        correlations(pl.concat([rows, rows.head(1)]), across="level", by=["model"])


def test_p_values_are_those_released_with_the_correlations() -> None:
    released = pl.read_parquet(shared_data("pvi") / "consistency_by_exemplar.parquet")
    sizes = (
        pl.read_parquet(shared_data("pvi") / "results.parquet").group_by("dataset").agg(pl.col("number_of_data").max())
    )
    lists = released.with_columns(pl.col("r", "p").str.json_decode(pl.List(pl.Float64))).explode("r", "p")
    rows = lists.join(sizes, on="dataset", maintain_order="left").filter(pl.col("p") > 1e-300)
    # Accuracies are of 9,815 and 9,824 queries; only with 10,000 do the p-values of these two datasets come out.
    whole = pl.when(pl.col("dataset").str.contains("snli|multinli")).then(10_000).otherwise("number_of_data")
    assert rows.height > 100
    found = correlation_p(rows["r"].to_numpy(), rows.select(whole).to_series().to_numpy())
    assert found == pytest.approx(rows["p"].to_numpy(), rel=1e-9, abs=0)


def test_strengths_count_beyond_both_bounds_and_leave_undefined_cases_out() -> None:
    # Of .9 .6 .3 .1: one is above .6 and one below .3, the mean is 1.9 / 4 and the median (.6 + .3) / 2.
    cases = pl.DataFrame({"r": [0.9, 0.6, 0.3, 0.1, math.nan, None], "across": ["shots"] * 6})
    found = strengths(cases, by=["across"])
    assert found.schema == pl.Schema({"across": pl.String(), **PVI_STRENGTHS})
    assert found.row(0) == pytest.approx(("shots", 4, 2, 0.475, 0.45, 0.25, 0.25))


def test_the_pairs_of_a_case_are_averaged_before_cases_are_counted() -> None:
    # Of model m: (1.0 + 0.5 + 0.3) / 3 = 0.6; model n has a pair without a correlation, so that its case has none.
    pairs = pl.DataFrame({"model": ["n", "m", "m", "n", "m"], "pearson": [0.2, 1.0, 0.5, math.nan, 0.3], "d": "d"})
    found = case_strengths(pairs.with_columns(spearman=-pl.col("pearson")), ["d", "model"], by=["d"])
    assert found["coefficient"].to_list() == ["pearson", "spearman"]
    assert found.select("n", "n_undefined").rows() == [(1, 1), (1, 1)]
    assert found["mean"].to_list() == pytest.approx([0.6, -0.6])
