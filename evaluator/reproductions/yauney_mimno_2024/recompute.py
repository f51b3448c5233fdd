"""Recompute the published experiments of Yauney & Mimno 2024 from the released results."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from evaluator.progress import Progress, Stage
from evaluator.random_baselines.max_random import max_random_tail
from evaluator.reproductions.base import text_table
from evaluator.reproductions.yauney_mimno_2024 import curves, data, held_out, rules
from evaluator.reproductions.yauney_mimno_2024.cells import judged_cells
from evaluator.reproductions.yauney_mimno_2024.data import EXPERIMENT, EXPERIMENT_COLUMNS, PublishedData
from evaluator.reproductions.yauney_mimno_2024.rules import RELEASED, SOUND, Mix
from evaluator.reproductions.yauney_mimno_2024.tasks import TASKS

PUBLISHED_EXPERIMENTS = pl.Schema(  # one row a published experiment; "released": the authors' rules, "sound": ours
    {
        **EXPERIMENT_COLUMNS,
        "best_prompt": pl.Int64(),  # of the highest accuracy, the lowest id of equals
        "n": pl.Int64(),  # examples on which it was scored
        "correct": pl.Int64(),
        "accuracy": pl.Float64(),
        "n_best": pl.Int64(),  # prompts with the same accuracy
        "n_prompts": pl.Int64(),
        "n_distinct_prompts": pl.Int64(),
        "released_n": pl.Int64(),
        "released_chance": pl.Float64(),
        "released_tries": pl.Int64(),
        "released_max_random": pl.Float64(),
        "released_verdict": pl.String(),  # Verdict of random_baselines/max_random.py
        "sound_chance": pl.Float64(),
        "sound_tries": pl.Int64(),
        "sound_max_random": pl.Float64(),
        "sound_verdict": pl.String(),
        "log10_standard_tail": pl.Float64(),  # under sound rules, of `correct` or more
        "log10_max_tail": pl.Float64(),
        "reason": pl.String(),  # why the sound verdict differs; null where it does not
        "choices_source": pl.String(),  # "task": chances are from the task's file | "authors": from their constants
        "n_without_query": pl.Int64(),  # prompts that lost their query when they were cut
        "best_without_query": pl.Boolean(),
        "same_losses_as": pl.String(),  # models whose losses are equal bit for bit; null where there is none
    }
)

ONCE = "sound, models that are the same once"
"""Name of the sound rules in totals that count identical models once."""


@dataclass(frozen=True, kw_only=True)
class PublishedTables:
    """The tables that are written."""

    experiments: pl.DataFrame  # PUBLISHED_EXPERIMENTS
    verdicts: pl.DataFrame  # PUBLISHED_VERDICTS
    totals: pl.DataFrame  # PUBLISHED_TOTALS
    identical_models: pl.DataFrame  # PUBLISHED_IDENTICAL
    held_out: pl.DataFrame  # PUBLISHED_HELD_OUT
    curves: pl.DataFrame  # PUBLISHED_CURVES
    baselines: pl.DataFrame  # PUBLISHED_BASELINES
    cells: pl.DataFrame  # PUBLISHED_CELLS
    held_out_spread: pl.DataFrame  # PUBLISHED_SPREAD
    query_rules: pl.DataFrame  # PUBLISHED_QUERY_RULES


@dataclass(frozen=True, kw_only=True)
class Published:
    """The tables, and the data that figures need in addition."""

    tables: PublishedTables
    prompts: pl.DataFrame  # rows of read_prompts
    authors_trials: pl.DataFrame  # columns TRIALS of held_out.py
    seeded_trials: held_out.SeededTrials


def recompute(released: PublishedData) -> Stage[Published]:
    """Compute every table of the published experiments. Raises DatasetError for unexpected rows."""
    yield Progress(stage="Reading predictions", done=0, total=1, unit="files")
    prompts = data.read_prompts(released)
    yield Progress(stage="Reading predictions", done=1, total=1, unit="files")
    best = rules.best_prompts(prompts)
    mixes = rules.best_prompt_mixes(released, best)
    verdicts = rules.judge(best, mixes)
    pairs = data.identical_models(prompts)
    experiments = _experiments(best, mixes, verdicts, data.same_losses_as(best, pairs))
    chances = rules.example_chances(released)
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
    tables = PublishedTables(
        experiments=experiments,
        verdicts=verdicts,
        totals=totals,
        identical_models=pairs,
        held_out=predicted,
        cells=judged_cells(experiments, totals, predicted),
        held_out_spread=held_out.spread_table(authors, seeded.released),
        query_rules=data.query_rules(prompts),
        curves=curves.expected_curves(prompts),
        baselines=curves.baseline_curves(examples.select("dataset", "chance")),
    )
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


def summary_lines(published: Published) -> Iterator[str]:
    """Yield totals under each set of rules, then scores of predictors of held-out accuracy, at the highest tries."""
    tables = published.tables
    heads = ("rules", "experiments", "> standard", "> both", "disagree", "share")
    yield from text_table([heads, *((*counts, f"{share:.1%}") for *counts, share in tables.totals.rows())])
    yield ""
    max_tries = int(tables.held_out["tries"].to_numpy().max())
    rows: list[Sequence[object]] = [(f"held out, best of {max_tries} prompts", "predictor", *held_out.SCORES)]
    for row in tables.held_out.filter(over="all", tries=max_tries).iter_rows(named=True):
        scores = ("" if row[score] is None else f"{row[score]:.2f}" for score in held_out.SCORES)
        rows.append((f"{row['splits']} splits, {row['rules']}", row["predictor"], *scores))
    yield from text_table(rows)
