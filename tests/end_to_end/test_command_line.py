"""The command as a user types it: its exit code, what it prints, what it leaves behind, and how it is stopped."""

import json
import signal
import time
from pathlib import Path

import polars as pl
import pytest

import evaluator
from evaluator.schemas import METRICS, PREDICTIONS
from tests.command_line import command
from tests.end_to_end.processes import killed, prompts_left, shards_done, start, stopped, table_bytes
from tests.report.reading import (
    addresses_asked_by,
    as_shown,
    guessing_as_shown,
    guessing_shown,
    metrics_shown,
    open_fresh,
)


def fake_run(out: Path, *more: object) -> str:
    words = ("run", "staicc-normal", "--model", "fake", "--engine", "fake", "--out", out, "--datasets", "sst5,trec")
    return command(*words, "--queries", 16, *more)


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("run") / "out"
    fake_run(out)
    return out


def test_a_run_leaves_the_tables_the_record_and_the_report(finished):
    metrics = pl.read_parquet(finished / "tables" / "metrics.parquet")
    assert metrics.schema == METRICS
    assert set(metrics["dataset"]) == {"sst5", "trec", "mean"}
    assert set(metrics["definition"]) == {"paper", "released", "published"}
    predictions = pl.read_parquet(finished / "tables" / "predictions.parquet")
    assert predictions.schema == PREDICTIONS
    # Two datasets, 16 queries, 2 demonstration sets, 2 definitions.
    assert predictions.height == 2 * 16 * 2 * 2
    record = json.loads((finished / "run.json").read_text())
    assert record["model"]["name"] == "fake"
    assert record["prompts"]["requests"] == 64
    assert (finished / "report.html").read_text().startswith("<!doctype html>")


def test_the_report_of_a_run_holds_the_numbers_of_its_metrics_and_makes_no_noise(finished, browser):
    page = open_fresh(browser, finished / "report.html")
    assert page.get_log("browser") == []
    assert all(address.startswith(("file:", "data:")) for address in addresses_asked_by(page))
    metrics = pl.read_parquet(finished / "tables" / "metrics.parquet")
    assert metrics_shown(page) == as_shown(metrics)
    assert guessing_shown(page) == guessing_as_shown(metrics)


def test_without_demonstrations_each_prompt_is_scored_once_and_counts_as_one_try(tmp_path):
    fake_run(tmp_path, "--shots", 0)
    record = json.loads((tmp_path / "run.json").read_text())
    assert (record["prompts"]["requests"], record["prompts"]["distinct_prompts"]) == (64, 32)
    metrics = pl.read_parquet(tmp_path / "tables" / "metrics.parquet").filter(metric="accuracy")
    assert metrics["tries"].unique().to_list() == [1]
    assert metrics["max_random"].to_list() == pytest.approx(metrics["chance"].to_list(), rel=1e-12)


def test_the_same_run_elsewhere_gives_the_same_bytes_and_ends_with_its_verdicts_and_the_place_of_its_report(
    finished, tmp_path
):
    said = fake_run(tmp_path).splitlines()
    assert table_bytes(finished) == table_bytes(tmp_path)
    verdicts = next(line for line in said if line.startswith("staicc-normal / normal, vanilla: mean accuracy "))
    assert "better than guessing on " in verdicts
    assert verdicts.endswith(
        "of 2 datasets (5% level, Holm's correction for 6 tests)"
    )  # two of each, and of their mean
    assert f"Report: {tmp_path / 'report.html'}" in said


def test_every_accuracy_of_a_run_is_tested_against_guessing_and_corrected_for_all_of_them(finished):
    accuracies = pl.read_parquet(finished / "tables" / "metrics.parquet").filter(metric="accuracy")
    assert accuracies.height > 2
    for rows in accuracies.partition_by("definition"):
        assert rows["n_tests"].to_list() == [2 * rows.height] * rows.height
        assert rows["p_value"].to_list() == pytest.approx([10**tail for tail in rows["log10_tail"]])
        smallest = min(rows["p_value"].min(), rows["p_majority"].min())
        corrected = min(rows["p_holm"].min(), rows["p_majority_holm"].min())
        assert corrected == pytest.approx(min(1, 2 * rows.height * smallest))
        both = rows.select(pl.max_horizontal("p_holm", "p_majority_holm") <= 0.05).to_series()
        assert rows["better_than_guessing"].to_list() == both.to_list()
        assert (rows["accuracy_lower_bound"] <= rows["value"]).all()
        assert ((rows["credible_low"] <= rows["value"]) & (rows["value"] <= rows["credible_high"])).all()


def test_requests_and_scores_are_read_back_in_the_benchmarks_order(finished):
    requests = evaluator.read_requests(finished).collect()
    # Places in the full benchmark: the first 16 of 512 queries, then the same behind their other demonstrations.
    assert requests["position"].to_list() == [*range(16), *range(512, 528)] * 2
    assert requests["prompt"].str.len_bytes().min() > 0
    scores = evaluator.read_scores(finished).collect()
    assert scores["prompt_id"].to_list() == requests["prompt_id"].to_list()


def test_stages_one_by_one_give_the_tables_of_a_whole_run(finished, tmp_path):
    out = tmp_path / "staged"
    command("build", "staicc-normal", "--out", out, "--datasets", "sst5,trec", "--queries", 16)
    command("score", out, "--model", "fake", "--engine", "fake")
    command("measure", out)
    command("report", out)
    assert table_bytes(finished) == table_bytes(out)
    assert (out / "report.html").is_file()


def test_a_smaller_run_asks_a_subset_of_what_the_larger_one_asks(finished, tmp_path):
    command("build", "staicc-normal", "--out", tmp_path, "--datasets", "sst5", "--queries", 8)
    small = evaluator.read_requests(tmp_path).collect()
    large = evaluator.read_requests(finished).collect()
    assert set(small["prompt"]) < set(large["prompt"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "no-such-suite", "--model", "fake", "--engine", "fake"], "staicc-normal"),
        (["run", "staicc-normal", "--model", "fake", "--engine", "fake", "--datasets", "sst6"], "sst5"),
        (["run", "staicc-normal", "--model", "fake", "--engine", "fake", "--shots", "-1"], "--shots"),
        (["run", "staicc-normal", "--model", "fake", "--engine", "fake", "--queries", "0"], "--queries"),
        (["run", "staicc-normal", "--model", "fake", "--engine", "warp"], "transformers"),
        (["run", "staicc-normal", "--model", "/no/such/folder", "--engine", "transformers"], "/no/such/folder"),
        (["run", "staicc-normal"], "--model"),
    ],
)
def test_a_users_mistake_ends_with_exit_code_2_and_says_what_there_is(tmp_path, words, message):
    assert message in command(*words, "--out", tmp_path / "out", exits=2)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (("--engine", "transformers", "--model", "/no/such/folder"), "/no/such/folder"),
        (("--engine", "fake", "--model", "fake", "--queries", "1000000"), "--queries 1000000"),
    ],
)
def test_a_refused_command_leaves_nothing_behind(tmp_path, wrong, message):
    folders = ("--out", tmp_path / "runs" / "out", "--store", tmp_path / "data")
    assert message in command("run", "staicc-normal", "--datasets", "sst5", *wrong, *folders, exits=2)
    assert list(tmp_path.iterdir()) == []


def test_a_refused_command_keeps_the_folders_that_were_there_before(tmp_path):
    words = ("run", "staicc-normal", "--datasets", "sst5", "--engine", "transformers", "--model", "/no/such/folder")
    command(*words, "--out", tmp_path, exits=2)
    assert list(tmp_path.iterdir()) == []


def test_an_output_folder_that_cannot_be_is_a_users_mistake(tmp_path):
    (tmp_path / "file").touch()
    words = ("run", "staicc-normal", "--model", "fake", "--engine", "fake")
    assert "cannot be written to" in command(*words, "--out", tmp_path / "file" / "out", exits=2)


@pytest.mark.parametrize("stage", ["score", "measure", "report"])
def test_a_stage_without_the_one_before_it_says_what_to_run(tmp_path, stage):
    words = ("--model", "fake", "--engine", "fake") if stage == "score" else ()
    assert "evaluator build" in command(stage, tmp_path, *words, exits=2)


def test_metrics_of_earlier_scores_are_not_reported_as_those_of_new_ones(tmp_path):
    out = tmp_path / "out"
    fake_run(out)
    # The same prompts under another boundary make other tokens, and so other scores.
    command("score", out, "--model", "fake", "--engine", "fake", "--label-boundary", "merged", "--force")
    assert "evaluator measure" in command("report", out, exits=2)
    command("measure", out)
    command("report", out)


@pytest.mark.parametrize("what", ["suites", "datasets", "methods", "engines"])
def test_what_there_is_can_be_listed(what):
    expected = {"suites": "staicc-normal", "datasets": "hate_speech_18", "methods": "vanilla", "engines": "vllm"}
    assert expected[what] in command(what)


FAKE = ("--model", "fake", "--engine", "fake")
LONGER = ("run", "staicc-normal", *FAKE, "--datasets", "agnews", "--queries", 128)  # six shards


@pytest.fixture(scope="module")
def never_killed(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("longer") / "out"
    command(*LONGER, "--out", out)
    return out


def test_a_run_killed_while_prompts_are_built_goes_on(never_killed, tmp_path):
    out = tmp_path / "killed"
    process = start(*LONGER, "--out", out)
    while process.poll() is None and not list(out.glob("store/*")):
        time.sleep(0.005)
    process.kill()
    process.communicate()
    command(*LONGER, "--out", out)
    assert table_bytes(never_killed) == table_bytes(out)


def test_a_run_killed_while_it_scores_goes_on_and_ends_with_the_same_bytes(never_killed, tmp_path):
    out = tmp_path / "killed"
    killed(*LONGER, "--out", out, at_call=3)
    assert shards_done(out) == 2
    assert prompts_left(out) > 0
    command(*LONGER, "--out", out)
    assert table_bytes(never_killed) == table_bytes(out)


def test_a_second_process_is_refused_and_ctrl_c_stops_the_first_with_the_command_that_resumes(never_killed, tmp_path):
    out = tmp_path / "stopped"
    first = stopped(*LONGER, "--out", out, at_call=2)
    assert "Another process is writing" in command(*LONGER, "--out", out, exits=2)
    first.send_signal(signal.SIGINT)
    first.send_signal(signal.SIGCONT)
    _, err = first.communicate()
    assert first.returncode == 130
    assert "Traceback" not in err
    assert f"evaluator {' '.join(map(str, LONGER))} --out {out}" in err
    command(*LONGER, "--out", out)
    assert table_bytes(never_killed) == table_bytes(out)


def test_a_users_mistake_ends_the_process_with_exit_code_2_and_no_traceback(tmp_path):
    process = start("measure", tmp_path)
    _, err = process.communicate()
    assert process.returncode == 2
    assert err.startswith("Error: ")
    assert "Traceback" not in err
