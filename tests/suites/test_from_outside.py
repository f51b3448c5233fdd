"""What somebody else adds: a suite, a dataset, a method, a metric, a diagnostic and an engine, none in the package.

Each is written as a user of the package would, registered by one line, and run from prompts to the page.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import polars as pl
import pytest

from evaluator.config import DataOptions, ModelConfig, RunConfig
from evaluator.datasets.base import ClassificationDataset
from evaluator.engine import ENGINES, EngineKind
from evaluator.engine.base import FakeEngine
from evaluator.methods import METHODS
from evaluator.methods.base import Method, softmax_of
from evaluator.metrics.classification import METRICS, Measured, mean_metric, metric_values
from evaluator.metrics.groups import Diagnostic, PredictionGroup
from evaluator.models.fake_source import fake_model_source
from evaluator.progress import finish
from evaluator.prompts.rows import normal_requests, of_parts
from evaluator.report.section import MeasuredRun, Section
from evaluator.report.table import Column, digits, text_column
from evaluator.report.table import Table as PageTable
from evaluator.run import pipeline
from evaluator.suites import SUITES
from evaluator.suites.base import (
    Family,
    Part,
    Requests,
    ScoredRun,
    Suite,
    Table,
    classification_page,
    classification_tables,
)

FAKE = ModelConfig(model="fake", engine="fake")


# --- a suite: the queries of a dataset as they are, and in capitals ---


def toy_requests(dataset: ClassificationDataset, config: RunConfig) -> Requests:
    plain = pl.concat(normal_requests(dataset, n_shots=config.n_shots, n_queries=config.n_queries))
    loud = plain.with_columns(prompt=pl.col("prompt").str.to_uppercase())
    rows = pl.concat(of_parts({"plain": [plain], "loud": [loud]}))
    return Requests(
        [rows], {"toy_lengths": rows.select("part", length=pl.col("prompt").str.len_chars()).sort("part", "length")}
    )


def agreement(group: PredictionGroup) -> dict[str, Measured]:
    """Share of capitals' predictions that are the first label."""
    share = mean_metric("first", (pl.col("pred") == 0).cast(pl.Float64))
    return metric_values(group.rows, group.n_labels, {"first_label_share": share})


LOUD = Diagnostic(part="loud", measure=agreement, metric="first_label_share", title="Share of the first label")


def toy_measure(run: ScoredRun) -> Iterator[Table]:
    yield from classification_tables(run, [LOUD])
    lengths = run.store.table("toy_lengths", pl.Schema({"part": pl.String(), "length": pl.UInt32()})).collect()
    yield "toy_lengths", lengths.group_by("part").agg(pl.col("length").mean()).sort("part")


def toy_sections(run: MeasuredRun) -> Iterator[Section]:
    yield from classification_page(run)
    columns = [text_column("Part", "part"), Column(title="Characters", value="length", show=digits(1))]
    table = PageTable(run.table("toy_lengths"), columns)
    yield Section("toy", "How loud it was", [table])


TOY = Suite(
    summary="The queries of a dataset, and the same in capitals.",
    parts={"plain": Part(), "loud": Part(kind="diagnostic")},
    requests=toy_requests,
    family=Family(measure=toy_measure, sections=toy_sections),
)


def toy_run(out: Path, **more: object) -> pipeline.Finished:
    config = RunConfig(suites=("toy",), datasets=("sst5",), n_queries=6, n_shots=1, **more)
    with patch.dict(SUITES, {"toy": TOY}):
        return finish(pipeline.run(config, FAKE, out))


@pytest.fixture(scope="module")
def toy(tmp_path_factory) -> pipeline.Finished:
    return toy_run(tmp_path_factory.mktemp("toy"), methods=("vanilla", "batch_calibration"))


def test_a_suite_runs_from_prompts_to_its_section_of_the_page(toy):
    metrics = toy.run.table("metrics")
    assert set(metrics["suite"]) == {"toy"}
    assert set(metrics.filter(part="plain", metric="accuracy")["method"]) == {"vanilla", "batch_calibration"}
    page = toy.page.read_text()
    assert "How loud it was" in page
    loud = toy.run.table("toy_lengths").filter(part="loud")["length"].item()
    assert f">{loud:.1f}</td>" in page
    assert toy.run.table("toy_lengths")["part"].to_list() == ["loud", "plain"]


def test_a_diagnostic_is_one_record(toy):
    shares = toy.run.table("metrics").filter(
        metric="first_label_share", dataset="sst5", method="vanilla", definition="paper"
    )
    predictions = toy.run.table("predictions").filter(part="loud", method="vanilla", definition="paper")
    assert shares["value"].to_list() == [pytest.approx((predictions["pred"] == 0).mean())]


def test_the_stages_of_a_suite_run_one_by_one_and_give_the_same_bytes(toy, tmp_path):
    config = RunConfig(
        suites=("toy",), datasets=("sst5",), n_queries=6, n_shots=1, methods=("vanilla", "batch_calibration")
    )
    with patch.dict(SUITES, {"toy": TOY}):
        finish(pipeline.build(config, tmp_path))
        finish(pipeline.score(tmp_path, FAKE))
        finish(pipeline.measure(tmp_path))
        finish(pipeline.report(tmp_path))
    tables = {path.name: path.read_bytes() for path in (tmp_path / "tables").iterdir()}
    assert tables == {path.name: path.read_bytes() for path in (toy.run.out / "tables").iterdir()}


# --- a method: the label that comes last of equals, by reversed scores ---


def test_a_method_answers_every_part_of_classification(tmp_path):
    reversed_scores = Method(
        summary="The least likely label.",
        label_probs=softmax_of(lambda _definition: pl.col("label_log_likelihoods") * -1),
        part_kinds=("classification",),
    )
    with patch.dict(METHODS, {"least_likely": reversed_scores}):
        predictions = toy_run(tmp_path, methods=("vanilla", "least_likely")).run.table("predictions")
    assert set(predictions.filter(method="least_likely")["part"]) == {"plain"}
    assert set(predictions.filter(method="vanilla")["part"]) == {"plain", "loud"}


# --- a metric: the share of queries answered surely ---


def test_a_metric_stands_in_the_table_with_an_interval(tmp_path):
    sure = mean_metric("sure", (pl.col("confidence") > 0.5).cast(pl.Float64))
    with patch.dict(METRICS, {"sure_share": sure}):
        metrics = toy_run(tmp_path).run.table("metrics")
    row = metrics.filter(metric="sure_share", dataset="sst5", definition="paper").row(0, named=True)
    assert row["ci_low"] <= row["value"] <= row["ci_high"]


# --- a dataset: a table of one's own, in every suite that it has enough for ---


def test_a_dataset_is_taken_by_suites_that_were_not_made_for_it(tmp_path):
    pl.DataFrame({"text": [f"text {i}" for i in range(60)], "label": ["no", "yes"] * 30}).write_csv(
        tmp_path / "mine.csv"
    )
    data = DataOptions(paths=(tmp_path / "mine.csv",))
    for suite in ("staicc-normal", "pvi"):
        config = RunConfig(suites=(suite,), data=data, n_queries=4, n_shots=2)
        assert set(finish(pipeline.run(config, FAKE, tmp_path / suite)).run.table("metrics")["dataset"]) == {
            "mine",
            "mean",
        }


# --- an engine: one that likes the label it is asked about first ---


def test_an_engine_is_one_entry(tmp_path):
    class First(FakeEngine):
        def log_likelihoods(self, requests):
            for answer in super().log_likelihoods(requests):
                yield replace(answer, token_log_probs=[[-float(n)] for n in range(1, len(answer.token_log_probs) + 1)])

    first = EngineKind(
        summary="Likes what comes first.",
        load=lambda _s, _c: First(),
        versions=dict,
        find=lambda _config, **_: fake_model_source(),
        runs_a_model=False,
    )
    config = RunConfig(suites=("staicc-normal",), datasets=("glue_sst2",), n_queries=4)
    with patch.dict(ENGINES, {"first": first}):
        run = finish(pipeline.run(config, ModelConfig(model="fake", engine="first"), tmp_path)).run
    assert np.all(run.table("predictions")["pred"].to_numpy() == 0)
