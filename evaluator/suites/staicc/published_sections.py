"""Build the section that shows a run among the published models of StaICC, and the figures over the size of models."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import polars as pl

from evaluator.compare.report_figures import described_points, scaling_figure
from evaluator.compare.runs import ComparedRun
from evaluator.methods import REFERENCE_METHOD
from evaluator.record import MeasuredRecord
from evaluator.report.section import Block, Group, Legend, List, Panel, Panels, Section, texts
from evaluator.report.table import METRIC_TEXTS as CORE_TEXTS
from evaluator.report.table import Column, MetricTexts, Row, Table, number, text_column
from evaluator.suites.base import Comparison
from evaluator.suites.staicc import standing
from evaluator.suites.staicc.diagnostics import METRIC_TEXTS
from evaluator.suites.staicc.published import figure_points

TEXTS = texts("evaluator.suites.staicc")
TITLES = MetricTexts({**CORE_TEXTS, **METRIC_TEXTS})

FOLDED = {4: "Other metrics by size", 5: "Improvement of accuracy over vanilla, by size", 7: "Diagnostics by size"}
"""Figure of the paper -> title of its panels."""

LINE_POINTS = 24
"""Number of points from which a line and its prediction limits, which are curves, are drawn."""

KEYS = {
    "one": "a published model",
    "line grey": "least-squares line over log₁₀ of parameters",
    "reference": "limits within which 95% of further models are expected",
}
RUN_KEYS = {"value": "a run, with its 95% interval", **KEYS}


def size_panel(
    title: str, published: pl.DataFrame, runs: pl.DataFrame | None = None, *, about: str = "", is_large: bool = False
) -> Panel:
    """Draw the published values of a metric by size, their fitted line with its limits, and the values of runs.

    Args:
        title: title of the metric, or name of the method.
        published: rows of figure_points for one panel.
        runs: STANDINGS of this panel; None for none.
        about: line below the title.
        is_large: whether the panel is one of the large ones.
    """
    runs = standing.STANDINGS.to_frame() if runs is None else runs
    sizes = [*published["n_parameters"], *runs["n_parameters"]]
    grid = np.geomspace(min(sizes), max(sizes), LINE_POINTS).round().astype(np.int64)
    named = published.with_columns(description=pl.format("{}: {} {}", "model", pl.lit(title), pl.col("value").round(4)))
    line, points = standing.predicted(published, grid.tolist()), described_points(runs, title)
    return Panel(title, [scaling_figure(points, line, is_large=is_large, others=named)], about)


def published_sections(runs: Iterable[tuple[standing.Measured, str, str]]) -> Iterator[Section]:
    """Yield the section that compares runs with the published models; nothing if no run has published metrics.

    Args:
        runs: each run with its number and the name of its model in a comparison; the number of a single run is "".
    """
    runs = [run for run in runs if standing.has_published_measures(run[0].table("metrics"))]
    if not runs:
        return
    differing = {model: standing.differing_settings(run.record, run.table("metrics")) for run, _, model in runs}
    comparable = [run for run in runs if not differing[run[2]]]
    others = [f"{model}: {'; '.join(settings)}." for model, settings in differing.items() if settings]
    content: list[Block] = [TEXTS["published_differing"], List(others)] if others else []
    if comparable:
        placed = pl.concat(standing.standings(*run) for run in comparable)
        lines = [
            f"{model}: {line}" if name else line
            for run, name, model in comparable
            for line in standing.standing_lines(run)
        ]
        tables = [_neighbours(run.record, model, placed) for run, _, model in comparable]
        content += [List(lines), Legend(RUN_KEYS), TEXTS["published_note"], *_figures(placed)]
        content += tables if len(runs) == 1 else [Group(tables, "Nearest published models", is_folded=True)]
    yield Section(
        "published",
        "Among the published models",
        content,
        subtitle="after figures 4, 5 and 7 of Cho & Inoue 2025" if comparable else "omitted, because settings differ",
        kind="published",
        navigation="Published models" if comparable else "",
        is_folded=not comparable,
        style="evaluator.compare:assets/compare.css",
    )


def published_comparison(runs: Sequence[ComparedRun]) -> Comparison | None:
    """Compare all runs with the published models: the table among_published and its section; None without sections."""
    named = [(run, str(run.number), run.model) for run in runs]
    placed = [
        standing.standings(*run) for run in named if not standing.differing_settings(run[0].record, run[0].metrics)
    ]
    tables = {"among_published": pl.concat(placed).sort("number", *standing.PANEL)} if placed else {}
    sections = [*published_sections(named)]
    return Comparison(tables, sections) if sections else None


def _figures(placed: pl.DataFrame) -> Iterator[Block]:
    """Yield the panels of figures 4, 5 and 7: the large ones of SHOWN metrics, then the others, folded by figure."""
    panels: dict[int, list[Panel]] = {}
    for key, points in figure_points().group_by(standing.PANEL, maintain_order=True):
        figure, method, metric = key
        shown = placed.filter(**dict(zip(standing.PANEL, key, strict=True)))
        if shown.height:
            is_large = figure == 4 and metric in standing.SHOWN
            title = TITLES.title(str(metric)) if method == REFERENCE_METHOD else str(method)
            about = "" if shown.height > 1 else _usual(shown.row(0, named=True))
            panel_of = size_panel(title, points, shown, about=about, is_large=is_large)
            panels.setdefault(0 if is_large else int(str(figure)), []).append(panel_of)
    for figure, drawn in sorted(panels.items()):
        if figure:
            yield Group([Panels(drawn, style="scaling")], FOLDED[figure], is_folded=True)
        else:
            yield Panels(drawn, style="scaling large")


def _usual(row: Row) -> str:
    usual = f"{number(row['low'])} to {number(row['high'])}"
    return f"{number(row['value'])}; models of {standing.size_text(row['n_parameters'])}: {usual}"


def _neighbours(record: MeasuredRecord, model: str, placed: pl.DataFrame) -> Table:
    """Return a table with a row for the run and rows for the published models of nearest size."""
    own = placed.filter(model=model, method=REFERENCE_METHOD).select("metric", "value").rows()
    run = {"model": model, "n_parameters": record.model.n_parameters, "run": True, **dict(own)}
    rows = pl.concat([pl.DataFrame([run]), standing.neighbours(record.model.n_parameters or 0)], how="diagonal")
    active = record.model.flop_per_token
    per_token = TEXTS["published_active"].format(standing.size_text(active // 2)) if active else ""
    columns = [
        text_column("Model", "model", bold=lambda row: row["run"]),
        Column("Parameters", "n_parameters", show=standing.size_text),
        *(Column(TITLES.title(name), name) for name in ("accuracy", "true_label_probability") if name in rows.columns),
        text_column("Best published method", "best_method"),
        Column("Its accuracy", "best_accuracy"),
        Column("Of methods", "n_methods"),
    ]
    return Table(rows, columns, caption=TEXTS["published_neighbours"].format(per_token), data={"table": "neighbours"})
