"""Check arguments, broadcast them to settings, and store each distinct distribution once."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from evaluator.errors import BaselineError
from evaluator.random_baselines.binomial import Binomials, FloatArray, IntArray
from evaluator.random_baselines.checks import (
    MAX_EXAMPLES,
    MAX_TRIES,
    chance_of_choices,
    require_chances,
    require_numbers,
    whole_numbers,
)
from evaluator.random_baselines.poisson_binomial import Chances, PoissonBinomials

Numbers: TypeAlias = float | Sequence[float] | npt.NDArray[Any]

ChoiceCounts: TypeAlias = Mapping[int, int]
"""Number of examples by number of choices: {2: 50, 5: 30} is fifty of chance 1/2 and thirty of chance 1/5."""

Chance: TypeAlias = Numbers | ChoiceCounts | Sequence[Numbers | ChoiceCounts]
"""One number; one per example; counts per number of choices; or several of these, one per setting (max_random.py)."""

BLOCK = 2**15
"""Numbers processed at a time: with all intermediate arrays they fit a core's cache, which halves the time."""


class Distributions(NamedTuple):
    """The distinct distributions of settings of some shape."""

    shape: tuple[int, ...]
    rows: Binomials | PoissonBinomials  # ascending in n
    row: IntArray  # of `shape`: the row of each setting


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings in a flat list; `shape` is the shape that the arguments broadcast to."""

    shape: tuple[int, ...]
    distributions: Binomials | PoissonBinomials  # ascending in n
    row: IntArray  # [settings], into distributions
    tries: FloatArray  # [settings]
    extra: FloatArray  # [settings], a further argument: counts or probabilities

    @property
    def n(self) -> IntArray:
        """Return the number of examples of each setting, [settings]."""
        return self.distributions.n[self.row]

    def blocks(self) -> Iterator[tuple[slice, IntArray]]:
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

    def shaped(self, values: FloatArray) -> float | FloatArray:
        """Reshape values [settings] to `shape`; the value of a single setting becomes a plain number."""
        return values.reshape(self.shape) if self.shape else float(values[0])


def read_settings(n: Numbers, chance: Chance, tries: Numbers, extra: FloatArray | None = None) -> Settings:
    """Check and broadcast the arguments; raise BaselineError for invalid ones."""
    sizes = whole_numbers("n", n, 1, MAX_EXAMPLES)
    n_tries = whole_numbers("tries", tries, 1, MAX_TRIES)
    extras = np.zeros(()) if extra is None else extra
    distributions = _read_distributions(sizes, chance)
    shape = _broadcast_shape(distributions.shape, n_tries.shape, extras.shape)
    return Settings(
        shape=shape,
        distributions=distributions.rows,
        row=np.broadcast_to(distributions.row, shape).ravel(),
        tries=np.broadcast_to(n_tries, shape).ravel(),
        extra=np.broadcast_to(extras, shape).ravel(),
    )


def _read_distributions(n: FloatArray, chance: Chance) -> Distributions:
    if isinstance(chance, Mapping):
        return _poisson_binomials(n, [chance], ())
    if not isinstance(chance, np.ndarray) and np.iterable(chance) and any(map(np.iterable, chance)):
        items = list(chance)
        return _poisson_binomials(n, items, (len(items),))
    numbers = require_numbers("chance", chance)
    if n.ndim or not numbers.ndim:
        return _binomials(n, numbers)
    if numbers.ndim > 1:
        raise BaselineError(
            f"chance has shape {numbers.shape} with one n. Give a list with the chances of each setting's examples, "
            "or, where each setting has one chance, n as an array too."
        )
    return _poisson_binomials(n, [numbers], ())


def _binomials(n: FloatArray, chance: FloatArray) -> Distributions:
    require_chances(chance)
    shape = _broadcast_shape(n.shape, chance.shape)
    n, chance = (np.broadcast_to(values, shape).ravel() for values in (n, chance))
    # Sort by n, then chance; `first` marks the first setting of each distinct pair.
    order = np.lexsort((chance, n))
    first = np.ones(len(order), dtype=bool)
    first[1:] = (np.diff(n[order]) != 0) | (np.diff(chance[order]) != 0)
    row = np.empty(len(order), dtype=np.int64)
    row[order] = np.cumsum(first) - 1
    distinct = order[first]
    rows = Binomials(n=n[distinct].astype(np.int64), chance=chance[distinct])
    return Distributions(shape, rows, row.reshape(shape))


def _poisson_binomials(
    n: FloatArray, items: Sequence[Numbers | ChoiceCounts], items_shape: tuple[int, ...]
) -> Distributions:
    """Build distributions from items: one per setting along the last axis of n, or one for all settings."""
    shape = _broadcast_shape(n.shape, items_shape)
    sizes = np.broadcast_to(n, shape).ravel()
    item_of_setting = np.broadcast_to(np.arange(len(items)).reshape(items_shape), shape).ravel()
    settings = [_chances(items[item], int(size)) for item, size in zip(item_of_setting, sizes, strict=True)]
    # Equal chances share a row; rows are ascending in n, the first entry of the key.
    by_content = {(chances.n, chances.chance.tobytes(), chances.count.tobytes()): chances for chances in settings}
    rows_by_key = {key: index for index, key in enumerate(sorted(by_content))}
    row = [rows_by_key[chances.n, chances.chance.tobytes(), chances.count.tobytes()] for chances in settings]
    rows = PoissonBinomials(chances=[by_content[key] for key in rows_by_key])
    return Distributions(shape, rows, np.array(row, dtype=np.int64).reshape(shape))


def _chances(item: Numbers | ChoiceCounts, n: int) -> Chances:
    """Return the chances of one setting's n examples, from a number, a list or counts."""
    if isinstance(item, Mapping):
        distinct, count = chance_of_choices(item)
        if count.sum() != n:
            raise BaselineError(f"The counts per number of choices add up to {count.sum()} examples, but n is {n}.")
        return Chances(chance=distinct, count=count)
    numbers = require_numbers("chance", item)
    require_chances(numbers)
    if numbers.ndim == 0:
        return Chances(chance=numbers[None], count=np.array([n]))
    if numbers.ndim > 1:
        raise BaselineError(
            f"The chances of one setting's examples must be a flat list; received shape {numbers.shape}."
        )
    if len(numbers) != n:
        raise BaselineError(
            f"chance is given for {len(numbers)} examples, but n is {n}. Give one for each example, or, where each "
            "setting has one chance, n as an array too."
        )
    distinct, count = np.unique(numbers, return_counts=True)
    return Chances(chance=distinct, count=count)


def _broadcast_shape(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        listed = ", ".join(map(str, shapes))
        raise BaselineError(
            f"Settings do not fit each other: n, chance, tries and further arguments have shapes {listed}, which must "
            "broadcast."
        ) from None
