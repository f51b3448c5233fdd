"""Write the page of the recomputed experiments of Yauney & Mimno 2024: the paper's tables and figures."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, get_args

import numpy as np
import polars as pl
from markupsafe import Markup

from evaluator.arrays import Bools, Floats
from evaluator.random_baselines.held_out import ranking_curves
from evaluator.random_baselines.max_random import max_random_accuracy
from evaluator.report import figures
from evaluator.report.section import Block, Filled, Group, Legend, List, Panel, Panels, Section, texts
from evaluator.report.table import (
    POSITION_MARKS,
    Column,
    Row,
    Table,
    digits,
    marked,
    number,
    percent,
    signed,
    text_column,
)
from evaluator.reproductions.base import Reproduction, Tables
from evaluator.reproductions.cells import COUNT_COLUMNS, section, verdict_counts
from evaluator.reproductions.yauney_mimno_2024 import data
from evaluator.reproductions.yauney_mimno_2024.data import FAMILIES, TASKS
from evaluator.reproductions.yauney_mimno_2024.recompute import Published, accuracy_histogram, recompute, summary_lines

TEXTS = texts("evaluator.reproductions.yauney_mimno_2024")

SHOTS = (1, 2, 4)
FIGURE_1 = {"model": "OLMo-7B", "dataset": "emoji_movie", "shots": 4}
FIGURE_3 = ("OLMo-7B", ("emoji_movie", "known_unknowns", "bbq_lite_json", "hindu_knowledge"))
FIGURE_4 = ("emoji_movie", (1, 2))

EXPERIMENT = Column("Experiment", cell=lambda row: f"{row['model']}, {row['dataset']}, {row['shots']}-shot", style="")

TOTALS = [
    Column("Rules", "rules", show=str, bold=lambda row: row["rules"] in ("released", "sound"), style=""),
    Column("Experiments", "n_experiments"),
    Column("Above standard", "above_standard"),
    Column("Above both", "above_max"),
    Column("Disagreements", "disagreements"),
    Column("Share", "flipped_share", show=percent),
]

CHANGED = [
    EXPERIMENT,
    Column("Accuracy", "accuracy"),
    Column("Maximum random", "released_max_random", note="authors'"),
    Column("Maximum random", "sound_max_random", note="sound rules"),
    Column("Tail", "log10_standard_tail", show=lambda log10: f"{10**log10:.2g}"),
    Column("Max tail", "log10_max_tail", show=lambda log10: f"{10**log10:.2g}"),
    text_column("Reason, and the verdict it leads to", "reason", style="text"),
]

QUERY_RULES = [
    text_column("A query is lost where there are", "rule", style="text"),
    Column("Prompts", "n_prompts"),
    Column("Experiments", "n_experiments"),
    Column("", cell=lambda row: "used; " * row["is_used"] + "the stated count" * row["is_stated_count"], style="text"),
]

IDENTICAL = [
    Column("Task", cell=lambda row: f"{row['dataset']}, {row['shots']}-shot", style=""),
    Column("Models", cell=lambda row: f"{row['model']}, {row['other_model']}", style="text"),
    Column("Shared prompts", "shared_prompts"),
    Column("Identical", "identical_prompts"),
]

SPREAD = [
    text_column("Predictor", "predictor"),
    text_column("Score", "score", style="text"),
    Column("Authors'", "authors", show=digits(4)),
    Column("Seeded", "seeded", show=digits(4)),
    Column("Difference", "difference", show=lambda value: signed(value, 4)),
    Column("Standard error", "standard_error", show=digits(4)),
    Column("In standard errors", "z", show=lambda value: signed(value, 1)),
    Column("", cell=lambda row: "unexplained" if abs(row["z"]) > 3 else "", style="text"),
]

SCORES = {"accuracy": "Accuracy", "precision": "Precision", "recall": "Recall", "auroc": "AUROC", "aupr": "AUPR"}

HELD_OUT = [
    Column("Held out above", "share", show=percent),
    *(
        Column(title, name, of=predictor, show=digits(2))
        for name in SCORES
        for predictor, title in (("standard", "std."), ("max", "max"))
    ),
    *(Column(SCORES[name], name, of="max tail", show=digits(2)) for name in ("auroc", "aupr")),
]
"""Columns of a table of held-out prediction, after the columns with the names of its rows."""

SEARCH_KEYS = {
    "line blue": "base model",
    "line green": "instruction-tuned",
    "": "solid 1-shot, dashed 2-shot, dotted 4-shot",
    "line vermilion": "maximum random baseline",
    "line grey": "chance; baselines: dashed the authors', solid under sound rules",
}
RANKING_KEYS = {
    "line blue": "above standard",
    "line vermilion": "above max",
    "line grey": "distribution function as score",
}


def published_sections(published: Published) -> Iterator[Section]:
    """Yield the sections of the page: the paper's tables and figures, and verdicts that change under sound rules."""
    tables = published.tables
    yield section("totals", "Verdicts", *_totals(tables["totals"]))
    yield section("cells", "The paper's numbers", *_cells(tables["cells"]))
    yield section("table-1", "Every experiment", *_experiments(tables), subtitle="table 1")
    changed = tables["experiments"].filter(pl.col("reason").is_not_null())
    table = Table(changed, CHANGED, caption=TEXTS["changed_caption"], absent="None.")
    yield section("changed", "Verdicts that change", table, subtitle=f"{changed.height}")
    yield section("known", "Remarks on these results", *_remarks(tables), navigation="Remarks")
    if histogram := _histogram_panels(published):
        subtitle = "figure 1: emoji_movie, OLMo-7B, 4-shot"
        yield section("figure-1", "One experiment", Panels(histogram, style="panels wide"), subtitle=subtitle)
    searches = [(name, FIGURE_3[0], FIGURE_3[:1], SHOTS) for name in FIGURE_3[1]]
    families = [(FIGURE_4[0], base, (base, tuned), FIGURE_4[1]) for base, tuned in FAMILIES.values()]
    panels = [_search_panels(tables, which, tails=True) for which in (searches, families)]
    content: tuple[Block, ...] = (Legend(SEARCH_KEYS), TEXTS["search_note"], *panels)
    yield section("figure-3", "Searching for a prompt", *content, subtitle="figures 3 and 4")
    title, subtitle = "Does a baseline predict held-out accuracy?", "figures 5 and 8, tables 3 and 4"
    yield section("held-out", title, *_held_out(published), subtitle=subtitle, navigation="Held-out accuracy")
    names = _tasks_by_size(tables)
    full = [
        Group([_search_panels(tables, [(name, models[0], models, SHOTS) for name in names])], family)
        for family, models in FAMILIES.items()
    ]
    yield section("full", "Full results", TEXTS["full_note"], *full, subtitle="figures 9 to 11")


def _totals(totals: pl.DataFrame) -> Iterator[Block]:
    """Yield the share of verdicts that the maximum random baseline changes, and totals under every set of rules."""
    items = []
    for name, rules in (("the authors' rules", totals.head(1)), ("sound rules", totals.filter(rules="sound"))):
        row = rules.row(0, named=True)
        counts = f"{row['disagreements']} of {row['above_standard']}; {row['above_max']} above both"
        title = f"Above the standard baseline and not above the maximum random one, {name}"
        items.append({"name": title, "number": percent(row["flipped_share"]), "lines": [counts]})
    yield Filled("summary.html", {"items": items})
    yield Table(totals, TOTALS, caption=marked(TEXTS["totals_caption"]))


def _cells(cells: pl.DataFrame) -> Iterator[Block]:
    """Yield the number of equal cells in every table of the paper, and a list of the cells that differ."""
    verdict = pl.col("verdict")
    caption = marked("Equal: to the printed decimals. <code>tables/cells.parquet</code> has every number.")
    yield TEXTS["cells_note"]
    yield Table(verdict_counts(cells), COUNT_COLUMNS, caption=caption, data={"table": "cells"})
    noted = (verdict == "differs") | ((verdict == "not in the data") & (pl.col("note") != ""))
    items = []
    for row in cells.filter(noted).iter_rows(named=True):
        printed = f"{number(row['published'], row['decimals'])} printed. {row['note'] or ''}"
        if row["recomputed"] is not None:
            printed = f"{number(row['recomputed'], row['decimals'] + 2)} recomputed, {printed}"
        items.append(f"{row['table']}, {row['row']}, {row['column']}: {printed}")
    yield List(items)


def _tasks_by_size(tables: Tables) -> dict[str, int]:
    """Return task -> number of examples, for the tasks in the results, smallest first."""
    present = set(tables["experiments"]["dataset"])
    return {name: n for n, name in sorted((task.n_sampled, name) for name, task in TASKS.items() if name in present)}


def _experiments(tables: Tables) -> Iterator[Block]:
    """Yield table 1: one row per task, smallest first; columns per number of shots, for base and for tuned models."""
    experiments = tables["experiments"].rows_by_key(data.EXPERIMENT, named=True, include_key=True, unique=True)
    tasks = _tasks_by_size(tables)
    is_between = [(pl.col(f"{rules}_verdict") == "between").sum().alias(rules) for rules in ("released", "sound")]
    counts = tables["experiments"].group_by("dataset").agg(is_between)
    sizes = pl.DataFrame(list(tasks.items()), schema={"dataset": pl.String, "n": pl.Int64}, orient="row")

    def moons(tuned: int, shots: int) -> Callable[[Row], str]:
        """Return the function that draws a cell: the verdicts on one model per family (0: base, 1: tuned)."""
        models = [pair[tuned] for pair in FAMILIES.values()]
        return lambda row: Markup().join(
            _moon(experiments[model, row["dataset"], shots])
            for model in models
            if (model, row["dataset"], shots) in experiments
        )

    verdicts = [
        Column(f"{kind}, {shots}", cell=moons(tuned, shots), style="moons")
        for tuned, kind in enumerate(("base", "tuned"))
        for shots in SHOTS
    ]
    columns = [text_column("Task", "dataset"), Column("n", "n"), *verdicts, Column("◐", "released")]
    rows = sizes.join(counts, on="dataset", how="left", maintain_order="left")
    yield TEXTS["experiments"].format(", ".join(FAMILIES))
    yield Table(rows, [*columns, Column("sound", "sound")])


def _moon(row: dict[str, Any]) -> Markup:
    """Return the mark (POSITION_MARKS) of the verdict on an experiment, and the mark under sound rules if different."""
    tip = (
        f"{row['model']}, {row['dataset']}, {row['shots']}-shot: {row['accuracy']:.3f}; released "
        f"{row['released_max_random']:.3f}, sound {row['sound_max_random']:.3f}"
    )
    released, sound = (POSITION_MARKS[row[f"{rules}_verdict"]] for rules in ("released", "sound"))
    if released == sound:
        return marked('<span class="moon" data-tip="{}">{}</span>', tip, released)
    return marked('<span class="moon changed" data-tip="{}">{}→{}</span>', tip, released, sound)


def _remarks(tables: Tables) -> Iterator[Block]:
    """Yield the remarks on known faults of the released results."""
    from_authors = ", ".join(name for name, task in TASKS.items() if task.source == "authors")
    experiments = tables["experiments"]
    lost = experiments.filter(pl.col("n_without_query") > 0).height
    best = experiments.filter("best_without_query").select("model", "dataset", "shots").rows()
    listed = "; ".join(f"{model}, {dataset}, {shots}-shot" for model, dataset, shots in best)
    also = f" The best prompt of {len(best)} experiments lost its query: {listed}." if best else ""
    yield TEXTS["pooled_note"]
    yield f"The numbers of choices of {from_authors} are the authors', because the tasks' own files were not available."
    yield TEXTS["remarks"].format(experiments["n_without_query"].sum(), experiments["n_prompts"].sum(), lost, also)
    caption = "Rules that were tried to tell a prompt without its query from its losses."
    yield Table(tables["query_rules"], QUERY_RULES, caption=caption, data={"table": "query-rules"})
    if tables["identical_models"].height:
        yield Table(tables["identical_models"], IDENTICAL, caption=TEXTS["identical_caption"])


def _histogram_panels(published: Published) -> list[Panel]:
    """Draw figure 1, if the results have its experiment."""
    experiment = published.tables["experiments"].filter(**FIGURE_1)
    if experiment.is_empty():
        return []
    row = experiment.row(0, named=True)
    n, chance, tries = row["released_n"], row["released_chance"], row["released_tries"]
    prompts = published.prompts.filter(**FIGURE_1)
    histogram = accuracy_histogram(prompts, n, chance, tries)
    max_random = float(max_random_accuracy(n, chance, tries))
    drawn = (
        ("prompts", figures.BLUE, row["accuracy"], f"Accuracies of {prompts.height} prompts; the best"),
        ("random classifier", figures.GREY, chance, "One random classifier; expected"),
        ("best of many random classifiers", figures.VERMILION, max_random, f"Best of {tries}; expected"),
    )
    return [
        Panel(f"{title}, {at:.3f}", [histogram_panel(histogram, column, colour, at)])
        for column, colour, at, title in drawn
    ]


_Search = tuple[str, str, tuple[str, ...], tuple[int, ...]]
"""Task, base model, models, and numbers of shots of a panel."""


def _search_panels(tables: Tables, searches: Sequence[_Search], *, tails: bool = False) -> Panels:
    """Draw a panel for every search that is in the results.

    Args:
        tails: whether to draw the two panels of tails below, with the base model in the title.
    """
    panels = []
    for dataset, base, models, shots in searches:
        curves = tables["curves"].filter(pl.col("model").is_in(models), pl.col("shots").is_in(shots), dataset=dataset)
        if curves.is_empty():
            continue
        drawn = [search_panel(curves, tables["baselines"].filter(dataset=dataset), base)]
        if tails:
            drawn += [tail_panel(curves, column, base) for column in ("standard_tail", "max_tail")]
        panels.append(Panel(f"{dataset}, {base}" if tails else dataset, drawn))
    return Panels(panels, absent="")


def _held_out(published: Published) -> Iterator[Block]:
    """Yield tables 3 and 4 and figures 5 and 8, with our splits next to the authors'."""
    tables = published.tables
    yield TEXTS["held_out_note"]
    name = Column("Trials", cell=lambda row: f"{row['splits']} splits, {row['rules']}", style="")
    yield _held_out_table(tables, "all", [name])
    yield Table(tables["held_out_spread"], SPREAD, caption=TEXTS["spread_caption"], data={"table": "spread"})
    yield Legend(RANKING_KEYS)
    max_tries = published.authors_trials["tries"].max()
    both = {"Authors'": published.authors_trials, "Sound rules": published.sound_trials}
    by_rules = [
        Panel(f"{title}, {kind}", [ranking_panel(trials.filter(tries=max_tries), kind)])
        for title, trials in both.items()
        for kind in get_args(Kind)
    ]
    yield Panels(by_rules, style="panels square")
    groups = published.authors_trials.partition_by("tries", as_dict=True, maintain_order=True)
    by_tries = [Panel(f"t = {tries}", [ranking_panel(trials, "ROC")]) for (tries,), trials in groups.items()]
    yield Group([Panels(by_tries, style="panels square")], "By number of prompts searched, authors' splits")
    trials = Column("Trials", cell=lambda row: f"{row['splits']}, {row['rules']}", style="text")
    for title, over in (("Model", "model"), ("Task", "dataset")):
        yield _held_out_table(tables, over, [text_column(title, "group"), trials])


def _held_out_table(tables: Tables, over: str, names: Sequence[Column]) -> Table:
    """Return a table with one row per group, for the largest number of tries.

    Args:
        over: value of the column `over` of PUBLISHED_HELD_OUT.
        names: columns with the names of the rows.
    """
    chosen = tables["held_out"].filter(over=over, tries=tables["held_out"]["tries"].max())
    key = ["splits", "rules", "group"]
    cells = chosen.select(*key, "predictor", share="held_out_share", cell=pl.struct(list(SCORES)))
    rows = cells.pivot(on="predictor", index=[*key, "share"], values="cell", maintain_order=True)
    groups = [("", len(names) + 1), *((title, 2) for title in SCORES.values()), ("By tail", 2)]
    return Table(rows, [*names, *HELD_OUT], groups=groups)


SEARCH, TAIL = (figures.Size(205, height, left=40, right=8, top=6, bottom=36) for height in (130, 62))
HISTOGRAM = SEARCH._replace(width=330, height=74)
SQUARE = figures.Size(150, 150, left=48, right=10, top=6, bottom=38)

# Logarithmic, because on a linear axis the first tries, which improve accuracy most, would be one pixel wide.
TRIES = figures.Axis(
    title="prompts tried", domain=(1, 200), ticks=(1, 2, 5, 10, 20, 50, 100, 200), form="~s", is_logarithmic=True
)

DASHES = {1: "solid", 2: "dashed", 4: "dotted"}
"""Number of shots -> dash pattern, because six lines cannot be distinguished by colour alone."""

Kind = Literal["ROC", "precision-recall"]
CURVE_POINTS = 300
"""Maximum number of drawn points of a curve; the data may have thousands, which would not be visible."""


def search_panel(models: pl.DataFrame, baselines: pl.DataFrame, base_model: str) -> figures.Drawing:
    """Draw expected maximum accuracy by number of prompts, with both baselines: a panel of figures 3, 4 and 9 to 11.

    Args:
        models: PUBLISHED_CURVES of one task; dash patterns show the number of shots.
        baselines: PUBLISHED_BASELINES of the task, dashed under the authors' rules and solid under sound rules.
        base_model: name of the model that is drawn in blue; other models are green.
    """
    dash = pl.when(pl.col("rules") == "released").then(pl.lit("dashed")).otherwise(pl.lit("solid"))

    def guess_lines(column: str, name: str, colour: str) -> pl.DataFrame:
        last = pl.col(column).last().over("rules").round(3)
        text = pl.format(name + " {} of guessing, {} rules", last, "rules")
        return baselines.select(x="tries", y=column, colour=pl.lit(colour), dash=dash, description=text)

    guesses = guess_lines("chance", "Chance", figures.GREY), guess_lines("max_random", "Best of 200", figures.VERMILION)
    lines = pl.concat([*guesses, _model_lines(models, "expected_maximum", base_model)])
    values = lines["y"].to_numpy()
    margin = 0.06 * float(np.ptp(values))
    limits = (max(0.0, float(values.min()) - margin), min(1.0, float(values.max()) + margin))
    y = figures.Axis(domain=limits, ticks=4, form=".2f")
    data = figures.stacked(prompts=models, guessing=baselines)
    return figures.panel([figures.LINES], TRIES, y, size=SEARCH, data=data, lines=lines)


def tail_panel(models: pl.DataFrame, column: str, base_model: str) -> figures.Drawing:
    """Draw the probability that guessing reaches the expected maximum: a lower panel of figures 3 and 4.

    Args:
        models: PUBLISHED_CURVES of one task.
        column: "standard_tail" or "max_tail".
        base_model: as for search_panel.
    """
    y = figures.Axis(domain=(0, 1), ticks=(0, 0.5, 1), form=".1f")
    lines = _model_lines(models, column, base_model)
    return figures.panel([figures.LINES], TRIES, y, size=TAIL, data=models, lines=lines)


def _model_lines(models: pl.DataFrame, column: str, base_model: str) -> pl.DataFrame:
    last = pl.col(column).last().over("model", "shots").round(3)
    return models.select(
        x="tries",
        y=column,
        colour=pl.when(pl.col("model") == base_model).then(pl.lit(figures.BLUE)).otherwise(pl.lit(figures.GREEN)),
        dash=pl.col("shots").replace_strict(DASHES),
        description=pl.format(
            "{}, {}-shot: {} at {} prompts", "model", "shots", last, pl.col("tries").max().over("model", "shots")
        ),
    )


def histogram_panel(histogram: pl.DataFrame, column: str, colour: str, mark_at: float) -> figures.Drawing:
    """Draw one of the three distributions of figure 1, with a vertical line at its best or expected accuracy.

    Args:
        histogram: as accuracy_histogram returns; all its panels have the same axis.
        column: column of shares to draw.
        colour, mark_at: colour of bars and line, and accuracy of the line.
    """
    likely = histogram.filter(pl.max_horizontal(pl.exclude("accuracy")) > 1e-4)["accuracy"].to_numpy()
    step = float(histogram["accuracy"][1] - histogram["accuracy"][0])
    domain = (float(likely[0]) - step, float(likely[-1]) + step)
    # Bars touch, because there is a bar for every possible count of right answers.
    bars = histogram.with_columns(low=pl.col("accuracy") - step / 2, high=pl.col("accuracy") + step / 2)
    return figures.panel(
        [
            figures.Mark("bar", "low", column, rows="bars", x2="high", y2=0, color=colour, opacity=0.55),
            figures.Mark("rule", "at", rows="line", color=colour),
        ],
        figures.Axis(title="accuracy", domain=domain, ticks=8, form=".2f"),
        figures.Axis(ticks=3, form=".2f"),
        size=HISTOGRAM,
        data=histogram.select("accuracy", column),
        bars=bars.filter(pl.col("accuracy").is_between(*domain)),
        line=pl.DataFrame({"at": [mark_at]}),
    )


def ranking_panel(trials: pl.DataFrame, kind: Kind) -> figures.Drawing:
    """Draw ROC or precision-recall curves of three predictors: a panel of figures 5 and 8.

    The verdicts are drawn in blue (standard) and vermilion (max), the distribution function in grey.

    Args:
        trials: columns held_out.TRIALS.
        kind: type of curve; precision-recall curves are drawn as steps, over which average precision sums.
    """
    outcome = trials["above_standard_on_test"].to_numpy()
    predictors = (
        ("max tail", -trials["log10_max_tail"].to_numpy(), figures.GREY),
        ("standard", trials["above_standard_on_train"].to_numpy().astype(np.float64), figures.BLUE),
        ("max", trials["above_max_on_train"].to_numpy().astype(np.float64), figures.VERMILION),
    )
    lines = pl.concat(
        _curve(score, outcome, kind).with_columns(predictor=pl.lit(name), colour=pl.lit(colour))
        for name, score, colour in predictors
    )
    is_roc = kind == "ROC"
    names = ("false positive rate", "true positive rate") if is_roc else ("recall", "precision")
    x, y = (figures.Axis(title=name, domain=(0, 1), ticks=(0, 0.5, 1), form=".1f") for name in names)
    marks = [figures.Mark("line", "x", "y", rows="lines", color="colour", size=1.8, order="order", steps=not is_roc)]
    data = lines.drop("colour")
    if not is_roc:
        return figures.panel(marks, x, y, size=SQUARE, data=data, lines=lines)
    chance = figures.Mark("line", "at", "at", rows="chance", color=figures.GREY, size=1, dash=(3, 3))
    ends = pl.DataFrame({"at": [0.0, 1.0]})
    return figures.panel([chance, *marks], x, y, size=SQUARE, data=data, lines=lines, chance=ends)


def _curve(score: Floats, outcome: Bools, kind: Kind) -> pl.DataFrame:
    found = ranking_curves(score, outcome)
    # Rates of false and true positives, or recall (the rate of true positives) and precision.
    x, y = found[:2] if kind == "ROC" else found[1:]
    points = np.unique(np.linspace(0, len(x) - 1, min(len(x), CURVE_POINTS)).round().astype(np.int64))
    return pl.DataFrame({"x": x[points], "y": y[points], "order": points})


def _subject(published: Published) -> str:
    n = published.tables["totals"]["n_experiments"][0]
    return f"{n} experiments: the best of 200 prompts, compared with one random classifier and the best of 200"


REPRODUCTION = Reproduction(
    title="Yauney & Mimno 2024, Stronger Random Baselines for In-Context Learning: the best of 200 prompts compared "
    "with random baselines, under the authors' rules and under sound ones",
    source="gyauney/stronger-random-baselines on GitHub",
    files=data.FILES,
    read=data.read_results,
    recompute=recompute,
    summary_lines=summary_lines,
    kicker="Yauney & Mimno 2024, recomputed from the released per-example results",
    heading="Is it better than guessing?",
    subject=_subject,
    sections=published_sections,
)
