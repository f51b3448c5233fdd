"""Every interval of docs/coverage.md, simulated a little: binomial bounds of what it is printed as."""

import numpy as np
import pytest
from scipy import stats

from benchmarks.columnar.coverage import CASES, FEW_DIFFER, NOT_TOTAL, Case

N_RUNS = 120
SURE = 1e-4  # probability with which one case misses though its coverage is at the bound


@pytest.mark.parametrize("case", CASES, ids=[f"{case.value}: {case.model}" for case in CASES])
def test_intervals_hold_the_truth_as_often_as_they_are_printed_to(case: Case) -> None:
    # At the smallest number of queries, the hardest for most; a training draw shows at the largest.
    n = case.sizes[-1] if case.printed == NOT_TOTAL else case.sizes[0]
    share, n_runs = case.simulate(np.random.default_rng(4), n, N_RUNS)
    lowest = stats.binom.ppf(SURE, n_runs, 0.93) / n_runs if n_runs else 0.93
    highest = stats.binom.ppf(1 - SURE, n_runs, 0.97) / n_runs if n_runs else 0.97
    if case.printed == NOT_TOTAL:
        assert share < lowest  # which is why it is not printed as more
    elif case.printed == FEW_DIFFER:
        assert share >= 0.8
    else:
        assert share >= lowest
        assert case.printed != "95%" or share <= highest
