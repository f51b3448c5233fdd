"""Expected calibration error (ECE-1): mean gap between confidence and accuracy, in 10 equal bins of confidence."""

import polars as pl

from evaluator.metrics.base import N_REQUESTS, Metric, sum_in_order

N_BINS = 10
BIN_EDGES = [b / N_BINS for b in range(N_BINS + 1)]


def confidence_bin(confidence: pl.Expr, *, last_bin_closed: bool) -> pl.Expr:
    """Return the index of the bin [edge, next edge) that holds a confidence, in 0..9.

    A confidence of 1 is in the last bin if that is closed (the paper averages over all N requests); if it is open (the
    toolkit's code), 1 is in no bin and the index is null. Guo et al. 2017 use (edge, next edge] instead; the paper does
    not say, so this follows its authors' code.
    """
    inner = pl.sum_horizontal((confidence >= edge).cast(pl.Int64) for edge in BIN_EDGES[1:-1])
    return inner if last_bin_closed else pl.when(confidence < BIN_EDGES[-1]).then(inner)


def _statistics(_n_labels: int) -> dict[str, pl.Expr]:
    gap = pl.col("correct").cast(pl.Float64) - pl.col("confidence")
    return N_REQUESTS | {f"gap_{b}": pl.when(pl.col("bin") == b).then(gap).otherwise(0.0) for b in range(N_BINS)}


def _value(_n_labels: int) -> pl.Expr:
    """|B|/N x |accuracy(B) - mean confidence(B)| is |sum over B of (correct - confidence)| / N."""
    return sum_in_order(pl.col(f"gap_{b}").abs() for b in range(N_BINS)) / pl.col("n")


EXPECTED_CALIBRATION_ERROR = Metric(statistics=_statistics, value=_value, interval="bins")
"""Sampling noise biases it upwards: even a perfectly calibrated model has an error above 0 on n requests. Its interval
and its debiased estimate are of the error on infinitely many (calibration_interval.py).

Source: Cho & Inoue 2025 (StaICC), section 3.2, after Naeini et al. 2015 and Guo et al. 2017.
"""
