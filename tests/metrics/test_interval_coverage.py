"""Every interval of docs/coverage.md, simulated a little: binomial bounds of what it is printed as."""

import numpy as np
import pytest
from scipy import stats

from benchmarks.columnar.coverage import BIASED, CASES, FEW_DIFFER, FEW_QUERIES, NEARLY, NOT_TOTAL, Case

N_RUNS = 600
LOWEST, HIGHEST = 0.925, 0.975
"""Shares of the samples whose intervals hold the truth: of 600, a coverage of .95 is hardly ever outside, .90 below."""


def test_so_many_samples_tell_a_coverage_of_90_from_one_of_95_percent() -> None:
    below, above = np.ceil(LOWEST * N_RUNS) - 1, np.floor(HIGHEST * N_RUNS)
    assert stats.binom.cdf(below, N_RUNS, 0.95) < 0.005
    assert stats.binom.sf(above, N_RUNS, 0.95) < 0.005
    assert stats.binom.sf(below, N_RUNS, 0.90) < 0.025


OF_A_KIND = [[case for case in CASES if case.value == value] for value in dict.fromkeys(case.value for case in CASES)]
ENDS = {id(case) for cases in OF_A_KIND for case in (cases[0], cases[-1])}
"""Of the models of a value, the two at the ends are simulated in every run."""


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=f"{case.value}: {case.model}", marks=[] if id(case) in ENDS else pytest.mark.exhaustive)
        for case in CASES
    ],
)
def test_intervals_hold_the_truth_as_often_as_they_are_printed_to(case: Case) -> None:
    # At the smallest number of queries, the hardest for most; a training draw shows at the largest.
    n = case.sizes[-1] if case.printed == NOT_TOTAL else case.sizes[0]
    share, _ = case.simulate(np.random.default_rng(4), n, N_RUNS)
    if not is_as_printed(case, share):  # four times as many samples tell
        share, _ = case.simulate(np.random.default_rng(5), n, 4 * N_RUNS)
    assert is_as_printed(case, share), share


def is_as_printed(case: Case, share: float) -> bool:
    """Whether intervals that hold the truth in such a share of the samples are printed as what they are."""
    if case.printed == NOT_TOTAL:
        return share < LOWEST  # which is why it is not printed as more
    if case.printed in (FEW_DIFFER, FEW_QUERIES, BIASED):
        return 0.75 <= share < LOWEST + 0.02  # else it could be printed as more
    if case.printed == NEARLY:
        return 0.91 <= share <= HIGHEST  # a hundredth is the error of the simulation
    return share >= LOWEST and (case.printed != "95%" or share <= HIGHEST)
