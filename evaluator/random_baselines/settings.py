"""Read arguments as settings of random baselines, and compute the distributions of the number of right answers.

Arguments are checked and broadcast to settings, and each distinct distribution is stored once. Distributions are
binomial where all examples have the same chance, and Poisson binomial where chances differ. SciPy has the Poisson
binomial as well (stats.poisson_binom): its masses are right, but its upper tails are 1 minus a sum, and with many
different chances it is slower (benchmarks/columnar/max_random.py has the times).
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from evaluator.arrays import Bools, Floats, Ints
from evaluator.errors import BaselineError

SMALLEST = 1e-300
"""Masses below this have lost digits; their logarithms are computed from a tilted distribution."""

NEGLIGIBLE_NATS = 40.0
"""Difference of log masses at which adding the smaller mass changes none of the 16 digits of the larger one."""


class Distributions(NamedTuple):
    """Distributions of the number of right answers, one a row, ascending in n."""

    n: Ints  # [rows], numbers of examples
    mean_chance: Floats  # [rows]
    pmf: Callable[[slice], Floats]  # masses [rows, max(n) + 1], 0 for k > n; inaccurate below SMALLEST
    # Takes rows, and a first and a last count. Returns the log masses in nats, however small, that P(X >= k) needs for
    # k from the first to the last count; other log masses may be -inf.
    log_pmf: Callable[[slice, int, int], Floats]


class Chances(NamedTuple):
    """Distinct chances, ascending, and the number of examples with each chance."""

    chance: Floats
    counts: Ints


def binomials(n: Ints, chance: Floats) -> Distributions:
    """Return binomial distributions.

    Args:
        n: [rows], numbers of examples, ascending.
        chance: [rows], chance of all examples of a row.
    """

    def log_pmf(rows: slice, _first: int = 0, _last: int = 0) -> Floats:
        return binomial_log_pmf(n[rows], np.log(chance[rows]), np.log1p(-chance[rows]))

    return Distributions(n, chance, lambda rows: np.exp(log_pmf(rows)), log_pmf)


def poisson_binomials(chances: Sequence[Chances]) -> Distributions:
    """Return one Poisson binomial distribution for each entry of `chances`, which are ascending in n."""
    n = np.array([row.counts.sum() for row in chances], dtype=np.int64)
    return Distributions(
        n,
        np.array([row.counts @ row.chance for row in chances], dtype=np.float64) / n,
        lambda rows: _padded(map(poisson_binomial_pmf, chances[rows]), fill=0.0),
        lambda rows, first, last: _padded(
            (poisson_binomial_log_pmf(row, first, last) for row in chances[rows]), fill=-np.inf
        ),
    )


def binomial_log_pmf(n: Ints, log_chance: Floats, log_miss: Floats) -> Floats:
    """Return the log of C(n, k) p^k (1 - p)^(n - k) for k = 0, 1, ..., max(n), in nats; -inf where k > n.

    No term of the sum is larger than n x max(1, |log p|), so the relative error of a mass is about n x 1e-16.
    Differences of log factorials, which grow as n log n, would lose one more digit.

    Args:
        n: [rows], numbers of trials.
        log_chance: [rows], log p.
        log_miss: [rows], log (1 - p); a separate argument, because 1 - p has few digits where p is near 1.

    Returns:
        [rows, max(n) + 1].
    """
    k = np.arange(n.max() + 1)
    n = n[:, None]
    misses = n - k
    log_mass = _log_choices(n, k, np.maximum(misses, 0)) + k * log_chance[:, None] + misses * log_miss[:, None]
    log_mass[misses < 0] = -np.inf
    return log_mass


def _log_choices(n: Ints, k: Ints, misses: Ints) -> Floats:
    """Return log C(n, k) as n log n - k log k - (n - k) log (n - k) plus the remainders of the three log factorials."""
    rest = _log_factorial_rest(k[-1] + 1)
    entropy = k * np.log(np.maximum(k, 1) / n) + misses * np.log(np.maximum(misses, 1) / n)
    return np.asarray(rest[n] - rest[k] - rest[misses] - entropy)


def _log_factorial_rest(size: int) -> Floats:
    """Return the remainder log k! - (k log k - k) for k = 0, 1, ..., size - 1; by Stirling's series from k = 16 on."""
    small = [math.lgamma(k + 1) - (k * math.log(k) - k if k else 0) for k in range(min(size, 16))]
    k = np.arange(16.0, size)
    series = (1 / 12 - (1 / 360 - (1 / 1260 - (1 / 1680 - 1 / 1188 / k**2) / k**2) / k**2) / k**2) / k
    return np.concatenate([small, np.log(2 * np.pi * k) / 2 + series])


def poisson_binomial_pmf(chances: Chances) -> Floats:
    """Return the masses of the number of successes of a Poisson binomial distribution, [n + 1]."""
    return _convolved_pmf(chances.counts, np.log(chances.chance), np.log1p(-chances.chance))


def poisson_binomial_log_pmf(chances: Chances, first: int = 0, last: int | None = None) -> Floats:
    """Return the log masses of the number of successes in nats, [n + 1], also where the masses would underflow.

    Multiplying the odds of every example by exp(theta) multiplies the mass at k by exp(theta k) and a constant
    (exponential tilting). If theta is chosen so that the mean is k, masses up to about forty standard deviations from k
    are representable; a few such steps cover 0 to n. The masses rise to a mode and then fall (log-concave).

    Args:
        chances: chances of the examples.
        first: log masses of fewer successes are -inf.
        last: log masses of more successes are -inf from where the remaining masses together change no digit of the mass
            at `last`; None: n.
    """
    count, n = chances.counts, int(chances.counts.sum())
    log_miss = np.log1p(-chances.chance)
    log_odds = np.log(chances.chance) - log_miss
    log_pmf, missing = np.full(n + 1, -np.inf), np.arange(first, n + 1)
    last, mean = n if last is None else min(last, n), max(float(count @ chances.chance), float(first))
    while len(missing):
        theta = _tilt(log_odds, count, min(max(mean, 0.5), n - 0.5))
        tilted_miss = -np.logaddexp(0, log_odds + theta)
        tilted = _convolved_pmf(count, tilted_miss + log_odds + theta, tilted_miss)
        # Undo the tilt where the tilted masses have all their digits, and continue at the first missing count.
        is_accurate = tilted[missing] > SMALLEST
        accurate, missing = missing[is_accurate], missing[~is_accurate]
        log_pmf[accurate] = np.log(tilted[accurate]) - theta * accurate + count @ (log_miss - tilted_miss)
        if len(missing):
            mean = float(missing[0])
            if missing[0] > last and log_pmf[missing[0] - 1] < log_pmf[last] - NEGLIGIBLE_NATS - math.log(n):
                break
    return log_pmf


def _tilt(log_odds: Floats, count: Ints, mean: float) -> float:
    """Return the theta at which the tilted chances add up to `mean`."""
    from scipy.optimize import brentq  # here, because importing it takes as long as a small run

    # At the ends of this interval all tilted chances are 0 or 1 in floating point.
    low, high = -800 - float(log_odds.max()), 800 - float(log_odds.min())
    excess = lambda theta: count @ np.exp(-np.logaddexp(0, -log_odds - theta)) - mean  # noqa: E731
    return float(brentq(excess, low, high, maxiter=1_000))


def _convolved_pmf(count: Ints, log_chance: Floats, log_miss: Floats) -> Floats:
    """Convolve the binomials of all distinct chances, pair by pair, without subtractions, which would lose digits."""
    parts: list[Floats] = []
    for size in np.unique(count):  # one call for all binomials of the same size: there may be as many as examples
        same_size = count == size
        parts += list(np.exp(binomial_log_pmf(count[same_size], log_chance[same_size], log_miss[same_size])))
    while len(parts) > 1:
        parts = [*map(_convolve, parts[::2], parts[1::2]), *parts[len(parts) // 2 * 2 :]]
    return parts[0]


def _convolve(one: Floats, other: Floats) -> Floats:
    """Convolve two arrays of masses directly, because rounding errors of an FFT would exceed the tails.

    Zeros at both ends of the arrays are left out of the computation.
    """
    result: Floats = np.zeros(len(one) + len(other) - 1)
    (a, last_a), (b, last_b) = (np.flatnonzero(masses)[[0, -1]] for masses in (one, other))
    result[a + b : last_a + last_b + 1] = np.convolve(one[a : last_a + 1], other[b : last_b + 1])
    return result


def _padded(rows: Iterable[Floats], *, fill: float) -> Floats:
    masses = list(rows)
    width = max(map(len, masses))
    return np.array([np.pad(row, (0, width - len(row)), constant_values=fill) for row in masses])


Numbers: TypeAlias = float | Sequence[float] | npt.NDArray[Any]

ChoiceCounts: TypeAlias = Mapping[int, int]
"""Number of examples by number of choices: {2: 50, 5: 30} is 50 examples of chance 1/2 and 30 of chance 1/5."""

Chance: TypeAlias = Numbers | ChoiceCounts | Sequence[Numbers | ChoiceCounts]
"""One number; one number per example; counts per number of choices; or several of these, one per setting
(max_random.py)."""

MAX_EXAMPLES = 10**7
"""Largest n, up to which probabilities have a relative error below 1e-9. With a single chance, a million examples take
0.2 s and ten million 5 s; with several chances they take far longer."""

MAX_TRIES = 10**15
"""Largest number of tries; every whole number up to it is exactly representable as a float."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings (n, chance, tries) as flat arrays [settings]."""

    shape: tuple[int, ...]  # shape to which the arguments broadcast
    distributions: Distributions  # the distinct distributions
    row: Ints  # [settings], row in `distributions`
    tries: Floats  # [settings]
    extra: Floats  # [settings], a further argument: counts or probabilities

    @property
    def n(self) -> Ints:
        """Return the number of examples of each setting, [settings]."""
        return self.distributions.n[self.row]


def read_settings(n: Numbers, chance: Chance, tries: Numbers, extra: Floats | float = 0.0) -> Settings:
    """Check the arguments and broadcast them to settings.

    Args:
        n, chance, tries: as in max_random.
        extra: a further argument that broadcasts with them; the caller checks its values.

    Raises BaselineError for invalid arguments.
    """
    sizes = whole_numbers("n", n, 1, MAX_EXAMPLES)
    n_tries = whole_numbers("tries", tries, 1, MAX_TRIES)
    # The chance of each setting, or the index of the setting's chances in `items`.
    by_setting, items = _chances_by_setting(chance, several_sizes=sizes.ndim > 0)
    arrays = [sizes, by_setting, n_tries, np.asarray(extra)]
    try:
        broadcast = np.broadcast_arrays(*arrays)
    except ValueError:
        listed = ", ".join(str(array.shape) for array in arrays if array.ndim)
        arguments = f"n, chance, tries and further arguments have shapes {listed}"
        raise BaselineError(f"Settings do not fit each other: {arguments}, which must broadcast.") from None
    size, of_setting, tried, more = (array.ravel() for array in broadcast)
    # Each distinct pair of n and chance (or index of an item) is a row. As complex numbers they are sorted by n first,
    # ten times as fast as pairs of columns.
    distinct, row = np.unique(size + 1j * of_setting, return_inverse=True)
    row_n, row_chance = distinct.real.astype(np.int64), distinct.imag
    if items is None:
        distributions = binomials(row_n, row_chance)
    else:
        of_row = [_chances(items[int(item)], int(n)) for n, item in zip(row_n, row_chance, strict=True)]
        # Items with equal chances share a row.
        content = [(chances.chance.tobytes(), chances.counts.tobytes()) for chances in of_row]
        by_content = dict(zip(content, of_row, strict=True))
        distributions = poisson_binomials([*by_content.values()])
        number = {key: place for place, key in enumerate(by_content)}
        row = np.array([number[key] for key in content], dtype=np.int64)[row]
    return Settings(shape=broadcast[0].shape, distributions=distributions, row=row, tries=tried, extra=more)


def _chances_by_setting(
    chance: Chance, *, several_sizes: bool
) -> tuple[Floats | Ints, Sequence[Numbers | ChoiceCounts] | None]:
    """Return an array with one chance a setting, and None; or an array of indices into items, and the items."""
    if isinstance(chance, Mapping):
        return np.array(0), [chance]
    if not isinstance(chance, np.ndarray | str) and np.iterable(chance) and any(map(np.iterable, chance)):
        items = list(chance)
        return np.arange(len(items)), items
    numbers = require_numbers("chance", chance)
    if several_sizes or not numbers.ndim:
        return require_probabilities("chance", numbers), None
    if numbers.ndim > 1:
        raise BaselineError(
            f"chance has shape {numbers.shape} with one n. Give a list with the chances of each setting's examples, "
            "or, where each setting has one chance, n as an array too."
        )
    return np.array(0), [numbers]


def _chances(item: Numbers | ChoiceCounts, n: int) -> Chances:
    """Return the chances of one setting's n examples, from a number, a list of n numbers or counts per choices."""
    if isinstance(item, Mapping):
        chances = _chances_of_choices(item)
        if (total := chances.counts.sum()) != n:
            raise BaselineError(f"The counts per number of choices add up to {total} examples, but n is {n}.")
        return chances
    numbers = require_probabilities("chance", item)
    if numbers.ndim == 0:
        return Chances(numbers[None], np.array([n]))
    if numbers.ndim > 1:
        raise BaselineError(
            f"The chances of one setting's examples must be a flat list; received shape {numbers.shape}."
        )
    if len(numbers) != n:
        raise BaselineError(
            f"chance is given for {len(numbers)} examples, but n is {n}. Give one for each example, or, where each "
            "setting has one chance, n as an array too."
        )
    return Chances(*np.unique(numbers, return_counts=True))


def _chances_of_choices(counts: ChoiceCounts) -> Chances:
    for choices, count in counts.items():
        are_whole = all(isinstance(number, int | np.integer) for number in (choices, count))
        if not are_whole or choices < 2 or count < 0:
            raise BaselineError(
                "Counts per number of choices map whole numbers, 2 or more choices, to how many examples have them; "
                f"received {choices!r}: {count!r}."
            )
    present = sorted((choices for choices, count in counts.items() if count), reverse=True)
    return Chances(1 / np.array(present, dtype=np.float64), np.array([counts[one] for one in present], dtype=np.int64))


def require_numbers(name: str, value: Any) -> Floats:
    """Return the value as floats; raise BaselineError for strings, booleans and missing entries."""
    rule = f"{name} must be a number or an array of numbers"
    try:
        numbers = np.asarray(value)
    except ValueError:
        raise BaselineError(f"{rule}; rows differ in length: {value!r}.") from None
    if numbers.dtype.kind not in "iuf" and numbers.size:
        raise BaselineError(f"{rule}; received {value!r}.")
    return numbers.astype(np.float64)


def whole_numbers(name: str, value: Any, low: int, high: int) -> Floats:
    """Return whole numbers from `low` to `high` as floats, also from 100.0 or 1e12; raise BaselineError for others."""
    numbers = require_numbers(name, value)
    is_valid = (numbers >= low) & (numbers <= high) & (numbers == np.floor(numbers))
    _refuse(~is_valid, numbers, f"{name} must be a whole number from {low} to {high:,}")
    return numbers


def require_probabilities(name: str, value: Any) -> Floats:
    """Return probabilities as floats; raise BaselineError for numbers that are not between 0 and 1, both excluded."""
    numbers = require_numbers(name, value)
    _refuse(~((numbers > 0) & (numbers < 1)), numbers, f"{name} must lie between 0 and 1, both excluded")
    return numbers


def require_counts(correct: Floats, n: Ints) -> None:
    """Raise BaselineError for counts outside 0 to n and for fractions, such as accuracies; arrays of one shape."""
    is_inside = (correct >= 0) & (correct <= n)
    is_count = is_inside & (correct == np.floor(correct))
    if is_count.all():
        return
    first = int(is_count.argmin())
    received, size = float(correct[first]), int(n[first])
    if not is_inside[first]:
        raise BaselineError(f"correct must be a count from 0 to n = {size}; received {received:g}.")
    # A fraction below 1 is read as an accuracy, any other fraction as an inexact count.
    count = received * size if received < 1 else received
    nearest = [round(count)] if abs(count - round(count)) < 1e-9 * size else [int(count), int(count) + 1]
    named = " and ".join(f"{count} (accuracy {count / size:.6g})" for count in nearest)
    reading = "; as an accuracy, the nearest counts" if received < 1 else "; the nearest counts"
    raise BaselineError(
        f"correct must be a count, the number of right answers; received {received!r}{reading} of n = {size} are "
        f"{named}."
    )


def _refuse(bad: Bools, numbers: Floats, what: str) -> None:
    if bad.any():
        first = np.unravel_index(int(bad.argmax()), bad.shape)
        where = f", the first at {', '.join(map(str, first))}" if bad.ndim else ""
        raise BaselineError(f"{what}; received {numbers[first]:.15g}{where}.")
