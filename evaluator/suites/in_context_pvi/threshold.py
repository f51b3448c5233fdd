"""The PVI at which predictions turn right: queries with PVI and correctness go in, a threshold a run comes out.

Lu et al. 2023, section 5.3, read it off densities. Here accuracy is fitted as a function of PVI that never falls, by
least squares (isotonic regression; Barlow et al. 1972, "Statistical Inference under Order Restrictions"), and the
threshold lies where that fit reaches one half. The fit is at least one half on the longest upper set of queries whose
sum of (correct - 1/2) is the highest of all upper sets, so no fit has to be computed: the rule "right from the
threshold up" is wrong about as few queries as any rule of its kind. No shape is assumed, and no draw is made.
"""

import polars as pl

from evaluator.suites.in_context_pvi.schema import PVI_RUN


def thresholds(judged: pl.DataFrame) -> pl.DataFrame:
    """`threshold` and `threshold_accuracy`, as in schemas.pvi.PVI_SUMMARY, of each run.

    The threshold is halfway between the PVIs on its two sides; -inf where the fit is nowhere below one half, and inf
    where it is nowhere as high.

    Args:
        judged: PVI_RUN, `pvi_bits` and `correct`, both known, from the lowest PVI of each run up.
    """
    value, step = pl.col("pvi_bits"), pl.col("correct").cast(pl.Float64) - 0.5
    before = value.shift(1)
    # Equal PVIs stand on one side, so that a cut is only where a new one begins; the last is behind all queries.
    is_cut = (value != before).fill_null(True)
    gain = pl.when(is_cut).then(step.cum_sum(reverse=True))
    best = pl.max_horizontal(gain.max(), pl.lit(0.0))
    place = (gain == best).fill_null(False).arg_max()
    found = (
        pl.when(gain.max() < 0)
        .then(pl.lit(float("inf")))
        .when(place == 0)
        .then(pl.lit(-float("inf")))
        .otherwise((value.get(place) + value.get((place.cast(pl.Int64) - 1).clip(lower_bound=0))) / 2)
    )
    right_below = (~pl.col("correct")).sum()
    return judged.group_by(PVI_RUN, maintain_order=True).agg(
        threshold=found, threshold_accuracy=(right_below + 2 * best) / pl.len()
    )
