"""Build the report sections of a prompt search from its tables."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import cycle
from typing import Literal

import polars as pl

from evaluator.compare.runs import ComparedRun
from evaluator.errors import plural
from evaluator.random_baselines.max_random import ASSURANCE, POWER, TAIL_TO_TELL
from evaluator.report.figures import BLUE, DASHES, GREEN, GREY, LINES, VERMILION, Axis, Drawing, Mark, Size, panel
from evaluator.report.query_rows import RUN, QueryNumbers
from evaluator.report.section import Block, Filled, Group, MeasuredRun, Panel, Panels, Section, dataset_panels, texts
from evaluator.report.table import (
    DATASET,
    MAJORITY_TESTED,
    NEEDED,
    POSITION,
    POSITION_MARKS,
    TESTED,
    Column,
    Table,
    dataset_order,
    in_order,
    interval,
    line,
    marked,
    percent,
    probability,
    text_column,
)
from evaluator.report.total_error import total_error_sections
from evaluator.suites.base import Comparison
from evaluator.suites.prompt_search.schema import SEARCH_EXAMPLES, SEARCH_GROUP
from evaluator.suites.prompt_search.tables import SearchComparison, search_comparison

TEXTS = texts("evaluator.suites.prompt_search")
STYLE = "evaluator.suites.prompt_search:assets/search.css"

VARIED = {
    "demonstrations": "Sets of demonstrations were tried.",
    "instructions": "Instructions were tried, with one set of demonstrations.",
    "templates": "Templates were tried, with one set of demonstrations.",
}
"""Part of a search -> sentence about the element that differs between its prompts."""

TAILS = {"standard_tail": "tail of chance", "max_tail": "tail of max random"}
"""Column of SEARCH_CURVES -> title of its axis."""

CURVE, TAIL = (Size(260, height, left=54, right=54, top=12, bottom=38) for height in (180, 62))
DRAWN = {"paper": "drawn with replacement", "distinct": "different prompts"}
Lines = Literal["n_shots", "number"]
LINE_NAMES: dict[Lines, str] = {"n_shots": "{}-shot", "number": "model {}"}
"""Column with a line for each of its values -> format of the name of a line."""

ENDS = ("tries", "expected_maximum", "max_random", "max_tail", "chance", "standard_tail")
"""Columns whose last values, at the most tries, are in the description of a line."""

CAPTION = TEXTS["caption"].format(100 * ASSURANCE, POWER)

COLUMNS = [
    DATASET,
    Column("Shots", "n_shots"),
    Column("Queries", "n_queries"),
    Column("Prompts", "n_prompts", note="different", below="tries"),
    Column("Mean accuracy", "mean_accuracy", interval=("mean_low", "mean_high")),
    Column(
        "Best accuracy",
        "best_accuracy",
        note="correct",
        below=(line("best_correct", str), lambda row: interval(row["best_low"], row["best_high"])),
        bold=True,
    ),
    Column("Chance", "chance", note="tail", below=(line("log10_standard_tail", probability),)),
    Column("Constant", "majority"),
    Column("Max random", "max_random", note="tail", below=(line("log10_tail", probability),)),
    POSITION,
    TESTED,
    replace(MAJORITY_TESTED, title="Better than constant"),
    NEEDED,
    Column("Ties", "n_ties"),
]
STOPPED = Column("Stopped", "n_stopped", note="could have won", below="n_could_have_won")

HELD_OUT_COLUMNS = [
    Column("Prompts tried", "tries"),
    text_column("Predictor", "predictor"),
    Column("Trials", "n_trials"),
    Column("Above chance held out", "held_out_share"),
    *(Column(title, title.lower()) for title in ("Accuracy", "Precision", "Recall", "AUROC", "AUPR")),
]

MODEL = text_column("Model", "model")
SEARCHED = [
    DATASET,
    text_column("Part", "part", style="number"),
    text_column("Method", "method", style="number"),
    *COLUMNS[1:3],
    Column("Tries", "tries"),
    Column("Chance", "chance", note="max random", below="max_random"),
]
LIMITS = ("best_low", "best_high")
MARKED = (
    lambda row: f"{POSITION_MARKS[row['verdict']]} {row['verdict']}",
    lambda row: marked("tail {}", probability(row["log10_tail"])),
)
TOTALS = [
    MODEL,
    Column("Shots", "n_shots", show=lambda shots: shots),
    Column("Searches", "n_searches"),
    Column("Above chance", "above_standard"),
    Column("Above max random", "above_max"),
    Column("Disagreements", "disagreements", note="share", below=(line("flipped_share", percent),)),
]


def search_sections(run: MeasuredRun) -> Iterator[Section]:
    """Yield a section for each part and method of the search, then the sections of total error and held-out queries.

    Args:
        run: has the tables search_prompts, search_results, search_curves, search_held_out_prediction, and the three
            tables of total error.
    """
    prompts, results, all_curves = (run.table(f"search_{name}") for name in ("prompts", "results", "curves"))
    order = dataset_order(results, run.record.prompts.datasets)
    columns, halved = ([*COLUMNS, STOPPED], TEXTS["halved"]) if prompts["is_stopped"].any() else (COLUMNS, "")
    groups = results.select("part", "method").unique(maintain_order=True).rows()
    for number, (part, method) in enumerate(groups, 1):
        rows = in_order(results.filter(part=part, method=method), order, "n_shots")
        content: list[Block] = [
            TEXTS["note"].format(VARIED[part], f"{rows['n_tests'][0]:,}", TAIL_TO_TELL, halved),
            Table(rows, columns, caption=CAPTION, style="metrics searched", row_data={"shots": "n_shots"}),
        ]
        if drawn := dataset_panels(in_order(all_curves.filter(part=part, method=method), order), _curve_figures):
            content.append(Group([TEXTS["curve_note"], Panels(drawn, style="curves")], "The best of fewer prompts"))
        content.append(Group([*best_prompts(prompts, rows)], "The best prompts"))
        yield Section(
            f"search-{number}",
            "Prompt search",
            content,
            subtitle=f"{part}, {method}",
            kind="search",
            navigation=f"{part.capitalize()}, {method}",
            style=STYLE,
            datasets=tuple(order),
        )
    yield from total_error_sections(run, order)
    held_out = run.table("search_held_out_prediction")
    if held_out.height:
        title, content = "Does it hold on other queries?", [TEXTS["held_out_note"], Table(held_out, HELD_OUT_COLUMNS)]
        yield Section("held-out", title, content, kind="held-out", navigation="Held-out queries")


def comparison(runs: Sequence[ComparedRun]) -> Comparison:
    """Compare the searches of several models; return the tables search_models and search_totals, and their section."""
    compared = search_comparison(runs)
    tables = {"search_models": compared.models, "search_totals": compared.totals}
    return Comparison(tables, [comparison_section(compared, [run.model for run in runs])])


def comparison_section(compared: SearchComparison, models: Sequence[str]) -> Section:
    """Build the section of a comparison page: table 1, figure 4 and table 3 of Yauney & Mimno 2024 for these models.

    Args:
        compared: as returned by search_comparison.
        models: names of the models, in the order of columns.
    """
    cell = pl.struct("best_accuracy", "best_low", "best_high", "verdict", "log10_tail")
    search = [*SEARCH_GROUP, "n_queries", "tries", "chance", "max_random"]
    # A model can have the name of a column, such as "chance".
    columns = (Column(name, "best_accuracy", of=f"of {name}", interval=LIMITS, below=MARKED) for name in models)
    best = Table(
        compared.models.select(*search, on=pl.format("of {}", "model"), cell=cell).pivot("on", index=search),
        [*SEARCHED, *columns],
        caption=TEXTS["models_caption"],
        style="metrics searched-models",
    )
    searches = compared.curves.group_by("dataset", "n_shots", "method", "part", maintain_order=True)
    panels = [
        Panel(f"{dataset}, {n_shots}-shot, {method}", [curve_figure(rows, "number")], dataset=str(dataset))
        for (dataset, n_shots, method, _), rows in searches
    ]
    return Section(
        "searches",
        "The best prompts of each model",
        [
            best,
            Table(compared.totals, TOTALS, caption=TEXTS["totals_caption"]),
            Group([TEXTS["model_curves_note"], Panels(panels, style="curves", absent="")], "The best of fewer prompts"),
            Group([TEXTS["held_out_note"], Table(compared.held_out, [MODEL, *HELD_OUT_COLUMNS])], "Held-out queries"),
        ],
        subtitle="after table 1, figure 4 and table 3 of Yauney & Mimno 2024",
        navigation="Searches",
        style=STYLE,
        datasets=tuple(dict.fromkeys(compared.models["dataset"])),
    )


def right_answers(run: MeasuredRun) -> QueryNumbers:
    """Return `is_right` for every answer: whether it is one of the correct choices of the query."""
    query = ["dataset", "query_id"]
    correct = run.side_table("search_examples", SEARCH_EXAMPLES).lazy().select(*query, "correct")
    answers = run.scan("predictions").join(correct, on=query, how="left", maintain_order="left")
    is_right = pl.col("correct").list.contains(pl.col("pred"))
    return QueryNumbers(rows=answers.select(*RUN, *query, "method", is_right=is_right))


def best_prompts(prompts: pl.DataFrame, results: pl.DataFrame) -> Iterator[Group]:
    """Yield a folded group for each search, with the text of its best prompt (the first, if several are equally good).

    Args:
        prompts: SEARCH_PROMPTS.
        results: SEARCH_RESULTS of the searches.
    """
    for row in results.iter_rows(named=True):
        number, *others = row["best_prompt_numbers"]
        prompt = prompts.filter(prompt_number=number, **{name: row[name] for name in SEARCH_GROUP}).row(0, named=True)
        examples = f", examples {', '.join(map(str, prompt['demonstrations']))}" if prompt["demonstrations"] else ""
        have = "has" if len(others) == 1 else "have"
        also = f" ({plural(len(others), 'other prompt')} {have} as many)" if others else ""
        content: list[Block] = [f"Try {number}{examples}.", Filled("lines.html", {"lines": prompt["text"]})]
        title = f"{row['dataset']}, {row['n_shots']}-shot: {row['best_correct']} of {row['n_queries']} correct{also}"
        yield Group(content, title, dataset=row["dataset"], style="best", is_folded=True)


def _curve_figures(rows: pl.DataFrame) -> list[Drawing]:
    """Return the figures of one dataset: the curve of accuracies, and the two curves of tails."""
    return [curve_figure(rows), *(tail_figure(rows, column, title) for column, title in TAILS.items())]


def curve_figure(rows: pl.DataFrame, by: Lines = "n_shots") -> Drawing:
    """Draw the expected maximum accuracy by number of tries, and both random baselines.

    There is a line for each definition and each value of the column `by`.

    Args:
        rows: SEARCH_CURVES of one dataset, part and method; with `number`, if that is `by`.
        by: n_shots, or `number`, the number of a model in a comparison.
    """
    values = rows.select("expected_maximum", "max_random", "chance").unpivot()["value"].to_numpy()
    margin = 0.05 * (values.max() - values.min() or 0.1)
    limits = (max(0.0, float(values.min() - margin)), min(1.0, float(values.max() + margin)))
    marks = [
        Mark("line", "tries", "chance", rows="baselines", color=GREY, size=1.5),
        Mark("line", "tries", "max_random", rows="baselines", color=VERMILION),
        Mark("text", "tries", "expected_maximum", rows="names", text="name", size=11),
        replace(LINES, size=2),
    ]
    return panel(
        marks,
        _tries_axis(rows),
        Axis(title="accuracy", domain=limits, form=".2f"),
        size=CURVE,
        data=rows,
        lines=_drawn(rows, by).with_columns(y="expected_maximum"),
        # All lines have the same baselines: draw them once, with one row for each number of tries.
        baselines=rows.unique("tries", maintain_order=True),
        # The height of a name is about 7% of the axis.
        names=_line_names(rows.filter(definition="paper"), by, min_distance=0.07 * (limits[1] - limits[0])),
    )


def tail_figure(rows: pl.DataFrame, column: str, title: str) -> Drawing:
    """Draw the probability that guessing reaches the expected maximum accuracy (Yauney & Mimno 2024, figure 3).

    Args:
        rows: as for curve_figure.
        column: standard_tail or max_tail.
        title: title of the axis.
    """
    lines = _drawn(rows.filter(definition="paper"), "n_shots").with_columns(y=column)
    y = Axis(title=title, domain=(0, 1), ticks=2, form=".1f")
    return panel([LINES], _tries_axis(rows), y, size=TAIL, data=rows, lines=lines)


def _drawn(rows: pl.DataFrame, by: Lines) -> pl.DataFrame:
    """Add the columns of a line: `x`, its colour by definition, its dashes by the column `by`, and its description."""
    dashes = dict(zip(rows[by].unique().sort(), cycle(DASHES), strict=False))
    end = [pl.col(name).sort_by("tries").last().over(by, "definition") for name in ENDS]
    return rows.with_columns(
        x="tries",
        colour=pl.col("definition").replace_strict({"paper": BLUE, "distinct": GREEN}),
        dash=pl.col(by).replace_strict(dashes, return_dtype=pl.String),
        description=pl.format(
            LINE_NAMES[by] + ", {}: the best of {} prompts has accuracy {}, the best of as many random classifiers {} "
            "(reached with probability {}), chance {} ({})",
            by,
            pl.col("definition").replace_strict(DRAWN),
            *(value.round(3) if name != "tries" else value for name, value in zip(ENDS, end, strict=True)),
        ),
    )


def _tries_axis(rows: pl.DataFrame) -> Axis:
    """Return the axis of tries. It is logarithmic, because on a linear axis the first tries, whose gains are largest,
    would be one pixel wide."""
    max_tries = max(int(rows["tries"].to_numpy().max()), 2)
    ticks = tuple(tick for tick in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000) if tick <= max_tries)
    return Axis(title="prompts tried", domain=(1, max_tries), ticks=ticks, form="~s", is_logarithmic=True)


def _line_names(rows: pl.DataFrame, by: Lines, min_distance: float) -> pl.DataFrame:
    """Return the position and text of the names at the ends of lines; lines with ends closer than `min_distance` share
    a name."""
    ends = rows.sort("tries").group_by(by).last().sort("expected_maximum", by)
    # Ends in ascending order: a new group begins where the distance to the end before is large enough.
    apart = (pl.col("expected_maximum").diff() >= min_distance).fill_null(True)
    groups = ends.group_by(apart.cum_sum().alias("group"), maintain_order=True)
    places = groups.agg(pl.col("tries").max(), pl.col("expected_maximum").mean(), pl.col(by).sort().cast(pl.String))
    return places.with_columns(name=pl.format(LINE_NAMES[by], pl.col(by).list.join(", ")), dx=5, dy=4).drop(by)
