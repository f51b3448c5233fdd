"""Split the rows of a table at random, with a fixed seed."""

from typing import NamedTuple

from evaluator.arrays import Ints
from evaluator.datasets.lcg import Lcg
from evaluator.errors import DatasetError


class SplitSizes(NamedTuple):
    """Number of rows in each split."""

    calibration: int
    demonstration: int
    test: int


class SplitRows(NamedTuple):
    """Row numbers of each split, in drawn order."""

    calibration: Ints
    demonstration: Ints
    test: Ints


def split_rows(dataset: str, n_rows: int, sizes: SplitSizes) -> SplitRows:
    """Draw the splits from a table's rows, one after the other, without replacement, with a new generator.

    Raises DatasetError if the table has fewer rows than the splits need.
    """
    needed = sum(sizes)
    if n_rows < needed:
        raise DatasetError(f"{dataset}: {n_rows} rows, but its splits need {needed} ({sizes}). Ask for smaller splits.")
    drawn = Lcg().samples(1, needed, n_rows)[0]
    test_start = sizes.calibration + sizes.demonstration
    return SplitRows(drawn[: sizes.calibration], drawn[sizes.calibration : test_start], drawn[test_start:])
