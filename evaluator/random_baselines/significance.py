"""Test whether accuracies are better than uniform guessing, and compute how many queries such a test needs.

The test is the tail of the maximum random baseline: the probability that the best of as many random classifiers as
prompts were tried has at least as many right answers (Yauney & Mimno 2024, appendix A). A run makes many such tests, so
the p-values are corrected for their number by Holm's procedure: the probability that any accuracy that is guessing is
called better than that is TAIL_TO_TELL at most.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.special import betainc, betaincinv

from evaluator.arrays import Floats
from evaluator.errors import BaselineError
from evaluator.schemas import TEST_OF_GUESSING
from evaluator.statistics.paired import holm

Verdict = Literal["below both", "between", "above both"]
"""Position of an accuracy relative to the standard random baseline (chance) and the maximum random baseline.

It compares with expected accuracies, as Yauney & Mimno 2024 do, and is no test: guessing is "above both" in a third to
a half of all experiments. The test is with_tests."""

TAIL_TO_TELL = 0.05
"""A result is distinguished from guessing when the best random classifier reaches it with at most this probability."""

POWER = 0.8
"""Probability with which a classifier should be distinguished from guessing; both numbers are conventional (Cohen 1992,
"A power primer")."""

ROUNDING = 1e-12
"""Accuracies this close are equal: k / n and a mean of chances can differ by rounding when they are the same number."""

ASSURANCE = 0.8
"""Confidence of the lower bound that n_needed is planned with."""

NEAREST = 1e-5
"""A lower bound this close to chance is not above it: no run has the examples, beyond 10^10, that would tell."""


def is_above(accuracy: pl.Expr, baseline: pl.Expr) -> pl.Expr:
    """Test whether an accuracy is above a baseline: strictly more, by more than ROUNDING. Null where an argument is.

    Every verdict uses this rule, except those reproduced from a paper with a different rule. Two shares of
    settings.MAX_EXAMPLES examples are further apart than ROUNDING.
    """
    return accuracy > baseline + ROUNDING


def verdict(accuracy: pl.Expr, chance: pl.Expr, max_random: pl.Expr) -> pl.Expr:
    """Return a Verdict: "between" is above chance, but not above the expected accuracy of the best of all tries.

    An accuracy equal to a baseline is not above it. Null where an argument is.

    Source: Yauney & Mimno 2024, table 1: "better than" both baselines, or the standard one alone. Their code
    (`full-results.py`) differs in one case: an accuracy that equals chance counts as above it there.
    """
    is_defined = accuracy.is_not_null() & chance.is_not_null() & max_random.is_not_null()
    return (
        pl.when(~is_defined)
        .then(None)
        .when(~is_above(accuracy, chance))
        .then(pl.lit("below both"))
        .when(~is_above(accuracy, max_random))
        .then(pl.lit("between"))
        .otherwise(pl.lit("above both"))
    )


def examples_needed(accuracy: float, chance: float, tries: float = 1, *, level: float = TAIL_TO_TELL) -> int:
    """Return the number of examples that tell a classifier of this true accuracy from the best of `tries` random ones.

    On that many examples its number of correct answers is, with probability POWER or more, one that the best random
    classifier reaches with probability `level` or less. With m tests, level TAIL_TO_TELL / m keeps this power under
    Holm's correction, whatever the other tests show. Both probabilities are exact. Because counts are whole,
    the power is a sawtooth in the number of examples: the result suffices and one example fewer does not, but some
    slightly smaller numbers may suffice too, and some slightly larger ones may not.

    Where chances differ between examples, give their mean: counts more than one away from it are then rarer than
    assumed here (Hoeffding 1956, "On the distribution of the number of successes in independent trials"), so no more
    are needed.

    Raises BaselineError for an accuracy that is not above chance, which no number of examples would tell from it.

    Source: p_max of Yauney & Mimno 2024, appendix A, taken as a test: 1 - F(c - 1)^tries <= level is
    P(X >= c) <= 1 - (1 - level)^(1 / tries) for one random classifier.
    """
    _require(accuracy, chance, tries)
    one_tail = -math.expm1(math.log1p(-level) / tries)
    # Double until it suffices, then bisect between the last two.
    enough = 1
    while not _tells(enough, accuracy, chance, one_tail):
        enough *= 2
    too_few = enough // 2
    while enough - too_few > 1:
        middle = (enough + too_few) // 2
        if _tells(middle, accuracy, chance, one_tail):
            enough = middle
        else:
            too_few = middle
    return enough


def _tells(n: int, accuracy: float, chance: float, one_tail: float) -> bool:
    """Return whether n examples suffice: see examples_needed."""
    # The largest count that guessing still reaches too often; a result must be above it.
    too_common = bisect_left(range(1, n + 1), True, key=lambda right: _at_least(right, n, chance) <= one_tail)
    return too_common < n and _at_least(too_common + 1, n, accuracy) >= POWER


def _at_least(k: int, n: int, p: float) -> float:
    """Return P(X >= k) of a binomial X, for k from 1 to n."""
    return float(betainc(k, n - k + 1, p))


def _require(accuracy: float, chance: float, tries: float) -> None:
    if not 0 < chance < 1:
        raise BaselineError(f"chance must lie between 0 and 1, both excluded; received {chance:g}.")
    if not chance < accuracy <= 1:
        raise BaselineError(
            f"accuracy must be above chance ({chance:g}) and at most 1; received {accuracy:g}. A classifier "
            "that is no better than guessing cannot be told from it by any number of examples."
        )
    if not 1 <= tries < math.inf:
        raise BaselineError(f"tries must be 1 or more; received {tries:g}.")


def with_tests(rows: pl.DataFrame, family: Sequence[str] = (), further: Sequence[str] = ()) -> pl.DataFrame:
    """Add schemas.TEST_OF_GUESSING to accuracies.

    The family of tests that p-values are corrected over are all rows with a tail that agree in the columns `family`,
    and the p-values in the columns `further` of the same rows, which get a column NAME_holm each.

    Args:
        rows: log10_tail (null where there is no test), n_right (whole number of correct queries), n_queries, chance,
            tries, and n_chosen_from: the number of prompts whose highest accuracy this is, 1 for an accuracy or a mean
            that was not chosen.

    A run is planned with a lower bound of the true accuracy, because the accuracy itself is too high where it is the
    best of several (winner's curse), and as likely too high as too low where it is not. The bound is Clopper and
    Pearson's at error (1 - ASSURANCE) / n_chosen_from, which by Bonferroni's inequality holds for all prompts at once
    and so for the best, with confidence ASSURANCE. n_needed is the number of queries on which a run with as many tries
    and tests calls a classifier of that accuracy better than uniform guessing with probability POWER. It is null where
    the bound is not above chance: such a run does not say whether any number of queries is enough.

    Source of planning by a lower bound: Perugini, Gallucci & Costantini 2014, "Safeguard power as a protection against
    imprecise power estimates", Perspectives on Psychological Science 9.
    """
    tested = rows.with_columns(p_value=pl.lit(10.0).pow(pl.col("log10_tail")))
    # All p-values one below the other, so that they are corrected together.
    stacked = pl.concat([tested.select(*family, p=name) for name in ("p_value", *further)])
    corrected, n_tests = holm(pl.col("p")), pl.col("p").count().cast(pl.Int64)
    if family:
        corrected, n_tests = corrected.over(family), n_tests.over(family)
    stacked = stacked.select(p_holm=corrected, n_tests=n_tests)
    names = ("p_holm", *(f"{name}_holm" for name in further))
    has_test = pl.col("log10_tail").is_not_null()
    right, n_queries, chosen_from = (rows[name].to_numpy() for name in ("n_right", "n_queries", "n_chosen_from"))
    bounds = pl.Series(lower_confidence_bound(right, n_queries, (1 - ASSURANCE) / chosen_from), dtype=pl.Float64)
    tested = tested.with_columns(
        *(stacked["p_holm"].slice(i * rows.height, rows.height).alias(name) for i, name in enumerate(names)),
        n_tests=pl.when(has_test).then(stacked["n_tests"].head(rows.height)),
        accuracy_lower_bound=pl.when(has_test).then(bounds),
    )
    planned = tested.select("accuracy_lower_bound", "chance", "tries", "n_tests").iter_rows()
    return tested.with_columns(
        better_than_uniform=pl.col("p_holm") <= TAIL_TO_TELL,
        n_needed=pl.Series([queries_needed(*row) for row in planned], dtype=pl.Int64),
    ).cast(TEST_OF_GUESSING)  # type: ignore[arg-type]


@lru_cache(maxsize=2**14)
def queries_needed(accuracy: float | None, chance: float, tries: int, n_tests: int) -> int | None:
    """Return n_needed of with_tests for a lower bound of the accuracy; None without one, or one not above chance."""
    if accuracy is None or accuracy <= chance + NEAREST:
        return None
    return examples_needed(accuracy, chance, tries, level=TAIL_TO_TELL / n_tests)


def lower_confidence_bound(successes: npt.ArrayLike, n: npt.ArrayLike, error: npt.ArrayLike) -> Floats:
    """Return the exact one-sided lower bound of a proportion; broadcasts.

    The true proportion is below it with probability `error` at most. It is 0 without successes.

    Args:
        successes: whole numbers from 0 to n.
        n: numbers of independent trials.
        error: between 0 and 1.

    Source: Clopper & Pearson 1934, "The use of confidence or fiducial limits illustrated in the case of the binomial".
    """
    count, size, level = (np.asarray(values, dtype=np.float64) for values in (successes, n, error))
    return np.where(count > 0, betaincinv(np.maximum(count, 1), size - count + 1, level), 0.0)
