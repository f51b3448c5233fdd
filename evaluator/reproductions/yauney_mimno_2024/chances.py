"""Compute the chance of guessing each example of the published experiments."""

from collections import Counter
from collections.abc import Collection, Mapping
from fractions import Fraction

import polars as pl

from evaluator.errors import DatasetError
from evaluator.random_baselines.held_out import CHANCES
from evaluator.reproductions.yauney_mimno_2024.data import EXPERIMENT, PublishedData, experiment_name
from evaluator.reproductions.yauney_mimno_2024.rules import Mix
from evaluator.reproductions.yauney_mimno_2024.tasks import TASKS, pooled_chances, uniform_chance

MIXED_TASKS = [name for name, task in TASKS.items() if task.subtasks]
"""Tasks whose examples have different chances."""


def best_prompt_mixes(data: PublishedData, experiments: pl.DataFrame) -> list[Mix]:
    """Count, for each row of `best_prompts`, the chances of the examples on which its best prompt was scored.

    A row of the task that is a demonstration is not a query, so that its choices do not count in the pooled example.
    Raises DatasetError if the other rows and the predictions have different example ids.
    """
    scored = _scored_examples(data, experiments.filter(pl.col("dataset").is_in(MIXED_TASKS)))
    mixes: list[Mix] = []
    for row in experiments.iter_rows(named=True):
        chance = uniform_chance(row["dataset"])
        if chance is not None:
            mixes.append({chance: row["n"]})
            continue
        key = row["model"], row["dataset"], row["shots"]
        chances = _pooled(data, row["dataset"], row["demonstration_ids"])
        _require_same(chances, scored[key], f"{key[0]}, {key[1]}, {key[2]}-shot")
        mixes.append(dict(sorted(Counter(chances.values()).items())))
    return mixes


def example_chances(data: PublishedData) -> pl.DataFrame:
    """Return CHANCES (random_baselines/held_out.py) of every experiment.

    In strange_stories the demonstrations of a prompt may be among the pooled rows. Here the chance of an example is
    the chance over all its rows; for at most four of 121 examples the chance under some prompts is
    slightly different.
    """
    scored = data.predictions.select(*EXPERIMENT, "example_id").unique().collect(engine="streaming")
    tables = []
    for (name,), rows in scored.cast({pl.Categorical: pl.String}).partition_by("dataset", as_dict=True).items():
        examples = rows["example_id"].unique().to_list()
        chance = uniform_chance(str(name))
        chances = dict.fromkeys(examples, chance) if chance else _pooled(data, str(name), [])
        _require_same(chances, examples, str(name))
        numbers = {example: float(chance) for example, chance in chances.items()}
        tables.append(rows.with_columns(chance=pl.col("example_id").replace_strict(numbers, return_dtype=pl.Float64)))
    table = pl.concat(tables).select(experiment_name(), pl.col("example_id").alias("example"), "chance")
    return table.cast(CHANCES).sort("experiment", "example")


def _scored_examples(data: PublishedData, best: pl.DataFrame) -> dict[tuple[object, ...], list[int]]:
    """Return experiment -> the example ids of its best prompt."""
    prompts = best.select(*EXPERIMENT, pl.col("best_prompt").alias("prompt_id"))
    examples = data.of_prompts(prompts).select(*EXPERIMENT, "example_id").collect(engine="streaming")
    groups = examples.cast({pl.Categorical: pl.String}).partition_by(EXPERIMENT, as_dict=True)
    return {key: rows["example_id"].to_list() for key, rows in groups.items()}


def _pooled(data: PublishedData, name: str, demonstrations: Collection[int]) -> dict[int, Fraction]:
    """Return example id -> chance over the rows of a task, or of its sample, without the demonstrations."""
    task = TASKS[name]
    rows = data.sampled_rows.get(name, range(task.n_rows))
    return pooled_chances(task, (row for row in rows if row not in demonstrations))


def _require_same(chances: Mapping[int, Fraction | None], examples: Collection[int], where: str) -> None:
    if differing := sorted(set(chances) ^ set(examples)):
        raise DatasetError(
            f"{where}: example {differing[0]} and {len(differing) - 1} others are only in the predictions, or only "
            "among the task's rows. Use the released predictions, or correct the rows and choices of the task in "
            "evaluator/reproductions/yauney_mimno_2024/tasks.py."
        )
