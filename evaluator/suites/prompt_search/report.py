"""Tables of a prompt search to what a reader sees of it. Numbers are laid out here, never computed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import polars as pl
from markupsafe import Markup

from evaluator.suites.prompt_search.report_figures import curve_figure
from evaluator.suites.prompt_search.schema import SEARCH_GROUP

VARIED = {
    "demonstrations": "Sets of demonstrations were tried.",
    "instructions": "Instructions were tried, with one set of demonstrations.",
    "templates": "Templates were tried, with one set of demonstrations.",
}
"""Part of a search -> what it varies."""


@dataclass(frozen=True, kw_only=True)
class SearchTables:
    """What a prompt search measured; see schemas for the columns."""

    prompts: pl.DataFrame  # SEARCH_PROMPTS
    results: pl.DataFrame  # SEARCH_RESULTS
    curves: pl.DataFrame  # SEARCH_CURVES
    held_out: pl.DataFrame  # HELD_OUT_PREDICTION


class BestPrompt(NamedTuple):
    """One of the prompts that no other in its search is better than."""

    result: dict[str, Any]  # its row of SEARCH_RESULTS
    prompt_number: int
    n_others: int  # that reach the same
    demonstrations: list[str]
    text: str


class CurvePanel(NamedTuple):
    dataset: str
    svg: Markup


class SearchView(NamedTuple):
    """What was varied, under one method."""

    part: str
    varied: str
    method: str
    results: list[dict[str, Any]]  # rows of SEARCH_RESULTS, in the order of datasets and shots
    curves: list[CurvePanel]
    best: list[BestPrompt]


class SearchReport(NamedTuple):
    views: list[SearchView]
    held_out: list[dict[str, Any]]  # rows of HELD_OUT_PREDICTION
    notes: list[tuple[str, str]]  # dataset and what a rule changed in it
    is_halved: bool


def search_report(tables: SearchTables, run: Mapping[str, Any]) -> SearchReport:
    """Everything the page shows of a search.

    Args:
        tables: of the search.
        run: run.json; names the datasets in their order, and what was changed in their data.
    """
    store = run.get("store") or {}
    order = list(store.get("datasets") or tables.results["dataset"].unique(maintain_order=True))
    groups = tables.results.select("part", "method").unique(maintain_order=True).rows()
    return SearchReport(
        views=[_view(tables, part, method, order) for part, method in groups],
        held_out=tables.held_out.to_dicts(),
        notes=[(name, note) for name, notes in (store.get("notes") or {}).items() for note in notes],
        is_halved=bool((store.get("search") or {}).get("halving")),
    )


def _view(tables: SearchTables, part: str, method: str, order: Sequence[str]) -> SearchView:
    results, curves = (frame.filter(part=part, method=method) for frame in (tables.results, tables.curves))
    rows = sorted(results.to_dicts(), key=lambda row: (order.index(row["dataset"]), row["n_shots"]))
    return SearchView(
        part=part,
        varied=VARIED[part],
        method=method,
        results=rows,
        curves=list(_curves(curves, order)),
        best=[_best(tables.prompts, row) for row in rows],
    )


def _curves(curves: pl.DataFrame, order: Sequence[str]) -> Iterator[CurvePanel]:
    for dataset in order:
        own = curves.filter(dataset=dataset)
        if not own.is_empty():
            yield CurvePanel(dataset, Markup(curve_figure(own)))


def _best(prompts: pl.DataFrame, result: dict[str, Any]) -> BestPrompt:
    number, *others = result["best_prompt_numbers"]
    own = prompts.filter(pl.all_horizontal(pl.col(name) == result[name] for name in SEARCH_GROUP), prompt_number=number)
    row = own.row(0, named=True)
    return BestPrompt(result, number, len(others), row["demonstrations"], row["text"])
