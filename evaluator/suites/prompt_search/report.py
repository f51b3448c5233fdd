"""Build the report sections of a prompt search from its tables. Nothing is computed here."""

from collections.abc import Iterator, Sequence

import polars as pl

from evaluator.random_baselines.significance import ASSURANCE, POWER, TAIL_TO_TELL
from evaluator.report.charts import BLUE, GREY, VERMILION, Drawing, Room
from evaluator.report.figures import DASHES, Axis, Mark, Size, curves
from evaluator.report.query_rows import RUN, QueryNumbers
from evaluator.report.section import (
    Block,
    Filled,
    Group,
    MeasuredRun,
    PackageFile,
    Panel,
    Panels,
    Section,
    core_template,
    texts,
)
from evaluator.report.table import DATASET, Column, Row, Table, interval, line, marked, plural, probability, text_column
from evaluator.report.tables import NEEDED, POSITION, TESTED, dataset_order, in_order
from evaluator.report.total_error import total_error_sections
from evaluator.suites.prompt_search.schema import SEARCH_EXAMPLES, SEARCH_GROUP

TEXTS = texts("evaluator.suites.prompt_search")

VARIED = {
    "demonstrations": "Sets of demonstrations were tried.",
    "instructions": "Instructions were tried, with one set of demonstrations.",
    "templates": "Templates were tried, with one set of demonstrations.",
}
"""Part of a search -> what differs between its prompts."""

CURVE = Size(260, 180, Room(left=54, right=54, top=12, bottom=38))

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
        bold=lambda _row: True,
    ),
    Column("Chance", "chance", note="tail", below=(line("log10_standard_tail", probability),)),
    Column("Max random", "max_random", note="tail", below=(line("log10_tail", probability),)),
    POSITION,
    TESTED,
    NEEDED,
    Column("Ties", "n_ties"),
]
STOPPED = Column("Stopped", "n_stopped", note="could have won", below="n_could_have_won")

HELD_OUT_COLUMNS = [
    text_column("Predictor", "predictor"),
    Column("Trials", "n_trials"),
    Column("Above chance held out", "held_out_share"),
    *(Column(title, title.lower()) for title in ("Accuracy", "Precision", "Recall", "AUROC", "AUPR")),
]


def search_sections(run: MeasuredRun) -> Iterator[Section]:
    """Yield a section for each part of the search and method, and one for held-out prediction.

    Args:
        run: with the tables search_prompts, search_results, search_curves and search_held_out_prediction.
    """
    prompts, results, all_curves = (run.table(f"search_{name}") for name in ("prompts", "results", "curves"))
    order = dataset_order(results, run.record.prompts.datasets)
    is_halved = "is_stopped" in prompts.columns and bool(prompts["is_stopped"].any())
    groups = results.select("part", "method").unique(maintain_order=True).rows()
    for number, (part, method) in enumerate(groups, 1):
        rows = in_order(results.filter(part=part, method=method), order, "n_shots")
        note = marked(
            TEXTS["note"], VARIED[part], TAIL_TO_TELL, f"{rows['n_tests'][0]:,}", TEXTS["halved"] if is_halved else ""
        )
        table = Table(
            rows,
            [*COLUMNS, STOPPED] if is_halved else COLUMNS,
            caption=CAPTION,
            style="metrics searched",
            row_data={"shots": "n_shots"},
        )
        drawn = _curve_panels(all_curves.filter(part=part, method=method), order)
        curve_group = [Group([TEXTS["curve_note"], Panels(drawn, style="curves")], "The best of fewer prompts")]
        best = Group(best_prompts(prompts, rows), "The best prompts")
        yield Section(
            f"search-{number}",
            "Prompt search",
            [note, table, *(curve_group if drawn else []), best],
            subtitle=f"{part}, {method}",
            kind="search",
            navigation=f"{part.capitalize()}, {method}",
            style=PackageFile("evaluator.suites.prompt_search", "assets/search.css"),
            datasets=tuple(order),
        )
    yield from total_error_sections(run, order)
    held_out = run.table("search_held_out_prediction")
    if held_out.height:
        table = Table(held_out, HELD_OUT_COLUMNS)
        yield Section(
            "held-out",
            "Does it hold on other queries?",
            [TEXTS["held_out_note"], table],
            kind="held-out",
            navigation="Held-out queries",
        )


def right_answers(run: MeasuredRun) -> QueryNumbers:
    """Return `is_right` of every answer: any of the correct choices of a query is right."""
    query = ["dataset", "query_id"]
    correct = run.side_table("search_examples", SEARCH_EXAMPLES).lazy().select(*query, "correct")
    answers = run.scan("predictions").join(correct, on=query, how="left", maintain_order="left")
    is_right = pl.col("correct").list.contains(pl.col("pred"))
    return QueryNumbers((), answers.select(*RUN, *query, "method", is_right=is_right), is_right=True)


def best_prompts(prompts: pl.DataFrame, results: pl.DataFrame) -> list[Group]:
    """Return the first of the best prompts of each search, folded.

    Args:
        prompts: SEARCH_PROMPTS.
        results: rows of SEARCH_RESULTS.
    """
    groups = []
    for row in results.iter_rows(named=True):
        number, *others = row["best_prompt_numbers"]
        is_same_search = pl.all_horizontal(pl.col(name) == row[name] for name in SEARCH_GROUP)
        prompt = prompts.filter(is_same_search, prompt_number=number).row(0, named=True)
        examples = f", examples {', '.join(map(str, prompt['demonstrations']))}" if prompt["demonstrations"] else ""
        do = "does" if len(others) == 1 else "do"
        also = f", as {plural(len(others), 'other')} {do}" if others else ""
        content: list[Block] = [
            f"Try {number}{examples}.",
            Filled(core_template("lines.html"), {"lines": prompt["text"]}),
        ]
        title = f"{row['dataset']}, {row['n_shots']}-shot: {row['best_correct']} of {row['n_queries']} correct{also}"
        groups.append(Group(content, title, dataset=row["dataset"], style="best", is_folded=True))
    return groups


def _curve_panels(rows: pl.DataFrame, order: Sequence[str]) -> list[Panel]:
    by_dataset = in_order(rows, order).partition_by("dataset", as_dict=True, maintain_order=True)
    return [Panel(str(name), [curve_figure(of)], dataset=str(name)) for (name,), of in by_dataset.items()]


def curve_figure(rows: pl.DataFrame) -> Drawing:
    """Draw the expected maximum accuracy by tries, a blue line for each number of shots, and both random baselines.

    Args:
        rows: SEARCH_CURVES of one dataset, part and method.
    """
    shots = rows["n_shots"].unique().sort().to_list()
    values = rows.select("expected_maximum", "max_random", "chance").unpivot()["value"].to_numpy()
    margin = 0.05 * (values.max() - values.min() or 0.1)
    limits = (max(0.0, float(values.min() - margin)), min(1.0, float(values.max() + margin)))
    max_tries = max(int(rows["tries"].to_numpy().max()), 2)
    ticks = tuple(tick for tick in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000) if tick <= max_tries)
    dashes = list(DASHES)
    dash = {n: dashes[place % len(dashes)] for place, n in enumerate(shots)}
    ends = rows.group_by("n_shots", maintain_order=True).last()
    described = {row["n_shots"]: _description(row) for row in ends.iter_rows(named=True)}
    lines = rows.select(
        x="tries",
        y="expected_maximum",
        colour=pl.lit(BLUE),
        dash=pl.col("n_shots").replace_strict(dash, return_dtype=pl.String),
        description=pl.col("n_shots").replace_strict(described, return_dtype=pl.String),
    )
    return curves(
        lines,
        # On a linear scale the first tries, which gain most, would be one pixel wide.
        Axis(title="prompts tried", domain=(1, max_tries), ticks=ticks, form="~s", is_logarithmic=True),
        Axis(title="accuracy", domain=limits, form=".2f"),
        size=CURVE,
        width=2,
        more=[
            Mark("line", "tries", "chance", rows="baselines", color=GREY, size=1.5),
            Mark("line", "tries", "max_random", rows="baselines", color=VERMILION),
            Mark("text", "tries", "expected_maximum", rows="names", text="name", size=11),
        ],
        data=rows,
        # The baselines at a number of tries are equal for all numbers of shots, so that one row of each is drawn.
        baselines=rows.unique("tries", maintain_order=True),
        # A name is about 7% of the axis high.
        names=_line_names(rows, min_distance=0.07 * (limits[1] - limits[0])),
    )


def _description(end: Row) -> str:
    return (
        f"{end['n_shots']}-shot: the best of {end['tries']} prompts has accuracy {end['expected_maximum']:.3f}, the "
        f"best of as many random classifiers {end['max_random']:.3f}, chance {end['chance']:.3f}"
    )


def _line_names(rows: pl.DataFrame, min_distance: float) -> pl.DataFrame:
    """Return the end and the name of each line; lines whose ends are closer than `min_distance` share one name."""
    ends = rows.sort("tries").group_by("n_shots").last().sort("expected_maximum", "n_shots")
    apart = (pl.col("expected_maximum").diff() >= min_distance).fill_null(True)
    return (
        ends.group_by(apart.cum_sum().alias("group"), maintain_order=True)
        .agg(pl.col("tries").max(), pl.col("expected_maximum").mean(), pl.col("n_shots").sort().cast(pl.String))
        .with_columns(name=pl.col("n_shots").list.join(", ") + "-shot", dx=5, dy=4)
        .drop("n_shots")
    )
