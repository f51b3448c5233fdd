"""Draw one of the most probable choices at random, so that no position in the list of choices is preferred."""

import numpy as np
import numpy.typing as npt
import polars as pl

_GAMMA, _FIRST, _SECOND = (np.uint64(c) for c in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def break_ties(predictions: pl.DataFrame, seed: int) -> pl.DataFrame:
    """Return the frame with `pred` drawn among the most probable choices of each row, and `n_tied`, their number.

    The draw depends only on the seed and the row's `position`, not on the other rows. A classifier that ties everywhere
    then has the accuracy of chance, whatever the order of the choices.
    """
    most_probable = pl.col("label_probs").list.eval((pl.element() == pl.element().max()).arg_true())
    return (
        predictions.with_columns(tied=most_probable, draw=pl.Series(uniform(predictions["position"].to_numpy(), seed)))
        .with_columns(n_tied=pl.col("tied").list.len().cast(pl.Int64))
        .with_columns(pred=pl.col("tied").list.get((pl.col("draw") * pl.col("n_tied")).floor().cast(pl.Int64)))
        .with_columns(pl.col("pred").cast(pl.Int64))
        .drop("tied", "draw")
    )


def uniform(keys: npt.NDArray[np.int64], seed: int) -> npt.NDArray[np.float64]:
    """Return a pseudo-random number in [0, 1) for each key, by the mixing steps of SplitMix64."""
    mixed = _mix(_mix(keys.astype(np.uint64) * _GAMMA) + np.uint64(seed % 2**64))
    return (mixed >> np.uint64(11)) / 2.0**53  # the upper 53 bits, as many as a float holds exactly


def _mix(state: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    state = (state ^ (state >> np.uint64(30))) * _FIRST
    state = (state ^ (state >> np.uint64(27))) * _SECOND
    return state ^ (state >> np.uint64(31))
