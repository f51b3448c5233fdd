"""Correct p-values for the number of tests that they were taken from."""

import polars as pl


def holm(p_value: pl.Expr) -> pl.Expr:
    """Return p-values corrected by Holm's step-down procedure, in the order of the rows; null where a p-value is null.

    Of m p-values in ascending order the i-th is multiplied by m - i + 1, and none may be smaller than the one before it
    or above 1. Rejecting where the result is at most a level keeps the probability of any false rejection (family-wise
    error) at most that level, whatever the dependence between tests.

    Source: Holm 1979, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 6.
    """
    rank = p_value.rank("ordinal")  # null where the p-value is
    scaled = p_value * (p_value.count() - rank + 1)
    highest_so_far = scaled.sort_by(rank, nulls_last=True).cum_max()
    return highest_so_far.gather(rank - 1).clip(upper_bound=1)
