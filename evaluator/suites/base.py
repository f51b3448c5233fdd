"""What a suite is: a description, and the rows it asks for of one dataset."""

from collections.abc import Callable
from dataclasses import dataclass

import polars as pl

from evaluator.config import StoreConfig
from evaluator.datasets.base import ClassificationDataset


@dataclass(frozen=True, kw_only=True)
class Suite:
    """A benchmark, as data. A suite only ever writes rows; it knows nothing of engines, methods or metrics.

    `requests` returns the columns of schemas.REQUESTS without `suite` and `prompt_id`, and with `prompt` and
    `continuations` as in schemas.PROMPTS.
    """

    summary: str
    requests: Callable[[ClassificationDataset, StoreConfig], pl.DataFrame]
