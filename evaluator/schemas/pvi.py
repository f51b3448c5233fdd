"""The tables of in-context pointwise V-information (PVI), and of its published experiments (Lu et al. 2023)."""

import polars as pl

PVI_CORRELATIONS = pl.Schema(  # after the columns of a case: how PVIs agree between two levels
    {
        "first": pl.String(),  # of two demonstration sets, numbers of shots, or models
        "second": pl.String(),
        "n": pl.Int64(),  # queries with a finite PVI at both
        "pearson": pl.Float64(),  # NaN where one of the two does not vary
        "pearson_p": pl.Float64(),  # two-sided; NaN below three queries
        "spearman": pl.Float64(),
        "spearman_p": pl.Float64(),
    }
)

PVI_STRENGTHS = pl.Schema(  # after the columns of a group: the correlations of many cases
    {
        "n": pl.Int64(),  # cases with a correlation
        "n_undefined": pl.Int64(),  # cases without one, left out of all that follows
        "mean": pl.Float64(),
        "median": pl.Float64(),
        "strong_share": pl.Float64(),  # of cases with r > 0.6
        "weak_share": pl.Float64(),  # of cases with r < 0.3
    }
)
PVI_ONE_WAY = pl.Schema(  # after the columns of a case: one-way analysis of variance
    {
        "f": pl.Float64(),  # NaN where it is not defined
        "p": pl.Float64(),
        "df_between": pl.Int64(),
        "df_within": pl.Int64(),
    }
)
PVI_REPEATED_MEASURES = pl.Schema(  # after the columns of a case: of the same queries in all conditions
    {
        "f": pl.Float64(),  # NaN where it is not defined
        "p": pl.Float64(),  # as if all conditions agreed with one another equally well (sphericity)
        "df_condition": pl.Int64(),
        "df_residual": pl.Int64(),
        "epsilon": pl.Float64(),  # how far that is so: 1 wholly, 1 / df_condition least (Greenhouse & Geisser)
        "corrected_p": pl.Float64(),  # with both degrees of freedom times epsilon
        "ss_condition": pl.Float64(),  # sums of squares; the three add up to the total
        "ss_query": pl.Float64(),
        "ss_residual": pl.Float64(),
        "n_queries": pl.Int64(),
        "n_left_out": pl.Int64(),  # queries without a finite PVI in every condition
    }
)


PVI_PUBLISHED_CELLS = pl.Schema(  # one row a cell of the paper's tables
    {
        "table": pl.String(),  # the paper's number of it
        "row": pl.String(),
        "column": pl.String(),
        "published": pl.Float64(),  # percentages as shares; null where the transcription has none
        "decimals": pl.Int64(),  # as printed
        "recomputed": pl.Float64(),  # null where the data have no such run
        "input_reach": pl.Float64(),  # how far the rounding of what it is computed from can have moved it
        "all_rows": pl.Float64(),  # the same with no run or row left out
        "verdict": pl.String(),  # Verdict of pvi/published_cells.py
        "note": pl.String(),
    }
)
PVI_PUBLISHED_TOTALS = pl.Schema(
    {
        "table": pl.String(),
        "n_printed": pl.Int64(),
        "equal": pl.Int64(),  # to the printed decimals
        "within_rounding": pl.Int64(),
        "differ": pl.Int64(),
        "not_in_data": pl.Int64(),
        "not_printed": pl.Int64(),  # recomputed, and not in the transcription
    }
)
PVI_PUBLISHED_STRENGTHS = pl.Schema(
    {
        "variable": pl.String(),  # "Exemplars": across demonstration sets | "Shots": across numbers of shots
        "counted": pl.String(),  # what one case is, and which models are in
        **PVI_STRENGTHS,
    }
)
PVI_PUBLISHED_ANOVA = pl.Schema(
    {
        "dataset": pl.String(),
        "model": pl.String(),
        **PVI_ONE_WAY,
        "f_reach": pl.Float64(),  # how far the rounding of the run means can have moved F, at first order
        "p_reach": pl.Float64(),
        "f_needed": pl.Float64(),  # the least F with p < 0.05
    }
)
