"""What a run says before it asks anything, and of each dataset as soon as it is scored."""

import re
from collections import namedtuple
from dataclasses import replace

import polars as pl
import pytest

from evaluator.config import ModelConfig, RunConfig
from evaluator.engine.base import FakeEngine
from evaluator.progress import Progress, finish
from evaluator.run import pipeline, score
from evaluator.run.score import STAGE
from tests.command_line import command

pytestmark = pytest.mark.usefixtures("without_pages")

FAKE = ModelConfig(model="fake", engine="fake")
CONFIG = RunConfig(suites=("staicc-normal",), datasets=("sst5", "trec", "agnews"), n_queries=64, definitions=("paper",))


def all_progress(config: RunConfig, out, **options) -> list[Progress]:
    seen: list[Progress] = []

    def shown(now: Progress) -> None:
        seen.append(now)

    finish(pipeline.run(config, FAKE, out, **options), shown)
    return seen


def until_scored(config: RunConfig, out) -> list[Progress]:
    """The progress of a run that is not measured."""
    seen = list[Progress]()
    finish(pipeline.build(config, out), seen.append)
    finish(pipeline.score(out, FAKE), seen.append)
    return seen


def early(seen: list[Progress]) -> dict[str, str]:
    """Dataset -> the accuracy that was said of it."""
    lines = [now.line for now in seen if now.stage == STAGE]
    return dict(
        re.fullmatch(r"(\w+): accuracy (\S+) on [\d,]+ requests, label mass \S+ .*", line).groups() for line in lines
    )


def early_masses(seen: list[Progress]) -> dict[str, str]:
    """Dataset -> the median label mass that was said of it."""
    return dict(re.match(r"(\w+): .* label mass (\S+) ", now.line).groups() for now in seen if now.stage == STAGE)


def accuracies(out, definition: str = "paper") -> dict[str, str]:
    metrics = pl.read_parquet(out / "tables" / "metrics.parquet").filter(
        pl.col("dataset") != "mean", metric="accuracy", method="vanilla", definition=definition, part="normal"
    )
    return {dataset: f"{value:.3f}" for dataset, value in metrics.select("dataset", "value").iter_rows()}


@pytest.mark.parametrize("definition", ["paper", "released"])
def test_the_accuracy_of_every_dataset_is_said_and_is_that_of_the_table(tmp_path, definition):
    config = RunConfig(
        suites=("staicc-normal",), datasets=CONFIG.datasets, n_queries=64, methods=("vanilla", "batch_calibration"),
        definitions=(definition,),
    )  # fmt: skip
    seen = all_progress(config, tmp_path)
    said = early(seen)
    measured = {name: value for name, value in accuracies(tmp_path, definition).items() if name in said}
    assert said == measured
    assert {*said} == {*CONFIG.datasets}
    table = pl.read_parquet(tmp_path / "tables" / "metrics.parquet")
    of_masses = table.filter(pl.col("dataset") != "mean", metric="label_mass_median", definition=definition)
    assert early_masses(seen) == {
        name: f"{mass:.2g}" for name, mass in of_masses.select("dataset", "value").iter_rows()
    }


def test_datasets_are_said_while_others_are_still_asked(tmp_path):
    seen = until_scored(CONFIG, tmp_path)
    first = next(number for number, now in enumerate(seen) if now.stage == STAGE)
    last = max(number for number, now in enumerate(seen) if now.stage == "Scoring")
    assert first < last
    assert [now.done for now in seen if now.stage == STAGE] == [1, 2, 3]


def test_a_run_that_goes_on_says_the_datasets_that_it_completes(tmp_path):
    stage = pipeline.run(CONFIG, FAKE, tmp_path)
    for now in stage:
        if now.stage == "Scoring" and now.done > 100:
            stage.close()
            break
    said = early(all_progress(CONFIG, tmp_path))
    assert {*said} <= {*CONFIG.datasets}
    assert said == {name: value for name, value in accuracies(tmp_path).items() if name in said}
    assert said


def test_suites_without_such_a_part_say_nothing(tmp_path):
    config = RunConfig(suites=("staicc-bias",), datasets=("sst5",), n_queries=4, parts=("contextual",))
    assert early(until_scored(config, tmp_path)) == {}


def test_what_is_reused_and_what_is_asked_is_said_before_a_model_is_loaded(tmp_path):
    fake = ("--model", "fake", "--engine", "fake", "--store", tmp_path / "store")
    words = ("run", "staicc-normal", "--datasets", "sst5,trec", "--queries")
    first = command(*words, 8, *fake, "--out", tmp_path / "first")
    assert re.search(r"^32 prompts to score; at most \S+ MiB to write, \S+ GiB free$", first, re.MULTILINE)
    second = command(*words, 16, *fake, "--out", tmp_path / "second")
    said = second.index("Of 64 prompts 32 have scores already, 32 to score")
    assert said < second.index("Loading the model")
    again = command(*words, 16, *fake, "--out", tmp_path / "third")
    assert "Of 64 prompts 64 have scores already, 0 to score" in again
    assert "Loading the model" not in again


def test_prompts_that_an_interrupted_run_scored_are_counted(tmp_path):
    stage = pipeline.run(CONFIG, FAKE, tmp_path)
    done = 0
    for now in stage:
        if now.stage == STAGE:
            stage.close()
            break
        done = now.done if now.stage == "Scoring" else done
    (line,) = [now.line for now in until_scored(CONFIG, tmp_path) if now.stage == "Looking ahead"]
    assert re.match(r"Of 384 prompts [1-9]\d* have scores already, [1-9]\d* to score", line)


def test_hidden_states_count_among_what_is_written(tmp_path):
    plain = RunConfig(suites=("staicc-normal",), datasets=("sst5",), n_queries=4)
    states = RunConfig(suites=("staicc-normal",), datasets=("sst5",), n_queries=4, methods=("vanilla", "knn_centroid"))
    sizes = []
    for config in (plain, states):
        seen = until_scored(config, tmp_path / str(len(sizes)))
        sizes.append(next(now for now in seen if now.stage == "Looking ahead"))
    assert sizes[0].total < sizes[1].total


def test_a_disk_that_may_become_full_is_a_warning(tmp_path, monkeypatch, caplog):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(score.shutil, "disk_usage", lambda _path: usage(10**9, 10**9 - 4000, 4000))
    finish(pipeline.run(RunConfig(suites=("staicc-normal",), datasets=("sst5",), n_queries=2), FAKE, tmp_path))
    (said,) = [record.getMessage() for record in caplog.records if "free" in record.getMessage()]
    assert "has 3.9 KiB free" in said
    assert "--store or --out" in said


def test_nothing_is_asked_twice_to_say_it(tmp_path, monkeypatch):
    asked = []
    real = FakeEngine.log_likelihoods

    def counted(self, requests, *rest, **more):
        asked.append(len(requests))
        return real(self, requests, *rest, **more)

    monkeypatch.setattr(FakeEngine, "log_likelihoods", counted)
    until_scored(CONFIG, tmp_path)
    assert sum(asked) == 384


@pytest.mark.usefixtures("pages")
@pytest.mark.parametrize("methods", [("vanilla",), ("vanilla", "noisy_channel", "knn_centroid")])
def test_no_more_is_written_than_was_said(tmp_path, methods):
    ahead = next(
        now for now in all_progress(replace(CONFIG, methods=methods), tmp_path) if now.stage == "Looking ahead"
    )
    bytes_to_write = float(re.search(r"at most (\S+) MiB to write", ahead.line)[1]) * 2**20
    written = [*tmp_path.glob("scores/**/*"), *tmp_path.glob("tables/*"), tmp_path / "report.html"]
    assert 0 < sum(path.stat().st_size for path in written) <= bytes_to_write
