"""Transform label probabilities as the StaICC toolkit does before it measures them.

The toolkit applies softmax to the *whole* matrix as soon as one row fails a check, so that each row depends on all
others. `released` is the check of version 0.1.1, `published` the older one that the published tables must have been
computed with. Matrices are frames with one Float64 column a label; where the check passes they are unchanged.
"""

import polars as pl

from evaluator.metrics.base import sum_in_order


def passes_released_check(matrix: pl.DataFrame) -> bool:
    """Return whether version 0.1.1 leaves a matrix unchanged: all entries lie in [0, 1] and each row sums to exactly 1.

    The sum is taken from left to right in double precision, as Python's `sum` does up to 3.11. Since 3.12 `sum`
    compensates for rounding, so that the toolkit can give other numbers than under an older Python.

    Source: StaICC 0.1.1, util/functional.py, probability_matrix_check.
    """
    sums_to_one = matrix.select((sum_in_order(map(pl.col, matrix.columns)) == 1).all()).item()
    return bool(sums_to_one) and _within_unit_interval(matrix)


def passes_published_check(matrix: pl.DataFrame) -> bool:
    """Return whether all entries lie in [0, 1]; sums are not checked.

    Source: StaICC 0.1.1, util/functional.py, the check that is in comments next to each metric.
    """
    return _within_unit_interval(matrix)


def _within_unit_interval(matrix: pl.DataFrame) -> bool:
    return bool(matrix.select(pl.all_horizontal(pl.all().is_between(0, 1).all())).item())


def softmax_of_rows(matrix: pl.DataFrame) -> pl.DataFrame:
    """Return the softmax of every row."""
    # Operations and their order as in the toolkit: a confidence on a bin's edge must fall on the same side of it.
    exponentials = matrix.select((pl.all() - pl.max_horizontal(pl.all())).exp())
    return exponentials.select(pl.all() / sum_in_order(map(pl.col, matrix.columns)))
