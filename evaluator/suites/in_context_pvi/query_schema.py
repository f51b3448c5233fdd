"""Declare the side tables of the suite pvi in the store: the texts of queries and training rows."""

import polars as pl

PVI_QUERIES_KEY = ["dataset", "query_id"]
PVI_QUERIES = pl.Schema(
    {
        "dataset": pl.String(),
        "query_id": pl.Int64(),  # row of the test split
        "row": pl.Int64(),  # of the source, from 0
        "text": pl.String(),  # its text fields, a line each
        "gold": pl.Int64(),
        "asked": pl.Boolean(),  # false where the query is a demonstration of some set, so that it has no prompts
    }
)

PVI_CANDIDATES = pl.Schema(  # training rows from which a method chooses demonstrations by PVI
    {
        "dataset": pl.String(),
        "training_row": pl.Int64(),  # row of the demonstration split
        "row": pl.Int64(),  # of the source, from 0
        "text": pl.String(),  # its text fields, a line each
        "n_training": pl.Int64(),  # number of rows of the whole demonstration split
    }
)
