"""Draw training prompts from the calibration split, for methods that learn a calibration, and build their requests.

The draws are those of the toolkit under every definition: with repetition, so a prompt can show an example twice.
"""

from typing import NamedTuple

import numpy as np
import polars as pl

from evaluator.arrays import Ints
from evaluator.datasets.base import ClassificationDataset
from evaluator.datasets.lcg import Lcg
from evaluator.errors import DatasetError
from evaluator.prompts.render import classification_prompts
from evaluator.prompts.rows import NOT_VARIED

N_SAMPLES = 128  # "128 additional samples for the additional inference" (Cho & Inoue 2025, appendix B.2)


class TrainingSample(NamedTuple):
    """Rows of the calibration split for each training prompt."""

    demonstration_ids: Ints  # [n_samples, n_shots], in prompt order
    query_ids: Ints  # [n_samples]


def training_sample(dataset: ClassificationDataset, *, n_shots: int, n_samples: int = N_SAMPLES) -> TrainingSample:
    """Draw labelled queries and their demonstrations: n_shots + 1 draws at a time, the demonstrations first.

    Raises DatasetError if the dataset has no calibration rows.
    """
    drawn = _draw_rows(dataset, n_samples, n_shots + 1)
    return TrainingSample(demonstration_ids=drawn[:, :-1], query_ids=drawn[:, -1])


def training_demonstrations(dataset: ClassificationDataset, *, n_shots: int) -> Ints:
    """Draw demonstrations for artificial queries: rows of the calibration split, int64 of [N_SAMPLES, n_shots].

    They differ from those of training_sample, which draws its queries from the same generator. Raises as it does.
    """
    return _draw_rows(dataset, N_SAMPLES, n_shots)


def _draw_rows(dataset: ClassificationDataset, n_samples: int, n_draws: int) -> Ints:
    size = dataset.calibration.height
    if not size:
        raise DatasetError(
            f"{dataset.name} has no calibration examples, and calibrating methods learn from them. Give it a "
            "calibration split, or leave out the methods that calibrate (--methods)."
        )
    # Multiply in float64 and round down, as the toolkit does: integer arithmetic would give other numbers.
    return (Lcg().floats(n_samples * n_draws) * size).astype(np.int64).reshape(n_samples, n_draws)


def training_requests(
    dataset: ClassificationDataset, *, part: str, queries: pl.Series, demonstration_ids: Ints
) -> pl.DataFrame:
    """Build one row per training prompt, in the columns of Suite.requests; query_id and gold are null.

    Args:
        part: of the new rows.
        queries: List[String], the texts of each prompt's query.
        demonstration_ids: rows of the calibration split, [number of queries, n_shots].
    """
    label_names = pl.lit(list(dataset.verbalizer.label_names))
    text = classification_prompts(
        dataset.template,
        dataset.verbalizer,
        queries=queries,
        demonstrations=dataset.calibration,
        demonstration_ids=demonstration_ids,
    )
    return text.with_columns(demonstration_ids=pl.Series(demonstration_ids).cast(pl.List(pl.Int64))).select(
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
        spans="spans",
        ask=pl.lit("labels"),
        continuations=label_names,
    )
