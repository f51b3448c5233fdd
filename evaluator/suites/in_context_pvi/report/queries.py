"""Arrange PVIs and texts of queries as the data of the page's table of queries."""

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from evaluator.report.queries import NumberColumn, cut_text
from evaluator.suites.in_context_pvi.report.sources import BY_SOURCE, has_several, run_name

COLUMNS = (NumberColumn("rank", "Rank", 0, 5), NumberColumn("bits", "Bits", 3, 6.5))

_DECIMALS = 6
_RUN = ["demonstrations", "n_shots", "demonstration_set"]


def query_data(
    pvi: pl.DataFrame, queries: pl.DataFrame, label_names: Mapping[str, Sequence[str]], datasets: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the data of report.queries_section: a run for each demonstration set, with `bits` and `rank`.

    Rank 1 is the lowest PVI; equal ones share a rank.

    Args:
        pvi: schema.PVI of one definition.
        queries: query_schema.PVI_QUERIES.
        label_names: dataset -> its label space.
        datasets: in the order of the page.
    """
    several = has_several(pvi)
    return [_dataset(name, pvi.filter(dataset=name), queries, label_names[name], several=several) for name in datasets]


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
