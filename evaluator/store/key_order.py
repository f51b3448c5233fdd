"""The order of a table's key as one column of texts, by which runs of its rows are merged."""

from collections.abc import Mapping, Sequence

import polars as pl

PLACE = "place"


def place(key: Sequence[str], schema: Mapping[str, pl.DataType]) -> pl.Expr:
    """Return the column PLACE: texts in the order of a key of texts, whole numbers and rates, none of them negative.

    Missing values come first, as Polars sorts them.
    """
    # Whole numbers of equal length, and "\0" comes before every other character.
    texts = [
        pl.col(name).cast(pl.String).str.zfill(19) if schema[name] == pl.Int64() else pl.col(name).cast(pl.String)
        for name in key
    ]
    return pl.concat_str([text.fill_null("") for text in texts], separator="\0").alias(PLACE)


def in_order_of_places(rows: pl.DataFrame) -> pl.DataFrame:
    """Sort rows by the column PLACE; equal ones keep their order."""
    return rows.sort(PLACE, maintain_order=True)
