"""Check arguments, broadcast them to settings, and store each distinct distribution once.

Compute the masses of distributions of the number of right answers: binomial, and Poisson binomial.

The Poisson binomial distribution is that of examples with different chances. SciPy has it as well
(stats.poisson_binom): its masses are right, but its upper tails are 1 minus a sum, and with many different chances it
is slower (benchmarks/columnar/max_random.py has the times).
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq

from evaluator.arrays import Bools, Floats, Ints
from evaluator.errors import BaselineError

SMALLEST = 1e-300
"""Masses below this have lost digits; their logs are computed from a tilted distribution."""

NEGLIGIBLE_NATS = 40.0
"""A mass so much smaller than another changes none of its 16 digits."""


class Distributions(NamedTuple):
    """Distributions of the number of right answers, one a row, ascending in n."""

    n: Ints  # [rows], numbers of examples
    mean_chance: Floats  # [rows]
    pmf: Callable[[slice], Floats]  # masses [rows, max(n) + 1], 0 beyond the n of a row; inaccurate below SMALLEST
    # Log masses in nats, however small, that P(X >= k) takes for any k from the first count to the last; others, and
    # those beyond the n of a row, may be -inf.
    log_pmf: Callable[[slice, int, int], Floats]


class Chances(NamedTuple):
    """Distinct chances, ascending, and the number of examples with each."""

    chance: Floats
    counts: Ints


def binomials(n: Ints, chance: Floats) -> Distributions:
    """Return the distributions of n [rows], ascending, examples of one chance [rows]."""

    def log_pmf(rows: slice, _first: int = 0, _last: int = 0) -> Floats:
        return binomial_log_pmf(n[rows], np.log(chance[rows]), np.log1p(-chance[rows]))

    return Distributions(n, chance, lambda rows: np.exp(log_pmf(rows)), log_pmf)


def poisson_binomials(chances: Sequence[Chances]) -> Distributions:
    """Return the distributions of examples of different chances, ascending in their number."""
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

    No term is larger than n x max(1, |log p|), so the relative error of a mass is about n x 1e-16. Differences of log
    factorials, which grow as n log n, would lose a digit more.

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
    """Return log C(n, k) from n log n - k log k - (n - k) log (n - k) and the rests of the three log factorials."""
    rest = _log_factorial_rest(k[-1] + 1)
    entropy = k * np.log(np.maximum(k, 1) / n) + misses * np.log(np.maximum(misses, 1) / n)
    return np.asarray(rest[n] - rest[k] - rest[misses] - entropy)


def _log_factorial_rest(size: int) -> Floats:
    """Return the rest log k! - (k log k - k) for k = 0, 1, ..., size - 1; exact from k = 16 on by Stirling's series."""
    small = [math.lgamma(k + 1) - (k * math.log(k) - k if k else 0) for k in range(min(size, 16))]
    k = np.arange(16.0, size)
    series = (1 / 12 - (1 / 360 - (1 / 1260 - (1 / 1680 - 1 / 1188 / k**2) / k**2) / k**2) / k**2) / k
    return np.concatenate([small, np.log(2 * np.pi * k) / 2 + series])


def poisson_binomial_pmf(chances: Chances) -> Floats:
    """Return the masses of the number of successes, [n + 1]."""
    return _convolved_pmf(chances.counts, np.log(chances.chance), np.log1p(-chances.chance))


def poisson_binomial_log_pmf(chances: Chances, first: int = 0, last: int | None = None) -> Floats:
    """Return the log masses of the number of successes in nats, [n + 1], also where the masses would underflow.

    Multiplying the odds of every example by exp(theta) multiplies the mass at k by exp(theta k) and a constant
    (exponential tilting). With theta such that the mean is k, masses up to about forty standard deviations away are
    representable; a few such steps cover 0 to n. The masses rise to a mode and fall from there (log-concave).

    Args:
        chances: of the examples.
        first: masses of fewer successes are -inf.
        last: masses above it are -inf once all of them together change no digit of the mass at `last`; None: n.
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
        # Undo the tilt where the tilted masses have all their digits, and go on at the first other one.
        is_accurate = tilted[missing] > SMALLEST
        accurate, missing = missing[is_accurate], missing[~is_accurate]
        log_pmf[accurate] = np.log(tilted[accurate]) - theta * accurate + count @ (log_miss - tilted_miss)
        if len(missing):
            mean = float(missing[0])
            if missing[0] > last and log_pmf[missing[0] - 1] < log_pmf[last] - NEGLIGIBLE_NATS - math.log(n):
                break
    return log_pmf


def _tilt(log_odds: Floats, count: Ints, mean: float) -> float:
    """Find the theta at which the tilted chances add up to `mean`."""
    # At these ends all tilted chances are 0 or 1 in floating point.
    low, high = -800 - float(log_odds.max()), 800 - float(log_odds.min())
    excess = lambda theta: count @ np.exp(-np.logaddexp(0, -log_odds - theta)) - mean  # noqa: E731
    return float(brentq(excess, low, high, maxiter=1_000))


def _convolved_pmf(count: Ints, log_chance: Floats, log_miss: Floats) -> Floats:
    """Convolve one binomial for each distinct chance, pair by pair; no subtraction, so that no digits are lost."""
    parts: list[Floats] = []
    for size in np.unique(count):  # one call for all binomials of a size: there may be as many as examples
        same_size = count == size
        parts += list(np.exp(binomial_log_pmf(count[same_size], log_chance[same_size], log_miss[same_size])))
    while len(parts) > 1:
        parts = [*map(_convolve, parts[::2], parts[1::2]), *parts[len(parts) // 2 * 2 :]]
    return parts[0]


def _convolve(one: Floats, other: Floats) -> Floats:
    """Convolve directly, because rounding errors of an FFT would exceed the tails; zeros at both ends are left out."""
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
"""Number of examples by number of choices: {2: 50, 5: 30} is fifty of chance 1/2 and thirty of chance 1/5."""

Chance: TypeAlias = Numbers | ChoiceCounts | Sequence[Numbers | ChoiceCounts]
"""One number; one per example; counts per number of choices; or several of these, one per setting (max_random.py)."""

MAX_EXAMPLES = 10**7
"""Up to this number probabilities have a relative error below 1e-9. A million examples of one chance take 0.2 s, ten
million 5 s; those of several chances take far longer."""

MAX_TRIES = 10**15
"""Up to this number every whole number is exactly representable as a float."""

BLOCK = 2**15
"""Numbers processed at a time: with all intermediate arrays they fit a core's cache, which halves the time."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings in a flat list; `shape` is the shape that the arguments broadcast to."""

    shape: tuple[int, ...]
    distributions: Distributions  # the distinct ones
    row: Ints  # [settings], into distributions
    tries: Floats  # [settings]
    extra: Floats  # [settings], a further argument: counts or probabilities

    @property
    def n(self) -> Ints:
        """Return the number of examples of each setting, [settings]."""
        return self.distributions.n[self.row]

    def blocks(self) -> Iterator[tuple[slice, Ints]]:
        """Yield rows of distributions that fit a block together, with the indices of the settings that use them."""
        by_row = np.argsort(self.row, kind="stable")
        sizes = self.distributions.n + 1
        stop = len(sizes)
        # Begin with the last row: it is the longest of the remaining ones, so its length decides how many fit a block.
        while stop:
            start = max(0, stop - max(1, BLOCK // int(sizes[stop - 1])))
            first, last = np.searchsorted(self.row, [start, stop], sorter=by_row)
            yield slice(start, stop), by_row[first:last]
            stop = start

    def shaped(self, values: Floats) -> float | Floats:
        """Reshape values [settings] to `shape`; the value of a single setting becomes a plain number."""
        return values.reshape(self.shape) if self.shape else float(values[0])


def read_settings(n: Numbers, chance: Chance, tries: Numbers, extra: Floats | float = 0.0) -> Settings:
    """Check and broadcast the arguments; raise BaselineError for invalid ones."""
    sizes = whole_numbers("n", n, 1, MAX_EXAMPLES)
    n_tries = whole_numbers("tries", tries, 1, MAX_TRIES)
    # One chance a setting, or the index of the setting's chances among `items`.
    by_setting, items = _chances_by_setting(chance, several_sizes=sizes.ndim > 0)
    arrays = [sizes, by_setting, n_tries, np.asarray(extra)]
    try:
        broadcast = np.broadcast_arrays(*arrays)
    except ValueError:
        listed = ", ".join(str(array.shape) for array in arrays if array.ndim)
        arguments = f"n, chance, tries and further arguments have shapes {listed}"
        raise BaselineError(f"Settings do not fit each other: {arguments}, which must broadcast.") from None
    size, of_setting, tried, more = (array.ravel() for array in broadcast)
    # Complex numbers sort by their real part first, so that distributions are ascending in n.
    distinct, row = np.unique(size + 1j * of_setting, return_inverse=True)
    distinct_n = distinct.real.astype(np.int64)
    if items is None:
        distributions = binomials(distinct_n, distinct.imag)
    else:
        of_row = [_chances(items[int(item)], int(n)) for n, item in zip(distinct_n, distinct.imag, strict=True)]
        # Equal chances of different items share a row.
        content = [(chances.chance.tobytes(), chances.counts.tobytes()) for chances in of_row]
        distributions = poisson_binomials([*dict(zip(content, of_row, strict=True)).values()])
        rows = {key: number for number, key in enumerate(dict.fromkeys(content))}
        row = np.array([rows[key] for key in content], dtype=np.int64)[row]
    return Settings(shape=broadcast[0].shape, distributions=distributions, row=row, tries=tried, extra=more)


def _chances_by_setting(
    chance: Chance, *, several_sizes: bool
) -> tuple[Floats | Ints, Sequence[Numbers | ChoiceCounts] | None]:
    """Return an array with one chance a setting and None; or an array of indices, and the chances that these are of."""
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
    """Return the chances of one setting's n examples, from a number, a list or counts."""
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
    """Return the value as floats; raise for strings, booleans and missing entries."""
    try:
        numbers = np.asarray(value)
    except ValueError:
        raise BaselineError(
            f"{name} must be a number or an array of numbers; rows differ in length: {value!r}."
        ) from None
    if numbers.dtype.kind not in "iuf" and numbers.size:
        raise BaselineError(f"{name} must be a number or an array of numbers; received {value!r}.")
    return numbers.astype(np.float64)


def whole_numbers(name: str, value: Any, low: int, high: int) -> Floats:
    """Return whole numbers from `low` to `high` as floats; 100.0 and 1e12 are accepted."""
    numbers = require_numbers(name, value)
    is_valid = (numbers >= low) & (numbers <= high) & (numbers == np.floor(numbers))
    _refuse(~is_valid, numbers, f"{name} must be a whole number from {low} to {high:,}")
    return numbers


def require_probabilities(name: str, value: Any) -> Floats:
    """Return probabilities as floats; raise for numbers that are not between 0 and 1."""
    numbers = require_numbers(name, value)
    _refuse(~((numbers > 0) & (numbers < 1)), numbers, f"{name} must lie between 0 and 1, both excluded")
    return numbers


def require_counts(correct: Floats, n: Ints) -> None:
    """Raise for counts outside 0 to n and for fractions, such as accuracies; both arrays have the same shape."""
    is_inside = (correct >= 0) & (correct <= n)
    is_count = is_inside & (correct == np.floor(correct))
    if is_count.all():
        return
    first = int(is_count.argmin())
    received, size = float(correct[first]), int(n[first])
    if not is_inside[first]:
        raise BaselineError(f"correct must be a count from 0 to n = {size}; received {received:g}.")
    # A fraction is taken for an accuracy if below 1, else for an inexact count.
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
