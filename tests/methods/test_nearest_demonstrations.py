from dataclasses import replace

import polars as pl
import pytest

from evaluator.datasets.staicc import load_staicc
from evaluator.errors import TemplateError
from evaluator.methods.base import MethodContext
from evaluator.methods.hidden_states import SA_ICL, TOPK, nearest_demonstrations, text_requests
from tests.methods.answered import context
from tests.methods.state_answers import answer, hidden_state
from tests.methods.toolkit_retrieval import euclidean


def test_bare_texts_are_asked_about_once_a_row_of_their_split():
    question = context("financial_phrasebank", n_queries=5)
    (rows,) = text_requests(question, 4)
    dataset = question.dataset
    demonstrations, queries = rows.filter(part="demonstration_texts"), rows.filter(part="query_texts")
    assert demonstrations["prompt"].to_list() == dataset.demonstration["texts"].list.first().to_list()
    assert queries["prompt"].to_list() == dataset.test["texts"].list.first().to_list()[:5]
    assert queries["position"].to_list() == queries["query_id"].to_list() == [0, 1, 2, 3, 4]
    assert demonstrations["position"].to_list() == demonstrations["training_row"].to_list() == list(range(512))
    assert demonstrations["query_id"].null_count() == 512
    assert rows.select("ask", "continuations").unique().rows() == [("state", [])]


def test_paper_chooses_from_all_demonstrations_and_released_from_the_first_512():
    n_asked = {
        definition: next(text_requests(context("sst5", definitions=(definition,)), 4))
        .filter(part="demonstration_texts")
        .height
        for definition in ("paper", "released")
    }
    assert n_asked == {"paper": 4096, "released": 512}


def test_texts_of_several_fields_are_joined_by_a_space():
    question = context("sst5", n_queries=1)
    two = question.dataset.test.with_columns(texts=pl.lit(["first", "second"]))
    (rows,) = text_requests(question._replace(dataset=replace(question.dataset, test=two)), 4)
    assert rows.filter(part="query_texts")["prompt"].to_list() == ["first second"]


def test_an_example_without_text_is_not_asked_about():
    (rows,) = text_requests(context("tweet_eval_hate", definitions=("released",)), 4)
    texts = load_staicc("tweet_eval_hate").demonstration["texts"].list.first().to_list()[:512]
    positions = rows.filter(part="demonstration_texts")["position"].to_list()
    assert positions == [row for row, text in enumerate(texts) if text]
    assert len(positions) == 511


def test_nearest_come_first_and_of_equal_texts_the_lower_row():
    question = context("financial_phrasebank", n_queries=20)
    rows = question.dataset.demonstration
    # Rows 300 and up repeat rows 0 and up, so that every distance of theirs occurs twice.
    question = question._replace(dataset=replace(question.dataset, demonstration=pl.concat([rows[:300], rows[:212]])))
    query_ids, nearest = nearest_demonstrations(question, answer(text_requests(question, 6)), 6)
    assert query_ids.tolist() == list(range(20))
    texts = question.dataset.demonstration["texts"].list.first().to_list()
    for query, chosen in zip(query_ids, nearest, strict=True):
        own = hidden_state(question.dataset.test["texts"][int(query)][0])
        distances = [(euclidean(own, hidden_state(text)), row) for row, text in enumerate(texts)]
        assert chosen.tolist() == [row for _, row in sorted(distances)[:6]]


@pytest.mark.parametrize(("method", "n_nearest"), [(TOPK, 4), (SA_ICL, 5)])
def test_too_few_demonstrations_are_refused_before_anything_is_scored(method, n_nearest):
    question = context("financial_phrasebank", n_queries=1)
    rows = question.dataset.demonstration

    def with_demonstrations(n: int) -> MethodContext:
        return question._replace(dataset=replace(question.dataset, demonstration=rows[:n]))

    assert list(method.prompts.requests(with_demonstrations(n_nearest)))
    message = rf"{n_nearest} nearest demonstrations of financial_phrasebank, but {n_nearest - 1} can be chosen"
    with pytest.raises(TemplateError, match=message):
        list(method.prompts.requests(with_demonstrations(n_nearest - 1)))
