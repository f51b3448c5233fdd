"""A finished run is extended by more of the same, and replaced by something else only with --force."""

import shutil
from pathlib import Path

import pytest

import evaluator
from evaluator.errors import ConfigError
from evaluator.run.record import read_run
from tests.command_line import command

RUN = ("run", "staicc-normal", "--datasets", "sst5", "--queries", "2", "--model", "fake", "--engine", "fake")


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("finished") / "out"
    command(*RUN, "--out", out)
    return out


@pytest.fixture
def out(made, tmp_path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "out"))


def contents(out: Path) -> dict[Path, bytes]:
    return {
        path: path.read_bytes()
        for path in out.rglob("*")
        if path.is_file() and path.name not in (".lock", "evaluator.log")
    }


@pytest.mark.parametrize(
    ("words", "there", "asked"),
    [
        (("staicc-normal", "--datasets", "trec"), "sst5", "trec"),
        (("staicc-bias", "--datasets", "sst5"), "staicc-normal", "staicc-bias"),
        (("staicc-normal", "--datasets", "sst5", "--shots", "2"), "4", "2"),
        (("staicc-normal", "--datasets", "sst5", "--label-boundary", "merged"), "separate", "merged"),
    ],
)
def test_a_finished_run_of_something_else_is_not_replaced(out, words, there, asked):
    before = contents(out)
    typed = ("run", *words, "--queries", "2", "--model", "fake", "--engine", "fake", "--out", out)
    said = command(*typed, exits=2)
    assert there in said
    assert asked in said
    assert "--force" in said
    assert contents(out) == before
    command(*typed, "--force")
    assert contents(out) != before


def test_a_finished_run_of_another_model_is_not_replaced_in_python_either(out):
    before = contents(out)
    options = {
        "datasets": ["sst5"],
        "queries": 2,
        "model": "embedded",
        "engine": "transformers",
        "out": out,
        "progress": False,
    }
    with pytest.raises(ConfigError, match="finished run with the model fake"):
        evaluator.evaluate("staicc-normal", **options)
    assert contents(out) == before


def test_more_queries_methods_and_datasets_extend_a_finished_run(out):
    words = ("run", "staicc-normal", "--datasets", "sst5,trec", "--queries", "3", "--model", "fake", "--engine", "fake")
    command(*words, "--methods", "vanilla,contextual_calibration", "--out", out)
    assert read_run(out).prompts.n_queries == 3
