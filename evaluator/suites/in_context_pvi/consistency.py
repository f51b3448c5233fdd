"""Does a query keep its PVI when something else changes? PVIs of the same queries go in, correlations come out.

Lu et al. 2023, section 5.1: Pearson correlations across demonstration sets, numbers of shots and models, then over all
cases their mean, median and the shares of strong and weak ones (table 2). Spearman's correlation stands beside
Pearson's, which a few queries of very low PVI can decide.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.special import betainc

from evaluator.statistics.anova import require_one_each
from evaluator.suites.in_context_pvi.schema import PVI_CORRELATIONS, PVI_STRENGTHS

Floats = npt.NDArray[np.float64]

STRONG, WEAK = 0.6, 0.3
"""Of table 2: a correlation above the first is strong, one below the second is weak."""


def correlations(
    rows: pl.DataFrame, *, across: str, by: Sequence[str], value: str = "pvi_bits", query: str = "query_id"
) -> pl.DataFrame:
    """The correlation of every two levels of `across` over the queries they share, within each group `by`.

    Args:
        rows: `by`, `across`, `query` and `value`, a float; one row each. What is not finite is left out.
        across: "demonstration_set", "n_shots" or "model".

    Returns the columns `by` and those of schemas.pvi.PVI_CORRELATIONS, sorted by group and levels; ties get the mean of
    their ranks in Spearman's. Raises MetricError where a query stands twice in one group and level.
    """
    key = [*by, across, query]
    require_one_each(rows, key)
    one = rows.select(*key, value).filter(pl.col(value).is_finite()).sort(key)
    other = pl.col(f"{value}_other")
    pairs = one.join(one, on=[*by, query], suffix="_other", maintain_order="left").filter(
        pl.col(across) < pl.col(f"{across}_other")
    )
    groups = [*by, across, f"{across}_other"]
    found = (
        pairs.group_by(groups, maintain_order=True)
        .agg(
            n=pl.len().cast(pl.Int64),
            pearson=pl.corr(value, other, method="pearson"),
            spearman=pl.corr(pl.col(value).rank("average"), other.rank("average"), method="pearson"),
        )
        .sort(groups)
        .rename({across: "first", f"{across}_other": "second"})
    )
    n = found["n"].to_numpy()
    tails = {f"{name}_p": correlation_p(found[name].to_numpy(), n) for name in ("pearson", "spearman")}
    return found.with_columns(**tails).select(*by, *PVI_CORRELATIONS).cast(PVI_CORRELATIONS)


def correlation_p(r: Floats, n: npt.NDArray[np.int64]) -> Floats:
    """The two-sided probability of a correlation at least this far from 0 over n independent normal pairs.

    Elementwise; NaN for NaN and for fewer than three pairs. For rank correlations an approximation, SciPy's own too.
    """
    half_df = np.where(n > 2, (n - 2) / 2, np.nan)
    # With t = r sqrt(df / (1 - r^2)), 1 - r^2 is df / (df + t^2), of which Student's tails are a beta function.
    return np.asarray(betainc(half_df, 0.5, np.clip((1 - r) * (1 + r), 0, 1)), dtype=np.float64)


def case_means(pairs: pl.DataFrame, *, by: Sequence[str], coefficient: str = "pearson") -> pl.DataFrame:
    """The mean correlation over the pairs of each group: columns `by` and `r`, sorted.

    A case of table 2's first row: three demonstration sets have three pairs. NaN where one of them is.
    """
    return pairs.group_by(by, maintain_order=True).agg(r=pl.col(coefficient).mean()).sort(by)


def strengths(cases: pl.DataFrame, *, r: str = "r", by: Sequence[str] = ()) -> pl.DataFrame:
    """How strong the correlations `r` of many cases are (Lu et al. 2023, table 2).

    Returns one row a group: the columns `by` and those of schemas.pvi.PVI_STRENGTHS, sorted.
    """
    known = pl.col(r).fill_nan(None)
    measured = {
        "n": known.count(),
        "n_undefined": known.null_count(),
        "mean": known.mean(),
        "median": known.median(),
        "strong_share": (known > STRONG).mean(),
        "weak_share": (known < WEAK).mean(),
    }
    found = cases.group_by(by, maintain_order=True).agg(**measured).sort(by) if by else cases.select(**measured)
    return found.cast({name: PVI_STRENGTHS[name] for name in measured})
