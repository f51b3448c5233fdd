"""A dataset that fails is left out of a run and named; what the command line gets wrong ends it before any work."""

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from evaluator.config import DataOptions, ModelConfig, RunConfig
from evaluator.errors import ConfigError, DatasetError
from evaluator.models.fake_source import fake_model_source
from evaluator.progress import finish
from evaluator.record import MeasuredRecord
from evaluator.run import pipeline, resolved_models
from evaluator.run.folder import MeasuredFolder, read_requests, read_scores
from evaluator.run.pipeline import summary_lines

MODEL = ModelConfig(model="fake", engine="fake")


def csv(folder: Path, name: str, labels: tuple[str, str] = ("no", "yes"), text: str = "text") -> Path:
    rows = {"text": [f"{text} {row}" for row in range(60)], "label": [*labels] * 30}
    pl.DataFrame(rows).write_csv(folder / f"{name}.csv")
    return folder / f"{name}.csv"


def config(*paths: Path, **change: object) -> RunConfig:
    asked = RunConfig(suites=("staicc-normal",), datasets=("sst5",), data=DataOptions(paths=paths), n_queries=4)
    return replace(asked, **change)


def accuracies(run: MeasuredFolder) -> dict[str, float]:
    rows = run.table("metrics").filter(metric="accuracy", method="vanilla", definition="paper", part="normal")
    return dict(rows.select("dataset", "value").iter_rows())


def assert_named(run: MeasuredFolder, page: Path, dataset: str, reason: str) -> None:
    """The record, the page and the terminal name the dataset and the reason, and no number is of it."""
    record: MeasuredRecord = run.record
    assert reason in record.left_out[dataset]
    assert f"{dataset} failed and is left out of every number and every mean" in page.read_text("utf-8")
    (line,) = [line for line in summary_lines(run) if line.startswith("Left out")]
    assert dataset in line
    assert reason in line
    assert dataset not in set(run.table("predictions")["dataset"])


def test_a_dataset_that_cannot_be_read_is_left_out_and_the_mean_is_of_the_others(tmp_path):
    bad = csv(tmp_path, "bad", labels=("same", "same"))
    for _ in range(2):  # the second time prompts and scores are there already
        page, (run,), *_ = finish(pipeline.run(config(bad), MODEL, tmp_path / "out"))
        assert_named(run, page, "bad", "all 60 rows have the same label")
        found = accuracies(run)
        assert found.keys() == {"sst5", "mean"}
        assert found["mean"] == found["sst5"]


def test_a_dataset_of_which_a_suite_can_make_no_prompts_is_left_out(tmp_path):
    robust = config(csv(tmp_path, "mine"), suites=("staicc-robustness",), parts=("template",), n_shots=20)
    for _ in range(2):
        page, (run,), *_ = finish(pipeline.run(robust, MODEL, tmp_path / "out"))
        assert_named(run, page, "mine", "20 shots were asked for, but the demonstration split has 8")
    assert set(read_requests(tmp_path / "out").collect()["dataset"]) == {"sst5"}


def test_a_dataset_whose_labels_the_model_cannot_tell_apart_is_left_out_of_every_stage(tmp_path):
    # Under `released` the last token of a label is scored, and here it is the same.
    twins = csv(tmp_path, "twins", labels=("one end", "other end"))
    out = tmp_path / "out"
    page, (run,), *_ = finish(
        pipeline.run(config(twins, methods=("vanilla", "topk")), MODEL, out, accept=["unscorable-labels"])
    )
    assert_named(run, page, "twins", "'one end' and 'other end'")
    before = run.table("metrics")
    again = finish(pipeline.measure(out))
    assert again["metrics"].collect().equals(before)
    assert "twins failed" in finish(pipeline.report(out)).read_text("utf-8")
    assert set(read_scores(out).collect()["dataset"]) == {"sst5"}


def test_a_dataset_too_long_for_the_model_is_left_out_for_this_model_alone(tmp_path, monkeypatch):
    long = csv(tmp_path, "long", text="word " * 2000)
    short = replace(fake_model_source(), context_length=5000)
    out = tmp_path / "out"
    with monkeypatch.context() as patched:
        patched.setattr(resolved_models, "find_source", lambda _model, **_: short)
        page, (run,), *_ = finish(pipeline.run(config(long), MODEL, out, accept=["prompts-over-context"]))
    assert_named(run, page, "long", "of 5000 tokens")
    finish(pipeline.score(out, MODEL))  # a model of more context
    assert "long" in set(finish(pipeline.measure(out))["metrics"].collect()["dataset"])


def test_what_the_command_line_gets_wrong_is_refused_before_any_work(tmp_path):
    good = csv(tmp_path, "good")
    with pytest.raises(ConfigError, match="no dataset 'sst55'"):
        finish(pipeline.run(config(good, datasets=("sst5", "sst55")), MODEL, tmp_path / "out"))
    with pytest.raises(DatasetError, match="does not exist"):
        finish(pipeline.run(config(good, tmp_path / "goood.csv"), MODEL, tmp_path / "out"))
    with pytest.raises(ConfigError, match="--queries 9999"):
        finish(pipeline.run(config(good, n_queries=9999), MODEL, tmp_path / "out"))
    assert not list(tmp_path.rglob("*.arrow"))


def test_where_every_dataset_fails_the_first_error_ends_the_run(tmp_path):
    bad = [csv(tmp_path, name, labels=(name, name)) for name in ("first", "second")]
    with pytest.raises(DatasetError, match=r"first\.csv: all 60 rows"):
        finish(pipeline.run(config(*bad, datasets=()), MODEL, tmp_path / "out"))
