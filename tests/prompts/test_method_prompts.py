"""Queries about nothing: what they are made of, and how often each word comes."""

import dataclasses
from collections import Counter
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy import stats
from StaICC.prefabricate_inference.standard_calibration import contextual_calibration, hidden_calibration

from evaluator.datasets import SOURCES
from evaluator.datasets.base import EXAMPLES
from evaluator.errors import DatasetError
from evaluator.prompts.method_prompts import (
    domain_queries,
    empty_queries,
    training_draws,
    training_requests,
)
from evaluator.prompts.rows import classification_prompts
from evaluator.schemas import PROMPTS, REQUESTS
from tests.toolkit import our_dataset, toolkit_experiment


def split(*texts: list[str]) -> pl.DataFrame:
    return pl.DataFrame([(row, each, 0) for row, each in enumerate(texts)], schema=EXAMPLES, orient="row")


def words_of(queries: pl.Series, field: int = 0) -> list[str]:
    return [word for query in queries.to_list() for word in query[field].split(" ")]


def test_empty_queries_have_an_empty_text_a_field():
    assert empty_queries(3, 2).to_list() == [["", ""], ["", ""], ["", ""]]
    assert empty_queries(0, 1).to_list() == []


@pytest.mark.parametrize("definition", ["paper", "released"])
def test_a_domain_query_has_as_many_words_a_field_as_asked_for_each_of_that_field(definition):
    source = split(["a b c", "x y"], ["d e", "z z x"], ["f", "y"])
    queries = domain_queries(source, n_queries=50, n_words=7, definition=definition)
    assert queries.dtype == pl.List(pl.String)
    assert len(queries) == 50
    for field, known in enumerate(({*"abcdef"}, {*"xyz"})):
        assert {len(query[field].split(" ")) for query in queries.to_list()} == {7}
        assert set(words_of(queries, field)) <= known


def test_words_come_as_often_as_they_stand_in_the_source_whatever_text_they_stand_in():
    # Eight words stand there: "a" four times, "b" three times (once in a text of its own), "c" once.
    source = split(["a a b"], ["b"], ["a c a b"])
    found = Counter(words_of(domain_queries(source, n_queries=1000, n_words=32, definition="paper")))
    counts = [found["a"], found["b"], found["c"]]
    assert sum(counts) == 32_000
    assert stats.chisquare(counts, np.array([4, 3, 1]) / 8 * 32_000).pvalue > 1e-3


def test_a_word_does_not_tell_the_next_one():
    # Drawn independently, the four pairs of two equally frequent words are equally frequent.
    queries = domain_queries(split(["a b"]), n_queries=4000, n_words=2, definition="paper")
    pairs = Counter(query[0] for query in queries.to_list())
    assert stats.chisquare([pairs[pair] for pair in ("a a", "a b", "b a", "b b")]).pvalue > 1e-3


def test_spaces_in_a_row_hold_no_word_for_the_paper_and_an_empty_one_for_the_toolkit():
    source = split([" a  b c"], [" a  b c"])
    by_paper = words_of(domain_queries(source, n_queries=100, n_words=9, definition="paper"))
    assert set(by_paper) == {"a", "b", "c"}
    by_toolkit = words_of(domain_queries(source, n_queries=100, n_words=9, definition="released"))
    assert set(by_toolkit) == {"", "a", "b"}  # and "c" is the last word, which it never draws


def test_characters_of_scripts_without_spaces_are_words_for_the_paper():
    source = split(["这部电影很好看。", "ภาษา"], ["not 好 at all", "x"])
    words = {*words_of(domain_queries(source, n_queries=200, n_words=9, definition="paper"))}
    assert words == {*"这部电影很好看。", "not", "at", "all"}
    thai = domain_queries(source, n_queries=9, n_words=9, definition="paper")
    assert {*words_of(thai, 1)} <= {*"ภาษาx"}
    toolkit = domain_queries(source, n_queries=9, n_words=9, definition="released")
    assert {*words_of(toolkit)} == {"这部电影很好看。"}


def test_the_toolkit_draws_a_row_then_a_word_and_never_the_last():
    # Draws from seed 42: .25235, .08813, .57728, .22255 (states 1083814273, 378494188, 2479403867, 955863294 of 2**32).
    # Of three rows int(.25235 * 2) = 0, of its five words int(.08813 * 4) = 0: "a"; then row int(.57728 * 2) = 1 and
    # of its six words int(.22255 * 5) = 1: "g".
    source = split(["a b c d e"], ["f g h i j k"], ["l"])
    assert domain_queries(source, n_queries=1, n_words=2, definition="released").to_list() == [["a g"]]
    many = words_of(domain_queries(source, n_queries=500, n_words=10, definition="released"))
    assert set(many) == {*"abcd", *"fghij"}


def test_only_the_paper_s_draws_follow_the_seed_and_both_repeat():
    source = split(["a b c d e"], ["f g h"])
    draws = {
        (definition, seed): domain_queries(source, n_queries=5, n_words=20, definition=definition, seed=seed).to_list()
        for definition in ("paper", "released")
        for seed in (0, 1)
    }
    assert draws["paper", 0] != draws["paper", 1]
    assert draws["released", 0] == draws["released", 1]
    assert draws["paper", 0] == domain_queries(source, n_queries=5, n_words=20, definition="paper").to_list()


@pytest.mark.parametrize("definition", ["paper", "released"])
def test_the_first_queries_do_not_depend_on_how_many_are_drawn(definition):
    source = split(["a b c d", "x y z"], ["e f", "w"])
    few, many = (domain_queries(source, n_queries=n, n_words=5, definition=definition) for n in (3, 30))
    assert many[:3].to_list() == few.to_list()


@pytest.mark.parametrize("source", [split(), split(["", "word"]), split(["  ", "word"], ["", "word"])])
@pytest.mark.parametrize("definition", ["paper", "released"])
def test_a_split_without_words_is_refused_by_name(source, definition):
    with pytest.raises(DatasetError, match="The calibration split of tiny has no words"):
        domain_queries(
            source, n_queries=1, n_words=1, definition=definition, source_name="The calibration split of tiny"
        )


@pytest.mark.parametrize("n_shots", [0, 1, 4])
@pytest.mark.parametrize("name", SOURCES)
def test_prompts_with_empty_queries_are_those_of_the_toolkit_byte_for_byte(name: str, n_shots: int):
    dataset, experiment = our_dataset(name), toolkit_experiment(name)
    asked: list[str] = []

    def feedforward(*, prompt: str, label_space: list[str]) -> list[float]:
        asked.append(prompt)
        return [1.0] * len(label_space)

    contextual_calibration(experiment.get_label_space()).train(
        experiment.get_prompt_writter_from_dataline(), feedforward, experiment.calibration_set(), k=n_shots
    )
    shown = training_draws(dataset, n_draws=n_shots)
    rows = training_requests(dataset, part="p", queries=empty_queries(128, 1), demonstration_ids=shown)
    assert len(asked) == 128
    assert rows["prompt"].to_list() == asked


@pytest.mark.parametrize("n_shots", [0, 1, 4])
@pytest.mark.parametrize("name", SOURCES)
def test_labelled_samples_are_those_of_the_toolkit_byte_for_byte(name: str, n_shots: int):
    dataset, experiment = our_dataset(name), toolkit_experiment(name)
    asked: list[str] = []

    def feedforward(*, prompt: str, **_: Any) -> tuple[None, list[float]]:
        asked.append(prompt)
        return None, [float(len(asked))]

    trained: Any = hidden_calibration(experiment.get_label_space())
    # Warns where a label was never drawn, which says nothing about the prompts.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.warn", lambda *_: None)
        trained.train(
            experiment.get_prompt_writter_from_dataline(), feedforward, experiment.calibration_set(), k=n_shots
        )
    drawn = training_draws(dataset, n_draws=n_shots + 1)
    ours = classification_prompts(
        dataset,
        queries=dataset.calibration["texts"].gather(drawn[:, -1]),
        demonstrations=dataset.calibration,
        demonstration_ids=drawn[:, :-1],
    )
    assert len(asked) == 128
    assert ours["prompt"].to_list() == asked
    if not trained.failed:  # the place of each sample among those of its label tells which label it was given
        golds = dataset.calibration["gold"].to_numpy()[drawn[:, -1]]
        means = [(np.flatnonzero(golds == label) + 1).mean() for label in range(len(dataset.verbalizer.label_names))]
        assert [centroid[0] for centroid in trained.centroid] == pytest.approx(means, abs=1e-9)


def test_draws_repeat_and_stay_inside_the_calibration_split():
    dataset = dataclasses.replace(our_dataset("sst5"), calibration=our_dataset("sst5").calibration.head(3))
    drawn = training_draws(dataset, n_draws=5)
    assert drawn.shape == (128, 5)
    assert {*drawn.ravel()} == {0, 1, 2}


def test_fewer_samples_are_the_first_of_more():
    dataset = our_dataset("trec")
    few, many = (training_draws(dataset, n_draws=3, n_samples=n) for n in (5, 128))
    np.testing.assert_array_equal(few, many[:5])


def test_a_dataset_without_calibration_examples_is_refused_with_a_way_out():
    dataset = dataclasses.replace(our_dataset("sst5"), calibration=our_dataset("sst5").calibration.clear())
    with pytest.raises(DatasetError, match=r"sst5 has no calibration examples.*--methods"):
        training_draws(dataset, n_draws=4)


def test_rows_answer_no_query_and_say_which_calibration_examples_they_show():
    dataset = our_dataset("trec")
    shown = training_draws(dataset, n_draws=2)
    rows = training_requests(dataset, part="p", queries=empty_queries(128, 1), demonstration_ids=shown)
    assert {*rows.columns} == {*REQUESTS, *PROMPTS} - {"suite", "for_part", "prompt_id"}
    assert all(rows.schema[name] == REQUESTS[name] for name in rows.columns if name in REQUESTS)
    assert rows["query_id"].null_count() == rows["gold"].null_count() == 128
    assert rows["position"].to_list() == list(range(128))
    assert rows.select("n_shots", "ask").unique().rows() == [(2, "labels")]
    first, second = (dataset.calibration["texts"][int(row)][0] for row in shown[7])
    names = [dataset.verbalizer.label_names[dataset.calibration["gold"][int(row)]] for row in shown[7]]
    assert rows["prompt"][7] == (
        f"question: {first} target: {names[0]}\nquestion: {second} target: {names[1]}\nquestion:  target: "
    )
    assert rows["demonstration_ids"][7].to_list() == shown[7].tolist()
    assert rows["continuations"][7].to_list() == rows["label_names"][7].to_list() == [*dataset.verbalizer.label_names]
