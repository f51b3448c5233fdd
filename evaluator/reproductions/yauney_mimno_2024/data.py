"""Read the released per-example results of Yauney & Mimno 2024, and list the sixteen tasks of their experiments.

The list of tasks has the numbers that the authors state and the actual numbers. The released results are a folder of
Parquet files.

The prediction for an example is the choice with the lowest loss, so a random guess is right with probability (right
choices) / (choices). The authors' results pool questions that have the same number in different subtasks: a pooled
example has the choices of all its questions, with one right choice per question. This module computes the probability.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import polars as pl

from evaluator.arrays import Floats
from evaluator.datasets.tables import scan_columns
from evaluator.errors import DatasetError
from evaluator.files.toml_files import shipped_tables
from evaluator.random_baselines.held_out import CHANCES
from evaluator.reproductions.base import ReleasedFile, require_values
from evaluator.schemas import declare, declared


class Subtask(NamedTuple):
    """A range of rows of a task, numbered from 0; every row has one right choice."""

    n_rows: int
    n_choices: int
    exceptions: Mapping[int, int] = {}  # row within the subtask -> number of choices, if it is not n_choices


@dataclass(frozen=True, kw_only=True)
class Task:
    """A task, with the numbers that the authors state and the actual numbers."""

    n_rows: int
    stated_choices: int  # number of choices by the authors, whose chance is 1 / stated_choices for every example
    n_choices: int | None = None  # actual number of choices of every example; None: as stated
    subtasks: tuple[Subtask, ...] = ()  # in the order of rows; empty if all examples have the same chance
    # Source of the number of choices: the file of the task, or the authors' constant if that file was not available.
    source: Literal["task", "authors"] = "task"

    @property
    def actual_choices(self) -> int:
        """Return the number of choices of every example of a task without subtasks."""
        return self.n_choices or self.stated_choices

    @property
    def chance(self) -> Fraction | None:
        """Return the chance of guessing an example right; None where examples have different chances."""
        return None if self.subtasks else Fraction(1, self.actual_choices)

    @property
    def stated_chance(self) -> float:
        """Return the authors' chance of guessing an example right."""
        return 1 / self.stated_choices

    @property
    def n_sampled(self) -> int:
        """Return the number of rows from which queries were drawn."""
        return min(self.n_rows, MAX_SAMPLE)

    def stated_n(self, shots: int) -> int:
        """Return the number of examples in the authors' baselines.

        MAX_SAMPLE, or in a task with fewer rows all rows except demonstrations.
        """
        return self.n_rows - shots if self.n_rows < MAX_SAMPLE else MAX_SAMPLE

    def stated_tries(self, shots: int) -> int:
        """Return the number of prompts in the authors' baselines: with one shot, at most one prompt per row."""
        return min(self.n_rows, STATED_PROMPTS) if shots == 1 else STATED_PROMPTS


MAX_SAMPLE = 200
"""Number of rows that were sampled from a larger task; demonstrations were drawn from its other rows."""

STATED_PROMPTS = 200
"""Number of prompts in an experiment, as the authors state."""

TASKS = shipped_tables("evaluator.reproductions.yauney_mimno_2024", "tasks", Task)
"""Name -> task, from assets/tasks.toml."""


def pooled_chances(task: Task, rows: Iterable[int]) -> dict[int, Fraction]:
    """Return example id -> chance (right choices / all choices) for the given rows of a task.

    Args:
        task: a task with subtasks.
        rows: row numbers of the queries. Rows with the same number in their subtasks are one pooled example.

    Raises DatasetError for a row outside the task.
    """
    n_choices = [
        (example, part.exceptions.get(example, part.n_choices))
        for part in task.subtasks
        for example in range(part.n_rows)
    ]
    pools: dict[int, list[int]] = {}
    for row in rows:
        if row >= len(n_choices):
            raise DatasetError(f"Row {row} is outside the task, whose rows are 0 to {len(n_choices) - 1}.")
        example, n = n_choices[row]
        pools.setdefault(example, []).append(n)
    return {example: Fraction(len(pool), sum(pool)) for example, pool in sorted(pools.items())}


PUBLISHED_QUERY_RULES = declare(  # rules that detect, from the losses, prompts whose query was cut off
    rule=pl.String(),
    n_prompts=pl.Int64(),  # number of prompts without their query, by the rule
    n_experiments=pl.Int64(),  # number of experiments with such prompts
    is_used=pl.Boolean(),  # whether the rule is USED_RULE
    is_stated_count=pl.Boolean(),  # whether n_prompts is STATED_WITHOUT_QUERY
)
PUBLISHED_IDENTICAL = declare(  # one row per task, number of shots and pair of models with the same weights
    dataset=pl.String(),
    shots=pl.Int64(),
    model=pl.String(),
    other_model=pl.String(),
    shared_prompts=pl.Int64(),  # number of distinct prompts that both models ran
    identical_prompts=pl.Int64(),  # number of shared prompts for which every loss is equal bit for bit
)

FAMILIES = {
    "Llama-2-7b": ("Llama-2-7b", "Alpaca-7b"),
    "OLMo-7B": ("OLMo-7B", "OLMo-7B-Instruct"),
    "Falcon-7b": ("falcon-7b", "falcon-7b-instruct"),
}
"""Model family -> its base model and its instruction-tuned model."""

HELD_OUT_MODELS = {
    f"{family}, {kind}": model
    for family, models in FAMILIES.items()
    for kind, model in zip(("Base model", "Instruction-tuned"), models, strict=True)
}
"""Name of a model in the authors' held-out files -> name in their results."""

EXPERIMENT_COLUMNS = {"model": pl.String(), "dataset": pl.String(), "shots": pl.Int64()}
EXPERIMENT = [*EXPERIMENT_COLUMNS]
"""Key of an experiment: the search for the best of 200 prompts with one model, one task and one number of shots."""

PROMPT_COLUMNS = {**EXPERIMENT_COLUMNS, "prompt_id": pl.Int64()}
PROMPT = [*PROMPT_COLUMNS]

FILES = (
    ReleasedFile(
        "few_shot_predictions.parquet",
        "one row a model, task, number of shots, prompt and example: results/*_{1,2,4}-shot.csv",
        {**PROMPT_COLUMNS, "example_id": pl.Int64(), "loss": pl.Float32(), "correct": pl.Int64()},
    ),
    ReleasedFile(
        "demonstrations.parquet",
        "the demonstrations of every prompt, as rows of the whole task: from the same results",
        {**PROMPT_COLUMNS, "demonstration_ids": pl.List(pl.Int64())},
    ),
    ReleasedFile(
        "subsampled_ids.parquet",
        "the sampled rows of tasks with more than 200 rows: few-shot-eval/subsampled-idxs/*.json",
        {"dataset": pl.String(), "example_id": pl.Int64()},
    ),
    ReleasedFile(
        "held_out_splits.parquet",
        "the authors' held-out trials: held-out-split-results/*.csv, with t as a column",
        {
            "t": pl.Int64(),
            **EXPERIMENT_COLUMNS,
            "split": pl.Int64(),
            "above_max_random_on_train": pl.Int64(),
            "above_standard_random_on_train": pl.Int64(),
            "max_random_f": pl.Float64(),
            "standard_random_f": pl.Float64(),
            "above_standard_random_on_test": pl.Int64(),
        },
    ),
)


@dataclass(frozen=True, kw_only=True)
class PublishedData:
    """The released tables; predictions are streamed, because they are too large for memory."""

    predictions: pl.LazyFrame  # one row per prompt and example
    demonstrations: pl.DataFrame  # one row per prompt
    sampled_rows: Mapping[str, list[int]]  # task -> sampled rows, for tasks of more than 200 rows
    held_out: pl.DataFrame  # the authors' held-out trials

    def correctness(self, prompts: pl.DataFrame) -> pl.LazyFrame:
        """Return the correctness of prompts on examples: CORRECTNESS of random_baselines/held_out.py.

        Columns have small types: 8.1 million rows need 60 MB.
        """
        predictions = self.of_prompts(prompts.select(*PROMPT, experiment_name(categorical=True)))
        correct = pl.col("correct").cast(pl.Boolean)
        return predictions.select("experiment", prompt="prompt_id", example="example_id", correct=correct)

    def of_prompts(self, prompts: pl.DataFrame) -> pl.LazyFrame:
        """Return the predictions for the given prompts, with any further columns of `prompts`."""
        schema = self.predictions.collect_schema()
        selected = prompts.lazy().cast({name: schema[name] for name in PROMPT})
        return self.predictions.join(selected, on=PROMPT)


def read_results(folder: Path) -> PublishedData:
    """Open the released results in a folder that holds FILES.

    Raises DatasetError for a missing column, a column of a wrong type or with missing values, and for an unknown task
    or model.
    """
    scans = [scan_columns(folder / file.name, list(file.columns)) for file in FILES]
    for file, scan in zip(FILES, scans, strict=True):
        require_values(folder / file.name, file, scan)
    predictions, demonstrations, sampled, held_out = scans
    data = PublishedData(
        predictions=predictions,
        demonstrations=demonstrations.collect(),
        sampled_rows=dict(sampled.group_by("dataset").agg("example_id").collect().iter_rows()),
        held_out=held_out.collect(),
    )
    for name in data.demonstrations["dataset"].unique(maintain_order=True):
        if name not in TASKS:
            raise DatasetError(
                f"The task {name!r} is none of the published experiments' sixteen: {', '.join(TASKS)}. "
                "Leave its rows out, or add it to assets/tasks.toml of evaluator/reproductions/yauney_mimno_2024."
            )
    is_known = pl.col("model").is_in(list(HELD_OUT_MODELS))
    is_number = pl.all_horizontal(pl.col("max_random_f", "standard_random_f").is_not_nan())
    if (wrong := data.held_out.filter(~(is_known & is_number))).height:
        raise DatasetError(
            f"{folder / FILES[-1].name}: trials are of the models {'; '.join(HELD_OUT_MODELS)}, with numbers as "
            f"distribution functions. Leave out rows such as {wrong.row(0, named=True)}."
        )
    return data


def experiment_name(*, categorical: bool = False) -> pl.Expr:
    """Return the name of an experiment, as tables of held-out trials have it, for example "model/task/4-shot"."""
    name = pl.format("{}/{}/{}-shot", *EXPERIMENT)
    return (name.cast(pl.Categorical) if categorical else name).alias("experiment")


def best_prompt_chances(data: PublishedData, experiments: pl.DataFrame) -> list[Floats]:
    """Return the chances of the examples on which the best prompt of every experiment was scored.

    A row of the task that is a demonstration is not a query, so its choices do not count in the pooled example.

    Args:
        data: the released results.
        experiments: rows of `best_prompts`.

    Returns:
        One array of float64 per experiment, with one chance per example.

    Raises DatasetError if the task's other rows and the predictions have different example ids.
    """
    best = experiments.select(*EXPERIMENT, prompt_id="best_prompt")
    scored = data.of_prompts(best).group_by(EXPERIMENT).agg("example_id").collect(engine="streaming")
    examples = scored.cast({pl.Categorical: pl.String})
    found = []
    for row in experiments.join(examples, on=EXPERIMENT, how="left", maintain_order="left").iter_rows(named=True):
        where = "{model}, {dataset}, {shots}-shot".format(**row)
        chances = _chances(data, row["dataset"], row["example_id"], row["demonstration_ids"], where)
        found.append(np.array(list(chances.values()), dtype=np.float64))
    return found


def example_chances(data: PublishedData) -> pl.DataFrame:
    """Return the chances of all examples of every experiment: CHANCES of random_baselines/held_out.py.

    In strange_stories, the demonstrations of a prompt may be among the pooled rows. Here the chance of an example is
    over all its rows; under some prompts, the chance of at most four of 121 examples is slightly different.
    """
    scored = data.predictions.select(*EXPERIMENT, "example_id").unique().collect(engine="streaming")
    tables = []
    for (name,), rows in scored.cast({pl.Categorical: pl.String}).partition_by("dataset", as_dict=True).items():
        chances = _chances(data, str(name), rows["example_id"].unique().to_list(), [], str(name))
        numbers = {example: float(chance) for example, chance in chances.items()}
        tables.append(rows.with_columns(chance=pl.col("example_id").replace_strict(numbers, return_dtype=pl.Float64)))
    table = pl.concat(tables).select(experiment_name(), pl.col("example_id").alias("example"), "chance")
    return table.cast(CHANCES).sort("experiment", "example")


def _chances(
    data: PublishedData, name: str, examples: Collection[int], demonstrations: Collection[int], where: str
) -> dict[int, Fraction]:
    """Return example id -> chance, over the sampled rows of a task without the demonstrations.

    Args:
        name: name of the task.
        examples: example ids in the predictions.
        demonstrations: row numbers of demonstrations.
        where: beginning of the error message.

    Raises DatasetError if `examples` are not the examples of these rows.
    """
    task = TASKS[name]
    if task.chance is not None:
        return dict.fromkeys(examples, task.chance)
    rows = data.sampled_rows.get(name, range(task.n_rows))
    chances = pooled_chances(task, (row for row in rows if row not in demonstrations))
    if differing := sorted(set(chances) ^ set(examples)):
        raise DatasetError(
            f"{where}: example {differing[0]} and {len(differing) - 1} others are only in the predictions, or only "
            "among the task's rows. Use the released predictions, or correct the rows and choices of the task in "
            "assets/tasks.toml of evaluator/reproductions/yauney_mimno_2024."
        )
    return chances


def read_prompts(data: PublishedData) -> pl.DataFrame:
    """Summarise the predictions, one row per prompt, sorted by experiment and prompt.

    Columns: model, dataset, shots, prompt_id; n_examples, on which the prompt was scored; correct, the number of right
    predictions; n_losses, the number of different losses; losses_fingerprint, equal for prompts whose losses are equal
    bit for bit; demonstration_ids; with_query.

    with_query is False if the number of different losses is at most the number of choices that the authors state for
    the task. Prompts were cut after 512 tokens, and if the query was cut off, the losses do not depend on the example.
    The released results do not have the texts of prompts, so this is inferred from the losses; a prompt that lost only
    some queries is not detected. The rule is fitted: it was chosen among query_rules because it gives the count
    STATED_WITHOUT_QUERY, so this count does not confirm it.

    Raises DatasetError if `correct` is not 0 or 1, or if the two files do not have the same prompts.
    """
    scored = (
        data.predictions.group_by(PROMPT)
        .agg(
            n_examples=pl.len().cast(pl.Int64),
            correct=pl.col("correct").cast(pl.Int64).sum(),
            n_invalid=(~pl.col("correct").is_in([0, 1])).fill_null(True).sum(),
            n_losses=pl.col("loss").n_unique().cast(pl.Int64),
            # A sum over rows does not depend on the order of a prompt's examples.
            losses_fingerprint=pl.struct("example_id", "loss").hash().sum(),
        )
        .collect(engine="streaming")
        # Names are categorical only in the file of predictions, which saves three quarters of time and memory.
        .cast({pl.Categorical: pl.String})
    )
    if scored["n_invalid"].sum():
        raise DatasetError("few_shot_predictions.parquet: `correct` must be 0 or 1 in every row, and is not in some.")
    prompts = scored.drop("n_invalid").join(data.demonstrations, on=PROMPT, how="inner").sort(PROMPT)
    if not prompts.height == scored.height == data.demonstrations.height:
        raise DatasetError(
            f"few_shot_predictions.parquet has {scored.height:,} prompts and demonstrations.parquet "
            f"{data.demonstrations.height:,}, of which {prompts.height:,} are in both. They must be the same prompts."
        )
    return prompts.with_columns(with_query=~_query_rules()[USED_RULE])


STATED_WITHOUT_QUERY = 3230
"""Number of prompts, of 57,600, that lost their query, as stated; the rule of that count is not stated."""

USED_RULE = "no more different losses than stated choices"


def _query_rules() -> dict[str, pl.Expr]:
    """Return name of a rule -> expression that is true for a prompt whose query was cut off, by this rule."""

    def of_task(n_choices: Callable[[Task], int]) -> pl.Expr:
        return pl.col("dataset").replace_strict(
            {name: n_choices(task) for name, task in TASKS.items()}, return_dtype=pl.Int64
        )

    stated, actual = of_task(lambda task: task.stated_choices), of_task(lambda task: task.actual_choices)
    widest = of_task(lambda task: max([task.actual_choices, *(part.n_choices for part in task.subtasks)]))
    n_losses, share = pl.col("n_losses"), pl.col("n_losses") / pl.col("n_examples")
    return {
        "one loss for all examples": n_losses == 1,
        "two different losses or one": n_losses <= 2,
        "fewer different losses than stated choices": n_losses < stated,
        USED_RULE: n_losses <= stated,
        "no more different losses than actual choices": n_losses <= actual,
        "no more different losses than the most choices of a subtask": n_losses <= widest,
        "no more than twice as many different losses as stated choices": n_losses <= 2 * stated,
        "different losses for at most a tenth of the examples": share <= 0.1,
        "different losses for less than all examples": share < 1,
    }


def query_rules(prompts: pl.DataFrame) -> pl.DataFrame:
    """Count the prompts that every rule detects: PUBLISHED_QUERY_RULES."""
    lost = {rule: prompts.filter(is_lost) for rule, is_lost in _query_rules().items()}
    rows = [
        (rule, rows.height, rows.n_unique(EXPERIMENT), rule == USED_RULE, rows.height == STATED_WITHOUT_QUERY)
        for rule, rows in lost.items()
    ]
    return pl.DataFrame(rows, schema=PUBLISHED_QUERY_RULES, orient="row")


def distinct_prompts(prompts: pl.DataFrame) -> pl.DataFrame:
    """Keep the first of the prompts of an experiment that have the same demonstrations in the same order."""
    return prompts.unique([*EXPERIMENT, "demonstration_ids"], keep="first", maintain_order=True)


SHARED = ["dataset", "shots", "demonstration_ids"]
"""Columns that identify a prompt across models."""


def identical_models(prompts: pl.DataFrame) -> pl.DataFrame:
    """Find pairs of models that have prompts on which all losses are equal, bit for bit: PUBLISHED_IDENTICAL.

    Different weights do not give equal losses on all examples of a prompt, so such models were loaded from the same
    weights. Prompts that lost their query are left out, because any two models may agree on them. Two models can be
    compared only if they happen to share prompts with the same demonstrations, which is mostly the case with one shot.

    Args:
        prompts: rows of `read_prompts` with the column `with_query`.
    """
    usable = prompts.filter("with_query").select("model", "losses_fingerprint", *SHARED)
    both = usable.join(usable, on=SHARED, suffix="_b").filter(pl.col("model") < pl.col("model_b"))
    shared, is_identical = pl.col("demonstration_ids"), pl.col("losses_fingerprint") == pl.col("losses_fingerprint_b")
    pairs = both.group_by("dataset", "shots", "model", other_model="model_b").agg(
        shared_prompts=shared.n_unique(), identical_prompts=shared.filter(is_identical).n_unique()
    )
    identical = pairs.filter(pl.col("identical_prompts") > 0)
    return declared(identical, PUBLISHED_IDENTICAL, ["dataset", "shots", "model"])


def same_losses_as(experiments: pl.DataFrame, pairs: pl.DataFrame) -> pl.Series:
    """Return a column with the names of the models that have the same losses in an experiment, or null.

    Args:
        experiments: rows with model, dataset and shots.
        pairs: PUBLISHED_IDENTICAL.
    """
    # Use every pair in both directions, so that both of its models have a row.
    swapped = pairs.rename({"model": "other_model", "other_model": "model"}).select(pairs.columns)
    others = pl.concat([pairs, swapped]).group_by("dataset", "shots", "model").agg(pl.col("other_model").sort())
    rows = experiments.select("dataset", pl.col("shots").cast(pl.Int64), "model")
    rows = rows.join(others, on=["dataset", "shots", "model"], how="left", maintain_order="left")
    return rows["other_model"].list.join(", ").rename("same_losses_as")
