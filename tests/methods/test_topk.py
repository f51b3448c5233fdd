import polars as pl
import pytest
from scipy.special import softmax

from evaluator.methods.base import predict
from evaluator.methods.hidden_states import TOPK, topk_follow_up
from tests.methods.answered import context
from tests.methods.state_answers import answer, label_scores, toolkit_experiment
from tests.methods.toolkit_retrieval import quietly, toolkit_retrieval


@pytest.fixture(scope="module")
def released():
    question = context("financial_phrasebank", n_shots=4, n_queries=None, definitions=("released",))
    return question, pl.concat(topk_follow_up(question, answer(TOPK.prompts.requests(question))))


def test_released_prompts_are_those_of_the_toolkit_byte_for_byte(released):
    experiment = toolkit_experiment("financial_phrasebank", 4)
    retrieval = toolkit_retrieval(experiment, lambda _text: [0.0] * 3)
    quietly(lambda: retrieval.set_TopK_to_demonstration(4))
    try:
        _, rows = released
        assert rows["demonstration_ids"].to_list() == experiment.demonstration_sampler
        assert rows["prompt"].to_list() == quietly(experiment.prompt_set)
    finally:
        quietly(experiment.reset_demonstration_sampler)


def test_each_query_is_asked_once_at_its_own_position(released):
    question, rows = released
    assert rows.columns == question.columns
    assert rows["position"].to_list() == rows["query_id"].to_list() == list(range(512))
    assert rows["demonstration_set"].unique().to_list() == [0]
    assert rows["gold"].to_list() == question.dataset.test["gold"].to_list()


def test_fewer_queries_are_the_first_of_more(released):
    few = context("financial_phrasebank", n_shots=4, n_queries=7, definitions=("released",))
    assert pl.concat(topk_follow_up(few, answer(TOPK.prompts.requests(few)))).equals(released[1][:7])


def test_without_shots_the_prompts_are_those_of_the_benchmark():
    question = context("financial_phrasebank", n_shots=0, n_queries=3)
    rows = pl.concat(topk_follow_up(question, answer(TOPK.prompts.requests(question))))
    assert rows["prompt"].to_list() == question.rows.collect().filter(demonstration_set=0)["prompt"].to_list()


def test_answers_are_vanillas_in_the_part_normal(released):
    _, rows = released
    answered = predict(answer([rows[:5]]), {"topk": TOPK}, ("released",)).collect()
    assert answered.select("part", "position").rows() == [("normal", query) for query in range(5)]
    for prompt, probs in zip(rows["prompt"][:5], answered["label_probs"], strict=True):
        assert probs.to_list() == pytest.approx(softmax(label_scores(prompt, 3)), abs=1e-12)
