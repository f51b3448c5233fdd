"""Build the report sections of a comparison from its tables; this module computes no statistics."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from evaluator.compare.across_models import JUDGED_BY, MIN_COUNTS
from evaluator.compare.report_figures import scaling_panels
from evaluator.compare.runs import ComparedRun
from evaluator.errors import plural
from evaluator.methods import REFERENCE_METHOD
from evaluator.metrics.classification import REQUEST_COLUMNS
from evaluator.random_baselines.max_random import POWER
from evaluator.report import run_record
from evaluator.report.methods import difference_column
from evaluator.report.page import Header
from evaluator.report.section import Block, Group, Legend, Matrices, Matrix, MatrixCell, Panels, Section, texts
from evaluator.report.table import (
    DATASET,
    DEFINITIONS,
    Column,
    MetricTexts,
    Row,
    Table,
    dataset_order,
    in_order,
    line,
    lower_is_better,
    marked,
    p_text,
    signed,
    text_column,
    value_tip,
)
from evaluator.schemas import MEAN_OVER_DATASETS
from evaluator.statistics.paired import LEVEL

TEXTS = texts("evaluator.compare")

MAX_PAIRS = 15
"""Largest number of pairs of models for which the page has tables by dataset; six models make 15 pairs."""

SCALED = ("true_label_probability", JUDGED_BY)
"""Metrics with large figures; uniform guessing has the expected value 1 / n_labels. The first is that of figure 4."""

RUN_FACTS = ("dtype", "Engine", "Revision", "Weights fingerprint", "Finished")
"""Facts of run_record.headline_facts that distinguish runs."""


def _model_name(row: Row) -> str:
    return marked('<span class="place">{}</span> {}', row["number"], row["model"])


MODEL = Column("Model", "number", cell=_model_name, style="")
"""First column of tables with a row for each model: its number and name."""

SCALING_KEYS = {
    "value": "a model, by its number above, and its 95% interval",
    "line vermilion": "least-squares line over log₁₀ of parameters",
    "reference": "chance",
}
PAIRS_NOTE = TEXTS["pairs_note"].format(POWER)
DATASETS_CAPTION = "A column is a dataset; below each value its 95% interval, clustered by query."


@dataclass(frozen=True, kw_only=True)
class ComparisonData:
    """The runs, tables and texts that the sections show."""

    runs: Sequence[ComparedRun]
    headlines: pl.DataFrame  # rows of schema.COMPARISON of headline metrics, with the column `measure`
    tables: Mapping[str, pl.DataFrame]  # compare.schema tables by name; with `against`, the last run is the base
    points: pl.DataFrame  # compare.across_models.scaling_points
    texts: MetricTexts  # titles of metrics

    @property
    def models(self) -> pl.DataFrame:
        """Return `number` and `model` of each run."""
        return pl.DataFrame([{"number": run.number, "model": run.model} for run in self.runs])

    @property
    def datasets(self) -> list[str]:
        """Return the compared datasets, in the order of the benchmark."""
        return dataset_order(self.headlines, self.runs[0].record.prompts.datasets)

    @property
    def definitions(self) -> dict[str, str]:
        """Return the compared definitions with their meanings, in the order of the page."""
        return {name: meaning for name, meaning in DEFINITIONS.items() if name in self.headlines["definition"]}

    @property
    def over(self) -> str:
        """Return "mean over datasets", or "on DATASET" if there is only one."""
        return f"on {self.datasets[0]}" if len(self.datasets) == 1 else "mean over datasets"

    @property
    def measures(self) -> dict[str, str]:
        """Return measure -> its metric, in the order of the columns."""
        pairs = self.headlines.select("measure", "metric").unique().rows()
        order = self.texts.in_order(metric for _, metric in pairs)
        return dict(sorted(pairs, key=lambda pair: (order.index(pair[1]), pair[0])))

    @property
    def titles(self) -> dict[str, str]:
        """Return measure -> its title: that of the metric, with suite and part if several parts have the metric."""
        return {name: self.texts.title(metric) + name.removeprefix(metric) for name, metric in self.measures.items()}


def comparison_header(data: ComparisonData, answer: str = "") -> Header:
    """Build the head of the page: answer, compared suites and datasets, and warnings of the runs."""
    first, *others = (run.record.prompts for run in data.runs)
    measured = data.headlines.select(pl.format("{} / {}", "suite", "part")).to_series().unique().sort().to_list()
    in_all = {*first.datasets}.intersection(*(each.datasets for each in others))
    n_shots = first.n_shots if all(each.n_shots == first.n_shots for each in others) else None
    shots = "" if n_shots is None else f" · {plural(n_shots, 'shot')}"
    return Header(
        heading=f"{len(data.runs)} models compared",
        answer=answer,
        subject=f"{'; '.join(measured or first.suites)} · {plural(len(data.datasets or in_all), 'dataset')}{shots}",
        warnings=tuple((run.model, warning) for run in data.runs for warning in run_record.warnings(run.record)),
    )


def runs_section(data: ComparisonData, notes: Sequence[str]) -> Section:
    """Build the folded section of the compared runs; it also has the notes, definitions and datasets of the page."""
    rows = [
        {"number": run.number, "model": run.model, "run": run.name, "n_parameters": run.record.model.n_parameters}
        | {name: values[name] or "not recorded" for name in RUN_FACTS}
        for run in data.runs
        for values in [run_record.headline_facts(run.record)]
    ]
    facts = (text_column(name, name, tip=lambda row, name=name: f"{name} {row[name]}") for name in RUN_FACTS)
    columns = [MODEL, text_column("Run", "run"), Column("Parameters", "n_parameters"), *facts]
    table = Table(pl.DataFrame(rows, schema_overrides={"n_parameters": pl.Int64}), columns, style="metrics runs")
    return Section(
        "runs",
        "What is compared",
        [table],
        subtitle=plural(len(data.runs), "run"),
        navigation="What is compared",
        notes=tuple(notes),
        definitions=data.definitions,
        datasets=tuple(data.datasets),
        is_folded=True,
        style="evaluator.compare:assets/compare.css",
    )


def comparison_sections(data: ComparisonData) -> Iterator[Section]:
    """Yield the sections of each definition.

    They show the accuracies against a base if there is one, means, datasets, scaling, methods against vanilla, every
    measure, rank correlations, differences of models (without a base), and tests against a margin if there are any.
    """
    for definition in data.definitions:
        yield from _definition_sections(data, definition)


def _definition_sections(data: ComparisonData, definition: str) -> Iterator[Section]:
    def section(anchor: str, title: str, subtitle: str, navigation: str, *content: Block) -> Section:
        return Section(
            f"{definition}-{anchor}", title, content, subtitle=subtitle, navigation=navigation, definition=definition
        )

    rows, titles = data.headlines.filter(definition=definition), data.titles
    means = rows.filter(dataset=MEAN_OVER_DATASETS)
    by_dataset = rows.filter(pl.col("dataset") != MEAN_OVER_DATASETS, method=REFERENCE_METHOD)
    vanilla = means.filter(method=REFERENCE_METHOD)
    tables = {name: table.filter(definition=definition) for name, table in data.tables.items()}
    points, lines, against = data.points.filter(definition=definition), tables["scaling"], tables.get("against")
    judged = [name for name in titles if name in set(means.filter(metric=JUDGED_BY)["measure"])]
    # Measure of accuracy -> rows of `differences` of its suite and part.
    places = {name: means.filter(measure=name).select("suite", "part").row(0, named=True) for name in judged}
    differences = {name: tables["differences"].filter(**place) for name, place in places.items()}
    for number, measure in enumerate(judged, 1):
        title, of_measure = titles[measure], means.filter(measure=measure)
        methods = [*dict.fromkeys([REFERENCE_METHOD, *sorted(set(of_measure["method"]))])]
        best = significantly_best(differences[measure]) if against is None else set()
        table = _model_table(data, of_measure, "method", {name: name for name in methods}, TEXTS["means_caption"], best)
        if against is not None:
            content = TEXTS["against_note"], _against(against.filter(**places[measure]))
            yield section(f"against-{number}", f"Against {data.runs[-1].model}", title, "Against", *content)
        yield section(f"means-{number}", title, data.over, title, table)
        if len(data.datasets) > 1:
            of_measure, names = by_dataset.filter(measure=measure), {name: name for name in data.datasets}
            table = _model_table(data, of_measure, "dataset", names, DATASETS_CAPTION)
            yield section(f"datasets-{number}", f"{title} by dataset", "vanilla", "By dataset", table)
    has_sizes = len({run.record.model.n_parameters for run in data.runs} - {None}) >= MIN_COUNTS
    values, gains = ((points.filter(of=of), lines.filter(of=of)) for of in ("value", "improvement"))
    large, small = _size_panels(data, vanilla, *values)
    if large.panels and has_sizes:
        title = " and ".join(panel.title for panel in large.panels).capitalize() + " by size"
        scaling = Legend(SCALING_KEYS), marked(TEXTS["scaling_note"], data.over), large
        yield section("scaling", title, "after figure 4 of Cho & Inoue 2025", "By size", *scaling)
    for number, measure in enumerate(judged, 1):
        if over_vanilla := _against_vanilla(data, differences[measure]):
            named = {column.title: column.title for column in over_vanilla.columns[1:]}
            points, lines = (table.filter(measure=measure) for table in gains)
            zero = dict.fromkeys(named, 0.0)
            panels = [scaling_panels(points, lines, "method", named, zero, on_one_scale=True)] if has_sizes else []
            about = "Methods against vanilla", f"{titles[measure]}, after figure 5", "Methods"
            yield section(f"over-vanilla-{number}", *about, over_vanilla, *panels)
    if small.panels:
        low = lower_is_better([of for name, of in data.measures.items() if name in {*vanilla["measure"]}], data.texts)
        caption = f"Vanilla, {data.over}; below each value its 95% interval, if it has one.{low}"
        table = _model_table(data, vanilla, "measure", titles, caption)
        subtitle, panels = ("and by size, after figure 7", [small]) if has_sizes else ("of each model", [])
        yield section("measures", "Every measure", subtitle, "Every measure", table, *panels)
    if has_sizes:
        ranks = _rank_correlations(data, tables["rank_correlations"], titles, definition)
        yield section("ranks", "Rank correlations", "after figure 8", "Rank correlations", *ranks)
    title = "Model against model"
    for number, measure in enumerate(judged if against is None else [], 1):
        yield section(f"pairs-{number}", title, titles[measure], title, PAIRS_NOTE, *_pairs(data, differences[measure]))
    if "equivalence" in tables and not tables["equivalence"].is_empty():
        blocks = _equivalence(tables["equivalence"].filter(dataset=MEAN_OVER_DATASETS))
        yield section("equivalence", "No worse, and equivalent", "two one-sided tests", "Margin", *blocks)


def _against(rows: pl.DataFrame) -> Table:
    """Return the table of runs against the base, a row for each run, dataset and method, means first.

    Args:
        rows: schema.AGAINST of one suite, part and definition.
    """
    is_mean = pl.col("dataset") == MEAN_OVER_DATASETS
    columns = [
        *(text_column(name.capitalize(), name) for name in ("model", "dataset", "method")),
        Column("Recovery, %", "recovery", show="{:.1f}".format, below=(_recovery_interval,)),
        Column("Difference", "difference", show=signed),
        *(Column(name.capitalize(), f"n_{name}") for name in ("lost", "gained", "changed")),
        Column("KL, nats", "kl_nats", show="{:.3g}".format),
        Column("p after Holm", "p_holm", show=p_text, below=(line("p_value", p_text),)),
    ]
    ordered = rows.sort(~is_mean, "method", "dataset", "recovery", nulls_last=True)
    return Table(ordered, columns, style="metrics against")


def _recovery_interval(row: Row) -> str:
    low, high = row["recovery_low"], row["recovery_high"]
    return "no interval" if low is None else f"{low:.1f} to {high:.1f}"


def _size_panels(
    data: ComparisonData, vanilla: pl.DataFrame, points: pl.DataFrame, lines: pl.DataFrame
) -> tuple[Panels, Panels]:
    """Return the large panels of the measures in SCALED, and the small panels of all other measures.

    Args:
        vanilla: means over datasets under vanilla: schema.COMPARISON of one definition.
        points, lines: scaling_points and schema.SCALING of the same definition, of values.
    """
    # Chance is the same for both metrics of a part, but recorded with accuracy only.
    chance = pl.col("chance").max().over("suite", "part")
    chances = dict(vanilla.select("measure", chance).iter_rows())
    titles, metrics = data.titles, data.measures
    scaled = {name: titles[name] for metric in SCALED for name in titles if metrics[name] == metric}
    others = {name: title for name, title in titles.items() if name not in scaled}
    large = scaling_panels(points, lines, "measure", scaled, chances, are_large=True)
    return large, scaling_panels(points, lines, "measure", others, {})


def significantly_best(differences: pl.DataFrame) -> set[tuple[str, str]]:
    """Return (model, method) of each mean accuracy that is significantly above that of every other model.

    Args:
        differences: schema.DIFFERENCES of one suite, part and definition.
    """
    means = differences.filter(pl.col("model_a") != pl.col("model_b"), dataset=MEAN_OVER_DATASETS, metric=JUDGED_BY)
    winner = pl.when(pl.col("difference") > 0).then("model_a").otherwise("model_b")
    is_win = (pl.col("p_holm") <= LEVEL) & (winner == pl.col("model"))
    sides = [means.with_columns(model=side, method="method_a") for side in ("model_a", "model_b")]
    won = pl.concat(sides).group_by("model", "method").agg(is_best=is_win.all()).filter("is_best")
    return {*won.select("model", "method").iter_rows()}


def _model_table(
    data: ComparisonData,
    rows: pl.DataFrame,
    column: str,
    titles: Mapping[str, str],
    caption: str,
    best: Collection[tuple[str, str]] = (),
) -> Table:
    """Return a table with a row for each model and a column for each method, dataset or measure that has values.

    Args:
        rows: schema.COMPARISON, one row for each model and value of `column`.
        column: "method", "dataset" or "measure".
        titles: value of `column` -> title, in the order of the columns.
        caption: caption of the table.
        best: (model, method) of the values in bold.
    """
    shown = _by_model(data, rows, column)
    value = Column(
        title="",
        value="value",
        interval=("ci_low", "ci_high"),
        tip=value_tip,
        bold=lambda cell: (cell["model"], cell["method"]) in best,
        style="number value",
        data={"model": "model", "column": column},
    )
    of_title = {f"of {name}": title for name, title in titles.items()}
    columns = (replace(value, title=title, of=name) for name, title in of_title.items() if name in shown.columns)
    return Table(shown, [MODEL, *columns], caption=caption, style="metrics models")


def _wide(rows: pl.DataFrame, index: str, on: str) -> pl.DataFrame:
    """Pivot rows to a column of structs for each value of `on`, named "of VALUE": a dataset can be called "model"."""
    cells = rows.select(index, on=pl.format("of {}", on), cell=pl.struct(pl.all()))
    return cells.pivot(on="on", index=index, values="cell", maintain_order=True)


def _by_model(data: ComparisonData, rows: pl.DataFrame, on: str) -> pl.DataFrame:
    """Return a row for each model, with the columns of structs that _wide makes of the rows."""
    return data.models.join(_wide(rows, "model", on), on="model", how="left", maintain_order="left")


def _between(row: Row) -> str:
    """Return the names of both sides of a difference: models, or methods of one model."""
    if row["model_a"] == row["model_b"]:
        return f"{row['model_a']}, {row['method_a']} minus {row['method_b']}"
    return f"{row['model_a']} minus {row['model_b']}"


def _against_vanilla(data: ComparisonData, differences: pl.DataFrame) -> Table | None:
    """Return the table of the gains in accuracy over vanilla, by model and method; None without other methods."""
    means = differences.filter(method_b=REFERENCE_METHOD, dataset=MEAN_OVER_DATASETS, metric=JUDGED_BY)
    gains = means.filter(pl.col("model_a") == pl.col("model_b"))
    if gains.is_empty():
        return None
    rows = _by_model(data, gains.with_columns(model="model_a"), "method_a")
    columns = [MODEL, *(difference_column(name, f"of {name}", _between) for name in sorted(set(gains["method_a"])))]
    return Table(rows, columns, caption=marked(TEXTS["vanilla_caption"], data.over), style="metrics over-vanilla")


def _pairs(data: ComparisonData, differences: pl.DataFrame) -> Iterator[Block]:
    """Yield the differences between models under vanilla: a table of means, and for each pair a table by dataset."""
    of_vanilla = differences.filter(pl.col("model_a") != pl.col("model_b"), method_a=REFERENCE_METHOD)
    means = of_vanilla.filter(dataset=MEAN_OVER_DATASETS, metric=JUDGED_BY)
    _, *others = data.models.iter_rows(named=True)
    rows = _by_model(data, means.with_columns(model="model_a"), "model_b").head(-1)
    columns = [MODEL, *(difference_column(_model_name(one), f"of {one['model']}", _between) for one in others)]
    caption = f"The model of the row minus that of the column, {data.over}."
    yield Table(rows, columns, caption=caption, style="metrics between")
    pairs = means.select("model_a", "model_b").rows()
    if len(pairs) > MAX_PAIRS:
        text = "With {} pairs, differences by dataset are not shown; <code>tables/differences.parquet</code> has them."
        yield marked(text, len(pairs))
        return
    for a, b in pairs:
        rows = _wide(in_order(of_vanilla.filter(model_a=a, model_b=b), data.datasets), "dataset", "metric")
        metrics = [name for name in REQUEST_COLUMNS if f"of {name}" in rows.columns]
        sizes = (pl.col(f"of {name}").struct.field("n_queries") for name in metrics)
        rows = rows.with_columns(n_queries=pl.coalesce(sizes))
        compared = (difference_column(data.texts.title(name), f"of {name}", _between) for name in metrics)
        columns = [DATASET, *compared, Column("Queries", "n_queries")]
        table = Table(rows, columns, style="metrics pair-table", is_mean_last=True, data={"a": a, "b": b})
        title, is_open = f"{a} minus {b}, by dataset", len(pairs) == 1
        yield Group([table], title, style="pair-details", is_folded=True, is_open=is_open)


def _rank_correlations(
    data: ComparisonData, correlations: pl.DataFrame, titles: Mapping[str, str], definition: str
) -> Iterator[Block]:
    """Yield the correlations between measures and between models, one triangle for each kind of points."""
    models = {run.model: f"{run.number} {run.model}" for run in data.runs}
    matrices, notes = [], []
    for between, names in (("measures", titles), ("models", models)):
        groups = correlations.filter(between=between).group_by("over", "measure", maintain_order=True)
        for (over, measure), group in groups:
            by = f", by {titles[str(measure)].lower()}" if between == "models" else ""
            about = f"{between.capitalize()}, over {over}{by}"
            if matrix := triangle(group, names, about, {"definition": definition, "over": over}):
                matrices.append(matrix)
            else:
                reasons = "; ".join(sorted(set(group["reason"])))
                notes.append(f"No correlation between {between} over {over}: {reasons}.")
    yield TEXTS["ranks_note"]
    yield Matrices(matrices, absent="")
    yield from notes
    yield TEXTS["points_note"]


def triangle(
    pairs: pl.DataFrame,
    titles: Mapping[str, str],
    about: str,
    data: Mapping[str, object],
    *,
    coefficient: str = "rho",
    points: str = "points",
) -> Matrix | None:
    """Return a matrix of correlations as a triangle, which shows every pair once; None if no correlation is defined.

    Args:
        pairs: a, b, rho, p_value, n_points and reason, as in schema.RANK_CORRELATIONS.
        titles: value of a or b -> its title, in the order of rows and columns.
        about: title of the triangle.
        data: data attributes.
        coefficient: name of the correlation coefficient, for tooltips.
        points: plural noun for the points of a correlation.
    """
    if pairs["rho"].is_null().all():
        return None
    cells = {frozenset((row["a"], row["b"])): row for row in pairs.iter_rows(named=True)}
    names = [name for name in titles if name in {*pairs["a"], *pairs["b"]}]

    def cell(a: str, b: str) -> MatrixCell | None:
        row = cells.get(frozenset((a, b)))
        if row is None:
            return None
        between = f"{titles[a]} and {titles[b]}"
        pair = {"a": a, "b": b}
        if row["rho"] is None:
            return MatrixCell("–", 0, f"{between}: {row['reason']}", "correlation absent", pair)
        rho, p_value = row["rho"], row["p_value"]
        tip = f"{between}: {coefficient} {rho} over {row['n_points']} {points}"
        style = "correlation " + ("falling" if rho < 0 else "rising")
        if p_value is not None:
            tip, style = f"{tip}, p = {p_value:.3g}", style + " unlikely" * (p_value < 0.05)
        return MatrixCell(signed(rho, 2), 70 * abs(rho), tip, style, {**pair, "value": rho, "p": p_value})

    most = max(pairs["n_points"].to_list())
    rows = [
        (titles[name], [cell(other, name) if place < row else None for place, other in enumerate(names[:-1])])
        for row, name in enumerate(names)
        if row
    ]
    columns = [titles[name] for name in names[:-1]]
    return Matrix(title=f"{about}: {most:,} {points}", columns=columns, rows=rows, style="triangle", data=data)


def _equivalence(rows: pl.DataFrame) -> Iterator[Block]:
    """Yield the tests against a margin.

    Args:
        rows: schema.EQUIVALENCE of means over datasets.
    """

    p_values = {"p no worse": "p_no_worse", "p equivalent": "p_equivalent"}
    columns = [
        *(text_column(side, side) for side in "ab"),
        Column("Difference", "difference", show=signed),
        *(Column(title, f"{p}_holm", show=p_text, below=(line(p, p_text),)) for title, p in p_values.items()),
        text_column("Shown", "shown"),
    ]
    named = rows.with_columns(pl.format("{}, {}", f"model_{side}", f"method_{side}").alias(side) for side in "ab")
    table = Table(named, columns, style="metrics equivalence")
    shown = [rows.filter(shown=name).height for name in ("equivalent", "no worse")]
    title = f"{shown[0]} equivalent and {shown[1]} no worse, of {rows.height} differences"
    yield marked(TEXTS["equivalence_note"], rows["margin"][0])
    yield Group([table], title, is_folded=True)
