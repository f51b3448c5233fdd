"""One measured run of the fake engine, without a page, that every format is exported from."""

from pathlib import Path

import polars as pl
import pytest

from evaluator.config import ModelConfig, RunConfig
from evaluator.exports.base import ExportedRun
from evaluator.progress import finish
from evaluator.report.table import MetricTexts
from evaluator.run import pipeline
from evaluator.runs.export import exported_run
from tests.compare.run_folders import LABELS, predictions
from tests.metrics.measured import metrics_of
from tests.report.made_record import made_record


@pytest.fixture(scope="session")
def measured_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two datasets, 4 queries each, a diagnostic, and methods that score labels, texts and hidden states; read only."""
    out = tmp_path_factory.mktemp("exported") / "run"
    config = RunConfig(
        suites=("staicc-bias",),
        parts=("normal", "contextual"),
        datasets=("sst5", "trec"),
        n_queries=4,
        methods=("vanilla", "noisy_channel", "knn_centroid"),
    )
    finish(pipeline.build(config, out))
    finish(pipeline.score(out, ModelConfig(model="fake", engine="fake")))
    finish(pipeline.measure(out))
    return out


@pytest.fixture(scope="session")
def made() -> ExportedRun:
    """A run whose datasets and model have names that mean something to Markdown and LaTeX; its prompts are unknown."""
    names = dict(zip(LABELS, ["a|b*c", "50%_#1", "[x]&{y}", "plain"], strict=True))
    metrics = metrics_of(predictions(0.5, seed=0)).with_columns(pl.col("dataset").replace(names))
    record = made_record(model={"name": "acme/small_1"}, prompts={"datasets": list(names.values())})
    return ExportedRun(record=record, metrics=metrics, texts=MetricTexts(), answers=lambda: iter(()))


@pytest.fixture(scope="session")
def run(measured_folder: Path) -> ExportedRun:
    return exported_run(measured_folder)
