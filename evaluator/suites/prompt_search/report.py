"""The report of a prompt search: its sections, made of its tables. Nothing is computed here."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import polars as pl
from markupsafe import Markup

from evaluator.report.section import MeasuredRun, PackageFile, Section
from evaluator.report.tables import dataset_order
from evaluator.suites.prompt_search.report_figures import curve_figure
from evaluator.suites.prompt_search.schema import SEARCH_GROUP

VARIED = {
    "demonstrations": "Sets of demonstrations were tried.",
    "instructions": "Instructions were tried, with one set of demonstrations.",
    "templates": "Templates were tried, with one set of demonstrations.",
}
"""Part of a search -> what it varies."""


class SearchTables(NamedTuple):
    """What a prompt search measured; schema.py has the columns."""

    prompts: pl.DataFrame  # SEARCH_PROMPTS
    results: pl.DataFrame  # SEARCH_RESULTS
    curves: pl.DataFrame  # SEARCH_CURVES


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


class SearchContext(NamedTuple):
    """What the template of one view shows."""

    view: SearchView
    is_halved: bool


class HeldOutContext(NamedTuple):
    held_out: list[dict[str, Any]]  # rows of HELD_OUT_PREDICTION


def search_sections(run: MeasuredRun) -> Iterator[Section]:
    """The sections of a prompt search: one for what was varied under each method, and held-out prediction.

    Args:
        run: with the tables search_prompts, search_results, search_curves and search_held_out_prediction.
    """
    tables = SearchTables(*(run.table(f"search_{name}") for name in ("prompts", "results", "curves")))
    results = tables.results
    order = dataset_order(results, run.record.prompts.datasets)
    is_halved = "is_stopped" in tables.prompts.columns and bool(tables.prompts["is_stopped"].any())
    groups = results.select("part", "method").unique(maintain_order=True).rows()
    for number, (part, method) in enumerate(groups, 1):
        view = search_view(tables, part, method, order)
        yield Section(
            anchor=f"search-{number}",
            title="Prompt search",
            subtitle=f"{part}, {method}",
            kind="search",
            navigation=f"{part.capitalize()}, {method}",
            template=PackageFile("evaluator.suites.prompt_search", "templates/search.html"),
            context=SearchContext(view, is_halved),
            style=PackageFile("evaluator.suites.prompt_search", "assets/search.css"),
            datasets=tuple(order),
        )
    held_out = run.table("search_held_out_prediction").to_dicts()
    if held_out:
        yield Section(
            anchor="held-out",
            title="Does it hold on other queries?",
            kind="held-out",
            navigation="Held-out queries",
            template=PackageFile("evaluator.suites.prompt_search", "templates/held_out.html"),
            context=HeldOutContext(held_out),
        )


def search_view(tables: SearchTables, part: str, method: str, order: Sequence[str]) -> SearchView:
    """What was found by varying `part` under a method; rows by dataset, in this order, and number of shots."""
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
