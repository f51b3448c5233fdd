"""Draw the training prompts that calibrating methods learn from out of the calibration split, and build their requests.

The draws are the toolkit's, under every definition; with repetition, so that an example can stand twice in a prompt.
"""

from typing import NamedTuple

import numpy as np
import polars as pl

from evaluator.datasets.base import ClassificationDataset
from evaluator.datasets.lcg import Ints, Lcg
from evaluator.errors import DatasetError
from evaluator.prompts.render import classification_prompts
from evaluator.prompts.rows import NOT_VARIED

N_SAMPLES = 128  # "128 additional samples for the additional inference" (Cho & Inoue 2025, appendix B.2)


class TrainingSample(NamedTuple):
    """Rows of the calibration split, one training prompt a row."""

    demonstration_ids: Ints  # [n_samples, n_shots], in prompt order
    query_ids: Ints  # [n_samples]


def training_sample(dataset: ClassificationDataset, *, n_shots: int, n_samples: int = N_SAMPLES) -> TrainingSample:
    """Draw labelled queries and their demonstrations: n_shots + 1 draws at a time, the demonstrations first.

    Raises DatasetError for a dataset without calibration rows.
    """
    drawn = _drawn(dataset, n_samples, n_shots + 1)
    return TrainingSample(demonstration_ids=drawn[:, :-1], query_ids=drawn[:, -1])


def training_demonstrations(dataset: ClassificationDataset, *, n_shots: int, n_samples: int = N_SAMPLES) -> Ints:
    """Draw demonstrations for queries that are made up: rows of the calibration split, shape [n_samples, n_shots].

    Not those of training_sample, whose queries take draws of the same generator. Raises as training_sample does.
    """
    return _drawn(dataset, n_samples, n_shots)


def _drawn(dataset: ClassificationDataset, n_samples: int, n_draws: int) -> Ints:
    size = dataset.calibration.height
    if not size:
        raise DatasetError(
            f"{dataset.name} has no calibration examples, and calibrating methods learn from them. Give it a "
            "calibration split, or leave out the methods that calibrate (--methods)."
        )
    # A product in float64 and then cut, as the toolkit has it: integer arithmetic would round otherwise.
    return (Lcg().floats(n_samples * n_draws) * size).astype(np.int64).reshape(n_samples, n_draws)


def training_requests(
    dataset: ClassificationDataset, *, part: str, queries: pl.Series, demonstration_ids: Ints
) -> pl.DataFrame:
    """Build one row a training prompt, in the columns of Suite.requests, its labels to be scored.

    Args:
        part: of the new rows.
        queries: List[String], the texts of each prompt's query.
        demonstration_ids: rows of the calibration split, [number of queries, n_shots].

    They answer no query of the test split, so query_id and gold are null; demonstration_ids are of the calibration
    split.
    """
    label_names = pl.lit(list(dataset.verbalizer.label_names))
    text = classification_prompts(
        dataset.template,
        dataset.verbalizer,
        queries=queries,
        demonstrations=dataset.calibration,
        demonstration_ids=demonstration_ids,
    )
    return pl.DataFrame(
        {"prompt": text, "demonstration_ids": pl.Series(demonstration_ids).cast(pl.List(pl.Int64))}
    ).select(
        part=pl.lit(part),
        dataset=pl.lit(dataset.name),
        position=pl.int_range(pl.len()),
        query_id=pl.lit(None, pl.Int64),
        **NOT_VARIED,
        n_shots=pl.lit(demonstration_ids.shape[1], pl.Int64),
        demonstration_ids="demonstration_ids",
        gold=pl.lit(None, pl.Int64),
        label_names=label_names,
        prompt="prompt",
        ask=pl.lit("labels"),
        continuations=label_names,
    )
