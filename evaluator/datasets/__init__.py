"""The datasets, in the benchmark's order. Name -> loader; nothing is imported or read before a loader is called."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evaluator.datasets.base import ClassificationDataset


def _load_staicc(name: str) -> ClassificationDataset:
    from evaluator.datasets.staicc import load_staicc

    return load_staicc(name)


DATASETS: dict[str, Callable[[], ClassificationDataset]] = {
    "glue_sst2": partial(_load_staicc, "glue_sst2"),
    "rotten_tomatoes": partial(_load_staicc, "rotten_tomatoes"),
    "financial_phrasebank": partial(_load_staicc, "financial_phrasebank"),
    "sst5": partial(_load_staicc, "sst5"),
    "trec": partial(_load_staicc, "trec"),
    "agnews": partial(_load_staicc, "agnews"),
    "subjective": partial(_load_staicc, "subjective"),
    "tweet_eval_emotion": partial(_load_staicc, "tweet_eval_emotion"),
    "tweet_eval_hate": partial(_load_staicc, "tweet_eval_hate"),
    "hate_speech_18": partial(_load_staicc, "hate_speech_18"),
}
