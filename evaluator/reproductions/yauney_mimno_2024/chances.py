"""The chance of guessing each example of the published experiments."""

from collections import Counter
from collections.abc import Collection, Mapping
from fractions import Fraction

import polars as pl

from evaluator.errors import DatasetError
from evaluator.random_baselines.held_out_schema import CHANCES
from evaluator.reproductions.yauney_mimno_2024.data import EXPERIMENT, PublishedData, experiment_name
from evaluator.reproductions.yauney_mimno_2024.rules import Mix
from evaluator.reproductions.yauney_mimno_2024.tasks import TASKS, pooled_chances, uniform_chance

UNLIKE = [name for name, task in TASKS.items() if task.subtasks]
"""Tasks whose examples differ in their chances."""


def best_prompt_mixes(data: PublishedData, experiments: pl.DataFrame) -> list[Mix]:
    """For each row of `best_prompts`, the chances of the examples its best prompt was scored on.

    A row of the task that serves as a demonstration is no question: its pooled example loses that row's choices.
    Raises DatasetError where the rows left give other example ids than the predictions have.
    """
    scored = _scored_examples(data, experiments.filter(pl.col("dataset").is_in(UNLIKE)))
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
    """CHANCES of every experiment.

    In strange_stories a prompt's demonstrations may be among the pooled rows; examples have here the chance that they
    have with all their rows, which for at most four of 121 is not quite that of every prompt.
    """
    asked = data.predictions.select(*EXPERIMENT, "example_id").unique().collect(engine="streaming")
    tables = []
    for (name,), own in asked.cast({pl.Categorical: pl.String}).partition_by("dataset", as_dict=True).items():
        examples = own["example_id"].unique().to_list()
        chance = uniform_chance(str(name))
        chances = dict.fromkeys(examples, chance) if chance else _pooled(data, str(name), [])
        _require_same(chances, examples, str(name))
        numbers = {example: float(chance) for example, chance in chances.items()}
        tables.append(own.with_columns(chance=pl.col("example_id").replace_strict(numbers, return_dtype=pl.Float64)))
    table = pl.concat(tables).select(experiment_name(), pl.col("example_id").alias("example"), "chance")
    return table.cast(CHANCES).sort("experiment", "example")


def _scored_examples(data: PublishedData, best: pl.DataFrame) -> dict[tuple[object, ...], list[int]]:
    """Experiment -> the example ids of its best prompt."""
    chosen = best.select(*EXPERIMENT, pl.col("best_prompt").alias("prompt_id"))
    rows = data.of_prompts(chosen).select(*EXPERIMENT, "example_id").collect(engine="streaming")
    groups = rows.cast({pl.Categorical: pl.String}).partition_by(EXPERIMENT, as_dict=True)
    return {key: own["example_id"].to_list() for key, own in groups.items()}


def _pooled(data: PublishedData, name: str, demonstrations: Collection[int]) -> dict[int, Fraction]:
    """Example id -> chance: of the sampled rows of a large task, or all rows of a small one but the demonstrations."""
    task = TASKS[name]
    asked = data.sampled_rows.get(name, range(task.n_rows))
    return pooled_chances(task, (row for row in asked if row not in demonstrations))


def _require_same(chances: Mapping[int, Fraction | None], examples: Collection[int], where: str) -> None:
    if differing := sorted(set(chances) ^ set(examples)):
        raise DatasetError(
            f"{where}: example {differing[0]} and {len(differing) - 1} others are in the predictions alone, or among "
            "the task's rows alone. The chances in evaluator/reproductions/yauney_mimno_2024/tasks.py do not fit these "
            "predictions."
        )
