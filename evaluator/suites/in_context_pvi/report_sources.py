"""How the page of in-context PVI names runs, and in which order: the suite's own demonstrations, then chosen ones.

Where a page has the suite's own demonstrations alone, nothing on it says where they come from.
"""

from typing import get_args

import polars as pl

from evaluator.suites.in_context_pvi.options import PviSource
from evaluator.suites.in_context_pvi.schema import PVI_ORDERS

SOURCES = (*get_args(PviSource), *PVI_ORDERS)

BY_SOURCE = pl.col("demonstrations").cast(pl.Enum(SOURCES))
"""To sort rows by."""


def has_several(rows: pl.DataFrame) -> bool:
    """Whether rows are about demonstrations of more than one source."""
    return rows["demonstrations"].n_unique() > 1


def set_name(source: str, number: object, *, several: bool) -> str:
    return f"{source} {number}" if several else f"{number}"


def run_name(n_shots: object, source: str, number: object, *, several: bool) -> str:
    return f"{n_shots}-shot, {set_name(source, number, several=True) if several else f'set {number}'}"
