"""What the requests of the suite pvi do not say about its queries: tables that lie beside them in the store."""

import polars as pl

PVI_QUERIES_KEY = ["dataset", "query_id"]
PVI_QUERIES = pl.Schema(
    {
        "dataset": pl.String(),
        "query_id": pl.Int64(),  # row of the test split
        "row": pl.Int64(),  # of the source, from 0
        "text": pl.String(),  # its text fields, a line each
        "gold": pl.Int64(),
        "asked": pl.Boolean(),  # false where it stands among the demonstrations of some set, and so is not asked at all
    }
)

PVI_CANDIDATES_KEY = ["dataset", "training_row"]
PVI_CANDIDATES = pl.Schema(  # training rows that demonstrations are chosen among by PVI, where a method does
    {
        "dataset": pl.String(),
        "training_row": pl.Int64(),  # row of the demonstration split
        "row": pl.Int64(),  # of the source, from 0
        "text": pl.String(),  # its text fields, a line each
        "n_training": pl.Int64(),  # rows of the demonstration split, these among them
    }
)
