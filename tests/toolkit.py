"""The package StaICC as an oracle: its experiments on its own data, each loaded once, beside our dataset."""

import copy
import functools
import operator
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from StaICC.normal import ORIGINAL_DATA_LOADER_NORMAL, Normal
from StaICC.util import functional, hgf_dataset_loader, stable_random
from StaICC.util.dataset_interface import demonstration_sampler

from evaluator.datasets import SOURCES
from evaluator.datasets.base import ClassificationDataset
from evaluator.datasets.staicc import load_staicc

# The toolkit makes a deep copy of a list of numbers for each draw, nine tenths of its time; a shallow one is the same.
stable_random.copy = SimpleNamespace(deepcopy=list.copy)
# And one of all rows, a hundred thousand in one dataset, for each split, which then keeps the rows of its own alone.
hgf_dataset_loader.copy = SimpleNamespace(deepcopy=copy.copy)


@functools.cache
def toolkit_experiment(name: str) -> Any:
    """The toolkit's experiment on one of SOURCES; leave it as it is, for other tests have the same."""
    return Normal(k=0, datasets=[ORIGINAL_DATA_LOADER_NORMAL[list(SOURCES).index(name)]])[0]


@functools.cache
def our_dataset(name: str) -> ClassificationDataset:
    return load_staicc(name)


@functools.cache
def toolkit_sampler(n_shots: int, n_demonstrations: int) -> Any:
    """The toolkit's 1,024 sets of demonstrations, drawn once for all datasets that share a size: that takes longest."""
    return demonstration_sampler(n_shots, n_demonstrations, 1024)


@pytest.fixture
def plain_summation(monkeypatch: pytest.MonkeyPatch) -> None:
    """From Python 3.12 on `sum` compensates for rounding; this gives the toolkit the one of 3.11 everywhere."""

    def left_to_right(numbers: Iterable[float]) -> float:
        return functools.reduce(operator.add, numbers, 0)

    monkeypatch.setattr(functional, "sum", left_to_right, raising=False)
