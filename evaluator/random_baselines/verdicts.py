"""Is it better than guessing? An accuracy and two random baselines give a verdict, and how many examples would tell."""

import math
from bisect import bisect_left
from typing import Literal

import polars as pl
from scipy.special import betainc

from evaluator.errors import BaselineError

Verdict = Literal["below both", "between", "above both"]
"""Where an accuracy lies against chance, the standard random baseline, and the maximum random baseline above it."""

TAIL_TO_TELL = 0.05
"""A result is told from guessing when the best of as many random classifiers is as good at most this often."""

POWER = 0.8
"""How often a classifier should be told from guessing. The usual pair of numbers (Cohen 1992, "A power primer")."""


ROUNDING = 1e-12
"""Accuracies this close are equal: k / n and a mean of chances may differ in the last digits where both are one number.
"""


def is_above(accuracy: pl.Expr, baseline: pl.Expr) -> pl.Expr:
    """Test whether an accuracy is above a baseline: strictly more, by more than ROUNDING. Null where an argument is.

    Every verdict uses this rule, except those reproduced from a paper with a rule of its own. Two shares of 1,000,000
    examples, the most there may be, are further apart than ROUNDING.
    """
    return accuracy > baseline + ROUNDING


def verdict(accuracy: pl.Expr, chance: pl.Expr, max_random: pl.Expr) -> pl.Expr:
    """A Verdict: "between" is better than one random classifier is expected to be, and not than the best of all tried.

    An accuracy that equals a baseline is not above it: guessing gives as much. Null where an argument is.

    Source: Yauney & Mimno 2024, table 1: "better than" both baselines, or the standard one alone. Their code
    (`full-results.py`) differs in one case: an accuracy that equals chance counts as above it there.
    """
    known = accuracy.is_not_null() & chance.is_not_null() & max_random.is_not_null()
    return (
        pl.when(~known)
        .then(None)
        .when(~is_above(accuracy, chance))
        .then(pl.lit("below both"))
        .when(~is_above(accuracy, max_random))
        .then(pl.lit("between"))
        .otherwise(pl.lit("above both"))
    )


def examples_needed(accuracy: float, chance: float, tries: float = 1) -> int:
    """How many examples it takes to tell a classifier of this true accuracy from the best of `tries` random ones.

    On that many examples it has, with probability POWER at least, so many right that the best random classifier has as
    many with probability TAIL_TO_TELL at most. Both probabilities are exact. Counts are whole, so the power rises with
    the number of examples as a saw does: the answer is enough and one example fewer is not, but some numbers a little
    smaller may be enough too, and some a little larger may not.

    Where chances differ between examples, give their mean: counts more than one away from it are then rarer than here
    (Hoeffding 1956, "On the distribution of the number of successes in independent trials"), so no more are needed.

    Raises BaselineError for an accuracy that is not above chance, which no number of examples would tell from it.

    Source: p_max of Yauney & Mimno 2024, appendix A, taken as a test: 1 - F(c - 1)^tries <= TAIL_TO_TELL is
    P(X >= c) <= 1 - (1 - TAIL_TO_TELL)^(1 / tries) for one random classifier.
    """
    _require(accuracy, chance, tries)
    one_tail = -math.expm1(math.log1p(-TAIL_TO_TELL) / tries)
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
    """Whether a classifier of this accuracy often enough has a count right that guessing seldom enough has."""
    too_common = bisect_left(range(1, n + 1), True, key=lambda right: _at_least(right, n, chance) <= one_tail)
    return too_common < n and _at_least(too_common + 1, n, accuracy) >= POWER


def _at_least(k: int, n: int, p: float) -> float:
    """P(X >= k) of a binomial X, for k from 1 to n."""
    return float(betainc(k, n - k + 1, p))


def _require(accuracy: float, chance: float, tries: float) -> None:
    if not 0 < chance < 1:
        raise BaselineError(f"chance must lie between 0 and 1, both excluded; received {chance:g}.")
    if not chance < accuracy <= 1:
        raise BaselineError(
            f"accuracy must be above chance ({chance:g}) and at most 1; received {accuracy:g}. A classifier that is no "
            "better than guessing is not told from it by any number of examples."
        )
    if not 1 <= tries < math.inf:
        raise BaselineError(f"tries must be 1 or more; received {tries:g}.")
