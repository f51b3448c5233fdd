"""Compare the results of a run with the published results of StaICC.

For each metric, a line is fitted to the published models over the logarithm of their numbers of parameters. It says
which values are usual at the size of a run's model (figures 4, 5 and 7 of the paper). The published models of nearest
size are listed too. A section of the page shows the run among the published models.
"""

import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import polars as pl

from evaluator.compare.report_figures import described_points, scaling_figure
from evaluator.compare.runs import ComparedRun, prompt_form
from evaluator.datasets import SOURCES
from evaluator.methods import REFERENCE_METHOD
from evaluator.record import MeasuredRecord
from evaluator.report.section import Block, Group, Legend, List, MeasuredRun, Panel, Panels, Section, texts
from evaluator.report.table import METRIC_TEXTS as CORE_TEXTS
from evaluator.report.table import Column, MetricTexts, Row, Table, number, text_column
from evaluator.schemas import ESTIMATE, MEAN_OVER_DATASETS, declare
from evaluator.statistics.correlation import least_squares
from evaluator.suites.base import Comparison
from evaluator.suites.staicc.diagnostics import METRIC_TEXTS
from evaluator.suites.staicc.published import METRICS, NORMAL, figure_points, published_results

N_SHOTS, N_QUERIES = 4, 512
"""Number of demonstrations in a prompt and of queries per dataset in the published results."""

DATA_OPTIONS = ("paths", "hub", "repositories", "labels", "instruction", "template")
"""Fields of DataOptions that replace the queries or prompts of StaICC."""

N_NEIGHBOURS = 5  # number of published models of nearest size to list

DEFINITION, DIAGNOSTICS_DEFINITION = "published", "paper"
"""Definitions that have the formulas and signs of the printed metrics, and of the printed diagnostics."""

SHOWN = {"accuracy": "accuracy", "true_label_probability": "true-label probability", "gler": "GLER"}
"""Metric -> its name in the text about a run."""

Measured = MeasuredRun | ComparedRun

PRINTED_AS = {"gler_toolkit_axis": "gler"}
"""Metric here -> metric of table 7, where GLER is the slope over the toolkit's axis."""

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

PANEL = ["figure", "method", "metric"]
STANDINGS = declare(  # values of a run next to the published models: a row for each panel of figures 4, 5 and 7
    number=pl.String(),  # number of the run in a comparison; "" for a single run
    model=pl.String(),
    n_parameters=pl.Int64(),  # number of all parameters, also of mixtures of experts, as in the paper
    figure=pl.Int64(),
    method=pl.String(),
    metric=pl.String(),
    **ESTIMATE,
    expected=pl.Float64(),  # value of the line through the published models at this size
    low=pl.Float64(),  # 95% prediction interval of a model of this size
    high=pl.Float64(),
)


def predicted(points: pl.DataFrame, n_parameters: Sequence[int]) -> pl.DataFrame:
    """Predict the values of models of other sizes, by least squares over log10 of the number of parameters.

    Args:
        points: rows of figure_points for one panel. Models are taken as independent, with equal weight.
        n_parameters: sizes to predict.

    Returns n_parameters, value (the fitted line), low and high (95% prediction interval of a single model).
    """
    fit = least_squares([points["x"].to_numpy()], points["value"].to_numpy())
    rows = [(size, *fit.predict(np.array([1.0, math.log10(size)]))) for size in n_parameters]
    return pl.DataFrame(rows, ["n_parameters", "value", "low", "high"], orient="row")


def differing_settings(record: MeasuredRecord, metrics: pl.DataFrame) -> list[str]:
    """Return descriptions of the settings in which a run differs from the published results; empty if comparable.

    Args:
        metrics: schemas.METRICS of the run.
    """
    prompts, datasets = record.prompts, {*metrics["dataset"]} - {MEAN_OVER_DATASETS}
    missing, further = {*SOURCES} - datasets, datasets - {*SOURCES}
    differs = {
        f"without {', '.join(sorted(missing))}": missing,
        f"also {', '.join(sorted(further))}": further,
        "own data or templates": any((prompts.config.get("data") or {}).get(name) for name in DATA_OPTIONS),
        f"{prompts.n_queries} queries of each dataset, not {N_QUERIES}": (prompts.n_queries or N_QUERIES) < N_QUERIES,
        f"shots {prompts.shots}, not {N_SHOTS}": prompts.n_shots != N_SHOTS,
        f"{prompt_form(record)}, not plain prompts": record.scores.chat,
        f"labels {record.scores.label_boundary}, not separate": record.scores.label_boundary != "separate",
        f"without definition {DEFINITION}": DEFINITION not in prompts.definitions,
        "stopped before its last query": record.measures.is_stopped,
        "answers from elsewhere": record.model.kind == "imported",
        "number of parameters not known": record.model.n_parameters is None,
    }
    return [setting for setting, is_other in differs.items() if is_other]


def has_published_measures(metrics: pl.DataFrame) -> bool:
    """Return whether a run has metrics that the paper printed, for at least one dataset of StaICC."""
    is_normal = (pl.col("part") == "normal") & pl.col("metric").is_in(NORMAL)
    is_printed = is_normal | pl.col("metric").is_in([*METRICS.values()][len(NORMAL) :])
    return not metrics.filter(is_printed, pl.col("dataset").is_in([*SOURCES])).is_empty()


def standings(run: Measured, number: str = "", model: str = "") -> pl.DataFrame:
    """Return STANDINGS of a run: its means over datasets next to the prediction from the published models.

    Figures 4 and 7 have values of vanilla, figure 5 has differences of other methods to vanilla. `ci_low` and `ci_high`
    are the interval over the queries of the run; `low` and `high` are the prediction interval of a published model.

    Args:
        run: a run without differing_settings.
        number, model: number of the run and name of the model in a comparison.
    """
    record = run.record
    metrics = run.table("metrics").filter(dataset=MEAN_OVER_DATASETS, method=REFERENCE_METHOD)
    of_methods = run.table("method_differences")
    differences = of_methods.filter(dataset=MEAN_OVER_DATASETS, metric="accuracy", definition=DEFINITION)
    others = pl.col("metric").is_in([*NORMAL, *PRINTED_AS.values()])
    diagnostics = metrics.filter(~others, definition=DIAGNOSTICS_DEFINITION)
    figures = {
        4: metrics.filter(pl.col("metric").is_in(NORMAL), definition=DEFINITION, part="normal"),
        5: differences.filter(part="normal").rename({"method_a": "method", "difference": "value"}),
        7: diagnostics.with_columns(pl.col("metric").replace(PRINTED_AS)),
    }
    # The values of the run for each panel; infinite and undefined values are not placed.
    values = pl.concat(
        rows.select("method", "metric", pl.col(*ESTIMATE).cast(pl.Float64), figure=pl.lit(figure, pl.Int64))
        for figure, rows in figures.items()
    )
    found = values.filter(pl.col("value").is_finite()).unique(PANEL, keep="first", maintain_order=True)
    # Beside each value, the prediction from the published models of the panel at the model's size.
    rows, sizes = [], [record.model.n_parameters or 0]
    for key, points in figure_points().group_by(PANEL, maintain_order=True):
        of_panel = found.filter(**dict(zip(PANEL, key, strict=True)))
        rows.append(of_panel.join(predicted(points, sizes).rename({"value": "expected"}), how="cross"))
    about = {"number": pl.lit(number), "model": pl.lit(model or record.model.title)}
    return pl.concat(rows).with_columns(**about).select(STANDINGS.names()).cast(STANDINGS)


def neighbours(n_parameters: int) -> pl.DataFrame:
    """Return the N_NEIGHBOURS published models of nearest size, by the ratio of sizes, the nearest first.

    Columns: model, n_parameters, accuracy and true_label_probability of vanilla, best_method and best_accuracy, and
    n_methods, the number of methods that were printed for the model.
    """
    results = published_results()
    metrics = results.filter(method=REFERENCE_METHOD).pivot("metric", index=["model", "n_parameters"], values="value")
    accuracies = results.filter(metric="accuracy").sort("value", descending=True, maintain_order=True)
    first = {"best_method": pl.col("method").first(), "best_accuracy": pl.col("value").first()}
    best = accuracies.group_by("model").agg(**first, n_methods=pl.len())
    distance = (pl.col("n_parameters").log10() - pl.lit(n_parameters).log10()).abs()
    columns = ["model", "n_parameters", "accuracy", "true_label_probability", *best.columns[1:]]
    return metrics.join(best, on="model").sort(distance, "model").select(columns).head(N_NEIGHBOURS)


def size_text(n_parameters: int) -> str:
    """Return a number of parameters in billions, as the paper writes it."""
    return f"{n_parameters / 1e9:.2g} B"


def standing_lines(run: Measured) -> Iterator[str]:
    """Yield a sentence that compares the run with the published models; nothing if its settings differ from theirs."""
    metrics = run.table("metrics")
    if not has_published_measures(metrics) or differing_settings(run.record, metrics):
        return
    placed, parts = standings(run), []
    for metric, title in SHOWN.items():
        for row in placed.filter(metric=metric, method=REFERENCE_METHOD).iter_rows(named=True):
            usual = f"models of {size_text(row['n_parameters'])}: {row['low']:.2f} to {row['high']:.2f}"
            note = "" if row["low"] <= row["value"] <= row["high"] else " (not usual at this size)"
            parts.append(f"{title} {row['value']:.2f}, {usual}{note}")
    nearest = neighbours(run.record.model.n_parameters or 0).head(3)
    named = ", ".join(f"{model} {value:.2f}" for model, value in nearest.select("model", "accuracy").rows())
    yield f"Among StaICC's published models: {'; '.join(parts)}. Nearest in size, by accuracy: {named}."


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
    runs = STANDINGS.to_frame() if runs is None else runs
    sizes = [*published["n_parameters"], *runs["n_parameters"]]
    grid = np.geomspace(min(sizes), max(sizes), LINE_POINTS).round().astype(np.int64)
    named = published.with_columns(description=pl.format("{}: {} {}", "model", pl.lit(title), pl.col("value").round(4)))
    line, points = predicted(published, grid.tolist()), described_points(runs, title)
    return Panel(title, [scaling_figure(points, line, is_large=is_large, others=named)], about)


def published_sections(runs: Iterable[tuple[Measured, str, str]]) -> Iterator[Section]:
    """Yield the section that compares runs with the published models; nothing if no run has published metrics.

    Args:
        runs: each run with its number and the name of its model in a comparison; the number of a single run is "".
    """
    runs = [run for run in runs if has_published_measures(run[0].table("metrics"))]
    if not runs:
        return
    differing = {model: differing_settings(run.record, run.table("metrics")) for run, _, model in runs}
    comparable = [run for run in runs if not differing[run[2]]]
    others = [f"{model}: {'; '.join(settings)}." for model, settings in differing.items() if settings]
    content: list[Block] = [TEXTS["published_differing"], List(others)] if others else []
    if comparable:
        placed = pl.concat(standings(*run) for run in comparable)
        lines = [
            f"{model}: {line}" if name else line for run, name, model in comparable for line in standing_lines(run)
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
    placed = [standings(*run) for run in named if not differing_settings(run[0].record, run[0].metrics)]
    tables = {"among_published": pl.concat(placed).sort("number", *PANEL)} if placed else {}
    sections = [*published_sections(named)]
    return Comparison(tables, sections) if sections else None


def _figures(placed: pl.DataFrame) -> Iterator[Block]:
    """Yield the panels of figures 4, 5 and 7: the large ones of SHOWN metrics, then the others, folded by figure."""
    panels: dict[int, list[Panel]] = {}
    for key, points in figure_points().group_by(PANEL, maintain_order=True):
        figure, method, metric = key
        shown = placed.filter(**dict(zip(PANEL, key, strict=True)))
        if shown.height:
            is_large = figure == 4 and metric in SHOWN
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
    return f"{number(row['value'])}; models of {size_text(row['n_parameters'])}: {usual}"


def _neighbours(record: MeasuredRecord, model: str, placed: pl.DataFrame) -> Table:
    """Return a table with a row for the run and rows for the published models of nearest size."""
    own = placed.filter(model=model, method=REFERENCE_METHOD).select("metric", "value").rows()
    run = {"model": model, "n_parameters": record.model.n_parameters, "run": True, **dict(own)}
    rows = pl.concat([pl.DataFrame([run]), neighbours(record.model.n_parameters or 0)], how="diagonal")
    active = record.model.flop_per_token
    per_token = TEXTS["published_active"].format(size_text(active // 2)) if active else ""
    columns = [
        text_column("Model", "model", bold=lambda row: row["run"]),
        Column("Parameters", "n_parameters", show=size_text),
        *(Column(TITLES.title(name), name) for name in ("accuracy", "true_label_probability") if name in rows.columns),
        text_column("Best published method", "best_method"),
        Column("Its accuracy", "best_accuracy"),
        Column("Of methods", "n_methods"),
    ]
    return Table(rows, columns, caption=TEXTS["published_neighbours"].format(per_token), data={"table": "neighbours"})
