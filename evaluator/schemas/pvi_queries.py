"""What the requests of the suite pvi do not say about its queries: a table that lies beside them in the store."""

import polars as pl

PVI_QUERIES_KEY = ["dataset", "query_id"]
PVI_QUERIES = pl.Schema(
    {
        "dataset": pl.String(),
        "query_id": pl.Int64(),  # row of the split that is asked
        "row": pl.Int64(),  # of the source, from 0; that of the training table where training rows are asked
        "text": pl.String(),  # its text fields, a line each
        "gold": pl.Int64(),
        "asked": pl.Boolean(),  # false where it stands among the demonstrations of some set, and so is not asked at all
    }
)
