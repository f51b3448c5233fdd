"""Rank runs that share queries by ranges: the tests of all pairs from one matrix product a dataset."""

from collections.abc import Sequence

import numpy as np
import polars as pl
from scipy.special import stdtr

from evaluator.arrays import Floats, Ints
from evaluator.statistics.paired import LEVEL, holm

MAX_RANKED = 50
"""Largest number of runs in a ranking: Holm's correction is over all their pairs."""


def pair_p_values(correct: Sequence[Floats]) -> Floats:
    """Return the two-sided p-value of equal mean accuracies of every two runs, on the same queries.

    Args:
        correct: of each dataset [runs, queries], means over the requests of a query.

    Returns [runs, runs]. The sums of squared differences of all pairs follow from one product, X X'. The test is
    Student's of the mean over datasets with two more pairs, as in a comparison of two runs (paired.adjusted_estimate
    and mean_estimate, with Satterthwaite's degrees of freedom).
    """
    n_runs, n_datasets = len(correct[0]), len(correct)
    difference, variance, spread = (np.zeros((n_runs, n_runs)) for _ in range(3))
    added = 2 / n_datasets
    for answers in correct:
        n, totals, product = answers.shape[1] + added, answers.sum(axis=1), answers @ answers.T
        squares = np.diag(product)
        mean = (totals[:, None] - totals[None, :]) / n
        mean_square = (squares[:, None] + squares[None, :] - 2 * product + added) / n
        of_dataset = (mean_square - mean**2) / (n - 1)
        difference += mean
        variance += of_dataset
        spread += of_dataset**2 / (n - 1)
    p_values: Floats = 2 * stdtr(variance**2 / spread, -np.abs(difference) / np.sqrt(variance))
    np.fill_diagonal(p_values, 1.0)
    return p_values


def rank_ranges(correct: Sequence[Floats]) -> Ints:
    """Return the lowest and highest rank that the tests leave to each run, 1 the best: [runs, 2].

    A run is behind those that are better, and before those that are worse, at the 5% level after Holm's correction over
    all pairs. Only MAX_RANKED runs can be ranked together.
    """
    assert len(correct[0]) <= MAX_RANKED, "Holm's correction over more pairs has no power"
    means = np.mean([answers.mean(axis=1) for answers in correct], axis=0)
    p_values, (row, column) = pair_p_values(correct), np.triu_indices(len(means), 1)
    corrected = pl.DataFrame({"p": p_values[row, column]}, schema={"p": pl.Float64}).select(holm(pl.col("p")))
    differs = np.zeros(p_values.shape, dtype=bool)
    differs[row, column] = corrected.to_series().to_numpy() <= LEVEL
    differs |= differs.T
    is_better = means[:, None] > means[None, :]
    return np.column_stack([1 + (differs & is_better.T).sum(axis=1), len(means) - (differs & is_better).sum(axis=1)])
