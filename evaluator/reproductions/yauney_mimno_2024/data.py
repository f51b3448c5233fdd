"""The published per-example results: a folder of Parquet files goes in, rows by prompt and by example come out."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from evaluator.datasets.parquet_columns import scan_columns
from evaluator.errors import DatasetError
from evaluator.reproductions.yauney_mimno_2024.tasks import TASKS, known_task

EXPERIMENT = ["model", "dataset", "shots"]
"""What an experiment is: the search for the best of 200 prompts with one model, one task and one number of shots."""

PROMPT = [*EXPERIMENT, "prompt_id"]

SOURCE = "gyauney/stronger-random-baselines on GitHub"

FILES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "few_shot_predictions.parquet": (
        "one row a model, task, number of shots, prompt and example: results/*_{1,2,4}-shot.csv",
        (*EXPERIMENT, "prompt_id", "example_id", "loss", "correct"),
    ),
    "demonstrations.parquet": (
        "the demonstrations of every prompt, as rows of the whole task: from the same results",
        (*EXPERIMENT, "prompt_id", "demonstration_ids"),
    ),
    "subsampled_ids.parquet": (
        "the rows that tasks of more than 200 were cut to: few-shot-eval/subsampled-idxs/*.json",
        ("dataset", "example_id"),
    ),
    "held_out_splits.parquet": (
        "the authors' held-out trials: held-out-split-results/*.csv, with t as a column",
        (
            "t",
            *EXPERIMENT,
            "split",
            "above_max_random_on_train",
            "above_standard_random_on_train",
            "max_random_f",
            "standard_random_f",
            "above_standard_random_on_test",
        ),
    ),
}
"""File -> what it holds and where that was published, and the columns that are read."""


@dataclass(frozen=True, kw_only=True)
class PublishedData:
    """The folder's tables, checked to be there; the long one is read when it is needed, as a stream."""

    predictions: pl.LazyFrame  # one row a prompt and example
    demonstrations: pl.DataFrame  # one row a prompt
    sampled_rows: Mapping[str, list[int]]  # task -> rows, for the tasks that were cut
    held_out: pl.DataFrame  # the authors' own trials

    def correctness(self, prompts: pl.DataFrame) -> pl.LazyFrame:
        """schemas.CORRECTNESS of these prompts, in narrow integers: 8.1 million rows are 60 MB so."""
        return self.of_prompts(prompts.select(*PROMPT, experiment_name(categorical=True))).select(
            "experiment",
            pl.col("prompt_id").alias("prompt"),
            pl.col("example_id").alias("example"),
            pl.col("correct").cast(pl.Boolean),
        )

    def of_prompts(self, prompts: pl.DataFrame) -> pl.LazyFrame:
        """The predictions of these prompts, with any further columns that `prompts` has."""
        schema = self.predictions.collect_schema()
        kept = prompts.lazy().cast({name: schema[name] for name in PROMPT})
        tasks = prompts["dataset"].unique().to_list()  # tells the reader what it need not decode
        return self.predictions.filter(pl.col("dataset").is_in(tasks)).join(kept, on=PROMPT, how="inner")


def open_published(folder: Path) -> PublishedData:
    """Raises DatasetError, naming each file, for one that is missing or lacks a column, or a task that is not known."""
    missing = [name for name in FILES if not (folder / name).is_file()]
    if missing:
        needed = "\n".join(
            f"  {name}: {about}\n    columns {', '.join(columns)}" for name, (about, columns) in FILES.items()
        )
        raise DatasetError(
            f"{folder} lacks {', '.join(missing)}. The published experiments are recomputed from the results of "
            f"{SOURCE}, put into four Parquet files:\n{needed}\nName their folder with --data."
        )
    frames = {name: scan_columns(folder / name, columns) for name, (_, columns) in FILES.items()}
    samples = frames["subsampled_ids.parquet"].collect().partition_by("dataset", as_dict=True)
    data = PublishedData(
        predictions=frames["few_shot_predictions.parquet"],
        demonstrations=frames["demonstrations.parquet"].collect(),
        sampled_rows={str(name): rows["example_id"].to_list() for (name,), rows in samples.items()},
        held_out=frames["held_out_splits.parquet"].collect(),
    )
    for name in data.demonstrations["dataset"].unique(maintain_order=True):
        known_task(name)
    return data


def experiment_name(*, categorical: bool = False) -> pl.Expr:
    """model/task/4-shot, the name of an experiment in the tables of held-out trials."""
    name = pl.format("{}/{}/{}-shot", *EXPERIMENT)
    return (name.cast(pl.Categorical) if categorical else name).alias("experiment")


def read_prompts(data: PublishedData) -> pl.DataFrame:
    """One row a prompt, sorted by experiment and prompt.

    Columns: model, dataset, shots, prompt_id; n_examples it was scored on; correct; n_losses, how many different losses
    there are; losses_fingerprint, equal for prompts whose losses are equal bit for bit; demonstration_ids; with_query,
    False where there are no more different losses than the task has choices: prompts were cut at 512 tokens from the
    right, and what was left of such a one says nothing of the example. That is told from the losses alone, no prompt
    being at hand: a prompt whose query was lost for some examples only is not found.
    Raises DatasetError where `correct` is not 0 or 1, or the two files do not hold the same prompts.
    """
    scored = (
        data.predictions.group_by(PROMPT)
        .agg(
            n_examples=pl.len().cast(pl.Int64),
            correct=pl.col("correct").cast(pl.Int64).sum(),
            strange=(~pl.col("correct").is_in([0, 1])).fill_null(True).sum(),
            n_losses=pl.col("loss").n_unique().cast(pl.Int64),
            # A sum over rows, so that the order in which a prompt's examples stand does not matter.
            losses_fingerprint=pl.struct("example_id", "loss").hash().sum(),
        )
        .collect(engine="streaming")
        # Dictionaries in this file and text in the others; in the long table they are a quarter of the time and memory.
        .cast({pl.Categorical: pl.String})
    )
    if scored["strange"].sum():
        raise DatasetError("few_shot_predictions.parquet: `correct` must be 0 or 1 in every row, and is not in some.")
    prompts = scored.drop("strange").join(data.demonstrations, on=PROMPT, how="inner").sort(PROMPT)
    if not prompts.height == scored.height == data.demonstrations.height:
        raise DatasetError(
            f"few_shot_predictions.parquet has {scored.height:,} prompts and demonstrations.parquet "
            f"{data.demonstrations.height:,}, of which {prompts.height:,} are in both. They must be the same prompts."
        )
    choices = pl.col("dataset").replace_strict(
        {name: task.stated_choices for name, task in TASKS.items()}, return_dtype=pl.Int64
    )
    return prompts.with_columns(with_query=pl.col("n_losses") > choices)


def distinct_prompts(prompts: pl.DataFrame) -> pl.DataFrame:
    """Each prompt once: of those with the same demonstrations in the same order, the one with the lowest id."""
    return prompts.unique([*EXPERIMENT, "demonstration_ids"], keep="first", maintain_order=True)
