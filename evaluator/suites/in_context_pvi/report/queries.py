"""Convert PVIs and texts of queries to the JSON from which the page draws its table of queries."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
from markupsafe import Markup

from evaluator.suites.in_context_pvi.report.sources import BY_SOURCE, has_several, run_name

MAX_CHARACTERS = 600
"""Characters of a text that the page shows: a hundred passages of ten kilobytes would be most of the page."""

_DECIMALS = 6
_RUN = ["demonstrations", "n_shots", "demonstration_set"]


def query_data(
    pvi: pl.DataFrame, queries: pl.DataFrame, label_names: Mapping[str, Sequence[str]], datasets: Sequence[str]
) -> Markup:
    """Return a list of datasets as JSON that is safe within a script element.

    Each dataset has `name`, `labels`, the columns `id`, `gold` and `text` of its queries, and `runs`. Each run has
    `name` and the columns `bits`, `rank` (1 is the lowest PVI; equal ones share a rank) and `pred`, in the same order
    of queries, null where missing.

    Args:
        pvi: schema.PVI of one definition.
        queries: query_schema.PVI_QUERIES.
        label_names: dataset -> its label space.
        datasets: in the order of the page.
    """
    several = has_several(pvi)
    data = [_dataset(name, pvi.filter(dataset=name), queries, label_names[name], several=several) for name in datasets]
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    # "</script>" in a text would end the element.
    return Markup(text.replace("<", "\\u003c"))  # noqa: S704


def cut_text(text: pl.Expr) -> pl.Expr:
    """Cut a text to MAX_CHARACTERS."""
    is_long = text.str.len_chars() > MAX_CHARACTERS
    return pl.when(is_long).then(text.str.head(MAX_CHARACTERS) + " …").otherwise(text)


def _dataset(
    name: str, pvi: pl.DataFrame, queries: pl.DataFrame, labels: Sequence[str], *, several: bool
) -> dict[str, Any]:
    texts = queries.filter(dataset=name).select("query_id", "text")
    scored = pvi.select("query_id", "gold").unique("query_id").join(texts, on="query_id", how="left").sort("query_id")
    shown = scored.with_columns(cut_text(pl.col("text")).fill_null(""))
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
                rows.join(shown.select("query_id"), on="query_id", how="right", maintain_order="right"),
            )
            for (source, n_shots, number), rows in runs.items()
        ],
    }


def _run(name: str, rows: pl.DataFrame) -> dict[str, Any]:
    return {
        "name": name,
        "bits": rows["pvi_bits"].round(_DECIMALS).to_list(),
        "rank": rows["pvi_bits"].rank("min").to_list(),
        "pred": rows["pred"].to_list(),
    }
