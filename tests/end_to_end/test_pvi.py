"""In-context PVI as a user types it, with a fake engine on hand-made tables: prompts, scores, tables, two rounds."""

import json
import math

import polars as pl
import pytest

import evaluator
from evaluator.schemas import METRICS, PREDICTIONS
from tests.end_to_end.processes import command
from tests.prompts.pvi_folder import write_folder

FAKE = ("--model", "fake", "--engine", "fake")


def run(out, *words):
    return command("run", "pvi", "--out", out, *words, *FAKE)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_folder(tmp_path_factory.mktemp("pvi"))


@pytest.fixture(scope="module")
def finished(tmp_path_factory, data):
    out = tmp_path_factory.mktemp("run") / "out"
    run(out, "--data", data)
    return out


def test_a_run_leaves_predictions_of_every_query_and_none_of_null_prompts(finished):
    predictions = pl.read_parquet(finished / "tables" / "predictions.parquet")
    assert predictions.schema == PREDICTIONS
    assert predictions["part"].unique().to_list() == ["input"]
    # Two numbers of shots, three sets; nine CoLA and fifteen SNLI queries, under two definitions.
    assert predictions["dataset"].value_counts().sort("dataset").rows() == [("cola", 2 * 54), ("snli", 2 * 90)]
    assert pl.read_parquet(finished / "tables" / "metrics.parquet").schema == METRICS
    record = json.loads((finished / "run.json").read_text())
    assert record["scores"]["label_boundary"] == "merged"
    assert record["store"]["pvi"]["source"] == "random"
    assert record["seeds"] == {"demonstrations": 42}
    assert "snli" in record["store"]["notes"]


def test_each_prompt_of_a_set_without_inputs_is_scored_once(finished):
    null = evaluator.read_scores(finished).filter(part="null").collect()
    assert null.height == 2 * 2 * 3
    assert null["label_log_likelihoods"].list.eval(pl.element().is_finite()).list.all().all()
    record = json.loads((finished / "run.json").read_text())
    # Sets that show their labels in the same order have the same null prompt.
    prompts = evaluator.read_requests(finished).select("prompt", "label_names").collect().unique().height
    assert record["store"]["distinct_prompts"] == record["scores"]["prompts"] == prompts


def test_the_tries_of_an_accuracy_are_the_prompts_that_its_queries_were_asked_with(finished):
    metrics = pl.read_parquet(finished / "tables" / "metrics.parquet").filter(metric="accuracy", dataset="snli")
    assert metrics["tries"].unique().to_list() == [6]


def test_demonstrations_are_chosen_by_the_pvi_of_training_rows_in_a_second_run(tmp_path, data):
    first, second = tmp_path / "first", tmp_path / "second"
    words = ("--data", data, "--datasets", "snli", "--shots", 3)
    run(first, *words, "--ask", "training", "--sets", 1)
    scores = evaluator.read_scores(first).collect()
    (null,) = scores.filter(part="null")["label_log_likelihoods"].to_list()
    # PVI by hand: log2 of the gold label's probability with the input over that without.
    bits = {
        (gold, query): (given[gold] - null[gold]) / math.log(2)
        for gold, query, given in scores.filter(part="input").select("gold", "query_id", "label_log_likelihoods").rows()
    }
    rows = [{"dataset": "snli", "n_shots": 3, "set": 0, "definition": "paper", "gold": gold, "query_id": query,
             "pvi_bits": value} for (gold, query), value in bits.items()]  # fmt: skip
    pl.DataFrame(rows).write_parquet(first / "tables" / "pvi.parquet")
    run(second, *words, "--demonstrations", "hardest", "--from", first, "--sets", 1)
    (shown,) = evaluator.read_requests(second).filter(part="null").collect()["demonstration_ids"].to_list()
    lowest = {min((value, query) for (own, query), value in bits.items() if own == gold)[1] for gold in range(3)}
    assert set(shown) == lowest


def test_a_table_of_ones_own_and_a_dataset_of_staicc_are_asked_alike(tmp_path):
    rows = "".join(f"title {n},body {n},{'yes' if n % 2 else 'no'}\n" for n in range(40))
    (tmp_path / "mine.csv").write_text("title,body,answer\n" + rows)
    columns = ("--input-column", "title,body", "--gold-column", "answer")
    run(tmp_path / "out", "--data", tmp_path / "mine.csv", *columns, "--datasets", "sst5", "--queries", 5, "--sets", 1)
    requests = evaluator.read_requests(tmp_path / "out").filter(part="input").collect()
    assert requests["dataset"].value_counts().sort("dataset").rows() == [("mine", 2 * 5), ("sst5", 2 * 5)]
    assert requests.filter(dataset="mine")["label_names"].unique().to_list() == [["no", "yes"]]
    prompt = requests.filter(dataset="mine")["prompt"][0]
    assert prompt.startswith("title: title ")
    assert prompt.endswith("\nanswer:")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("staicc-normal", "--sets", 2), "--sets belongs to pvi, not to staicc-normal"),
        (("staicc-normal", "--from", "x"), "--from belongs to pvi, not to"),
        (("staicc-normal", "--seed", 2), "--seed belongs to prompt-search and pvi, not to"),
        (("pvi", "--tries", 5), "--tries belongs to prompt-search, not to pvi"),
        (("pvi",), "No dataset was named"),
        (("pvi", "--data", "/no/such/folder"), "/no/such/folder is not there"),
        (("pvi", "--datasets", "multinli"), "multinli_dev_matched.parquet"),
        (("pvi", "--datasets", "trec", "--methods", "topk"), "answers normal"),
    ],
)
def test_a_users_mistake_ends_with_exit_code_2_before_anything_is_scored(tmp_path, words, message):
    assert message in command("run", *words, "--out", tmp_path / "out", *FAKE, exits=2)
    assert not list(tmp_path.glob("out/scores/*"))
