"""The lines of the published figures: expected maxima and random baselines by number of tries."""

import numpy as np
import polars as pl

from evaluator.random_baselines.binomial import IntArray
from evaluator.random_baselines.expected_max import expected_maximum_of_draws
from evaluator.random_baselines.grid import log_spaced
from evaluator.random_baselines.max_random import max_random_accuracy, max_random_pmf, max_random_tail
from evaluator.reproductions.yauney_mimno_2024.data import EXPERIMENT
from evaluator.reproductions.yauney_mimno_2024.schema import PUBLISHED_BASELINES, PUBLISHED_CURVES
from evaluator.reproductions.yauney_mimno_2024.tasks import STATED_PROMPTS, TASKS

TRIES: IntArray = log_spaced(1, STATED_PROMPTS, 60)
"""Evenly spaced on a logarithmic axis, which shows the first tries, that gain most."""

ROUNDING = 1e-9
"""In examples: n x accuracy this little above a whole number is that number."""


def expected_curves(prompts: pl.DataFrame) -> pl.DataFrame:
    """Return PUBLISHED_CURVES: the expected accuracy of the best of so many prompts, and how often guessing reaches it.

    As in the paper's figures 3, 4 and 9 to 11: tails are of the expected accuracy on as many examples as the task has,
    at most 200, with the authors' chance, and one-shot lines of small tasks end at the task's size.

    Args:
        prompts: rows of `read_prompts`.
    """
    frames = []
    for (model, dataset, shots), own in prompts.partition_by(EXPERIMENT, as_dict=True, maintain_order=True).items():
        task = TASKS[str(dataset)]
        n, chance = task.n_sampled, float(task.stated_chance)
        tries = TRIES[np.less_equal(TRIES, n) | (shots != 1)]
        expected = expected_maximum_of_draws((own["correct"] / own["n_examples"]).to_numpy(), tries)
        # P(accuracy >= expected) is that of the next whole count; it may be more than all, which never happens.
        count = np.ceil(n * expected - ROUNDING)
        frames.append(
            pl.DataFrame(
                {
                    **dict(zip(EXPERIMENT, (model, dataset, shots), strict=True)),
                    "tries": tries,
                    "expected_maximum": expected,
                    "standard_tail": np.asarray(max_random_tail(count, n, chance)),
                    "max_tail": np.asarray(max_random_tail(count, n, chance, tries)),
                },
                schema_overrides={"shots": pl.Int64},
            )
        )
    return pl.concat(frames).select(list(PUBLISHED_CURVES)).cast(PUBLISHED_CURVES)


def baseline_curves(chances: pl.DataFrame) -> pl.DataFrame:
    """Return PUBLISHED_BASELINES of every task, as the authors draw them and with the real examples and chances.

    Args:
        chances: of one experiment a task: dataset, chance, one row an example.
    """
    frames = []
    for (name,), own in chances.partition_by("dataset", as_dict=True, maintain_order=True).items():
        task = TASKS[str(name)]
        stated = np.full(task.n_sampled, float(task.stated_chance))
        for rules, chance in (("released", stated), ("sound", own["chance"].to_numpy())):
            frames.append(
                pl.DataFrame(
                    {
                        "dataset": name,
                        "rules": rules,
                        "n": len(chance),
                        "chance": chance.mean(),
                        "tries": TRIES,
                        "max_random": np.asarray(max_random_accuracy(len(chance), chance, TRIES)),
                    }
                )
            )
    return pl.concat(frames).select(list(PUBLISHED_BASELINES)).cast(PUBLISHED_BASELINES)


def accuracy_histogram(prompts: pl.DataFrame, n: int, chance: float, tries: int) -> pl.DataFrame:
    """Figure 1: accuracy, and the shares of prompts, of random classifiers, and of the best of `tries` of them there.

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
