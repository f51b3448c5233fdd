"""Random baselines by exact arithmetic: fractions for one try, four hundred decimal digits for powers of them."""

import math
from collections.abc import Sequence
from decimal import Context, Decimal
from fractions import Fraction
from itertools import accumulate

DIGITS = 400
CONTEXT = Context(prec=DIGITS)


def masses(chances: Sequence[float]) -> list[Fraction]:
    """P(X = k) of the number of right guesses, one example after another, over a common denominator."""
    found, denominator = [1], 1
    for chance in chances:
        right, outcomes = chance.as_integer_ratio()
        wrong = outcomes - right
        found = [one * right + other * wrong for one, other in zip([0, *found], [*found, 0], strict=True)]
        denominator *= outcomes
    return [Fraction(mass, denominator) for mass in found]


def max_cdf(chances: Sequence[float], tries: int) -> list[Decimal]:
    """P(the best of `tries` has at most k right)."""
    return [CONTEXT.power(decimal(below), tries) for below in accumulate(masses(chances))]


def max_tail(chances: Sequence[float], tries: int) -> list[Decimal]:
    """P(the best of `tries` has at least k right), k from 0 to n; digits remain down to 1e-380."""
    return [Decimal(1), *(CONTEXT.subtract(Decimal(1), below) for below in max_cdf(chances, tries)[:-1])]


def max_accuracy(chances: Sequence[float], tries: int) -> Decimal:
    return CONTEXT.divide(sum(max_tail(chances, tries)[1:]), Decimal(len(chances)))


def decimal(fraction: Fraction) -> Decimal:
    return CONTEXT.divide(Decimal(fraction.numerator), Decimal(fraction.denominator))


def log10(fraction: Fraction) -> float:
    """The logarithm of a fraction that no float can hold."""
    shift = fraction.denominator.bit_length() - fraction.numerator.bit_length()
    return math.log10(fraction * Fraction(2) ** shift) - shift * math.log10(2)


def relative_error(value: float, exact: Decimal) -> float:
    return float(abs(CONTEXT.subtract(CONTEXT.divide(Decimal(value), exact), Decimal(1))))
