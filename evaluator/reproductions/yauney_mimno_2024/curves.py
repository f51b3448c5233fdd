"""Compute the curves of the published figures: expected maxima and random baselines by number of tries."""

import numpy as np
import polars as pl

from evaluator.arrays import Ints
from evaluator.random_baselines.calculator import expected_curve, log_spaced
from evaluator.random_baselines.max_random import max_random_accuracy, max_random_pmf
from evaluator.reproductions.yauney_mimno_2024.data import EXPERIMENT, EXPERIMENT_COLUMNS
from evaluator.reproductions.yauney_mimno_2024.tasks import STATED_PROMPTS, TASKS

PUBLISHED_CURVES = pl.Schema(
    {
        **EXPERIMENT_COLUMNS,
        "tries": pl.Int64(),
        "expected_maximum": pl.Float64(),  # expected best accuracy of so many prompts
        "standard_tail": pl.Float64(),  # of one random classifier reaching it, under the authors' n and chance
        "max_tail": pl.Float64(),  # of the best of `tries` reaching it
    }
)
PUBLISHED_BASELINES = pl.Schema(
    {
        "dataset": pl.String(),
        "rules": pl.String(),  # "released" | "sound"
        "n": pl.Int64(),
        "chance": pl.Float64(),
        "tries": pl.Int64(),
        "max_random": pl.Float64(),
    }
)

TRIES: Ints = log_spaced(1, STATED_PROMPTS, 60)
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
        for rules, chance in (("released", stated), ("sound", rows["chance"].to_numpy())):
            about = {"dataset": name, "rules": rules, "n": len(chance), "chance": chance.mean(), "tries": TRIES}
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
