"""Correlate the PVIs of the same queries across demonstration sets, numbers of shots or models.

Lu et al. 2023, section 5.1: Pearson correlations, then over all cases their mean, median and the shares of strong and
weak ones (table 2). Spearman's correlation is computed too, because a few queries of very low PVI can determine
Pearson's.
"""

from collections.abc import Sequence

import polars as pl

from evaluator.statistics.anova import require_one_each
from evaluator.statistics.correlation import correlation_p
from evaluator.suites.in_context_pvi.schema import PVI_CORRELATIONS, PVI_STRENGTHS

STRONG, WEAK = 0.6, 0.3
"""A correlation above the first is strong, one below the second is weak (table 2)."""


def correlations(
    rows: pl.DataFrame, *, across: str, by: Sequence[str], value: str = "pvi_bits", query: str = "query_id"
) -> pl.DataFrame:
    """Correlate every two levels of `across` over the queries they share, within each group `by`.

    Args:
        rows: `by`, `across`, `query` and `value`, a float, with one row for each `by`, `across` and `query`. Values
            that are not finite are left out.
        across: column of levels, as "demonstration_set", "n_shots" or "model".

    Returns the columns `by` and those of schema.PVI_CORRELATIONS, sorted by group and levels; ties get the mean of
    their ranks in Spearman's. Raises MetricError if a query is in one group and level twice.
    """
    key = [*by, across, query]
    require_one_each(rows, key)
    finite = rows.select(*key, value).filter(pl.col(value).is_finite()).sort(key)
    other = pl.col(f"{value}_other")
    # Join the rows of one query and group to each other, and keep each pair of levels once.
    pairs = finite.join(finite, on=[*by, query], suffix="_other", maintain_order="left").filter(
        pl.col(across) < pl.col(f"{across}_other")
    )
    groups = [*by, across, f"{across}_other"]
    table = (
        pairs.group_by(groups, maintain_order=True)
        .agg(
            n=pl.len().cast(pl.Int64),
            # Of equal values, whose mean is rounded, pl.corr returns a small number.
            pearson=pl.when(pl.col(value).n_unique() > 1, other.n_unique() > 1)
            .then(pl.corr(value, other, method="pearson"))
            .otherwise(float("nan")),
            spearman=pl.corr(pl.col(value).rank("average"), other.rank("average"), method="pearson"),
        )
        .sort(groups)
        .rename({across: "first", f"{across}_other": "second"})
    )
    n = table["n"].to_numpy()
    p_values = {f"{name}_p": correlation_p(table[name].to_numpy(), n) for name in ("pearson", "spearman")}
    return table.with_columns(**p_values).select(*by, *PVI_CORRELATIONS).cast(PVI_CORRELATIONS)


def case_means(pairs: pl.DataFrame, *, by: Sequence[str], coefficient: str = "pearson") -> pl.DataFrame:
    """Average the correlations over the pairs of each group: columns `by` and `r`, sorted.

    In the first row of table 2 a case has three pairs, those of three demonstration sets. NaN if a correlation is.
    """
    return pairs.group_by(by, maintain_order=True).agg(r=pl.col(coefficient).mean()).sort(by)


def strengths(cases: pl.DataFrame, *, r: str = "r", by: Sequence[str] = ()) -> pl.DataFrame:
    """Summarise the correlations `r` of many cases (Lu et al. 2023, table 2).

    Returns one row a group: the columns `by` and those of schema.PVI_STRENGTHS, sorted.
    """
    defined = pl.col(r).fill_nan(None)
    columns = {
        "n": defined.count(),
        "n_undefined": defined.null_count(),
        "mean": defined.mean(),
        "median": defined.median(),
        "strong_share": (defined > STRONG).mean(),
        "weak_share": (defined < WEAK).mean(),
    }
    table = cases.group_by(by, maintain_order=True).agg(**columns).sort(by) if by else cases.select(**columns)
    return table.cast({name: PVI_STRENGTHS[name] for name in columns})
