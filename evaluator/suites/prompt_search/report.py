"""Build the report sections of a prompt search from its tables. Nothing is computed here."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import polars as pl
from markupsafe import Markup

from evaluator.report.section import MeasuredRun, PackageFile, Section
from evaluator.report.tables import dataset_order
from evaluator.report.total_error import total_error_sections
from evaluator.suites.prompt_search.report_figures import curve_figure
from evaluator.suites.prompt_search.schema import SEARCH_GROUP

VARIED = {
    "demonstrations": "Sets of demonstrations were tried.",
    "instructions": "Instructions were tried, with one set of demonstrations.",
    "templates": "Templates were tried, with one set of demonstrations.",
}
"""Part of a search -> what differs between its prompts."""


class SearchTables(NamedTuple):
    """Tables of a prompt search; schema.py has the columns."""

    prompts: pl.DataFrame  # SEARCH_PROMPTS
    results: pl.DataFrame  # SEARCH_RESULTS
    curves: pl.DataFrame  # SEARCH_CURVES


class BestPrompt(NamedTuple):
    """One of the best prompts of a search."""

    result: dict[str, Any]  # its row of SEARCH_RESULTS
    prompt_number: int
    n_others: int  # other prompts with the same accuracy
    demonstrations: list[str]
    text: str


class CurvePanel(NamedTuple):
    dataset: str
    svg: Markup


class SearchView(NamedTuple):
    """The results of one part of the search and one method."""

    part: str
    varied: str
    method: str
    results: list[dict[str, Any]]  # rows of SEARCH_RESULTS, in the order of datasets and shots
    curves: list[CurvePanel]
    best: list[BestPrompt]

    @property
    def n_tests(self) -> int:
        """Return the number of searches that were tested together."""
        return int(self.results[0]["n_tests"])


class SearchContext(NamedTuple):
    """Variables of the template search.html."""

    view: SearchView
    is_halved: bool


class HeldOutContext(NamedTuple):
    held_out: list[dict[str, Any]]  # rows of HELD_OUT_PREDICTION


def search_sections(run: MeasuredRun) -> Iterator[Section]:
    """Yield a section for each part of the search and method, and one for held-out prediction.

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
    yield from total_error_sections(run, order)
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
    """Return the results of one part and method, by dataset in the given order and by number of shots."""
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
        rows = curves.filter(dataset=dataset)
        if not rows.is_empty():
            yield CurvePanel(dataset, Markup(curve_figure(rows)))


def _best(prompts: pl.DataFrame, result: dict[str, Any]) -> BestPrompt:
    number, *others = result["best_prompt_numbers"]
    is_same_search = pl.all_horizontal(pl.col(name) == result[name] for name in SEARCH_GROUP)
    row = prompts.filter(is_same_search, prompt_number=number).row(0, named=True)
    return BestPrompt(result, number, len(others), row["demonstrations"], row["text"])
