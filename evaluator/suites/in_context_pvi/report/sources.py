"""Name the runs on the page of in-context PVI, and order them: demonstrations of the suite, then chosen ones.

A name includes the source of the demonstrations only if the page has several sources.
"""

from typing import get_args

import polars as pl

from evaluator.suites.in_context_pvi.options import PviSource
from evaluator.suites.in_context_pvi.schema import PVI_ORDERS

SOURCES = (*get_args(PviSource), *PVI_ORDERS)

BY_SOURCE = pl.col("demonstrations").cast(pl.Enum(SOURCES))
"""Sort key: the order of SOURCES."""


def has_several(rows: pl.DataFrame) -> bool:
    """Return whether the demonstrations of these rows have more than one source."""
    return rows["demonstrations"].n_unique() > 1


def set_name(source: str, number: object, *, several: bool) -> str:
    """Return the name of a demonstration set, as "hardest 0" or "0"."""
    return f"{source} {number}" if several else f"{number}"


def run_name(n_shots: object, source: str, number: object, *, several: bool) -> str:
    """Return the name of a run, as "4-shot, hardest 0" or "4-shot, set 0"."""
    return f"{n_shots}-shot, {set_name(source, number, several=True) if several else f'set {number}'}"
