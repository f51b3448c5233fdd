"""Test whether accuracies are better than guessing, and compute how many queries such a test needs.

The test is the tail of the maximum random baseline: the probability that the best of as many random classifiers as
prompts were tried has at least as many right answers (Yauney & Mimno 2024, appendix A). A run makes many such tests, so
the p-values are corrected for their number by Holm's procedure: the probability that any accuracy that is guessing is
called better than guessing is TAIL_TO_TELL at most.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import polars as pl

from evaluator.random_baselines.verdicts import TAIL_TO_TELL, examples_needed
from evaluator.schemas import TEST_OF_GUESSING
from evaluator.statistics.multiple_tests import holm
from evaluator.statistics.proportion import FloatArray, lower_confidence_bound

ASSURANCE = 0.8
"""Confidence of the lower bound that n_needed is planned with."""

NEAREST = 1e-5
"""A lower bound this close to chance is not above it: no run has the examples, beyond 10^10, that would tell."""


def with_tests(rows: pl.DataFrame, family: Sequence[str] = ()) -> pl.DataFrame:
    """Add schemas.TEST_OF_GUESSING to accuracies.

    The family of tests that p-values are corrected over are all rows with a tail that agree in the columns `family`.

    Args:
        rows: log10_tail (null where there is no test), n_right (whole number of correct queries), n_queries, chance,
            tries, and n_chosen_from: the number of prompts whose highest accuracy this is, 1 for an accuracy or a mean
            that was not chosen.

    A run is planned with a lower bound of the true accuracy, because the accuracy itself is too high where it is the
    best of several (winner's curse), and as likely too high as too low where it is not. The bound is Clopper and
    Pearson's at error (1 - ASSURANCE) / n_chosen_from, which by Bonferroni's inequality holds for all prompts at once
    and so for the best, with confidence ASSURANCE. n_needed is the number of queries on which a run with as many tries
    and tests calls a classifier of that accuracy better than guessing with probability POWER. It is null where the
    bound is not above chance: such a run does not say whether any number of queries is enough.

    Source of planning by a lower bound: Perugini, Gallucci & Costantini 2014, "Safeguard power as a protection against
    imprecise power estimates", Perspectives on Psychological Science 9.
    """
    p_value = pl.lit(10.0).pow(pl.col("log10_tail"))
    corrected, n_tests = holm(p_value), p_value.count().cast(pl.Int64)
    if family:
        corrected, n_tests = corrected.over(family), n_tests.over(family)
    tested = rows.with_columns(
        p_value=p_value,
        p_holm=corrected,
        n_tests=pl.when(pl.col("log10_tail").is_not_null()).then(n_tests),
        accuracy_lower_bound=pl.Series(_lower_bounds(rows), nan_to_null=True),
    )
    planned = tested.select("accuracy_lower_bound", "chance", "tries", "n_tests").iter_rows()
    return tested.with_columns(
        better_than_guessing=pl.col("p_holm") <= TAIL_TO_TELL,
        n_needed=pl.Series([queries_needed(*row) for row in planned], dtype=pl.Int64),
    ).cast(TEST_OF_GUESSING)  # type: ignore[arg-type]


@lru_cache(maxsize=2**14)
def queries_needed(accuracy: float | None, chance: float, tries: int, n_tests: int) -> int | None:
    """Return n_needed of with_tests for a lower bound of the accuracy; None without one, or one not above chance."""
    if accuracy is None or accuracy <= chance + NEAREST:
        return None
    return examples_needed(accuracy, chance, tries, level=TAIL_TO_TELL / n_tests)


def _lower_bounds(rows: pl.DataFrame) -> FloatArray:
    """Return the lower bound of each accuracy, NaN where there is no test."""
    bounds = np.full(rows.height, np.nan)
    has_test = rows["log10_tail"].is_not_null().to_numpy()
    right, n_queries, chosen_from = (
        rows[name].to_numpy()[has_test] for name in ("n_right", "n_queries", "n_chosen_from")
    )
    bounds[has_test] = lower_confidence_bound(right, n_queries, (1 - ASSURANCE) / chosen_from)
    return bounds
