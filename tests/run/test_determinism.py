"""The same inputs give the same bytes: with any number of threads, any size of shards, and whatever order sets have."""

import json
import os
import subprocess
import sys
from importlib import import_module

import pytest

from benchmarks.faults.cases import Case, difference, files_of, make_cases, table_difference
from benchmarks.faults.determinism import PIECES, SHARDS, STEPS, small_shards
from tests.command_line import command

pytestmark = pytest.mark.usefixtures("without_pages")

NAMES = ("second round", "halving", "pvi")
"""Runs whose later prompts follow from earlier scores, and one that draws samples."""

PROGRAM = """
import json, sys
from evaluator.cli.main import main
from evaluator.files.digests import sealed
from evaluator.files.whole import write_bytes
from evaluator.run import pipeline

pipeline.write_run_page = lambda _run, path: write_bytes(path, sealed(b"<!doctype html>")) or path
for words in json.loads(sys.argv[1]):
    sys.argv = ["evaluator", *words]
    try:
        main()
    except SystemExit as end:
        assert not end.code, end.code
"""
"""Several commands without pages in a process of its own, because Polars starts its threads once."""


@pytest.fixture(scope="module")
def cases(tmp_path_factory) -> dict[str, Case]:
    made = make_cases(tmp_path_factory.mktemp("cases") / "data", "http://127.0.0.1:1")  # no case here asks a server
    return {case.name: case for case in made if case.name in NAMES}


@pytest.fixture(scope="module")
def expected(cases, tmp_path_factory) -> dict[str, dict[str, str]]:
    """The files of each case, as files_of returns them."""
    out = tmp_path_factory.mktemp("expected")
    for name, case in cases.items():
        command(*case.run_words(out / name))
    return {name: files_of(out / name) for name in cases}


@pytest.mark.slow
@pytest.mark.parametrize("threads", [pytest.param(1, marks=pytest.mark.exhaustive), 3])  # this process has one or two
def test_threads_and_the_order_of_sets_change_no_byte(cases, expected, tmp_path, threads):
    names = ("POLARS_MAX_THREADS", "OMP_NUM_THREADS", "RAYON_NUM_THREADS", "PYTHONHASHSEED")
    commands = json.dumps([case.run_words(tmp_path / name) for name, case in cases.items()])
    environment = os.environ | dict.fromkeys(names, str(threads))
    words = [sys.executable, "-c", PROGRAM, commands]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for name, files in expected.items():
        assert difference(files, tmp_path / name) is None


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        pytest.param(name, rows, marks=[] if (rows == 1) == (name == "second round") else pytest.mark.exhaustive)
        for name in NAMES
        for rows in (1, 7)
    ],
)
def test_sizes_of_shards_change_no_byte_of_a_table(cases, expected, tmp_path, monkeypatch, name, rows):
    for module_name, constant in (*SHARDS, *PIECES, STEPS):
        module = import_module(module_name)
        monkeypatch.setattr(module, constant, getattr(module, constant))  # put back afterwards
    small_shards(rows)
    command(*cases[name].run_words(tmp_path))
    assert table_difference(expected[name], tmp_path) is None
    assert len(list(tmp_path.glob("store/*/prompts-*.arrow"))) > 3


@pytest.mark.parametrize("name", NAMES)
def test_stage_by_stage_is_the_whole_run(cases, expected, tmp_path, name):
    for stage in ("build", "score", "measure"):
        command(*cases[name].stage_words(stage, tmp_path))
    assert difference(expected[name], tmp_path) is None
