"""The tables that Lu et al. 2023 print: assets/printed.toml."""

from evaluator.reproductions.cells import printed_cells, printed_tables

GPT3 = "GPT3-175B"
GENERAL = ("accuracy", "acc. low PVI", "acc. high PVI", "PVI for TRUE", "PVI for FALSE")
"""Columns of tables 1 and 14: `low` and `high` are the fifths of queries with the lowest and highest PVI."""

CORRELATION = ("avg.", "med.", "r > 0.6", "r < 0.3")
ANOVA = ("F-statistic", "p-value")
EXEMPLARS = ("random", "hardest")

TABLES = printed_tables("lu_2023")
PRINTED_CELLS = printed_cells(TABLES, decimals=4)
