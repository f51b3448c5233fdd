"""Compare the best prompt of a search with random baselines, on its train part and on held-out examples."""

from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl

from evaluator.errors import DatasetError
from evaluator.random_baselines.binomial import FloatArray, IntArray
from evaluator.random_baselines.held_out_schema import CHANCES_KEY, CORRECTNESS_KEY, HELD_OUT_KEY, HELD_OUT_TRIALS
from evaluator.random_baselines.held_out_search import Experiment, Splits, search
from evaluator.random_baselines.max_random import max_random_accuracy, max_random_tail
from evaluator.random_baselines.verdicts import is_above

SETTING = ["train_chances", "train_counts", "n_prompts", "correct_train"]
"""Columns that determine the baselines and tails of a search."""

BASELINES = ["max_random_on_train", "log10_standard_tail", "log10_max_tail"]


def held_out_trials(
    correctness: pl.LazyFrame,
    chances: pl.DataFrame,
    *,
    tries: Sequence[int],
    n_splits: int = 100,
    seed: int = 0,
) -> pl.DataFrame:
    """Search for the best prompt of every split, and judge it by the baselines on the train and the test part.

    Args:
        correctness: CORRECTNESS, in any order and any integer width, without prompts of the same text, so that each
            prompt counts as one try. `experiment` may be categorical.
        chances: CHANCES, a row for every example of every experiment.
        tries: numbers of prompts to search, each in all splits. If there are fewer prompts, all are searched and the
            baselines are for their number.
        n_splits: random splits of the examples of each experiment.
        seed: the splits of an experiment depend only on this, its name, and its examples and prompts.

    Returns:
        HELD_OUT_TRIALS, one row for each experiment, number of tries and split, sorted by these. An accuracy is above a
        baseline if it is strictly more (verdicts.is_above); both count only examples that the prompt was scored on.

    Raises DatasetError when rows are repeated or missing, or a part of a split would be empty.
    Source: Yauney & Mimno 2024, section 5.2. Their released script counts demonstrations among the examples, and
    takes 200 tries where fewer prompts are possible.
    """
    splits = Splits(tries=tries, n_splits=n_splits, seed=seed)
    return with_baselines(
        pl.concat([search(experiment, splits) for experiment in read_experiments(correctness, chances)])
    )


def read_experiments(correctness: pl.LazyFrame, chances: pl.DataFrame) -> Iterator[Experiment]:
    """Yield each experiment as arrays, in the order of first appearance; raise DatasetError for inconsistent rows."""
    rows = correctness.select(*CORRECTNESS_KEY, pl.col("correct").cast(pl.Boolean)).collect(engine="streaming")
    if rows.is_empty():
        raise DatasetError("The correctness table has no rows, so there is nothing to split.")
    if any(rows.null_count().row(0)):
        raise DatasetError(f"Correctness has missing values, {rows.null_count().row(0, named=True)}: fill every row.")
    chances_by_name = dict(chances.partition_by("experiment", as_dict=True))
    for (name,), scored in rows.partition_by("experiment", as_dict=True, maintain_order=True).items():
        yield _experiment(str(name), scored, chances_by_name.get((str(name),), chances.clear()))


def _experiment(name: str, rows: pl.DataFrame, chances: pl.DataFrame) -> Experiment:
    # Ids become indices of the arrays [prompts, examples].
    prompts, prompt = np.unique(rows["prompt"].to_numpy(), return_inverse=True)
    examples, example = np.unique(rows["example"].to_numpy(), return_inverse=True)
    scored = np.zeros((len(prompts), len(examples)), dtype=np.bool_)
    scored[prompt, example] = True
    if scored.sum() < rows.height:
        twice = rows.select(CORRECTNESS_KEY).filter(pl.struct(CORRECTNESS_KEY).is_duplicated()).row(0)
        raise DatasetError(f"{name}: prompt {twice[1]} was scored twice on example {twice[2]}. Give each row once.")
    correct = np.zeros_like(scored)
    correct[prompt, example] = rows["correct"].to_numpy()
    return Experiment(
        name=name,
        prompts=prompts.astype(np.int64),
        scored=scored,
        correct=correct,
        chance=_chance_of(name, examples, chances),
    )


def _chance_of(name: str, examples: IntArray, chances: pl.DataFrame) -> FloatArray:
    ids = pl.DataFrame({"example": examples.astype(np.int64)})
    rows = ids.join(chances.cast({"example": pl.Int64}), on="example", how="left", maintain_order="left")
    if rows.height > ids.height:
        raise DatasetError(
            f"{name}: an example has several chances. Give one row for each {' and '.join(CHANCES_KEY)}."
        )
    wrong = rows.filter(~pl.col("chance").is_between(0, 1, closed="none").fill_null(False))
    if wrong.height:
        example, given = wrong.select("example", "chance").row(0)
        raise DatasetError(f"{name}: example {example} has chance {given}; give one between 0 and 1, both excluded.")
    return np.asarray(rows["chance"], dtype=np.float64)


def with_baselines(searches: pl.DataFrame) -> pl.DataFrame:
    """Turn HELD_OUT_SEARCHES into HELD_OUT_TRIALS: add baselines, tails and verdicts to every search."""
    # Compute each distinct setting once: those with one chance in one call, others in one call for each mix of chances.
    settings = searches.select(SETTING).unique(maintain_order=True)
    uniform = pl.col("train_chances").list.len() == 1
    groups = settings.filter(~uniform).partition_by("train_chances", "train_counts", maintain_order=True)
    numbers = [_uniform_baselines(settings.filter(uniform)), *map(_mixed_baselines, groups)]
    baselines = pl.DataFrame(np.concatenate(numbers), schema=dict.fromkeys(BASELINES, pl.Float64))
    of_setting = pl.concat([pl.concat([settings.filter(uniform), *groups]), baselines], how="horizontal")
    trials = searches.join(of_setting, on=SETTING, how="left", maintain_order="left")
    on_train, on_test = (pl.col(f"correct_{part}") / pl.col(f"n_{part}") for part in ("train", "test"))
    return (
        trials.with_columns(
            above_standard_on_train=is_above(on_train, pl.col("standard_on_train")),
            above_max_on_train=is_above(on_train, pl.col("max_random_on_train")),
            above_standard_on_test=is_above(on_test, pl.col("standard_on_test")),
        )
        .select(list(HELD_OUT_TRIALS))
        .sort(HELD_OUT_KEY)
    )


def _uniform_baselines(settings: pl.DataFrame) -> FloatArray:
    """Return the baselines of settings whose examples all have the same chance; n and chance differ by setting."""
    n, chance = (settings[name].list.first().to_numpy() for name in ("train_counts", "train_chances"))
    return _baselines(settings, n, chance) if len(n) else np.empty((0, len(BASELINES)))


def _mixed_baselines(settings: pl.DataFrame) -> FloatArray:
    """Return the baselines of settings with the same mix of chances."""
    counts = settings["train_counts"][0].to_numpy()
    return _baselines(settings, int(counts.sum()), np.repeat(settings["train_chances"][0].to_numpy(), counts))


def _baselines(settings: pl.DataFrame, n: IntArray | int, chance: FloatArray) -> FloatArray:
    """Return the columns BASELINES of each setting, [settings, 3]."""
    tries, correct = settings["n_prompts"].to_numpy(), settings["correct_train"].to_numpy()
    # Both tails in one call, because most of the time goes into the distribution.
    tails = np.asarray(max_random_tail(correct, n, chance, np.stack([np.ones_like(tries), tries]), log10=True))
    return np.stack([np.asarray(max_random_accuracy(n, chance, tries)), *tails], axis=1)
