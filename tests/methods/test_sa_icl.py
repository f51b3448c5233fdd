from itertools import permutations
from math import factorial

import numpy as np
import polars as pl
import pytest
from scipy.stats import entropy
from StaICC.util import functional

from evaluator.methods.base import predict
from evaluator.methods.hidden_states import SA_ICL, entropy_nats, orderings, sa_icl_follow_up
from tests.methods.answered import answers, context, table
from tests.methods.state_answers import answer, label_scores, toolkit_experiment
from tests.methods.toolkit_retrieval import quietly, toolkit_retrieval

N_QUERIES = 8


@pytest.fixture(scope="module")
def released():
    question = context("financial_phrasebank", n_shots=4, n_queries=N_QUERIES, definitions=("released",))
    return question, pl.concat(sa_icl_follow_up(question, answer(SA_ICL.prompts.requests(question))))


@pytest.fixture
def retrieval(monkeypatch):
    # The toolkit's entropy takes another softmax where a sum is one in exact arithmetic only; this is the check that
    # stands in a comment beside it.
    monkeypatch.setattr(functional, "probability_vector_check", lambda probs: all(0 <= p <= 1 for p in probs))
    experiment = toolkit_experiment("financial_phrasebank", 4)
    yield toolkit_retrieval(experiment, lambda text: label_scores(text, 3))
    quietly(experiment.reset_demonstration_sampler)


def test_released_orderings_are_the_first_in_lexicographic_order(retrieval):
    expected = quietly(lambda: retrieval._enum_orders_given_indexes_set(list(range(5)), 4, 10))
    assert [tuple(row) for row in orderings(4, "released")] == expected


def test_released_prompts_and_answers_are_those_of_the_toolkit(released, retrieval):
    _, rows = released
    seen = []
    write = retrieval.experimentor.prompt_former.write_prompt_from_dataline
    retrieval.experimentor.prompt_former.write_prompt_from_dataline = lambda *args: (
        seen.append(write(*args)),
        seen[-1],
    )[1]
    try:
        expected = [quietly(lambda query=query: retrieval._inference(query)) for query in range(N_QUERIES)]
    finally:
        retrieval.experimentor.prompt_former.write_prompt_from_dataline = write
    assert rows["prompt"].to_list() == seen
    answered = SA_ICL.label_probs(answer([rows]), "released").sort("position").collect()
    assert answered["position"].to_list() == answered["query_id"].to_list() == list(range(N_QUERIES))
    assert np.array(answered["label_probs"].to_list()) == pytest.approx(np.array(expected), abs=1e-12)


def test_places_count_ten_orderings_a_query(released):
    question, rows = released
    assert rows.columns == question.columns
    assert rows["position"].to_list() == list(range(10 * N_QUERIES))
    assert rows["ordering"].to_list() == list(range(10)) * N_QUERIES
    assert rows["query_id"].to_list() == [query for query in range(N_QUERIES) for _ in range(10)]


def test_paper_draws_ten_different_orderings_and_not_the_first_ten():
    drawn = [tuple(row) for row in orderings(4, "paper").tolist()]
    assert len(set(drawn)) == 10
    assert set(drawn) <= set(permutations(range(5), 4))
    assert drawn != [tuple(row) for row in orderings(4, "released").tolist()]
    assert len({row[0] for row in drawn}) > 1
    assert orderings(4, "paper").tolist() == [list(row) for row in drawn]


@pytest.mark.parametrize("definition", ["paper", "released"])
@pytest.mark.parametrize("n_shots", [0, 1, 2, 3, 8])
def test_there_are_ten_orderings_or_all_of_k_of_the_k_plus_one_nearest(definition, n_shots):
    drawn = orderings(n_shots, definition)
    assert drawn.shape == (min(10, factorial(n_shots + 1)), n_shots)
    assert len({tuple(row) for row in drawn.tolist()}) == len(drawn)
    assert all(len(set(row)) == n_shots and set(row) <= set(range(n_shots + 1)) for row in drawn.tolist())


def test_a_query_with_one_demonstration_has_two_prompts():
    question = context("financial_phrasebank", n_shots=1, n_queries=3)
    rows = pl.concat(sa_icl_follow_up(question, answer(SA_ICL.prompts.requests(question))))
    assert sorted(rows["position"].to_list()) == [0, 1, 10, 11, 20, 21]
    assert rows["demonstration_ids"].list.first().n_unique() > 1


def test_the_surest_ordering_answers_and_the_first_of_equals():
    nine_to_one, even = np.log([0.9, 0.1]).tolist(), np.log([0.5, 0.5]).tolist()
    one_to_nine = nine_to_one[::-1]
    rows = table("sa_icl", [even, nine_to_one, one_to_nine, one_to_nine, even, even], positions=[0, 1, 2, 10, 11, 12])
    rows = rows.with_columns(query_id=pl.col("position") // 10, ordering=pl.col("position") % 10)
    answered = predict(answers(rows), {"sa_icl": SA_ICL}, ("paper",)).collect()
    assert answered["prompt_id"].to_list() == ["sa_icl-d-1", "sa_icl-d-10"]
    assert answered["label_probs"].to_list() == [pytest.approx([0.9, 0.1]), pytest.approx([0.1, 0.9])]
    assert answered["position"].to_list() == [0, 1]
    assert answered["part"].unique().to_list() == ["normal"]


def test_entropy_is_that_of_scipy_and_takes_no_logarithm_of_nothing():
    distributions = [[0.2, 0.3, 0.5], [1.0, 0.0, 0.0], [1 / 3, 1 / 3, 1 / 3]]
    values = pl.DataFrame({"p": distributions}).select(entropy_nats(pl.col("p")))["p"].to_list()
    assert values == pytest.approx([entropy(row) for row in distributions], abs=1e-15)
