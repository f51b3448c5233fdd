"""Measure answers that were imported: `evaluator import` writes such a run, and no prompt is built or scored."""

from collections.abc import Iterator

import polars as pl

from evaluator.config import RunConfig
from evaluator.datasets.base import ClassificationDataset
from evaluator.datasets.conversions import as_classification
from evaluator.errors import ConfigError
from evaluator.imports.base import IMPORTED, SUITE
from evaluator.suites.base import Described, Part, Requests, ScoredRun, Suite, Table
from evaluator.suites.classification import classification_page, classification_tables

OF_LABELS = ("accuracy", "macro_f1")
"""Metrics of predicted labels without probabilities."""


def _refuse(_config: RunConfig) -> None:
    raise ConfigError("The suite imported builds no prompts. Make such a run with `evaluator import FILE --out DIR`.")


def _requests(_dataset: ClassificationDataset, config: RunConfig) -> Requests:
    _refuse(config)
    raise AssertionError


def _describe(_config: RunConfig) -> Described:
    return Described(shots="unknown", n_shots=None, queries="those of the files", seeds={})


def _measure(run: ScoredRun) -> Iterator[Table]:
    """Yield the tables of a classification run, without metrics that the imported numbers say nothing about."""
    numbers = run.store.table(SUITE, IMPORTED).select("numbers").collect().item(0, 0)
    kept = {
        "log-likelihoods": pl.lit(True),
        "probabilities": ~pl.col("metric").str.starts_with("label_mass"),
        "labels": pl.col("metric").is_in(OF_LABELS),
    }[numbers]
    for name, table in classification_tables(run):
        if name == "metrics":
            yield name, table.filter(kept)
        else:
            yield name, table.clear() if name == "reliability" and numbers == "labels" else table


IMPORTED_ANSWERS = Suite(
    summary="Answers from elsewhere, which `evaluator import` reads: metrics and report without a model.",
    parts={SUITE: Part()},
    definitions=("paper",),
    exclusive=True,
    take=as_classification,
    requests=_requests,
    describe=_describe,
    check=_refuse,
    measure=_measure,
    sections=classification_page,
)
