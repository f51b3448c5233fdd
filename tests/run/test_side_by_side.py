"""Models of a run that are loaded at the same time, each on devices of its own."""

import threading
from dataclasses import replace
from pathlib import Path

import polars as pl
import psutil
import pytest
from polars.testing import assert_frame_equal

from evaluator.config import DevicesConfig, ModelConfig, RunConfig
from evaluator.engine.devices import Place, this_processor
from evaluator.engine.replicas import EngineLoader
from evaluator.errors import ModelError
from evaluator.models.fake_source import fake_model_source
from evaluator.progress import Progress, finish
from evaluator.run import pipeline
from evaluator.run.side_by_side import Load, devices_of_each, side_by_side, take_places

pytestmark = pytest.mark.usefixtures("without_pages")


def model(n: int, width: int = 1) -> ModelConfig:
    return ModelConfig(model="fake", engine="fake", devices=DevicesConfig(n=n, tensor_parallel=width))


def loads(sizes: dict[str, int], widths: list[int], n_devices: int) -> list[Load[str]]:
    """Return models with these numbers of parameters and devices of a replica, on so many devices."""
    configs = devices_of_each([model(n_devices, width) for width in widths])
    assert configs is not None
    return [
        Load([name], name, size, config, EngineLoader(fake_model_source(), config, Path("unused")))
        for (name, size), config in zip(sizes.items(), configs, strict=True)
    ]


@pytest.mark.parametrize(
    ("widths", "n_devices", "expected"),
    [
        ([1, 1], 8, [4, 4]),
        ([1, 1, 1], 8, [2, 2, 2]),
        ([1, 2, 4], 8, [1, 2, 4]),
        ([1] * 20, 8, [1] * 20),
        ([4, 8], 8, None),  # one after the other
        ([4, 4, 8], 8, [4, 4, 8]),
        ([1, 1], 1, None),
        ([1], 8, None),
    ],
)
def test_a_model_takes_one_replica_or_as_many_as_leave_room_for_all(widths, n_devices, expected):
    found = devices_of_each([model(n_devices, width) for width in widths])
    assert (found and [config.devices.n for config in found]) == expected


def test_the_largest_models_begin_and_others_take_the_devices_that_become_free():
    every = loads({"tiny": 1, "large": 8, "middle": 4, "small": 2}, [1, 4, 2, 2], 7)
    free = {*range(7)}
    assert [load.title for load in take_places(every, free, 7)] == ["large", "middle", "tiny"]
    assert not free
    assert every[1].loader.place == Place([0, 1, 2, 3], 7)
    began: list[str] = []
    ended = threading.Event()

    def work(load):
        began.append(load.title)
        if load.title == "small":  # begins when one of two devices has ended
            ended.set()
        elif load.title == "large":
            ended.wait(60)  # so that it is not this one
        yield Progress(stage="Scoring", done=1, total=2, unit="prompts")
        return load.title.upper()

    shown, stage = [], side_by_side(every, work)
    assert finish(stage, shown.append) == ["TINY", "LARGE", "MIDDLE", "SMALL"]
    assert began[-1] == "small"
    assert every[3].loader.place == Place([4, 5], 7)
    # Four models of two prompts, also before "small" has begun.
    assert {(one.stage, one.total) for one in shown} == {("Scoring models side by side", 8)}
    assert [one.done for one in shown] == [1, 2, 3, 4]


def test_an_error_of_one_model_ends_the_others():
    every = loads({"good": 2, "bad": 1}, [1, 1], 2)
    take_places(every, {0, 1}, 2)
    closed = threading.Event()

    def work(load):
        if load.title == "bad":
            raise ModelError("bad weights")
        try:
            while True:
                yield Progress(stage="Scoring", done=0, total=1, unit="prompts")
        finally:
            closed.set()

    with pytest.raises(ModelError, match="bad weights"):
        finish(side_by_side(every, work))
    assert closed.is_set()


two_cores = pytest.mark.skipif(this_processor().max_devices < 2, reason="one core")
CONFIG = RunConfig(suites=("staicc-normal",), datasets=("sst5", "trec"), n_queries=8)
MODELS = [ModelConfig(model=name, engine="transformers") for name in ("embedded", "random")]
FAKES = [ModelConfig(model=name, engine="fake") for name in ("fake", "fake:2")]


def with_devices(models: list[ModelConfig], n: int) -> list[ModelConfig]:
    return [replace(one, devices=DevicesConfig(n=n)) for one in models]


@two_cores
@pytest.mark.parametrize("models", [FAKES, pytest.param(MODELS, marks=pytest.mark.exhaustive)], ids=["fake", "real"])
def test_models_side_by_side_have_the_tables_of_one_after_the_other(tmp_path, models):
    for n in (1, 2):
        finish(pipeline.run(CONFIG, with_devices(models, n), tmp_path / str(n)))
    found = sorted((tmp_path / "1").rglob("tables/*.parquet"))
    assert len(found) > 20
    for path in found:
        other = tmp_path / "2" / path.relative_to(tmp_path / "1")
        assert_frame_equal(pl.read_parquet(path), pl.read_parquet(other), abs_tol=1e-6)
    logs = sorted((tmp_path / "2").rglob("logs/*.log"))
    assert len(logs) == 2
    places = {log.read_text().partition("cores [")[2].partition("]")[0] for log in logs}
    assert len(places) == 2  # a core each


@two_cores
def test_a_run_that_is_stopped_leaves_no_process(tmp_path):
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    run = pipeline.run(CONFIG, with_devices(FAKES, 2), tmp_path)
    next(progress for progress in run if progress.stage == "Scoring models side by side")
    run.close()
    assert not [name for name in map(str, threading.enumerate()) if "fake" in name]
    left = {child.pid for child in psutil.Process().children(recursive=True) if child.status() != "zombie"}
    assert left <= before
