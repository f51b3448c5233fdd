"""Does a baseline foretell held-out accuracy? Correctness goes in, searches for the best prompt come out."""

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
"""What the baselines and tails of a search hang on."""

BASELINES = ["max_random_on_train", "log10_standard_tail", "log10_max_tail"]


def held_out_trials(
    correctness: pl.LazyFrame,
    chances: pl.DataFrame,
    *,
    tries: Sequence[int],
    n_splits: int = 100,
    seed: int = 0,
) -> pl.DataFrame:
    """The best prompt of every search, and whether it is above the baselines, on its train part and held out.

    Args:
        correctness: CORRECTNESS, in any order and any integer width; every prompt once, so that what is counted
            as a try is one. `experiment` may be categorical.
        chances: CHANCES, a row for every example of every experiment.
        tries: how many prompts are searched; one run of searches for each of these numbers. Where there are fewer
            prompts, all are searched and baselines are those of that many.
        n_splits: of the examples, for every experiment.
        seed: splits of an experiment depend on this, its name, and its examples and prompts, and on nothing else.

    Returns:
        HELD_OUT_TRIALS, one row an (experiment, tries, split), sorted by it. An accuracy is above a baseline
        when it is strictly more (verdicts.is_above); both count only examples that the prompt was scored on.

    Raises DatasetError when rows are repeated or missing, or a part of a split would be empty.
    Source: Yauney & Mimno 2024, section 5.2. Their released script counts demonstrations among the examples, and
    takes 200 tries where fewer prompts are possible.
    """
    splits = Splits(tries=tries, n_splits=n_splits, seed=seed)
    return with_baselines(pl.concat([search(each, splits) for each in read_experiments(correctness, chances)]))


def read_experiments(correctness: pl.LazyFrame, chances: pl.DataFrame) -> Iterator[Experiment]:
    """Each experiment as arrays, in the order of first appearance. Raises DatasetError for rows that do not fit."""
    rows = correctness.select(*CORRECTNESS_KEY, pl.col("correct").cast(pl.Boolean)).collect(engine="streaming")
    if rows.is_empty():
        raise DatasetError("There is no row of correctness, so nothing can be split.")
    if any(rows.null_count().row(0)):
        raise DatasetError(f"Correctness has missing values, {rows.null_count().row(0, named=True)}: fill every row.")
    chance_of = {name: own for (name,), own in chances.partition_by("experiment", as_dict=True).items()}
    for (name,), own in rows.partition_by("experiment", as_dict=True, maintain_order=True).items():
        yield _experiment(str(name), own, chance_of.get(str(name), chances.clear()))


def _experiment(name: str, rows: pl.DataFrame, chances: pl.DataFrame) -> Experiment:
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
    wanted = pl.DataFrame({"example": examples.astype(np.int64)})
    found = wanted.join(chances.cast({"example": pl.Int64}), on="example", how="left", maintain_order="left")
    if found.height > wanted.height:
        raise DatasetError(
            f"{name}: an example has several chances. Give one row for each {' and '.join(CHANCES_KEY)}."
        )
    wrong = found.filter(~pl.col("chance").is_between(0, 1, closed="none").fill_null(False))
    if wrong.height:
        example, given = wrong.select("example", "chance").row(0)
        raise DatasetError(f"{name}: example {example} has chance {given}; give one between 0 and 1, both excluded.")
    return np.asarray(found["chance"], dtype=np.float64)


def with_baselines(searches: pl.DataFrame) -> pl.DataFrame:
    """HELD_OUT_SEARCHES to HELD_OUT_TRIALS: baselines, tails and verdicts of every search."""
    settings = searches.select(SETTING).unique(maintain_order=True)
    uniform = pl.col("train_chances").list.len() == 1
    groups = settings.filter(~uniform).partition_by("train_chances", "train_counts", maintain_order=True)
    numbers = [_uniform_baselines(settings.filter(uniform)), *map(_mixed_baselines, groups)]
    baselines = pl.DataFrame(np.concatenate(numbers), schema=dict.fromkeys(BASELINES, pl.Float64))
    known = pl.concat([pl.concat([settings.filter(uniform), *groups]), baselines], how="horizontal")
    trials = searches.join(known, on=SETTING, how="left", maintain_order="left")
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
    """All examples have one chance; each setting has its own n and chance."""
    n, chance = (settings[name].list.first().to_numpy() for name in ("train_counts", "train_chances"))
    return _baselines(settings, n, chance) if len(n) else np.empty((0, len(BASELINES)))


def _mixed_baselines(settings: pl.DataFrame) -> FloatArray:
    """Settings of one mix of chances."""
    counts = settings["train_counts"][0].to_numpy()
    return _baselines(settings, int(counts.sum()), np.repeat(settings["train_chances"][0].to_numpy(), counts))


def _baselines(settings: pl.DataFrame, n: IntArray | int, chance: FloatArray) -> FloatArray:
    """[settings, BASELINES]."""
    tries, correct = settings["n_prompts"].to_numpy(), settings["correct_train"].to_numpy()
    # Both tails in one call: finding the distribution is most of the work.
    tails = np.asarray(max_random_tail(correct, n, chance, np.stack([np.ones_like(tries), tries]), log10=True))
    return np.stack([np.asarray(max_random_accuracy(n, chance, tries)), *tails], axis=1)
