"""Seeded, disjoint splits of a table's rows."""

from typing import NamedTuple

from evaluator.datasets.lcg import Ints, Lcg
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
    """Draw the splits one after the other, without replacement, by a fresh generator over the whole table.

    Raises DatasetError where the table has fewer rows than the splits need.
    """
    needed = sum(sizes)
    if n_rows < needed:
        raise DatasetError(f"{dataset}: {n_rows} rows, but its splits need {needed} ({sizes}). Ask for smaller splits.")
    drawn = Lcg().samples(1, needed, n_rows)[0]
    test_begins = sizes.calibration + sizes.demonstration
    return SplitRows(drawn[: sizes.calibration], drawn[sizes.calibration : test_begins], drawn[test_begins:])
