"""What a caller gives becomes settings: checked, broadcast against each other, each distribution held once."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from evaluator.errors import BaselineError
from evaluator.random_baselines.binomial import Binomials, FloatArray, IntArray
from evaluator.random_baselines.checks import (
    MOST_EXAMPLES,
    MOST_TRIES,
    chance_of_choices,
    require_chances,
    require_numbers,
    whole_numbers,
)
from evaluator.random_baselines.poisson_binomial import Chances, PoissonBinomials

Numbers: TypeAlias = float | Sequence[float] | npt.NDArray[Any]

ChoiceCounts: TypeAlias = Mapping[int, int]
"""How many examples have how many choices: {2: 50, 5: 30} is fifty of chance 1/2 and thirty of chance 1/5."""

Chance: TypeAlias = Numbers | ChoiceCounts | Sequence[Numbers | ChoiceCounts]
"""One number; one per example; counts per number of choices; or several of these, one per setting (max_random.py)."""

BLOCK = 2**15
"""Numbers worked on at a time: with all that is made of them they stay in a core's cache, which halves the time."""


class Distributions(NamedTuple):
    """Distributions, none twice, for settings of some shape."""

    shape: tuple[int, ...]
    rows: Binomials | PoissonBinomials  # ascending in n
    row: IntArray  # of `shape`: which row is each setting's


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings one after another; `shape` is what the caller's arguments broadcast to."""

    shape: tuple[int, ...]
    distributions: Binomials | PoissonBinomials  # ascending in n
    row: IntArray  # [settings], into distributions
    tries: FloatArray  # [settings]
    extra: FloatArray  # [settings], the function's own argument: counts or probabilities

    @property
    def n(self) -> IntArray:
        """[settings]"""
        return self.distributions.n[self.row]

    def blocks(self) -> Iterator[tuple[slice, IntArray]]:
        """Rows of distributions that fit a block together, and the indices of the settings that have them."""
        by_row = np.argsort(self.row, kind="stable")
        sizes = self.distributions.n + 1
        stop = len(sizes)
        while stop:
            start = max(0, stop - max(1, BLOCK // int(sizes[stop - 1])))
            first, last = np.searchsorted(self.row, [start, stop], sorter=by_row)
            yield slice(start, stop), by_row[first:last]
            stop = start

    def shaped(self, values: FloatArray) -> float | FloatArray:
        """[settings] in the caller's shape; a single setting's value as a plain number."""
        return values.reshape(self.shape) if self.shape else float(values[0])


def read_settings(n: Numbers, chance: Chance, tries: Numbers, extra: FloatArray | None = None) -> Settings:
    """Check and broadcast what was given. Raises BaselineError."""
    sizes = whole_numbers("n", n, 1, MOST_EXAMPLES)
    n_tries = whole_numbers("tries", tries, 1, MOST_TRIES)
    others = np.zeros(()) if extra is None else extra
    distributions = _read_distributions(sizes, chance)
    shape = _broadcast_shape(distributions.shape, n_tries.shape, others.shape)
    return Settings(
        shape=shape,
        distributions=distributions.rows,
        row=np.broadcast_to(distributions.row, shape).ravel(),
        tries=np.broadcast_to(n_tries, shape).ravel(),
        extra=np.broadcast_to(others, shape).ravel(),
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
    order = np.lexsort((chance, n))
    first = np.ones(len(order), dtype=bool)
    first[1:] = (np.diff(n[order]) != 0) | (np.diff(chance[order]) != 0)
    row = np.empty(len(order), dtype=np.int64)
    row[order] = np.cumsum(first) - 1
    kept = order[first]
    rows = Binomials(n=n[kept].astype(np.int64), chance=chance[kept])
    return Distributions(shape, rows, row.reshape(shape))


def _poisson_binomials(
    n: FloatArray, items: Sequence[Numbers | ChoiceCounts], items_shape: tuple[int, ...]
) -> Distributions:
    """Items are one per setting along the last axis of n, or one for all."""
    shape = _broadcast_shape(n.shape, items_shape)
    sizes = np.broadcast_to(n, shape).ravel()
    which = np.broadcast_to(np.arange(len(items)).reshape(items_shape), shape).ravel()
    of_setting = [_chances(items[item], int(size)) for item, size in zip(which, sizes, strict=True)]
    by_content = {(chances.n, chances.chance.tobytes(), chances.count.tobytes()): chances for chances in of_setting}
    place = {key: index for index, key in enumerate(sorted(by_content))}
    row = [place[chances.n, chances.chance.tobytes(), chances.count.tobytes()] for chances in of_setting]
    rows = PoissonBinomials(chances=[by_content[key] for key in place])
    return Distributions(shape, rows, np.array(row, dtype=np.int64).reshape(shape))


def _chances(item: Numbers | ChoiceCounts, n: int) -> Chances:
    """The chances of one setting's n examples, whichever way they were given."""
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
            f"Settings do not fit each other: n, chance, tries and the rest have shapes {listed}."
        ) from None
