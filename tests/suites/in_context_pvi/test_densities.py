"""Histograms and deciles against NumPy and SciPy."""

import numpy as np
import polars as pl
import pytest
from scipy import stats

from evaluator.suites.in_context_pvi.schema import (
    PVI_DECILES,
    PVI_DECILES_KEY,
    PVI_DENSITIES,
    PVI_DENSITIES_KEY,
    PVI_RUN,
)
from evaluator.suites.in_context_pvi.summary import deciles_table, densities_table, judged_queries
from tests.suites.in_context_pvi.pvi_answers import random_table, run_table

TABLES = {"ties": random_table(1, 150, ties=True), "missing": random_table(2, 150, missing=True)}


@pytest.mark.parametrize("name", TABLES)
def test_counts_and_densities_are_those_of_numpy_on_the_same_edges(name: str) -> None:
    judged = judged_queries(TABLES[name])
    found = densities_table(judged)
    assert found.schema == PVI_DENSITIES
    assert found.equals(found.sort(PVI_DENSITIES_KEY))
    groups = found.partition_by([*PVI_RUN, "correct"], as_dict=True)
    assert len(groups) == 72
    for key, own in groups.items():
        edges = [*own["bin_low"], own["bin_high"][-1]]
        assert own["bin_high"].to_list() == edges[1:]
        run = dict(zip([*PVI_RUN, "correct"], key, strict=True))
        values = judged.filter(**run)["pvi_bits"].to_numpy()
        # On an edge a value is above it, but for the highest inner edge, which it is below: as np.histogram closes.
        inner, _ = np.histogram(values, edges[1:-1])
        counts = [int((values < edges[1]).sum()), *inner.tolist(), int((values > edges[-2]).sum())]
        assert abs(np.cumsum(own["n"].to_numpy()) - np.cumsum(counts)).max() <= (values[:, None] == edges).sum()
        assert own["n"].sum() == len(values)
        area = (own["density"] * (own["bin_high"] - own["bin_low"])).to_numpy()
        assert area == pytest.approx(own["n"].to_numpy() / len(values))


def test_all_runs_of_a_dataset_and_definition_share_their_bins() -> None:
    found = densities_table(judged_queries(TABLES["missing"]))
    edges = found.select("dataset", "definition", "bin", "bin_low", "bin_high").unique()
    assert edges.height == 2 * 3 * 40
    values = judged_queries(TABLES["missing"]).filter(dataset="a", definition="paper")["pvi_bits"]
    own = edges.filter(dataset="a", definition="paper").sort("bin")
    assert (own["bin_low"][0], own["bin_high"][-1]) == (values.min(), values.max())
    inner = (own["bin_high"] - own["bin_low"]).to_numpy()[1:-1]
    assert inner == pytest.approx(inner[0])
    # Half a per cent lies beyond the inner bins on either side: of 900, less what is missing, four.
    assert [(values < own["bin_low"][1]).sum(), (values > own["bin_high"][-2]).sum()] == [4, 4]


def test_pvis_that_are_all_one_number_stand_in_one_bin() -> None:
    found = densities_table(judged_queries(run_table([2.0] * 6, [True] * 4 + [False] * 2)))
    filled = found.filter(pl.col("n") > 0)
    assert filled.select("correct", "n").rows() == [(False, 2), (True, 4)]
    low, high = filled["bin_low"][0], filled["bin_high"][0]
    assert low <= 2 <= high
    # Thirty-eight bins over one unit.
    assert filled["density"].to_list() == pytest.approx([38, 38])


def test_deciles_are_worked_by_hand() -> None:
    # Twenty queries at 0 to 19: two a decile, and only the second of each is right.
    found = deciles_table(judged_queries(run_table([float(i) for i in range(20)], [i % 2 == 1 for i in range(20)])))
    assert found.select("decile", "n", "mean_pvi", "accuracy").rows() == [
        (i + 1, 2, 2 * i + 0.5, 0.5) for i in range(10)
    ]


def test_equal_pvis_share_a_decile() -> None:
    # Ranks of four at 0 are 2.5, of six at 1 7.5: deciles floor(2.0) + 1 = 3 and floor(7.0) + 1 = 8.
    found = deciles_table(judged_queries(run_table([0.0] * 4 + [1.0] * 6, [True] * 10)))
    assert found.select("decile", "n").rows() == [(3, 4), (8, 6)]


@pytest.mark.parametrize("name", TABLES)
def test_deciles_are_those_of_scipys_ranks_with_wilsons_interval(name: str) -> None:
    judged = judged_queries(TABLES[name])
    found = deciles_table(judged)
    assert found.schema == PVI_DECILES
    assert found.equals(found.sort(PVI_DECILES_KEY))
    rows = {tuple(row[column] for column in PVI_DECILES_KEY): row for row in found.to_dicts()}
    seen = 0
    for key, own in judged.partition_by(PVI_RUN, as_dict=True).items():
        values, right = own["pvi_bits"].to_numpy(), own["correct"].to_numpy()
        decile = np.floor((stats.rankdata(values) - 0.5) * 10 / len(values)).astype(int) + 1
        for number in np.unique(decile):
            row, inside = rows[(*key, number)], decile == number
            share, n = right[inside].mean(), int(inside.sum())
            assert (row["n"], row["mean_pvi"], row["accuracy"]) == pytest.approx((n, values[inside].mean(), share))
            # Wilson's with the effective size n - 1 of a jackknife, or n where no two differ, and Student's quantile;
            # on a side of three answers or fewer at least as wide as the limit of a Poisson count.
            t, size = stats.t.ppf(0.975, n - 1), n - 1 if 0 < share < 1 else n
            centre, width = share + t**2 / 2 / size, t * np.sqrt(share * (1 - share) / size + (t / 2 / size) ** 2)
            low, high = (centre - width) / (1 + t**2 / size), (centre + width) / (1 + t**2 / size)
            if 0 < size * share <= 3:
                low = min(low, stats.chi2.ppf(0.05, 2 * size * share) / 2 / size)
            if 0 < size * (1 - share) <= 3:
                high = max(high, 1 - stats.chi2.ppf(0.05, 2 * size * (1 - share)) / 2 / size)
            assert (row["ci_low"], row["ci_high"]) == pytest.approx((low, high), abs=1e-12)
            seen += 1
    assert seen == found.height
