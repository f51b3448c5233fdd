"""Recompute the published experiments of Yauney & Mimno 2024 from the released results.

Compute the curves of the published figures: expected maxima and random baselines by number of tries.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from evaluator.arrays import Ints
from evaluator.progress import Progress, Stage
from evaluator.random_baselines.calculator import expected_curve, log_spaced
from evaluator.random_baselines.max_random import max_random_accuracy, max_random_pmf, max_random_tail
from evaluator.reproductions.base import Tables, text_table
from evaluator.reproductions.cells import CELL, JUDGED, PRINTED, printed_cells, printed_tables, with_verdicts
from evaluator.reproductions.yauney_mimno_2024 import data, held_out, rules
from evaluator.reproductions.yauney_mimno_2024.data import EXPERIMENT, EXPERIMENT_COLUMNS, TASKS, Mix
from evaluator.reproductions.yauney_mimno_2024.rules import RELEASED, SOUND
from evaluator.schemas import declare

PUBLISHED_EXPERIMENTS = declare(  # one row a published experiment; "released": the authors' rules, "sound": ours
    **EXPERIMENT_COLUMNS,
    best_prompt=pl.Int64(),  # of the highest accuracy, the lowest id of equals
    n=pl.Int64(),  # examples on which it was scored
    correct=pl.Int64(),
    accuracy=pl.Float64(),
    n_best=pl.Int64(),  # prompts with the same accuracy
    n_prompts=pl.Int64(),
    n_distinct_prompts=pl.Int64(),
    released_n=pl.Int64(),
    released_chance=pl.Float64(),
    released_tries=pl.Int64(),
    released_max_random=pl.Float64(),
    released_verdict=pl.String(),  # Verdict of random_baselines/max_random.py
    sound_chance=pl.Float64(),
    sound_tries=pl.Int64(),
    sound_max_random=pl.Float64(),
    sound_verdict=pl.String(),
    log10_standard_tail=pl.Float64(),  # under sound rules, of `correct` or more
    log10_max_tail=pl.Float64(),
    reason=pl.String(),  # why the sound verdict differs; null where it does not
    choices_source=pl.String(),  # "task": chances are from the task's file | "authors": from their constants
    n_without_query=pl.Int64(),  # prompts that lost their query when they were cut
    best_without_query=pl.Boolean(),
    same_losses_as=pl.String(),  # models whose losses are equal bit for bit; null where there is none
)

ONCE = "sound, models that are the same once"
"""Name of the sound rules in totals that count identical models once."""

PUBLISHED_CELLS = declare(  # one row a number that the paper prints
    **PRINTED,
    recomputed=pl.Float64(),  # null where it is not in the data, or undefined
    **JUDGED,
)

PREDICTORS = ("standard", "max")
PRINTED_SCORES = {"3": ("accuracy", "precision", "recall", "auroc", "aupr"), "4": ("auroc", "aupr")}
"""Table of held-out trials -> its scores, each for both predictors, after the share of trials above standard."""

SECTION_4 = "n = 100, two choices, best of 10"
"""Row of the sentence "A dataset of n = 100 examples has an expected max accuracy of 0.575 after only t = 10
evaluations."."""

TABLES = printed_tables("yauney_mimno_2024")

NOTES = {
    "2": "The results of models that were not quantised are not released.",
    "section 4": "By equation 8; the number in the text is not what the equation gives: unexplained.",
}
"""Table -> note on its cells that are not equal to the recomputed ones."""

Cell = tuple[str, str, str, float | None]


@dataclass(frozen=True, kw_only=True)
class Published:
    """The tables, and the data that figures need in addition."""

    tables: Tables
    prompts: pl.DataFrame  # rows of read_prompts
    authors_trials: pl.DataFrame  # columns TRIALS of held_out.py
    seeded_trials: held_out.SeededTrials


def recompute(released: data.PublishedData) -> Stage[Published]:
    """Compute every table of the published experiments. Raises DatasetError for unexpected rows."""
    yield Progress(stage="Reading predictions", done=0, total=1, unit="files")
    prompts = data.read_prompts(released)
    yield Progress(stage="Reading predictions", done=1, total=1, unit="files")
    best = rules.best_prompts(prompts)
    mixes = data.best_prompt_mixes(released, best)
    verdicts = rules.judge(best, mixes)
    pairs = data.identical_models(prompts)
    experiments = _experiments(best, mixes, verdicts, data.same_losses_as(best, pairs))
    chances = data.example_chances(released)
    seeded = yield from held_out.seeded_trials(released, prompts, chances)
    authors = held_out.published_trials(released)
    # Sound verdicts, of identical models only the verdicts on the first by name.
    repeated = pairs.select("dataset", "shots", model="other_model")
    once = verdicts.filter(rules=SOUND.name).join(repeated, on=EXPERIMENT, how="anti", maintain_order="left")
    totals = pl.concat([rules.totals(verdicts), rules.totals(once.with_columns(rules=pl.lit(ONCE)))])
    predicted = held_out.held_out_table(authors, seeded)
    # The examples of each task, taken from the first experiment with it.
    first = experiments.unique("dataset", keep="first", maintain_order=True).select("dataset", data.experiment_name())
    examples = first.join(chances, on="experiment", maintain_order="left")
    tables = {
        "experiments": experiments,
        "verdicts": verdicts,
        "totals": totals,
        "identical_models": pairs,
        "held_out": predicted,
        "cells": judged_cells(experiments, totals, predicted),
        "held_out_spread": held_out.spread_table(authors, seeded.released),
        "query_rules": data.query_rules(prompts),
        "curves": expected_curves(prompts),
        "baselines": baseline_curves(examples.select("dataset", "chance")),
    }
    return Published(tables=tables, prompts=prompts, authors_trials=authors, seeded_trials=seeded)


def _experiments(best: pl.DataFrame, mixes: list[Mix], verdicts: pl.DataFrame, same_as: pl.Series) -> pl.DataFrame:
    """Return PUBLISHED_EXPERIMENTS: the verdicts under both sets of rules, and the reasons of differences."""
    released, sound = (verdicts.filter(rules=judged.name) for judged in (RELEASED, SOUND))
    numbers = ("n", "chance", "tries", "max_random", "verdict")
    chances = [rules.per_example(mix) for mix in mixes]
    # The tails of one random classifier, and of the best of an experiment's tries.
    correct, n = best["correct"].to_numpy(), best["n"].to_numpy()
    standard_tails, max_tails = (
        np.asarray(max_random_tail(correct, n, chances, tries, log10=True))
        for tries in (np.ones_like(n), sound["tries"].to_numpy())
    )
    sources = {name: task.source for name, task in TASKS.items()}
    return (
        best.with_columns(
            **{f"released_{name}": released[name] for name in numbers},
            **{f"sound_{name}": sound[name] for name in numbers[1:]},
            log10_standard_tail=standard_tails,
            log10_max_tail=max_tails,
            reason=pl.Series(rules.reasons(verdicts), dtype=pl.String),
            choices_source=pl.col("dataset").replace_strict(sources),
            same_losses_as=same_as,
        )
        .select(list(PUBLISHED_EXPERIMENTS))
        .cast(PUBLISHED_EXPERIMENTS)
    )


def judged_cells(experiments: pl.DataFrame, totals: pl.DataFrame, held_out: pl.DataFrame) -> pl.DataFrame:
    """Return PUBLISHED_CELLS, in the order of TABLES.

    Args:
        experiments, totals, held_out: PUBLISHED_EXPERIMENTS, PUBLISHED_TOTALS and PUBLISHED_HELD_OUT. Tables 3 and 4
            are scores of the authors' own verdicts, which held_out has from their files.
    """
    expected = float(max_random_accuracy(100, 0.5, 10))
    recomputed: list[Cell] = [("section 4", SECTION_4, "expected best accuracy", expected)]
    recomputed += [*_total_cells(totals), *_disagreements(experiments), *_held_out_cells(held_out)]
    types = dict.fromkeys(CELL, pl.String()) | {"recomputed": pl.Float64()}
    cells = pl.DataFrame(recomputed, schema=types, orient="row").with_columns(input_reach=0.0)
    table, verdict = pl.col("table"), pl.col("verdict")
    note = table.replace_strict(NOTES, default="Unexplained.", return_dtype=pl.String)
    judged = with_verdicts(printed_cells(TABLES, decimals=2), cells)
    noted = judged.with_columns(note=pl.when((verdict == "differs") | (table == "2")).then(note))
    return noted.select(list(PUBLISHED_CELLS)).cast(PUBLISHED_CELLS)


def _total_cells(totals: pl.DataFrame) -> Iterator[Cell]:
    row = totals.filter(rules=RELEASED.name).row(0, named=True)
    names = ("n_experiments", "above_standard", "above_max", "disagreements", "flipped_share")
    for column, name in zip(TABLES[1].columns, names, strict=True):
        yield "section 5.1", "all", column, float(row[name])


def _disagreements(experiments: pl.DataFrame) -> Iterator[Cell]:
    counted = experiments.with_columns(between=pl.col("released_verdict") == "between")
    for group in (pl.col("dataset"), pl.format("{}, {}-shot", "model", "shots")):
        by_row = counted.group_by(group.alias("row"), maintain_order=True).agg(pl.col("between").sum())
        for row, n in by_row.iter_rows():
            yield "1", row, "disagreements", float(n)


def _held_out_cells(held_out: pl.DataFrame) -> Iterator[Cell]:
    authors = held_out.filter(pl.col("predictor").is_in(PREDICTORS), splits="authors'", tries=data.STATED_PROMPTS)
    for table, over in (("3", ("model", "all")), ("4", ("dataset",))):
        for row in authors.filter(pl.col("over").is_in(over)).to_dicts():
            if row["predictor"] == PREDICTORS[0]:
                yield table, row["group"], "share above", row["held_out_share"]
            for score in PRINTED_SCORES[table]:
                yield table, row["group"], f"{score}, {row['predictor']}", row[score]


def summary_lines(published: Published) -> Iterator[str]:
    """Yield totals under each set of rules, then scores of predictors of held-out accuracy, at the highest tries."""
    tables = published.tables
    heads = ("rules", "experiments", "> standard", "> both", "disagree", "share")
    yield from text_table([heads, *((*counts, f"{share:.1%}") for *counts, share in tables["totals"].rows())])
    yield ""
    max_tries = int(tables["held_out"]["tries"].to_numpy().max())
    rows: list[Sequence[object]] = [(f"held out, best of {max_tries} prompts", "predictor", *held_out.SCORES)]
    for row in tables["held_out"].filter(over="all", tries=max_tries).iter_rows(named=True):
        scores = ("" if row[score] is None else f"{row[score]:.2f}" for score in held_out.SCORES)
        rows.append((f"{row['splits']} splits, {row['rules']}", row["predictor"], *scores))
    yield from text_table(rows)


PUBLISHED_CURVES = declare(
    **EXPERIMENT_COLUMNS,
    tries=pl.Int64(),
    expected_maximum=pl.Float64(),  # expected best accuracy of so many prompts
    standard_tail=pl.Float64(),  # of one random classifier reaching it, under the authors' n and chance
    max_tail=pl.Float64(),  # of the best of `tries` reaching it
)
PUBLISHED_BASELINES = declare(
    dataset=pl.String(),
    rules=pl.String(),  # "released" | "sound"
    n=pl.Int64(),
    chance=pl.Float64(),
    tries=pl.Int64(),
    max_random=pl.Float64(),
)

TRIES: Ints = log_spaced(1, data.STATED_PROMPTS, 60)
"""Numbers of tries, evenly spaced on a logarithmic axis, because the first tries gain most."""


def expected_curves(prompts: pl.DataFrame) -> pl.DataFrame:
    """Return PUBLISHED_CURVES: the expected accuracy of the best of several prompts, and how often guessing reaches it.

    As in the paper's figures 3, 4 and 9 to 11, tails are for the number of examples of the task, at most 200, and for
    the authors' chance; one-shot curves of small tasks end at the task's number of rows.

    Args:
        prompts: rows of `read_prompts`.
    """
    frames = []
    for (model, dataset, shots), rows in prompts.partition_by(EXPERIMENT, as_dict=True, maintain_order=True).items():
        task = TASKS[str(dataset)]
        n, chance = task.n_sampled, float(task.stated_chance)
        tries = TRIES[np.less_equal(TRIES, n) | (shots != 1)]
        curve = expected_curve((rows["correct"] / rows["n_examples"]).to_numpy(), n, chance, tries)
        names = dict(zip(EXPERIMENT, (model, dataset, shots), strict=True))
        frames.append(curve.with_columns(pl.lit(value).alias(name) for name, value in names.items()))
    return pl.concat(frames).select(list(PUBLISHED_CURVES)).cast(PUBLISHED_CURVES)


def baseline_curves(chances: pl.DataFrame) -> pl.DataFrame:
    """Return PUBLISHED_BASELINES of every task, as the authors draw them and with the real examples and chances.

    Args:
        chances: columns dataset and chance, one row an example, of one experiment for each task.
    """
    frames = []
    for (name,), rows in chances.partition_by("dataset", as_dict=True, maintain_order=True).items():
        task = TASKS[str(name)]
        stated = np.full(task.n_sampled, float(task.stated_chance))
        for judged, chance in (("released", stated), ("sound", rows["chance"].to_numpy())):
            about = {"dataset": name, "rules": judged, "n": len(chance), "chance": chance.mean(), "tries": TRIES}
            max_random = np.asarray(max_random_accuracy(len(chance), chance, TRIES))
            frames.append(pl.DataFrame(about | {"max_random": max_random}))
    return pl.concat(frames).select(list(PUBLISHED_BASELINES)).cast(PUBLISHED_BASELINES)


def accuracy_histogram(prompts: pl.DataFrame, n: int, chance: float, tries: int) -> pl.DataFrame:
    """Return figure 1: the shares of prompts, random classifiers and best ones of `tries` with each accuracy.

    Args:
        prompts: of one experiment, each scored on n examples.
    """
    counts = np.bincount(prompts["correct"].to_numpy(), minlength=n + 1) / prompts.height
    return pl.DataFrame(
        {
            "accuracy": np.arange(n + 1) / n,
            "prompts": counts,
            "random classifier": max_random_pmf(n, chance),
            "best of many random classifiers": max_random_pmf(n, chance, tries),
        }
    )
