"""Declare the recomputed tables of Lu et al. 2023."""

import polars as pl

from evaluator.statistics.anova import ONE_WAY
from evaluator.suites.in_context_pvi.schema import PVI_STRENGTHS

PUBLISHED_CELLS = pl.Schema(  # one row a cell of the paper's tables
    {
        "table": pl.String(),  # its number in the paper
        "row": pl.String(),
        "column": pl.String(),
        "published": pl.Float64(),  # percentages as shares; null where the transcription has none
        "decimals": pl.Int64(),  # as printed
        "recomputed": pl.Float64(),  # null where the data have no such run
        "input_reach": pl.Float64(),  # largest error of `recomputed` from the rounding of released numbers
        "all_rows": pl.Float64(),  # `recomputed` with no run or row left out
        "verdict": pl.String(),  # Verdict of cells.py
        "note": pl.String(),
    }
)
PUBLISHED_TRIED = pl.Schema(  # one row a row of a printed table and a rule that was tried for it
    {
        "table": pl.String(),
        "row": pl.String(),
        "rule": pl.String(),  # which runs or correlations, and how they are read
        "n": pl.Int64(),  # runs or correlations that the rule is over
        "n_printed": pl.Int64(),  # printed cells of the row; in rules about p-values, the p-values that can be compared
        "n_equal": pl.Int64(),  # of these, equal to the printed decimals
        "equal_columns": pl.String(),  # which ones
        # The same of the other rows of the table, by the same rule; if it has several readings of pairs, by the best.
        "n_printed_elsewhere": pl.Int64(),
        "n_equal_elsewhere": pl.Int64(),
    }
)
PUBLISHED_DIFFERENCES = pl.Schema(  # figure 2 of the paper: one row a model, means over its runs
    {
        "model": pl.String(),
        "n_runs": pl.Int64(),
        # Accuracy of the queries with the highest PVI minus that of those with the lowest:
        "fifth_difference": pl.Float64(),
        "half_difference": pl.Float64(),
    }
)
PUBLISHED_TOTALS = pl.Schema(
    {
        "table": pl.String(),
        "n_printed": pl.Int64(),
        "equal": pl.Int64(),  # to the printed decimals
        "within_rounding": pl.Int64(),
        "differ": pl.Int64(),
        "not_in_data": pl.Int64(),
        "not_printed": pl.Int64(),  # recomputed, but missing in the transcription
    }
)
PUBLISHED_STRENGTHS = pl.Schema(
    {
        "variable": pl.String(),  # "Exemplars": across demonstration sets | "Shots": across numbers of shots
        "counted": pl.String(),  # what a case is, and which models are included
        **PVI_STRENGTHS,
    }
)
PUBLISHED_ANOVA = pl.Schema(
    {
        "dataset": pl.String(),
        "model": pl.String(),
        **ONE_WAY,
        "f_reach": pl.Float64(),  # largest error of F from the rounding of run means, at first order
        "p_reach": pl.Float64(),
        "f_needed": pl.Float64(),  # smallest F with p < 0.05
    }
)
