"""PVIs and texts of queries to what the page's table of queries is drawn from: frames go in, JSON comes out."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
from markupsafe import Markup

from evaluator.suites.in_context_pvi.report_sources import BY_SOURCE, has_several, run_name

MOST_CHARACTERS = 600
"""Of a text; the rest is not on the page. A hundred passages of ten kilobytes would be most of it."""

_DECIMALS = 6
_RUN = ["demonstrations", "n_shots", "demonstration_set"]


def query_data(
    pvi: pl.DataFrame, queries: pl.DataFrame, label_names: Mapping[str, Sequence[str]], datasets: Sequence[str]
) -> Markup:
    """A list of datasets as JSON that can stand within a script element; columns, for a table of many rows.

    Each has `name`, `labels`, `id`, `gold` and `text`, a number or text a query; and `runs`, each with its `name`,
    `bits`, `rank` (1 is the lowest PVI; equal ones share theirs) and `pred`, in the same order, null where missing.

    Args:
        pvi: schemas.pvi.PVI of one definition.
        queries: schemas.pvi_queries.PVI_QUERIES.
        label_names: dataset -> its label space.
        datasets: in the order in which they are shown.
    """
    several = has_several(pvi)
    data = [_dataset(name, pvi.filter(dataset=name), queries, label_names[name], several=several) for name in datasets]
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c"))


def cut_text(text: pl.Expr) -> pl.Expr:
    """No more of a text than a page holds."""
    is_long = text.str.len_chars() > MOST_CHARACTERS
    return pl.when(is_long).then(text.str.head(MOST_CHARACTERS) + " …").otherwise(text)


def _dataset(
    name: str, pvi: pl.DataFrame, queries: pl.DataFrame, labels: Sequence[str], *, several: bool
) -> dict[str, Any]:
    texts = queries.filter(dataset=name).select("query_id", "text")
    asked = pvi.select("query_id", "gold").unique("query_id").join(texts, on="query_id", how="left").sort("query_id")
    shown = asked.with_columns(cut_text(pl.col("text")).fill_null(""))
    runs = pvi.sort(BY_SOURCE, "n_shots", "demonstration_set").partition_by(_RUN, as_dict=True, maintain_order=True)
    return {
        "name": name,
        "labels": list(labels),
        "id": shown["query_id"].to_list(),
        "gold": shown["gold"].to_list(),
        "text": shown["text"].to_list(),
        "runs": [
            _run(
                run_name(n_shots, str(source), number, several=several),
                own.join(shown.select("query_id"), on="query_id", how="right", maintain_order="right"),
            )
            for (source, n_shots, number), own in runs.items()
        ],
    }


def _run(name: str, rows: pl.DataFrame) -> dict[str, Any]:
    return {
        "name": name,
        "bits": rows["pvi_bits"].round(_DECIMALS).to_list(),
        "rank": rows["pvi_bits"].rank("min").to_list(),
        "pred": rows["pred"].to_list(),
    }
