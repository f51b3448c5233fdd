"""In-context PVI as a user types it, with a fake engine on hand-made tables: prompts, scores, tables, what follows."""

import json
import math
import shutil

import numpy as np
import polars as pl
import pytest
from scipy import stats

import evaluator
from evaluator.schemas import METRICS, PREDICTIONS
from tests.command_line import command
from tests.suites.in_context_pvi.pvi_folder import write_folder

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
    assert record["prompts"]["config"]["suite_options"]["pvi"]["source"] == "random"
    assert record["prompts"]["seeds"] == {"demonstrations": 42}
    assert "snli" in record["prompts"]["notes"]


def test_each_prompt_of_a_set_without_inputs_is_scored_once(finished):
    null = evaluator.read_scores(finished).filter(part="null").collect()
    assert null.height == 2 * 2 * 3
    assert null["label_log_likelihoods"].list.eval(pl.element().is_finite()).list.all().all()
    record = json.loads((finished / "run.json").read_text())
    # Sets that show their labels in the same order have the same null prompt.
    prompts = evaluator.read_requests(finished).select("prompt", "label_names").collect().unique().height
    assert record["prompts"]["distinct_prompts"] == record["scores"]["prompts"] == prompts


def test_an_accuracy_over_several_prompts_is_compared_with_one_classifier(finished):
    metrics = pl.read_parquet(finished / "tables" / "metrics.parquet").filter(metric="accuracy", dataset="snli")
    assert metrics["tries"].unique().to_list() == [1]


def test_a_run_that_measures_without_the_annotations_of_before_says_so(tmp_path, data):
    words = ("--data", data, "--datasets", "snli", "--shots", 3, "--sets", 1)
    assert "lose" not in run(tmp_path / "out", *words)
    texts = pl.read_parquet(tmp_path / "out" / "tables" / "pvi_hardest.parquet").select("text").unique()
    texts.with_columns(pvi=pl.lit(0.5)).write_csv(tmp_path / "bert.csv")
    command("measure", tmp_path / "out", "--annotations", tmp_path / "bert.csv")
    _, _, lost = run(tmp_path / "out", *words).partition("The tables lose what `evaluator measure` took before: ")
    assert "bert.csv" in lost
    assert pl.read_parquet(tmp_path / "out" / "tables" / "pvi_annotators.parquet").is_empty()


CHOSEN = ("hardest", "easiest", "middle")


@pytest.fixture(scope="module")
def chosen(tmp_path_factory, data):
    out = tmp_path_factory.mktemp("chosen") / "out"
    methods = ",".join(["vanilla", *(f"{order}_demonstrations" for order in CHOSEN)])
    run(out, "--data", data, "--datasets", "snli", "--shots", 3, "--sets", 2, "--methods", methods)
    return out


def test_one_command_chooses_demonstrations_by_the_pvi_of_training_rows(chosen):
    scores = evaluator.read_scores(chosen).collect()
    null = scores.filter(part="null", demonstration_set=0)["label_log_likelihoods"].item()
    # PVI by hand: log2 of the gold label's probability with the input over that without.
    training = scores.filter(part="pvi_training").select("gold", "position", "label_log_likelihoods").rows()
    bits = {position: (given[gold] - null[gold]) / math.log(2) for gold, position, given in training}
    shown_first = set(scores.filter(part="null", demonstration_set=0)["demonstration_ids"].item())
    assert {*bits} == set(range(15)) - shown_first
    by_label = [sorted((bits[row], row) for gold, row, _ in training if gold == label) for label in range(3)]
    for number in range(2):
        expected = {
            "hardest": {own[number][1] for own in by_label},
            "easiest": {own[-1 - number][1] for own in by_label},
        }
        for order, rows in expected.items():
            of_set = scores.filter(part=f"{order}_demonstrations_null", demonstration_set=number)
            assert set(of_set["demonstration_ids"].item()) == rows
    table = pl.read_parquet(chosen / "tables" / "pvi_chosen.parquet")
    assert dict(table.select("training_row", "pvi_bits").rows()) == pytest.approx(
        {row: bits[row] for row in table["training_row"]}
    )


def test_chosen_demonstrations_stand_beside_the_random_ones_in_every_table(chosen):
    tables = {path.stem: pl.read_parquet(path) for path in (chosen / "tables").glob("*.parquet")}
    for name in ("pvi", "pvi_summary", "pvi_deciles", "pvi_densities", "pvi_pairs", "pvi_demonstrations"):
        assert set(tables[name]["demonstrations"]) == {"random", *CHOSEN}, name
    pvi = tables["pvi"].filter(definition="paper")
    # Accuracy and differences once more, from the predictions.
    right = tables["predictions"].filter(definition="paper").with_columns(correct=pl.col("pred") == pl.col("gold"))
    of_method = dict(right.group_by("method").agg(pl.col("correct").mean()).rows())
    differences = tables["method_differences"].filter(metric="accuracy", definition="paper", dataset="snli")
    assert set(differences["method_a"]) == {f"{order}_demonstrations" for order in CHOSEN}
    for order in CHOSEN:
        accuracy = of_method[f"{order}_demonstrations"]
        row = tables["pvi_demonstrations"].row(by_predicate=pl.col("demonstrations") == order, named=True)
        assert row["accuracy"] == pytest.approx(accuracy)
        gained = differences.filter(method_a=f"{order}_demonstrations").row(0, named=True)
        assert row["accuracy_difference"] == pytest.approx(accuracy - of_method["vanilla"])
        assert gained["difference"] == pytest.approx(row["accuracy_difference"])
        if gained["test"] != "two-way t":  # which holds for other sets as well
            assert (gained["ci_low"], gained["ci_high"]) == pytest.approx((row["accuracy_low"], row["accuracy_high"]))
        means = right.filter(method=f"{order}_demonstrations").group_by("query_id").agg(pl.col("correct").mean())
        of_random = right.filter(method="vanilla").group_by("query_id").agg(random=pl.col("correct").mean())
        d = means.join(of_random, on="query_id").select(pl.col("correct") - pl.col("random")).to_series()
        pairs = [*d, 1, -1]
        ends = stats.t.interval(0.95, len(pairs) - 1, np.mean(pairs), stats.sem(pairs))
        far = 0 if row["accuracy_difference"] < 0 else 1  # the other end follows the exact test
        assert (row["accuracy_low"], row["accuracy_high"])[far] == pytest.approx(max(-1.0, min(1.0, ends[far])))
        assert (row["n_sets"], row["n_queries"], row["n_candidates"], row["n_training"]) == (2, 15, 12, 15)
        queries = {name: pvi.filter(demonstrations=name)["query_id"].unique().sort() for name in ("random", order)}
        assert queries["random"].equals(queries[order])
    accuracies = tables["metrics"].filter(metric="accuracy", definition="paper", dataset="snli")
    assert accuracies["tries"].unique().to_list() == [1]  # of a mean over sets
    assert accuracies["n_tests"].unique().to_list() == [8]  # methods on one dataset, against guessing and one label
    tested = tables["pvi_demonstrations"]
    assert tested["n_tests"].unique().to_list() == [2 * tested.height]  # against uniform guessing and the majority
    assert tested["tries"].to_list() == tested["n_sets"].to_list()
    page = (chosen / "report.html").read_text()
    assert "Demonstrations chosen by PVI" in page
    assert "3-shot, hardest 1" in page


def test_what_follows_is_built_from_the_data_wherever_they_lie_and_not_from_other_data(tmp_path, data, monkeypatch):
    out, copied = tmp_path / "out", tmp_path / "copied"
    copied.mkdir()
    for file in data.iterdir():
        (copied / file.name).write_bytes(file.read_bytes())
    words = ("--datasets", "snli", "--shots", 3, "--sets", 1, "--methods", "vanilla,hardest_demonstrations")
    monkeypatch.chdir(tmp_path)
    command("build", "pvi", "--out", out, "--data", data, *words)
    command("build", "pvi", "--out", out, "--data", "copied", *words)  # finds the store, and where the data are now
    assert len(list(out.glob("store/*/manifest.json"))) == 1
    assert json.loads((out / "run.json").read_text())["prompts"]["config"]["data"]["paths"] == [str(copied)]
    monkeypatch.chdir("/")
    command("score", out, *FAKE)
    assert len(list(out.glob("store/*/manifest.json"))) == 2
    rows = pl.read_parquet(copied / "snli_test.parquet")
    rows.reverse().write_parquet(copied / "snli_test.parquet")
    command("score", out, *FAKE)  # what followed is there already
    second = json.loads((out / "run.json").read_text())["scores"]["stores"][1]
    shutil.rmtree(out / "store" / second)
    message = command("score", out, *FAKE, exits=2)
    assert "one of them has changed" in message
    assert "evaluator build" in message


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
        (("staicc-normal", "--sets", 3), "choose the demonstrations of your own data (--data)"),
        (
            ("staicc-robustness", "--sets", 3),
            "--sets belongs to staicc-normal, staicc-learning-curve, pvi, decide, not to",
        ),
        (("staicc-normal", "--training-queries", 2), "--training-queries belongs to pvi, not to"),
        (("staicc-normal", "--seed", 2), "not for StaICC's datasets, whose demonstrations are those of its toolkit"),
        (("pvi", "--tries", 5), "--tries belongs to prompt-search, not to pvi"),
        (("pvi",), "No dataset was named"),
        (("pvi", "--data", "/no/such/folder"), "/no/such/folder does not exist"),
        (("pvi", "--datasets", "multinli"), "multinli_dev_matched.parquet"),
        (
            ("pvi", "--datasets", "trec", "--methods", "topk"),
            "topk writes prompts of its own with one number of demonstrations, and pvi takes several",
        ),
        (
            ("staicc-normal", "--methods", "hardest_demonstrations"),
            "hardest_demonstrations belongs to pvi, not to staicc-normal",
        ),
        (
            ("pvi", "--datasets", "trec", "--methods", "hardest_demonstrations", "--training-queries", 3),
            "3 sets of 6 demonstrations by PVI need 3 rows labelled",
        ),
    ],
)
def test_a_users_mistake_ends_with_exit_code_2_before_anything_is_scored(tmp_path, words, message):
    assert message in command("run", *words, "--out", tmp_path / "out", *FAKE, exits=2)
    assert not list(tmp_path.glob("out/scores/*"))
