"""Ranks as ranges, from the tests of all pairs of runs."""

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.multitest import multipletests

from evaluator.compare.across_models import MAX_RANKED, pair_p_values, rank_ranges
from evaluator.metrics.intervals import two_way_standard_error
from evaluator.statistics.paired import Estimate, adjusted_estimate, mean_estimate, t_test

SEEDS = st.integers(0, 2**32 - 1)


def answers(seed: int, n_runs: int = 6) -> list[np.ndarray]:
    """Shares of right requests on three datasets of different sizes, of runs of different ability."""
    rng = np.random.default_rng(seed)
    ability = np.sort(rng.uniform(0.2, 0.9, n_runs))
    return [rng.binomial(2, ability[:, None], (n_runs, n)) / 2 for n in (30, 64, 128)]


@given(SEEDS)
def test_every_pair_has_the_test_of_a_comparison_of_two_runs(seed: int) -> None:
    correct = answers(seed)
    p_values = pair_p_values(correct)
    for a in range(6):
        for b in range(6):
            pairs = [adjusted_estimate(d[a] - d[b], 2 / 3) for d in correct]
            assert p_values[a, b] == pytest.approx(1.0 if a == b else t_test(mean_estimate(pairs)), abs=1e-9)


@given(SEEDS)
@settings(max_examples=30)
def test_a_range_leaves_out_the_runs_that_holm_tells_apart(seed: int) -> None:
    correct = answers(seed)
    means = np.mean([d.mean(axis=1) for d in correct], axis=0)
    places = np.triu_indices(6, 1)
    rejected = np.zeros((6, 6), dtype=bool)
    with patch("gc.collect"):  # each call asks for a full collection, half a second
        rejected[places] = multipletests(pair_p_values(correct)[places], alpha=0.05, method="holm")[0]
    rejected |= rejected.T
    for run, (low, high) in enumerate(rank_ranges(correct)):
        others = [other for other in range(6) if rejected[run, other]]
        assert low == 1 + sum(means[other] > means[run] for other in others)
        assert high == 6 - sum(means[other] < means[run] for other in others)
        assert low <= 1 + (means > means[run]).sum() <= high


def test_equal_runs_share_all_ranks_and_better_ones_have_their_own() -> None:
    rng = np.random.default_rng(0)
    bad, good = (rng.random(400) < 0.3).astype(float), (rng.random(400) < 0.9).astype(float)
    assert rank_ranges([np.stack([bad, bad, good, good])]).tolist() == [[3, 4], [3, 4], [1, 2], [1, 2]]


def test_runs_after_the_same_sets_are_tested_over_queries_and_sets_and_others_over_queries() -> None:
    # The second run is better after one of two sets and equal after the other: over sets, nothing is shown.
    rng = np.random.default_rng(7)
    run, of_set = (rng.random((300, 2)) < 0.5).astype(float), np.array([0.0, 0.4])
    cells = np.stack([run, np.maximum(run, rng.random((300, 2)) < of_set)])
    assert pair_p_values([cells.mean(axis=2)])[0, 1] < 1e-6
    error, freedom = two_way_standard_error(cells[0] - cells[1])
    crossed = Estimate(float((cells[0] - cells[1]).mean()), error or 0.0, freedom)
    assert pair_p_values([cells])[0, 1] == pytest.approx(t_test(crossed))
    assert t_test(crossed) > 0.2
    assert rank_ranges([cells]).tolist() == [[1, 2], [1, 2]]
    # In a mean over datasets, a dataset with one set has the two added pairs.
    other = answers(2, 2)[0]
    plain = adjusted_estimate(other[0] - other[1], 2 / 2)
    expected = t_test(mean_estimate([crossed, plain]))
    assert pair_p_values([cells, other[:, :, None]])[0, 1] == pytest.approx(expected)


def test_orders_of_runs_and_queries_do_not_matter() -> None:
    correct = answers(3)
    rng = np.random.default_rng(4)
    order = rng.permutation(6)
    shuffled = [d[order][:, rng.permutation(d.shape[1])] for d in correct]
    assert (rank_ranges(shuffled) == rank_ranges(correct)[order]).all()


def test_no_ranking_has_more_runs_than_its_correction_is_for() -> None:
    with pytest.raises(AssertionError):
        rank_ranges([np.zeros((MAX_RANKED + 1, 4))])
