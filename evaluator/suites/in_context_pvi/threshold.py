"""Compute the PVI above which predictions are mostly right, one threshold for each run.

Lu et al. 2023, section 5.3, read it off densities. Here accuracy is fitted as a non-decreasing function of PVI by least
squares (isotonic regression; Barlow et al. 1972, "Statistical Inference under Order Restrictions"), and the threshold
is where the fit reaches one half. The fit is at least one half on the longest upper set of queries whose sum of
(correct - 1/2) is the highest of all upper sets, so no fit has to be computed: the rule "right from the threshold up"
is wrong about as few queries as any rule of its kind. No shape is assumed, and nothing is random.
"""

import polars as pl

from evaluator.suites.in_context_pvi.schema import PVI_RUN


def thresholds(judged: pl.DataFrame) -> pl.DataFrame:
    """Return `threshold` and `threshold_accuracy`, as in schema.PVI_SUMMARY, of each run.

    The threshold is halfway between the PVIs on its two sides; -inf where the fit is nowhere below one half, and inf
    where it is always below one half.

    Args:
        judged: PVI_RUN, `pvi_bits` and `correct` without nulls, from the lowest PVI of each run up.
    """
    value, step = pl.col("pvi_bits"), pl.col("correct").cast(pl.Float64) - 0.5
    # Equal PVIs are on one side of the threshold, so that a cut is only where the value changes.
    is_cut = (value != value.shift(1)).fill_null(True)
    # Sum of (correct - 1/2) over the queries from each cut up; with no query above the threshold it is 0.
    gain = pl.when(is_cut).then(step.cum_sum(reverse=True))
    best = pl.max_horizontal(gain.max(), pl.lit(0.0))
    cut = (gain == best).fill_null(False).arg_max()  # the lowest of equals: the longest upper set
    threshold = (
        pl.when(gain.max() < 0)
        .then(pl.lit(float("inf")))
        .when(cut == 0)
        .then(pl.lit(-float("inf")))
        .otherwise((value.get(cut) + value.get((cut.cast(pl.Int64) - 1).clip(lower_bound=0))) / 2)
    )
    # right above + wrong below = all wrong + (right above - wrong above) = all wrong + 2 * gain.
    n_wrong = (~pl.col("correct")).sum()
    return judged.group_by(PVI_RUN, maintain_order=True).agg(
        threshold=threshold, threshold_accuracy=(n_wrong + 2 * best) / pl.len()
    )
