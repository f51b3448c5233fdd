"""Write the page of the recomputed experiments: the paper's tables and figures."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
from markupsafe import Markup

from evaluator.random_baselines.max_random import max_random_accuracy
from evaluator.report.charts import BLUE, GREY, VERMILION
from evaluator.report.page import Header, write_page
from evaluator.report.section import PackageFile, Section
from evaluator.report.tables import VERDICT_MARKS
from evaluator.reproductions.yauney_mimno_2024 import figures
from evaluator.reproductions.yauney_mimno_2024.curves import accuracy_histogram
from evaluator.reproductions.yauney_mimno_2024.recompute import Published, PublishedTables
from evaluator.reproductions.yauney_mimno_2024.tasks import TASKS

FAMILIES = {
    "Llama-2-7b": ("Llama-2-7b", "Alpaca-7b"),
    "OLMo-7B": ("OLMo-7B", "OLMo-7B-Instruct"),
    "Falcon-7b": ("falcon-7b", "falcon-7b-instruct"),
}
"""Family -> its base model and its instruction-tuned one."""

SHOTS = (1, 2, 4)
FIGURE_1 = {"model": "OLMo-7B", "dataset": "emoji_movie", "shots": 4}
FIGURE_3 = ("OLMo-7B", ("emoji_movie", "known_unknowns", "bbq_lite_json", "hindu_knowledge"))
FIGURE_4 = ("emoji_movie", (1, 2))


class VerdictMark(NamedTuple):
    """The verdict on one experiment in table 1, as one of VERDICT_MARKS."""

    released: str  # mark under the authors' rules
    sound: str  # mark under sound rules
    changed: bool
    description: str  # tooltip


class TaskRow(NamedTuple):
    """One task in table 1."""

    dataset: str
    n: int
    cells: list[list[VerdictMark]]  # [column of shots, family]
    released: int  # number of disagreements between the baselines
    sound: int


class Panel(NamedTuple):
    """A title and figures."""

    title: str
    drawn: list[Markup]  # one below the other


def write_published_page(published: Published, path: Path) -> Path:
    """Write the page and return its path. Equal data give equal bytes."""
    header = Header(
        kicker="Yauney & Mimno 2024, recomputed from the released per-example results",
        heading="Is it better than guessing?",
        subject=f"{published.tables.totals['n_experiments'][0]} experiments: the best of 200 prompts, compared with "
        "one random classifier and with the best of 200",
    )
    return write_page(path, "Stronger random baselines, recomputed", header, list(published_sections(published)))


def published_sections(published: Published) -> Iterator[Section]:
    """Yield the paper's tables and figures, and the verdicts that change under sound rules."""
    tables = published.tables
    changed = tables.experiments.filter(pl.col("reason").is_not_null()).to_dicts()
    yield _section("totals", "Verdicts", "", {"totals": tables.totals.to_dicts()})
    yield _section("cells", "The paper's numbers", "", _cells_shown(tables.cells))
    context = {"task_rows": task_rows(tables), "families": list(FAMILIES)}
    yield _section("table-1", "Every experiment", "table 1", context)
    yield _section("changed", "Verdicts that change", f"{len(changed)}", {"changed": changed})
    context = {
        "identical": tables.identical_models.to_dicts(),
        "without_query": _without_query(tables.experiments),
        "query_rules": tables.query_rules.to_dicts(),
        "from_authors": [name for name, task in TASKS.items() if task.source == "authors"],
    }
    yield _section("known", "Remarks on these results", "", context, "Remarks")
    histogram = _histogram_panels(published)
    if histogram:
        subtitle = "figure 1: emoji_movie, OLMo-7B, 4-shot"
        yield _section("figure-1", "One experiment", subtitle, {"histogram": histogram})
    searches = [(name, FIGURE_3[0], FIGURE_3[:1], SHOTS) for name in FIGURE_3[1]]
    families = [(FIGURE_4[0], base, (base, tuned), FIGURE_4[1]) for base, tuned in FAMILIES.values()]
    context = {
        "figure_3": _search_panels(tables, searches, tails=True),
        "figure_4": _search_panels(tables, families, tails=True),
    }
    yield _section("figure-3", "Searching for a prompt", "figures 3 and 4", context)
    context = {
        "held_out": _held_out_rows(tables, "all"),
        "spread": tables.held_out_spread.to_dicts(),
        "table_3": _held_out_rows(tables, "model"),
        "table_4": _held_out_rows(tables, "dataset"),
        "figure_5": _figure_5(published),
        "figure_8": _figure_8(published),
    }
    subtitle = "figures 5 and 8, tables 3 and 4"
    yield _section("held-out", "Does a baseline predict held-out accuracy?", subtitle, context, "Held-out accuracy")
    yield _section("full", "Full results", "figures 9 to 11", {"full_results": _full_results(tables)})


def _section(
    anchor: str, title: str, subtitle: str, context: Mapping[str, object], navigation: str | None = None
) -> Section:
    package = "evaluator.reproductions.yauney_mimno_2024"
    return Section(
        anchor=anchor,
        title=title,
        subtitle=subtitle,
        navigation=navigation or title,
        template=PackageFile(package, f"templates/{anchor.replace('-', '_')}.html"),
        context=context,
        style=PackageFile(package, "assets/page.css"),
    )


def task_rows(tables: PublishedTables) -> list[TaskRow]:
    """Return table 1: a row for each task, by size, with columns of shots for base and for instruction-tuned models."""
    by_key = {(row["model"], row["dataset"], row["shots"]): row for row in tables.experiments.iter_rows(named=True)}
    present = set(tables.experiments["dataset"])
    sizes = sorted((task.n_sampled, name) for name, task in TASKS.items() if name in present)
    return [_task_row(name, n, by_key) for n, name in sizes]


def _task_row(dataset: str, n: int, by_key: dict[tuple[str, str, int], dict[str, Any]]) -> TaskRow:
    # `tuned` is the place of a model in FAMILIES: 0 for the base models, 1 for the instruction-tuned ones.
    columns = [
        [by_key[pair[tuned], dataset, shots] for pair in FAMILIES.values() if (pair[tuned], dataset, shots) in by_key]
        for tuned in (0, 1)
        for shots in SHOTS
    ]
    rows = [row for column in columns for row in column]
    return TaskRow(
        dataset,
        n,
        [[_verdict_mark(row) for row in column] for column in columns],
        sum(row["released_verdict"] == "between" for row in rows),
        sum(row["sound_verdict"] == "between" for row in rows),
    )


def _verdict_mark(row: dict[str, Any]) -> VerdictMark:
    description = f"{row['model']}, {row['dataset']}, {row['shots']}-shot: {row['accuracy']:.3f}; "
    description += f"released {row['released_max_random']:.3f}, sound {row['sound_max_random']:.3f}"
    released, sound = row["released_verdict"], row["sound_verdict"]
    return VerdictMark(VERDICT_MARKS[released], VERDICT_MARKS[sound], released != sound, description)


def _cells_shown(cells: pl.DataFrame) -> dict[str, Any]:
    """Count the verdicts of each of the paper's tables, and list the numbers that are not equal."""
    counts = cells.group_by("table", maintain_order=True).agg(
        n=pl.len(),
        equal=(pl.col("verdict") == "equal").sum(),
        differ=(pl.col("verdict") == "differs").sum(),
        not_in_data=(pl.col("verdict") == "not in the data").sum(),
    )
    unequal = cells.filter(pl.col("verdict").is_in(["differs", "not in the data"]))
    return {"counts": counts.to_dicts(), "unequal": unequal.to_dicts()}


def _without_query(experiments: pl.DataFrame) -> dict[str, Any]:
    return {
        "prompts": experiments["n_without_query"].sum(),
        "all_prompts": experiments["n_prompts"].sum(),
        "experiments": experiments.filter(pl.col("n_without_query") > 0).height,
        "best": experiments.filter("best_without_query").select("model", "dataset", "shots").to_dicts(),
    }


def _histogram_panels(published: Published) -> list[Panel]:
    """Draw figure 1, if the results have its experiment."""
    experiment = published.tables.experiments.filter(**FIGURE_1)
    if experiment.is_empty():
        return []
    row = experiment.row(0, named=True)
    n, chance, tries = row["released_n"], row["released_chance"], row["released_tries"]
    prompts = published.prompts.filter(**FIGURE_1)
    histogram = accuracy_histogram(prompts, n, chance, tries)
    max_random = float(max_random_accuracy(n, chance, tries))
    panels = (
        ("prompts", BLUE, row["accuracy"], f"Accuracies of {prompts.height} prompts; the best, {row['accuracy']:.3f}"),
        ("random classifier", GREY, chance, f"One random classifier; expected, {chance:.3f}"),
        ("best of many random classifiers", VERMILION, max_random, f"Best of {tries}; expected, {max_random:.3f}"),
    )
    return [
        Panel(title, [Markup(figures.histogram_panel(histogram, column, colour, at))])
        for column, colour, at, title in panels
    ]


def _search_panels(
    tables: PublishedTables,
    searches: Sequence[tuple[str, str, tuple[str, ...], tuple[int, ...]]],
    *,
    tails: bool = False,
) -> list[Panel]:
    """Draw a panel for each (task, base model, models, shots) in the results."""
    panels = []
    for dataset, base, models, shots in searches:
        curves = tables.curves.filter(pl.col("model").is_in(models), pl.col("shots").is_in(shots), dataset=dataset)
        if curves.is_empty():
            continue
        drawn = [Markup(figures.search_panel(curves, tables.baselines.filter(dataset=dataset), base))]
        if tails:
            drawn += [Markup(figures.tail_panel(curves, column, base)) for column in ("standard_tail", "max_tail")]
        panels.append(Panel(f"{dataset}, {base}" if tails else dataset, drawn))
    return panels


def _full_results(tables: PublishedTables) -> dict[str, list[Panel]]:
    """Draw figures 9 to 11: family of models -> a panel for each task."""
    names = [row.dataset for row in task_rows(tables)]
    return {
        family: _search_panels(tables, [(name, models[0], models, SHOTS) for name in names])
        for family, models in FAMILIES.items()
    }


def _figure_5(published: Published) -> list[Panel]:
    max_tries = published.authors_trials["tries"].max()
    both = (
        ("Authors'", published.authors_trials.filter(tries=max_tries)),
        ("Sound rules", published.seeded_trials.sound.filter(tries=max_tries)),
    )
    return [
        Panel(f"{title}, {kind}", [Markup(figures.ranking_panel(trials, kind))])
        for title, trials in both
        for kind in ("ROC", "precision-recall")
    ]


def _figure_8(published: Published) -> list[Panel]:
    groups = published.authors_trials.partition_by("tries", as_dict=True, maintain_order=True)
    return [Panel(f"t = {t}", [Markup(figures.ranking_panel(trials, "ROC"))]) for (t,), trials in groups.items()]


def _held_out_rows(tables: PublishedTables, over: str) -> list[dict[str, Any]]:
    """Return one row for each group, with the numbers of every predictor, for the highest number of tries."""
    max_tries = tables.held_out["tries"].max()
    table = tables.held_out.filter(over=over, tries=max_tries)
    groups = table.partition_by("splits", "rules", "group", as_dict=True, maintain_order=True)
    return [
        {"splits": splits, "rules": rules, "group": group, "share": rows["held_out_share"][0]}
        | {row["predictor"].replace(" ", "_"): row for row in rows.iter_rows(named=True)}
        for (splits, rules, group), rows in groups.items()
    ]
