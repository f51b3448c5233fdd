"""Test how well random baselines predict held-out accuracy, on the authors' splits and on seeded splits."""

import math
from dataclasses import replace

import numpy as np
import polars as pl

from evaluator.metrics.classification import jackknife
from evaluator.progress import Progress, Stage
from evaluator.random_baselines import held_out as base
from evaluator.random_baselines.max_random import max_random_accuracy, max_random_tail
from evaluator.reproductions.yauney_mimno_2024 import data
from evaluator.schemas import declare

PUBLISHED_HELD_OUT = declare(
    splits=pl.String(),  # "authors'": the released trials | "seeded": splits drawn by this module
    rules=pl.String(),  # "released": the authors' rules | "sound"
    tries=pl.Int64(),
    over=pl.String(),  # column by which trials are grouped: "all" | "model" | "dataset"
    group=pl.String(),
    **base.HELD_OUT_PREDICTION,
)
PUBLISHED_SPREAD = declare(  # scores over the authors' splits and over seeded splits, under the authors' rules
    predictor=pl.String(),
    score=pl.String(),
    authors=pl.Float64(),
    seeded=pl.Float64(),
    difference=pl.Float64(),  # seeded - authors
    standard_error=pl.Float64(),  # standard error of the difference, by a jackknife over the splits of both
    z=pl.Float64(),  # difference / standard_error
)

TRIES = (1, 2, 5, 10, 100, data.STATED_PROMPTS)
SEED = 0

SCORES = ("accuracy", "precision", "recall", "auroc", "aupr")

TRIALS_KEY = ["tries", *data.EXPERIMENT, "split"]
TRIALS = [*TRIALS_KEY, *base.VERDICTS.values(), *base.SCORES.values(), base.OUTCOME]
"""Columns of a table of trials: the key, the predictions, and the outcome with which predictions are compared."""


def published_trials(released: data.PublishedData) -> pl.DataFrame:
    """Return the released trials, with the columns TRIALS. Their splits had no seed and cannot be drawn again.

    The columns of log10 tails have -F instead, the negated distribution function: only the order of tails matters, and
    1 - F would round different small values of F to the same number.
    """
    return released.held_out.select(
        pl.col("model").replace_strict(data.HELD_OUT_MODELS),
        "dataset",
        "shots",
        pl.col("t").cast(pl.Int64).alias("tries"),
        "split",
        above_standard_on_train=pl.col("above_standard_random_on_train").cast(pl.Boolean),
        above_max_on_train=pl.col("above_max_random_on_train").cast(pl.Boolean),
        log10_standard_tail=-pl.col("standard_random_f"),
        log10_max_tail=-pl.col("max_random_f"),
        above_standard_on_test=pl.col("above_standard_random_on_test").cast(pl.Boolean),
    ).sort(TRIALS_KEY)


def seeded_trials(
    released: data.PublishedData, prompts: pl.DataFrame, chances: pl.DataFrame
) -> Stage[tuple[pl.DataFrame, pl.DataFrame]]:
    """Search for the best prompt on a hundred seeded splits of every experiment.

    Under sound rules, repeated prompts are one try, and only the examples on which the best prompt was scored count.
    Under the authors' rules, all 200 prompts are tries, and demonstrations count as examples.

    Args:
        released: the released results.
        prompts: rows of `read_prompts`.
        chances: CHANCES of every experiment.

    Returns:
        Two tables with the columns TRIALS: under the authors' rules, for 200 tries, and under sound rules, for the
        numbers of tries in TRIES.
    """
    n_experiments = prompts.n_unique(data.EXPERIMENT)
    ids = data.distinct_prompts(prompts).group_by(data.experiment_name()).agg("prompt_id")
    distinct: dict[str, list[int]] = dict(ids.iter_rows())
    by_authors, sound = [], []
    yield Progress(stage="Splitting", done=0, total=n_experiments, unit="experiments")
    for done, experiment in enumerate(base.read_experiments(released.correctness(prompts), chances), start=1):
        sound.append(base.search(_with_prompts(experiment, distinct[experiment.name]), TRIES, seed=SEED))
        searches = base.search(experiment, [data.STATED_PROMPTS], seed=SEED)
        n_part = base.train_size(experiment.scored.shape[1])
        by_authors.append(searches.with_columns(n_train_part=pl.lit(n_part, dtype=pl.Int64)))
        yield Progress(stage="Splitting", done=done, total=n_experiments, unit="experiments")
    names = prompts.select(*data.EXPERIMENT, data.experiment_name()).unique()
    judged = (
        _judged_as_released(pl.concat(by_authors).join(names, on="experiment")),
        base.with_baselines(pl.concat(sound)).join(names, on="experiment"),
    )
    as_released, as_sound = (trials.select(TRIALS).sort(TRIALS_KEY) for trials in judged)
    return as_released, as_sound


def _with_prompts(experiment: base.Experiment, prompts: list[int]) -> base.Experiment:
    selected = np.isin(experiment.prompts, prompts)
    return replace(
        experiment,
        prompts=experiment.prompts[selected],
        scored=experiment.scored[selected],
        correct=experiment.correct[selected],
    )


def _judged_as_released(searches: pl.DataFrame) -> pl.DataFrame:
    """Add baselines and tails to searches by the rules of the authors' `bigbench-held-out-splits.py`.

    These use the size of the train part, and one chance for all examples of a task.

    Args:
        searches: HELD_OUT_SEARCHES with model, dataset, shots, and n_train_part, the number of examples in the train
            part.
    """
    chances = {name: task.stated_chance for name, task in data.TASKS.items()}
    chance = searches["dataset"].replace_strict(chances, return_dtype=pl.Float64)
    n, p, tries = (column.to_numpy() for column in (searches["n_train_part"], chance, searches["tries"]))
    accuracy = pl.col("correct_train") / pl.col("n_train")
    # The authors use the distribution function at floor(n x accuracy): one minus the tail of the next larger count.
    next_count = searches.select((pl.col("n_train_part") * accuracy).floor().cast(pl.Int64) + 1).to_series().to_numpy()
    both = np.stack([np.ones_like(tries), tries])
    tails = max_random_tail(np.minimum(next_count, n), n, p, both, log10=True)
    standard_tails, max_tails = np.where(next_count > n, -np.inf, tails)
    return searches.with_columns(
        above_standard_on_train=accuracy > chance,
        above_max_on_train=accuracy > pl.Series(np.asarray(max_random_accuracy(n, p, tries))),
        above_standard_on_test=pl.col("correct_test") / pl.col("n_test") > chance,
        log10_standard_tail=standard_tails,
        log10_max_tail=max_tails,
    )


N_GROUPS = 20
"""Number of groups of splits that the jackknife of spread_table leaves out in turn."""


def spread_table(authors: pl.DataFrame, seeded: pl.DataFrame) -> pl.DataFrame:
    """Compare scores over the authors' splits with scores over seeded splits, for 200 tries: PUBLISHED_SPREAD.

    Both sets of splits are random draws, so the variance of the difference is the sum of both variances.

    Args:
        authors, seeded: trials under the authors' rules, with the columns TRIALS.
    """
    trials = (each.filter(tries=data.STATED_PROMPTS) for each in (authors, seeded))
    (theirs, their_error), (ours, our_error) = map(_scores_with_errors, trials)
    rows = [
        (*key, theirs[key], ours[key], ours[key] - theirs[key], math.hypot(their_error[key], our_error[key]))
        for key in theirs
    ]
    table = pl.DataFrame(rows, schema=PUBLISHED_SPREAD.names()[:-1], orient="row")
    return table.with_columns(z=pl.col("difference") / pl.col("standard_error")).cast(PUBLISHED_SPREAD)


ScoreKey = tuple[str, str]  # predictor and score


def _scores_with_errors(trials: pl.DataFrame) -> tuple[dict[ScoreKey, float], dict[ScoreKey, float]]:
    """Return the scores of trials, and their standard errors by a jackknife over N_GROUPS groups of splits."""
    group, scores = pl.col("split") % N_GROUPS, _scores(trials)
    without_one = [_scores(trials.filter(group != left_out)) for left_out in trials.select(group).to_series().unique()]
    errors = {}
    for key, score in scores.items():
        left = np.array([without.get(key, math.nan) for without in without_one])
        errors[key] = jackknife(score, left)[0] or 0.0
    return scores, errors


def _scores(trials: pl.DataFrame) -> dict[ScoreKey, float]:
    rows = base.held_out_prediction(trials, ["tries"]).to_dicts()
    return {(row["predictor"], score): row[score] for row in rows for score in SCORES if row[score] is not None}


def held_out_table(authors: pl.DataFrame, released: pl.DataFrame, sound: pl.DataFrame) -> pl.DataFrame:
    """Score the predictors over all trials, by model, and by task: PUBLISHED_HELD_OUT.

    Args:
        authors: published_trials.
        released, sound: the two tables of seeded_trials.
    """
    frames = []
    for splits, rules, trials in (
        ("authors'", "released", authors),
        ("seeded", "released", released),
        ("seeded", "sound", sound),
    ):
        for over, group in (("all", pl.lit("all")), ("model", pl.col("model")), ("dataset", pl.col("dataset"))):
            scored = base.held_out_prediction(trials.with_columns(group=group), ["tries", "group"])
            frames.append(scored.with_columns(splits=pl.lit(splits), rules=pl.lit(rules), over=pl.lit(over)))
    return pl.concat(frames).select(list(PUBLISHED_HELD_OUT)).cast(PUBLISHED_HELD_OUT)
