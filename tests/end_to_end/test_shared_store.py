"""Several runs that share one folder of prompts and scores, each in a process of its own."""

import pytest

import evaluator
from tests.command_line import command
from tests.end_to_end.processes import start, stopped, table_bytes

pytestmark = pytest.mark.usefixtures("without_pages")

FAKE = ("--model", "fake", "--engine", "fake")
SMALL = ("run", "staicc-normal", "--datasets", "sst5", "--queries", 16, *FAKE)
LARGE = ("run", "staicc-normal", "--datasets", "sst5,trec", "--queries", 24, "--methods", "vanilla,topk", *FAKE)


@pytest.mark.slow
def test_runs_that_begin_at_once_each_end_with_the_tables_they_have_alone(tmp_path):
    alone = {}
    for name, words in (("small", SMALL), ("large", LARGE)):
        command(*words, "--out", tmp_path / "alone" / name)
        alone[name] = table_bytes(tmp_path / "alone" / name)
    runs = [("small", SMALL), ("large", LARGE), ("large", LARGE)]
    processes = [
        start(*words, "--out", tmp_path / str(number), "--store", tmp_path / "store")
        for number, (_, words) in enumerate(runs)
    ]
    for number, ((name, _), process) in enumerate(zip(runs, processes, strict=True)):
        _, err = process.communicate()
        assert process.returncode == 0, err
        assert table_bytes(tmp_path / str(number)) == alone[name]
    assert not list(tmp_path.rglob("*.partial"))


def test_a_run_waits_for_another_that_scores_the_same_prompts_and_then_asks_nothing(tmp_path):
    first = stopped(*SMALL, "--out", tmp_path / "first", "--store", tmp_path / "store", at_call=1)
    second = start(*SMALL, "--out", tmp_path / "second", "--store", tmp_path / "store")
    assert second.stderr is not None
    waits = next(line for line in second.stderr if "Waiting for another run" in line)
    assert waits
    first.kill()
    first.communicate()
    second.communicate()
    assert second.returncode == 0
    command(*SMALL, "--out", tmp_path / "first", "--store", tmp_path / "store")
    assert table_bytes(tmp_path / "first") == table_bytes(tmp_path / "second")


def test_what_is_reused_is_said_before_anything_is_scored(tmp_path):
    command(*SMALL, "--out", tmp_path / "small", "--store", tmp_path / "store")
    said = command(*LARGE, "--out", tmp_path / "large", "--store", tmp_path / "store")
    assert said.index("Reused from earlier runs: 32 of ") < said.index("Scoring: ")
    assert evaluator.read_scores(tmp_path / "large").collect().height
