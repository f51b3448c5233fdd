"""The order of requests, schemas.REQUESTS_KEY, as one column of texts by which runs of them are merged."""

import polars as pl

PLACE = "place"


def place() -> pl.Expr:
    """Return the column PLACE of schemas.REQUESTS: its texts are in the order of the key."""
    # Positions are not negative, and "\0" comes before every other character.
    position, for_part = pl.col("position").cast(pl.String).str.zfill(19), pl.col("for_part").fill_null("")
    return pl.concat_str("suite", "part", "dataset", position, for_part, separator="\0").alias(PLACE)


def in_order_of_places(rows: pl.DataFrame) -> pl.DataFrame:
    """Sort requests by the column PLACE; equal ones keep their order."""
    return rows.sort(PLACE, maintain_order=True)
