"""The learning curve: its prompts against text put together by hand, its numbers against NumPy, its cost in tokens."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import evaluator
from evaluator.config import ModelConfig, RunConfig
from evaluator.datasets.base import ClassificationDataset
from evaluator.errors import ConfigError
from evaluator.models.embedded import EMBEDDED_MODELS
from evaluator.models.source import find_model
from evaluator.progress import finish
from evaluator.prompts.rows import normal_requests
from evaluator.run import pipeline
from evaluator.run.folder import BuiltFolder
from evaluator.schemas import LEARNING_CURVE
from evaluator.suites import SUITES
from evaluator.tokens.boundary import tokenise_prompts
from evaluator.tokens.rows import floors, ragged
from tests.command_line import command
from tests.toolkit import our_dataset

SUITE = "staicc-learning-curve"
N_SHOTS, N_QUERIES = 3, 12


def asked(dataset: ClassificationDataset, *more: str, n_queries: int = N_QUERIES) -> pl.DataFrame:
    config = RunConfig(suites=(SUITE, *more), datasets=(dataset.name,), n_shots=N_SHOTS, n_queries=n_queries)
    return pl.concat(SUITES[SUITE].requests(dataset, config).rows)


def by_hand(dataset: ClassificationDataset, ids: list[int], query: int) -> str:
    """A prompt of these demonstrations with a row of the demonstration split as the query, one text after the other."""
    template, names = dataset.template, dataset.verbalizer.label_names
    texts, gold = dataset.demonstration["texts"].to_list(), dataset.demonstration["gold"].to_list()

    def inputs(row: int) -> str:
        fields = zip(template.input_prefixes, texts[row], template.input_affixes, strict=True)
        return "".join("".join(field) for field in fields) + template.label_prefix

    shown = "".join(inputs(row) + names[gold[row]] + template.label_affix for row in ids)
    return template.instruction + shown + inputs(query)


def with_two_fields(name: str) -> ClassificationDataset:
    """A dataset whose examples have their text twice, and whose queries begin with a prefix of their own."""
    dataset = our_dataset(name)
    template = replace(
        dataset.template,
        instruction="Decide.\n",
        input_prefixes=("one: ", "two: "),
        input_affixes=("; ", "\n"),
        query_prefix="Now: ",
    )
    twice = pl.concat_list("texts", "texts")
    splits = {name: getattr(dataset, name).with_columns(texts=twice) for name in ("demonstration", "test")}
    return replace(dataset, template=template, text_fields=("one", "two"), **splits)


@pytest.mark.parametrize("make", [our_dataset, with_two_fields])
@pytest.mark.parametrize("name", ["sst5", "agnews"])
def test_a_cut_prompt_is_the_one_that_has_the_next_demonstration_as_its_query(name, make):
    dataset = make(name)
    rows = asked(dataset)
    whole = pl.concat(normal_requests(dataset, n_shots=N_SHOTS, n_queries=N_QUERIES)).sort("position")
    curve = rows.filter(part="learning_curve").sort("position")
    assert curve.height == N_SHOTS * whole.height
    for n_before, cut in enumerate(curve.partition_by("n_shots", maintain_order=True)):
        for row, full in zip(cut.to_dicts(), whole.to_dicts(), strict=True):
            ids = full["demonstration_ids"]
            assert row["n_shots"] == n_before
            assert row["demonstration_ids"] == ids[:n_before]
            assert row["training_row"] == ids[n_before]
            assert row["gold"] == dataset.demonstration["gold"][ids[n_before]]
            assert row["prompt"] == by_hand(dataset, ids[:n_before], ids[n_before])
            assert full["prompt"].startswith(row["prompt"] + dataset.verbalizer.label_names[row["gold"]])
            assert row["continuations"] == full["continuations"]
    assert curve["query_id"].null_count() == curve.height
    assert rows.filter(part="normal").sort("position")["prompt"].to_list() == whole["prompt"].to_list()


def test_a_run_that_has_the_whole_prompts_already_gets_the_cut_ones_alone():
    assert asked(our_dataset("sst5"), "staicc-normal")["part"].unique().to_list() == ["learning_curve"]


def test_without_demonstrations_there_is_no_curve():
    with pytest.raises(ConfigError, match="--shots must be 1 or more"):
        SUITES[SUITE].check(RunConfig(suites=(SUITE,), datasets=("sst5",), n_shots=0))


def test_cut_prompts_cost_few_tokens_more_than_the_whole_ones():
    tokenizer = find_model(ModelConfig(model=str(EMBEDDED_MODELS["embedded"]()))).tokenizer
    rows = asked(our_dataset("sst5"), n_queries=64)
    computed = {}
    for name, chosen in (("whole", rows.filter(part="normal")), ("all", rows)):
        prompts = chosen.unique("prompt")
        space = prompts["continuations"].to_list()
        tokens = tokenise_prompts(
            tokenizer, prompts["prompt"].to_list(), ["labels"] * prompts.height, space, "separate"
        )
        computed[name] = floors(*ragged(pl.Series(tokens.contexts).sort()))[0]
    n_cut = rows.filter(part="learning_curve")["prompt"].n_unique()
    # A cut prompt ends in the space before its label, which in the whole prompt is part of the label's first token:
    # that token alone is new.
    assert 0 <= computed["all"] - computed["whole"] <= n_cut


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("curve") / "out"
    words = ("--datasets", "sst5,trec", "--shots", N_SHOTS, "--queries", N_QUERIES, "--engine", "fake")
    command("run", SUITE, *words, "--model", "fake", "--out", out)
    return out


def test_each_point_is_the_share_of_labels_that_are_right_after_as_many_demonstrations(finished):
    curve = pl.read_parquet(finished / "tables" / "learning_curve.parquet")
    assert curve.schema == LEARNING_CURVE
    scores = evaluator.read_scores(finished).collect()
    for dataset in ("sst5", "trec"):
        for n_shots in range(N_SHOTS + 1):
            rows = scores.filter(dataset=dataset, n_shots=n_shots)
            probs = np.exp(np.array(rows["label_log_likelihoods"].to_list()))
            probs /= probs.sum(axis=1, keepdims=True)
            gold = rows["gold"].to_numpy()
            expected = {
                "accuracy": (probs.argmax(axis=1) == gold).mean(),
                "true_label_probability": probs[np.arange(len(gold)), gold].mean(),
            }
            for metric, value in expected.items():
                point = curve.filter(dataset=dataset, n_shots=n_shots, metric=metric, definition="paper").to_dicts()[0]
                assert point["value"] == pytest.approx(value, abs=1e-12)
                assert point["ci_low"] < point["value"] < point["ci_high"]
                assert point["n_requests"] == 2 * N_QUERIES
                examples = rows["training_row"] if n_shots < N_SHOTS else rows["query_id"]
                assert point["n_examples"] == examples.n_unique()
    means = curve.filter(dataset="mean", metric="accuracy", definition="paper").sort("n_shots")
    of_datasets = curve.filter(pl.col("dataset") != "mean", metric="accuracy", definition="paper")
    expected = of_datasets.group_by("n_shots").agg(pl.col("value").mean()).sort("n_shots")["value"]
    assert means["value"].to_list() == pytest.approx(expected.to_list())


def test_the_last_point_is_the_accuracy_of_the_run_with_its_interval(finished):
    columns = ["dataset", "definition", "value", "ci_low", "ci_high", "chance"]
    last = pl.read_parquet(finished / "tables" / "learning_curve.parquet").filter(metric="accuracy", n_shots=N_SHOTS)
    metrics = pl.read_parquet(finished / "tables" / "metrics.parquet").filter(metric="accuracy", part="normal")
    key = ["dataset", "definition"]
    ours, theirs = last.select(columns).sort(key), metrics.select(columns).sort(key)
    assert ours.rows() == [pytest.approx(row, abs=1e-12) for row in theirs.rows()]


def test_the_page_has_a_figure_a_dataset_and_every_number_of_the_table(finished):
    page = (finished / "report.html").read_text()
    curve = pl.read_parquet(finished / "tables" / "learning_curve.parquet")
    assert page.count('class="number point"') == curve.height
    for value in curve["value"]:
        assert f'data-value="{value!r}"' in page
    # sst5, trec and the mean, under three definitions, with a band for each number of demonstrations.
    assert page.count(" demonstrations: accuracy ") == 3 * 3 * N_SHOTS
    assert page.count(" 1 demonstration: accuracy ") == 3 * 3


def test_the_labels_of_ones_own_data_are_asked_in_turn_which_the_page_says(tmp_path):
    rows = [(f"text {row}", "no" if row % 2 else "yes") for row in range(60)]
    pl.DataFrame(rows, schema=["text", "label"], orient="row").write_csv(tmp_path / "own.csv")
    words = ("--data", tmp_path / "own.csv", "--shots", 2, "--queries", 8, "--engine", "fake", "--model", "fake")
    command("run", SUITE, *words, "--out", tmp_path / "out")
    asked = BuiltFolder(tmp_path / "out").built.store.requests().filter(n_shots=1, part="learning_curve").collect()
    prompts = BuiltFolder(tmp_path / "out").built.store.prompts().collect()
    for prompt, gold in asked.join(prompts, on="prompt_id").select("prompt", "gold").iter_rows():
        assert prompt.count("label: ") == 2
        assert f"label: {['yes', 'no'][gold]}\n" in prompt  # always the other label
    assert (tmp_path / "out" / "report.html").read_text().count("compare only points after whole turns") == 1


def test_both_suites_in_one_run_share_prompts_and_give_the_same_curve(finished, tmp_path):
    config = RunConfig(suites=("staicc-normal", SUITE), datasets=("sst5", "trec"), n_shots=N_SHOTS, n_queries=N_QUERIES)
    finish(pipeline.run(config, ModelConfig(model="fake", engine="fake"), tmp_path))
    alone, together = (pl.read_parquet(folder / "tables" / "learning_curve.parquet") for folder in (finished, tmp_path))
    assert alone.equals(together)
