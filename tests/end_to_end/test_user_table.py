"""A user's own CSV through every suite, as typed, on the fake engine."""

import json

import polars as pl
import pytest

from evaluator.methods import METHODS
from evaluator.suites.staicc.diagnostics import HEADLINES
from evaluator.suites.staicc.suite import INFERENCE_METHODS
from tests.command_line import command

pytestmark = pytest.mark.usefixtures("without_pages")

FAKE = ("--model", "fake", "--engine", "fake")
COLUMNS = ("--input-column", "title,body", "--gold-column", "stars", "--labels", "1=bad,4=great,5=great")


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "reviews.csv"
    columns = {"title": [f"Title {n % 7}" for n in range(80)], "body": [f"It is number {n}." for n in range(80)]}
    pl.DataFrame(columns | {"stars": [(1, 5, 1, 4)[n % 4] for n in range(80)]}).write_csv(path)
    return path


@pytest.fixture(scope="module")
def finished(table, tmp_path_factory):
    out = tmp_path_factory.mktemp("staicc") / "out"
    words = ("--data", table, *COLUMNS, "--queries", 4, "--methods", "all", "--instruction", "Judge the review.")
    command("run", "staicc", *words, "--out", out, *FAKE)
    return out


def test_a_table_gets_all_metrics_methods_and_diagnostics_of_the_benchmark(finished):
    metrics = pl.read_parquet(finished / "tables" / "metrics.parquet").filter(dataset="reviews")
    assert set(metrics["method"]) == set(INFERENCE_METHODS)
    assert set(METHODS) >= set(INFERENCE_METHODS)
    four = {"accuracy", "true_label_probability", "macro_f1", "expected_calibration_error"}
    assert four | {*HEADLINES} <= {*metrics["metric"]}, set(metrics["metric"])


@pytest.mark.usefixtures("pages")
def test_the_draw_and_its_sizes_are_recorded_and_on_the_page(finished):
    notes = json.loads((finished / "run.json").read_text())["prompts"]["notes"]["reviews"]
    # Of 40 rows a label 8 are set aside at least; half of these 16 calibrate.
    assert notes == [
        "no training rows: 16 of 80 rows, drawn by label with seed 42, are kept as demonstrations and are no queries",
        "8 of 16 training rows, drawn by label with seed 42, calibrate methods and are no demonstrations: "
        "8 demonstrations, 64 queries in all",
    ]
    command("report", finished)
    assert all(note in (finished / "report.html").read_text() for note in notes)


@pytest.mark.parametrize("suite", [("prompt-search", "--tries", 2), ("pvi", "--queries", 4), ("classify",)])
def test_the_same_columns_labels_and_instruction_go_to_every_suite(table, tmp_path, suite):
    command("run", *suite, "--data", table, *COLUMNS, "--instruction", "Judge.", "--out", tmp_path, *FAKE)
    rows = pl.scan_ipc(tmp_path / "store" / "*" / "prompts-*.arrow").select("prompt", "continuations").collect()
    assert rows["prompt"].str.starts_with("Judge.\n\ntitle: Title ").any()
    labels = {label.strip() for label in rows["continuations"].list.explode().drop_nulls()}
    assert labels == {"bad", "great"}


@pytest.mark.usefixtures("pages")
def test_files_and_folders_may_have_brackets_and_stars_in_their_names(table, tmp_path):
    """Polars takes them for patterns."""
    folder = tmp_path / "runs [1]*?"
    folder.mkdir()
    data = folder / "rows [1].parquet"
    pl.read_csv(table).write_parquet(data)
    words = ("classify", "--data", data, *COLUMNS, "--queries", 10, "--methods", "vanilla,knn_neighbours,topk")
    command("run", *words, "--out", folder / "out", "--store", folder / "store [2]", *FAKE)
    command("run", *words, "--out", folder / "another", "--store", folder / "store [2]", "--shots", 2, *FAKE)
    for stage in ("measure", "report", "verify", "receipt"):
        command(stage, folder / "out")
    page = (folder / "out" / "report.html").read_text()
    assert "reviews" not in page
    assert "rows [1]" in page


def test_labels_that_end_alike_are_refused_only_where_their_last_token_is_scored(tmp_path):
    path = tmp_path / "reviews.csv"
    rows = {"text": [f"text {n}" for n in range(120)], "label": ["very positive", "somewhat positive"] * 60}
    pl.DataFrame(rows).write_csv(path)
    words = ("--data", path, "--queries", 4, "--definition", "all", *FAKE)
    assert "end in the same token" in command("run", "staicc-normal", *words, "--out", tmp_path / "normal", exits=2)
    # Robustness is measured under one definition, the paper's.
    command("run", "staicc-robustness", *words, "--out", tmp_path / "robustness")


def test_two_datasets_with_the_same_prompt_are_named_by_methods_that_cannot_tell_them_apart(tmp_path):
    for name, first in (("a", 0), ("b", 40)):
        texts = [*(f"text {n}" for n in range(first, first + 119)), "the same"]
        pl.DataFrame({"text": texts, "label": ["no", "yes"] * 60}).write_csv(tmp_path / f"{name}.csv")
    words = ("--data", tmp_path / "a.csv", "--data", tmp_path / "b.csv", "--methods", "knn_neighbours", *FAKE)
    said = command("run", "classify", *words, "--shots", 0, "--out", tmp_path / "out", exits=2)
    assert "two datasets have a query with the same prompt" in said
