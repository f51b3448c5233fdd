"""Compute the PVI above which predictions are mostly right, one threshold for each run.

Lu et al. 2023, section 5.3, read it from a plot of densities. Here accuracy is fitted as a non-decreasing function of
PVI by least squares (isotonic regression; Barlow et al. 1972, "Statistical Inference under Order Restrictions"), and
the threshold is where the fit reaches one half. No shape is assumed, and nothing is random.

The fit itself need not be computed. Let an upper set be all queries from some PVI up. The fit is at least one half
exactly on the upper set with the highest sum of (correct - 1/2); of equal sums, on the longest one. So no other
threshold makes the rule "right from the threshold up" wrong about fewer queries.
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
    # Queries of equal PVI are on the same side of the threshold, so that an upper set begins only at a new value.
    is_cut = (value != value.shift(1)).fill_null(True)
    # Sum of (correct - 1/2) over each upper set; over the empty one it is 0.
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
