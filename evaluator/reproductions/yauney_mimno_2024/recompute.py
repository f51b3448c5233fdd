"""Judge the published experiments of Yauney & Mimno 2024 by the authors' rules and by sounder rules.

Also recompute, from the released results, the printed numbers and the curves of the published figures: expected maximum
accuracy and random baselines by number of tries.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import polars as pl

from evaluator.arrays import Floats, Ints
from evaluator.progress import Progress, Stage
from evaluator.random_baselines.calculator import expected_curve, log_spaced
from evaluator.random_baselines.max_random import (
    is_above,
    max_random_accuracy,
    max_random_pmf,
    max_random_tail,
    verdict,
    verdict_counts,
)
from evaluator.reproductions.base import Tables, text_table
from evaluator.reproductions.cells import CELL, JUDGED, PRINTED, printed_cells, printed_tables, with_verdicts
from evaluator.reproductions.yauney_mimno_2024 import data, held_out
from evaluator.reproductions.yauney_mimno_2024.data import EXPERIMENT, EXPERIMENT_COLUMNS, TASKS
from evaluator.schemas import declare

PUBLISHED_VERDICTS = declare(  # one row per experiment and set of Rules
    **EXPERIMENT_COLUMNS,
    rules=pl.String(),
    n=pl.Int64(),  # number of examples for which the baselines are computed
    chance=pl.Float64(),  # the standard baseline: mean chance of guessing an example right
    tries=pl.Int64(),
    max_random=pl.Float64(),  # expected accuracy of the best of `tries` random classifiers
    verdict=pl.String(),  # Verdict of random_baselines/max_random.py
)
PUBLISHED_TOTALS = declare(
    rules=pl.String(),
    n_experiments=pl.Int64(),
    above_standard=pl.Int64(),
    above_max=pl.Int64(),
    disagreements=pl.Int64(),  # above the standard baseline and not above the maximum random one
    flipped_share=pl.Float64(),  # disagreements / above_standard
)


@dataclass(frozen=True, kw_only=True)
class Rules:
    """A set of rules for judging an experiment; "stated" is the rule of the authors' `full-results.py`."""

    name: str
    # Number of examples: rows of the task minus demonstrations, or 200 if sampled | the examples with a prediction.
    n: Literal["stated", "present"]
    # Chances: one per task | one per example, but only in logical_deduction | one per example in all tasks.
    chance: Literal["stated", "logical_deduction", "task"]
    # Number of prompts: 200, or the rows of a smaller task with one shot | the distinct prompts that were run.
    tries: Literal["stated", "distinct"]
    # Above a baseline: >= the standard and > the maximum baseline | > both baselines, as in the rest of this package.
    above: Literal["stated", "more"]


RELEASED = Rules(name="released", n="stated", chance="stated", tries="stated", above="stated")
N_PRESENT = Rules(name="n present", n="present", chance="stated", tries="stated", above="stated")
LOGICAL_DEDUCTION = replace(N_PRESENT, name="+ choices of logical_deduction", chance="logical_deduction")
ALL_CHOICES = Rules(name="+ choices of every task", n="present", chance="task", tries="stated", above="stated")
DISTINCT = Rules(name="+ distinct prompts", n="present", chance="task", tries="distinct", above="stated")
SOUND = Rules(name="sound", n="present", chance="task", tries="distinct", above="more")
DISTINCT_ALONE = Rules(name="distinct prompts alone", n="stated", chance="stated", tries="distinct", above="stated")

STEPS = (RELEASED, N_PRESENT, LOGICAL_DEDUCTION, ALL_CHOICES, DISTINCT, SOUND)
"""Sets of rules from the authors' to sound rules. Every step makes one change, which is the reason if a verdict changes
at that step."""

ALL_RULES = (*STEPS, DISTINCT_ALONE)


def best_prompts(prompts: pl.DataFrame) -> pl.DataFrame:
    """Return the best prompt of every experiment (among equals, the lowest id), its accuracy, and counts of prompts.

    Args:
        prompts: rows of `read_prompts`.
    """
    measured = prompts.with_columns(accuracy=pl.col("correct") / pl.col("n_examples"))
    best_first = measured.sort([*EXPERIMENT, -pl.col("accuracy"), "prompt_id"])
    return best_first.group_by(EXPERIMENT, maintain_order=True).agg(
        pl.col("correct", "accuracy", "demonstration_ids").first(),
        best_prompt=pl.col("prompt_id").first(),
        n=pl.col("n_examples").first(),
        n_best=(pl.col("accuracy") == pl.col("accuracy").first()).sum(),
        n_prompts=pl.len(),
        n_distinct_prompts=pl.col("demonstration_ids").n_unique(),
        n_without_query=(~pl.col("with_query")).sum(),
        best_without_query=~pl.col("with_query").first(),
    )


def judge(experiments: pl.DataFrame, chances: Sequence[Floats]) -> pl.DataFrame:
    """Judge every experiment under all sets of rules, in the order of ALL_RULES: PUBLISHED_VERDICTS.

    Args:
        experiments: rows of `best_prompts`.
        chances: per experiment, the chances of the examples on which its best prompt was scored.
    """
    return pl.concat([_judge(experiments, chances, rules) for rules in ALL_RULES])


def _judge(experiments: pl.DataFrame, chances: Sequence[Floats], rules: Rules) -> pl.DataFrame:
    n, used, tries = [], list[Floats](), []
    for row, of_examples in zip(experiments.to_dicts(), chances, strict=True):
        task = TASKS[row["dataset"]]
        n.append(row["n"] if rules.n == "present" else task.stated_n(row["shots"]))
        used.append(of_examples if rules.chance in ("task", row["dataset"]) else np.full(n[-1], task.stated_chance))
        tries.append(row["n_distinct_prompts"] if rules.tries == "distinct" else task.stated_tries(row["shots"]))
    judged = experiments.select(
        *EXPERIMENT,
        pl.lit(rules.name).alias("rules"),
        pl.Series("n", n),
        # math.fsum is exact, so the same chances in another order have the same mean.
        pl.Series("chance", [math.fsum(of_examples) / len(of_examples) for of_examples in used]),
        pl.Series("tries", tries),
        pl.Series("max_random", np.asarray(max_random_accuracy(n, used, tries))),
        "accuracy",
    )
    return judged.with_columns(verdict=_verdict(rules)).drop("accuracy").cast(PUBLISHED_VERDICTS)


def _verdict(rules: Rules) -> pl.Expr:
    """Return the expression of the verdict on an accuracy.

    The two rules differ if the accuracy equals chance, which does not occur in the published experiments.
    """
    accuracy, chance, max_random = pl.col("accuracy"), pl.col("chance"), pl.col("max_random")
    if rules.above == "more":
        return verdict(accuracy, chance, max_random)
    above_chance = pl.when(is_above(accuracy, max_random)).then(pl.lit("above both")).otherwise(pl.lit("between"))
    return pl.when(is_above(chance, accuracy)).then(pl.lit("below both")).otherwise(above_chance)


def verdict_totals(verdicts: pl.DataFrame) -> pl.DataFrame:
    """Count the verdicts under every set of rules, in the order of the rows: PUBLISHED_TOTALS."""
    by_rules = verdicts.group_by("rules", maintain_order=True)
    return by_rules.agg(n_experiments=pl.len(), **verdict_counts()).cast(PUBLISHED_TOTALS)


def reasons(verdicts: pl.DataFrame) -> list[str | None]:
    """Explain, for every experiment, why the sound verdict differs from the released verdict; None where they agree.

    A step of STEPS includes the changes of earlier steps. An explanation names the steps at which the verdict changed.

    Args:
        verdicts: PUBLISHED_VERDICTS of one or more experiments, under all rules of STEPS.
    """
    steps = [verdicts.filter(rules=rules.name).iter_rows(named=True) for rules in STEPS]
    return [_reason(rows) for rows in zip(*steps, strict=True)]


def _reason(rows: Sequence[Mapping[str, Any]]) -> str | None:
    """Explain the change of one experiment, given its verdicts in the order of STEPS."""
    if rows[0]["verdict"] == rows[-1]["verdict"]:
        return None
    steps = [(before, after) for before, after in pairwise(rows) if before["verdict"] != after["verdict"]]
    return "; ".join(f"{_change(before, after)}: {after['verdict']}" for before, after in steps)


def _change(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    if before["n"] != after["n"]:
        return f"{after['n']} examples are there, not {before['n']}"
    if before["tries"] != after["tries"]:
        return f"{after['tries']} different prompts ran, not {before['tries']}"
    if before["chance"] != after["chance"]:
        return f"a guess is right with probability {after['chance']:.4g}, not {before['chance']:.4g}"
    return "an accuracy equal to a baseline is not above it"


PUBLISHED_EXPERIMENTS = declare(  # one row per published experiment; released_: the authors' rules, sound_: ours
    **EXPERIMENT_COLUMNS,
    best_prompt=pl.Int64(),  # prompt with the highest accuracy; among equals, the lowest id
    n=pl.Int64(),  # number of examples on which the best prompt was scored
    correct=pl.Int64(),
    accuracy=pl.Float64(),
    n_best=pl.Int64(),  # number of prompts with the highest accuracy
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
    log10_standard_tail=pl.Float64(),  # log10 probability that one random classifier has `correct` or more right
    log10_max_tail=pl.Float64(),  # the same for the best of sound_tries random classifiers
    reason=pl.String(),  # why the sound verdict differs; null where it does not
    choices_source=pl.String(),  # "task": chances are from the task's file | "authors": from the authors' constants
    n_without_query=pl.Int64(),  # number of prompts whose query was cut off
    best_without_query=pl.Boolean(),  # whether the query of the best prompt was cut off
    same_losses_as=pl.String(),  # models whose losses are equal bit for bit; null where there is none
)

ONCE = "sound, models that are the same once"
"""Name of the row of totals under sound rules in which identical models count once."""

PUBLISHED_CELLS = declare(  # one row per number that the paper prints
    **PRINTED,
    recomputed=pl.Float64(),  # null where the data do not have it or it is undefined
    **JUDGED,
)

PREDICTORS = ("standard", "max")
PRINTED_SCORES = {"3": ("accuracy", "precision", "recall", "auroc", "aupr"), "4": ("auroc", "aupr")}
"""Number of a printed table of held-out trials -> its scores, which the table prints for both PREDICTORS."""

SECTION_4 = "n = 100, two choices, best of 10"
"""Row for the number in the sentence "A dataset of n = 100 examples has an expected max accuracy of 0.575 after only
t = 10 evaluations."."""

TABLES = printed_tables("yauney_mimno_2024")

NOTES = {
    "2": "The results of models that were not quantised are not released.",
    "section 4": "By equation 8; the number in the text is not what the equation gives: unexplained.",
}
"""Table or section -> note on its cells that differ from the recomputed numbers."""

Cell = tuple[str, str, str, float | None]
"""Table, row, column, and recomputed number."""


@dataclass(frozen=True, kw_only=True)
class Published:
    """The recomputed tables, and further data for the figures."""

    tables: Tables
    prompts: pl.DataFrame  # rows of read_prompts
    authors_trials: pl.DataFrame  # columns TRIALS of held_out.py
    seeded_trials: pl.DataFrame  # the same columns, for seeded splits under the authors' rules
    sound_trials: pl.DataFrame  # the same columns, for seeded splits under sound rules


def recompute(released: data.PublishedData) -> Stage[Published]:
    """Compute all tables of the published experiments. Raises DatasetError for unexpected rows."""
    yield Progress(stage="Reading predictions", done=0, total=1, unit="files")
    prompts = data.read_prompts(released)
    yield Progress(stage="Reading predictions", done=1, total=1, unit="files")
    best = best_prompts(prompts)
    best_chances = data.best_prompt_chances(released, best)
    verdicts = judge(best, best_chances)
    pairs = data.identical_models(prompts)
    experiments = _experiments(best, best_chances, verdicts, data.same_losses_as(best, pairs))
    chances = data.example_chances(released)
    seeded, sound = yield from held_out.seeded_trials(released, prompts, chances)
    authors = held_out.published_trials(released)
    # Sound verdicts without repeats: of identical models, only the first by name is kept.
    repeated = pairs.select("dataset", "shots", model="other_model")
    once = verdicts.filter(rules=SOUND.name).join(repeated, on=EXPERIMENT, how="anti", maintain_order="left")
    totals = pl.concat([verdict_totals(verdicts), verdict_totals(once.with_columns(rules=pl.lit(ONCE)))])
    predicted = held_out.held_out_table(authors, seeded, sound)
    # Use the examples of the first experiment with a task as the examples of the task.
    first = experiments.unique("dataset", keep="first", maintain_order=True).select("dataset", data.experiment_name())
    examples = first.join(chances, on="experiment", maintain_order="left")
    tables = {
        "experiments": experiments,
        "verdicts": verdicts,
        "totals": totals,
        "identical_models": pairs,
        "held_out": predicted,
        "cells": judged_cells(experiments, totals, predicted),
        "held_out_spread": held_out.spread_table(authors, seeded),
        "query_rules": data.query_rules(prompts),
        "curves": expected_curves(prompts),
        "baselines": baseline_curves(examples.select("dataset", "chance")),
    }
    return Published(tables=tables, prompts=prompts, authors_trials=authors, seeded_trials=seeded, sound_trials=sound)


def _experiments(best: pl.DataFrame, chances: list[Floats], verdicts: pl.DataFrame, same_as: pl.Series) -> pl.DataFrame:
    """Return PUBLISHED_EXPERIMENTS: verdicts under the authors' and under sound rules, and reasons for differences."""
    released, sound = (verdicts.filter(rules=judged.name) for judged in (RELEASED, SOUND))
    numbers = ("n", "chance", "tries", "max_random", "verdict")
    # Tails of one random classifier, and of the best of as many as the experiment has tries.
    correct, n = best["correct"].to_numpy(), best["n"].to_numpy()
    tries = np.stack([np.ones_like(n), sound["tries"].to_numpy()])
    standard_tails, max_tails = np.asarray(max_random_tail(correct, n, chances, tries, log10=True))
    sources = {name: task.source for name, task in TASKS.items()}
    return (
        best.with_columns(
            **{f"released_{name}": released[name] for name in numbers},
            **{f"sound_{name}": sound[name] for name in numbers[1:]},
            log10_standard_tail=standard_tails,
            log10_max_tail=max_tails,
            reason=pl.Series(reasons(verdicts), dtype=pl.String),
            choices_source=pl.col("dataset").replace_strict(sources),
            same_losses_as=same_as,
        )
        .select(list(PUBLISHED_EXPERIMENTS))
        .cast(PUBLISHED_EXPERIMENTS)
    )


def judged_cells(experiments: pl.DataFrame, totals: pl.DataFrame, held_out: pl.DataFrame) -> pl.DataFrame:
    """Compare the printed numbers with recomputed numbers, in the order of TABLES: PUBLISHED_CELLS.

    Args:
        experiments: PUBLISHED_EXPERIMENTS.
        totals: PUBLISHED_TOTALS.
        held_out: PUBLISHED_HELD_OUT. Tables 3 and 4 are compared with its rows for the authors' released trials.
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
    for column, name in zip(TABLES[1].columns, PUBLISHED_TOTALS.names()[1:], strict=True):
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
    """Yield totals under every set of rules, then scores of held-out predictors for the largest number of tries."""
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
    expected_maximum=pl.Float64(),  # expected accuracy of the best of `tries` prompts
    standard_tail=pl.Float64(),  # probability that one random classifier reaches it, under the authors' n and chance
    max_tail=pl.Float64(),  # probability that the best of `tries` random classifiers reaches it
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
"""Numbers of tries, evenly spaced on a logarithmic scale, because the first tries improve accuracy most."""


def expected_curves(prompts: pl.DataFrame) -> pl.DataFrame:
    """Compute the expected accuracy of the best of several prompts, and how often guessing reaches it.

    As in figures 3, 4 and 9 to 11 of the paper, tails use the number of examples of the task, at most 200, and the
    authors' chance; one-shot curves of small tasks end at the number of rows of the task. Returns PUBLISHED_CURVES.

    Args:
        prompts: rows of `read_prompts`.
    """
    frames = []
    for (model, dataset, shots), rows in prompts.partition_by(EXPERIMENT, as_dict=True, maintain_order=True).items():
        task = TASKS[str(dataset)]
        n, chance = task.n_sampled, task.stated_chance
        tries = TRIES[np.less_equal(TRIES, n) | (shots != 1)]
        curve = expected_curve((rows["correct"] / rows["n_examples"]).to_numpy(), n, chance, tries)
        names = dict(zip(EXPERIMENT, (model, dataset, shots), strict=True))
        frames.append(curve.with_columns(pl.lit(value).alias(name) for name, value in names.items()))
    return pl.concat(frames).select(list(PUBLISHED_CURVES)).cast(PUBLISHED_CURVES)


def baseline_curves(chances: pl.DataFrame) -> pl.DataFrame:
    """Compute the baselines of every task, by the authors' rules and with actual chances: PUBLISHED_BASELINES.

    Args:
        chances: columns dataset and chance, one row per example, from one experiment per task.
    """
    frames = []
    for (name,), rows in chances.partition_by("dataset", as_dict=True, maintain_order=True).items():
        task = TASKS[str(name)]
        stated = np.full(task.n_sampled, task.stated_chance)
        for judged, chance in (("released", stated), ("sound", rows["chance"].to_numpy())):
            about = {"dataset": name, "rules": judged, "n": len(chance), "chance": chance.mean(), "tries": TRIES}
            max_random = np.asarray(max_random_accuracy(len(chance), chance, TRIES))
            frames.append(pl.DataFrame(about | {"max_random": max_random}))
    return pl.concat(frames).select(list(PUBLISHED_BASELINES)).cast(PUBLISHED_BASELINES)


def accuracy_histogram(prompts: pl.DataFrame, n: int, chance: float, tries: int) -> pl.DataFrame:
    """Return the histograms of figure 1: shares of prompts, of random classifiers and of the best of `tries`.

    Args:
        prompts: rows of `read_prompts` of one experiment, all scored on n examples.
        n: number of examples.
        chance: chance of guessing an example right.
        tries: number of random classifiers.

    Returns:
        One row per accuracy 0, 1/n, ..., 1.
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
