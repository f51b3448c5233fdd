"""Check arguments, broadcast them to settings, and store each distinct distribution once."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from evaluator.arrays import Bools, Floats, Ints
from evaluator.errors import BaselineError
from evaluator.random_baselines.distributions import Chances, Distributions, binomials, poisson_binomials

Numbers: TypeAlias = float | Sequence[float] | npt.NDArray[Any]

ChoiceCounts: TypeAlias = Mapping[int, int]
"""Number of examples by number of choices: {2: 50, 5: 30} is fifty of chance 1/2 and thirty of chance 1/5."""

Chance: TypeAlias = Numbers | ChoiceCounts | Sequence[Numbers | ChoiceCounts]
"""One number; one per example; counts per number of choices; or several of these, one per setting (max_random.py)."""

MAX_EXAMPLES = 10**6
"""Up to this number probabilities have a relative error below 1e-9, and a setting takes a fraction of a second."""

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
        raise BaselineError(
            f"Settings do not fit each other: n, chance, tries and further arguments have shapes {listed}, which must "
            "broadcast."
        ) from None
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
    if not isinstance(chance, np.ndarray) and np.iterable(chance) and any(map(np.iterable, chance)):
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
