"""`evaluator random-baseline` as a user types it."""

import json
from pathlib import Path

import pytest

from tests.command_line import command, command_outputs

SETTING = ("random-baseline", "--n", 100, "--chance", 0.5, "--tries", 10)


def test_the_papers_example_is_printed() -> None:
    assert "best of 10 random classifiers  0.57678" in command(*SETTING)


def test_a_result_is_printed_as_json_with_tails_and_verdict() -> None:
    record = json.loads(command_outputs(*SETTING, "--correct", 58, "--json").out)
    assert record["max_random"] == pytest.approx(0.57678, abs=5e-6)
    # P(X >= 58) of 100 coin flips by SciPy: 0.0666053; of the best of ten 1 - (1 - 0.0666053)^10 = 0.498058
    assert record["standard_tail"] == pytest.approx(0.0666053, abs=5e-8)
    assert record["max_tail"] == pytest.approx(0.498058, abs=5e-7)
    assert record["verdict"] == "above both"
    assert record["better_than_uniform"] is False


def test_examples_with_different_numbers_of_choices_are_counted_together() -> None:
    record = json.loads(command_outputs("random-baseline", "--choices", "2:1,4:1", "--tries", 2, "--json").out)
    assert (record["n"], record["chance"], record["max_random"]) == (2, 0.375, pytest.approx(35 / 64))
    # A number of choices that is named twice counts twice; of one try, the best is the only one: (1/2 + 1/4 + 1/2) / 3.
    record = json.loads(command_outputs("random-baseline", "--choices", "2:1,4:1,2:1", "--json").out)
    assert (record["n"], record["chance"], record["max_random"]) == (3, pytest.approx(5 / 12), pytest.approx(5 / 12))


def test_a_table_runs_over_all_that_is_listed() -> None:
    words = ("random-baseline", "--table", "--n", "10,100", "--chance", "1/2,1/3", "--tries", "1,10")
    rows = json.loads(command_outputs(*words, "--json").out)
    assert [(row["chance"], row["n"], row["tries"]) for row in rows][-2:] == [(1 / 3, 100, 1), (1 / 3, 100, 10)]
    assert command_outputs(*words).out.count("chance 0.") == 2


def test_a_figure_is_written_and_a_table_beside_it_stays_json(tmp_path: Path) -> None:
    path = tmp_path / "figure.svg"
    words = ("random-baseline", "--plot", path, "--n", "10,100", "--tries", "1,10")
    alone = command_outputs(*words)
    assert alone.out + alone.err == f"Figure: {path}\n"
    assert path.read_text().startswith("<svg")
    beside = command_outputs(*words, "--table", "--json")
    assert len(json.loads(beside.out)) == 4
    assert beside.err == f"Figure: {path}\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--n", "100"], "--chance is missing"),
        (["--chance", "0.5"], "--n is missing"),
        (["--n", "100,200", "--chance", "0.5"], "--n takes one number without --table or --plot, received '100,200'"),
        (["--n", "many", "--chance", "0.5"], "--n takes numbers with commas between them, received 'many'"),
        (["--n", "9", "--chance", "1/0"], "received '1/0'"),
        (["--chance", "0.5", "--choices", "2:5"], "give one of them"),
        (["--n", "9", "--chance", "0.5", "--tries", "0"], "from 1 to 1,000,000,000,000,000; received 0.\n"),
        (["--choices", "2-5"], "pairs such as 2:50,4:50, received '2-5'"),
        (["--n", "7", "--choices", "2:5"], "add up to 5 examples, but n is 7"),
        (["--n", "100", "--chance", "0.5", "--correct", "57.5"], "57 (accuracy 0.57) and 58 (accuracy 0.58)"),
        (["--table", "--correct", "5"], "not to a table or figure"),
        (["--plot", "figure.svg", "--choices", "2:5"], "takes --chance and not --choices"),
        (["--plot", "figure.png"], ".svg or .html"),
    ],
)
def test_what_does_not_fit_is_one_message(words: list[str], message: str) -> None:
    assert message in command_outputs("random-baseline", *words, exits=2).err
