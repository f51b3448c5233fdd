"""How accuracy answers to wrong labels in the demonstrations: the slope over noise rates, with its interval."""

from typing import NamedTuple

import numpy as np
import polars as pl
from scipy import stats


class NoiseSlope(NamedTuple):
    """Change of accuracy from no wrong demonstration label to only wrong ones; below 0 where a model reads them."""

    slope: float  # accuracy per unit of noise rate
    ci_low: float  # 95%, over queries
    ci_high: float


def noise_slope(answers: pl.DataFrame) -> NoiseSlope:
    """The least-squares line of accuracy over the noise rate (Cho & Inoue 2025, section 3.4: GLER), and how sure it is.

    The slope is the mean of the queries' own slopes, so its standard error is that of a mean over queries: a query's
    answers at all rates and behind all demonstration sets count as one observation.

    Args:
        answers: `query_id`, `noise_rate` and `correct` (bool); every query at the same rates, equally often.

    The paper publishes it per 0.1 of noise and the toolkit regresses on other numbers than the rates; neither is done
    here.
    """
    centred = pl.col("noise_rate") - pl.col("noise_rate").mean()
    slopes = (
        answers.with_columns(centred=centred)
        .group_by("query_id", maintain_order=True)
        .agg(slope=(pl.col("centred") * pl.col("correct")).sum() / (pl.col("centred") ** 2).sum())
    )["slope"].to_numpy()
    slope = float(slopes.mean())
    reach = float(stats.t.ppf(0.975, len(slopes) - 1) * slopes.std(ddof=1) / np.sqrt(len(slopes)))
    return NoiseSlope(slope, slope - reach, slope + reach)
