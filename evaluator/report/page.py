"""The report: what was run and what came out, as one HTML file that opens from disk without a network."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from evaluator.compare.schema import DIFFERENCES
from evaluator.metrics.per_request import DIAGNOSTIC_PARTS
from evaluator.report import facts, tables
from evaluator.report.group_views import FIGURE_DEFINITION, DrawnFrames, GroupView, group_view
from evaluator.report.html_page import write_html_page
from evaluator.report.methods import MethodTable, method_order, method_summary, method_tables
from evaluator.report.notes import reader_notes
from evaluator.schemas import GROUP_METRICS, MEAN_OVER_DATASETS
from evaluator.suites.prompt_search.report import SearchTables, search_report
from evaluator.suites.staicc.report import DiagnosticsView, diagnostics_views


@dataclass(frozen=True, kw_only=True)
class ReportData:
    """All that the report shows; whatever is measured was measured before."""

    run: Mapping[str, Any]  # run.json
    metrics: pl.DataFrame  # schemas.METRICS
    predictions: pl.LazyFrame  # schemas.PREDICTIONS; read for label names and gold labels alone
    reliability: pl.DataFrame  # metrics.reliability_table, under FIGURE_DEFINITION
    confusion: pl.DataFrame  # metrics.confusion_table, under FIGURE_DEFINITION
    groups: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=GROUP_METRICS))
    differences: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=DIFFERENCES))  # to vanilla
    missing: pl.DataFrame = field(default_factory=pl.DataFrame)  # methods.training_states.missing_classes
    absent: pl.DataFrame = field(default_factory=pl.DataFrame)  # diagnostics.label_bias.absent_labels
    search: SearchTables | None = None  # of a prompt search, which has none of the rest


class PartView(NamedTuple):
    """One suite's part under all of its methods."""

    suite: str
    part: str
    methods: dict[str, list[MethodTable]]  # by definition; none where there is but one method
    first: GroupView  # vanilla, where it was run
    others: list[GroupView]


def write_report(data: ReportData, path: Path) -> Path:
    """Write the page to `path` and return it. Equal data give equal bytes."""
    return write_html_page(path, "page.html", _shown(data), script="page.js")


def _shown(data: ReportData) -> dict[str, Any]:
    measured = data.search.results if data.search else data.metrics
    datasets = tables.dataset_order(measured, facts.look_up(data.run, "store", "datasets") or ())
    parts = list(_part_views(data, datasets))
    diagnostics = diagnostics_views(data.metrics, data.groups, datasets)
    return {
        "model": facts.look_up(data.run, "model", "name") or "model not recorded",
        "warning": facts.warning(data.run),
        "headline": facts.headline_facts(data.run),
        "notes": reader_notes(data.run, data.metrics, data.missing, data.absent),
        "record": facts.record(data.run),
        "command": facts.look_up(data.run, "command"),
        "tokens": facts.token_counts(data.run),
        "token_summary": facts.token_summary(data.run),
        "n_shots": facts.look_up(data.run, "store", "n_shots"),
        "subjects": list(_subjects(data.metrics)),
        "datasets": datasets,
        "definitions": _definitions(data.metrics),
        "figure_definition": FIGURE_DEFINITION,
        "parts": parts,
        "n_views": sum(1 + len(part.others) for part in parts),
        "diagnostics": diagnostics,
        "has_absent_labels": not data.absent.is_empty(),
        "undiagnosed": _undiagnosed(data.metrics, diagnostics),
        "method_summary": method_summary,
        "mean_over_datasets": MEAN_OVER_DATASETS,
        "search": search_report(data.search, data.run) if data.search else None,
    }


def _part_views(data: ReportData, datasets: Sequence[str]) -> Iterator[PartView]:
    classified = data.metrics.filter(~pl.col("part").is_in(DIAGNOSTIC_PARTS))
    drawn = DrawnFrames(data.reliability, data.confusion, tables.label_spaces(data.predictions))
    found = sorted(tables.groups(classified), key=lambda group: (group.suite, group.part, method_order(group.method)))
    views = [
        group_view(group, f"method-{number}", data.metrics, drawn, datasets) for number, group in enumerate(found, 1)
    ]
    for (suite, part), same in groupby(views, key=lambda view: view.group[:2]):
        first, *others = same
        n_shots = facts.look_up(data.run, "store", "n_shots")
        methods = method_tables([first, *others], data.differences, n_shots, datasets) if others else {}
        # Of folded methods the table of all methods shows the intervals that matter, in a tenth of the bytes.
        yield PartView(suite, part, methods, first, [view._replace(intervals={}) for view in others])


def _subjects(metrics: pl.DataFrame) -> Iterator[str]:
    """What was measured, one line a suite and set of methods."""
    measured = metrics.group_by("suite", "part").agg(pl.col("method").unique().sort())
    together = measured.group_by("suite", "method").agg(pl.col("part").sort()).sort("suite", "part")
    for suite, parts, methods in together.select("suite", "part", "method").iter_rows():
        named = f"{suite} / {', '.join(parts)}" if any(parts) else suite
        yield f"{named}, {methods[0] if len(methods) == 1 else f'{len(methods)} methods'}"


def _definitions(metrics: pl.DataFrame) -> dict[str, str]:
    present = set(metrics["definition"])
    return {name: meaning for name, meaning in tables.DEFINITIONS.items() if name in present}


def _undiagnosed(metrics: pl.DataFrame, diagnostics: Sequence[DiagnosticsView]) -> list[str]:
    """The definitions that no diagnostic was measured under."""
    known = {table.definition for view in diagnostics for table in view.six}
    return [name for name in _definitions(metrics) if name not in known]
