import math
import warnings
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO

import numpy as np
import polars as pl
import pytest
import torch
from scipy.special import log_softmax, rel_entr, softmax
from StaICC.prefabricate_inference.standard_calibration import knn_prompt, knn_prompt_centroid

from evaluator.methods.hidden_states import KNN_CENTROID, KNN_NEIGHBOURS, centroid_label_probs, neighbour_label_probs
from evaluator.schemas import LABEL_DISTANCES
from tests.methods.answered import context
from tests.methods.state_answers import (
    N_FEATURES,
    Task,
    answer,
    answers_of,
    hidden_state,
    probs_of,
    toolkit_experiment,
)

HEAD = torch.from_numpy(np.random.default_rng(3).normal(size=(50, N_FEATURES)).astype(np.float32))
METHODS = {"knn_centroid": KNN_CENTROID, "knn_neighbours": KNN_NEIGHBOURS}
TOOLKIT = {"knn_centroid": knn_prompt_centroid, "knn_neighbours": knn_prompt}


def logits(prompt: str) -> list[float]:
    return (HEAD.numpy().astype(np.float64) @ hidden_state(prompt).astype(np.float64)).tolist()


def measured(method, question):
    answers = answer([question.rows.collect(), *method.prompts.requests(question)])
    return replace(answers, distances=method.distances(answers, HEAD).lazy())


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("dataset", ["sst5", "hate_speech_18"])
def test_released_is_the_toolkit_on_the_same_logits(name, dataset):
    question = context(dataset, n_shots=2, n_queries=12)
    experiment = toolkit_experiment(dataset)
    toolkit = TOOLKIT[name](experiment.get_label_space())
    with warnings.catch_warnings(), redirect_stdout(StringIO()):
        warnings.simplefilter("ignore")
        toolkit.train(
            experiment.prompt_former.write_prompt_from_dataline,
            lambda prompt, label_space: (None, logits(prompt)),  # noqa: ARG005
            experiment.calibration_set(),
            k=2,
        )
    assert toolkit.failed == (dataset == "hate_speech_18")
    rows = METHODS[name].label_probs(measured(METHODS[name], question), "released").collect()
    assert rows.height == question.rows.collect().height
    prompts = dict(question.rows.collect().select("position", "prompt").iter_rows())
    for position, scores, probs in rows.select("position", "last_token_log_probs", "label_probs").iter_rows():
        expected = toolkit(softmax(scores).tolist(), logits(prompts[position]), None)
        assert probs == pytest.approx(expected, abs=1e-9)


def distributions(answers, part):
    states = answers.states.filter(part=part).sort("position").collect()
    log_probs = log_softmax(np.stack(states["hidden_state"].to_numpy()).astype(np.float64) @ HEAD.double().numpy().T, 1)
    return log_probs, states["gold"].to_numpy()


def test_paper_is_the_divergence_of_whole_vocabulary_distributions_from_class_means():
    answers = measured(KNN_CENTROID, context("sst5", n_shots=2, n_queries=12))
    queries, _ = distributions(answers, "query_states")
    anchors, labels = distributions(answers, "training_states")
    means = np.stack([np.exp(anchors[labels == label]).mean(0) for label in range(5)])
    divergences = rel_entr(means[None], np.exp(queries)[:, None]).sum(-1)
    expected = softmax(-divergences, axis=1)
    assert np.array(probs_of(centroid_label_probs(answers, "paper"))) == pytest.approx(expected, abs=1e-5)


def test_paper_votes_by_the_divergence_of_each_training_prompt_from_the_query():
    answers = measured(KNN_NEIGHBOURS, context("trec", n_shots=2, n_queries=12))
    queries, _ = distributions(answers, "query_states")
    anchors, labels = distributions(answers, "training_states")
    divergences = rel_entr(np.exp(anchors)[None], np.exp(queries)[:, None]).sum(-1)
    nearest = labels[divergences.argsort(axis=1)[:, :3]]
    expected = np.stack([np.bincount(row, minlength=6) / 3 for row in nearest])
    assert np.array(probs_of(neighbour_label_probs(answers, "paper"))) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("name", METHODS)
def test_distances_have_their_schema_and_one_row_a_prompt_even_where_two_requests_share_it(name):
    question = context("sst5", n_shots=0, n_queries=12)  # both repeats of a query are the same prompt
    answers = measured(METHODS[name], question)
    distances = answers.distances.collect()
    assert distances.schema == LABEL_DISTANCES
    assert distances["definition"].value_counts(sort=True).sort("definition").rows() == [
        ("paper", 12),
        ("released", 12),
    ]
    assert distances["distances"].list.len().unique().to_list() == [{"knn_centroid": 5, "knn_neighbours": 128}[name]]
    rows = METHODS[name].label_probs(answers, "paper").sort("position").collect()
    assert rows["position"].to_list() == question.rows.collect()["position"].sort().to_list()
    by_query = rows.group_by("query_id").agg(pl.col("label_probs").n_unique())
    assert by_query["label_probs"].to_list() == [1] * 12


@pytest.mark.parametrize("name", METHODS)
def test_suites_that_ask_the_same_prompts_of_a_dataset_share_their_distances(name):
    # staicc-bias and staicc-learning-curve both have the part `normal` where staicc-normal does not run.
    question = context("sst5", n_shots=2, n_queries=12)
    answers = answer([question.rows.collect(), *METHODS[name].prompts.requests(question)])
    states = pl.concat([answers.states, answers.states.with_columns(suite=pl.lit("another"))])
    shared = METHODS[name].distances(replace(answers, states=states), HEAD)
    key = ["definition", "prompt_id"]
    assert shared.sort(key).equals(METHODS[name].distances(answers, HEAD).sort(key))


def test_adding_a_constant_to_all_logits_changes_nothing():
    # A feature that is 1 in every state adds its column of the head, here 7, to every logit.
    plain = Task(queries=[[1, 0]], anchors=[[2, 0], [0, 3], [-1, 0]], labels=[0, 1, 1], label_names=["a", "b"])
    task = Task(*([[*row, 1] for row in rows] for rows in plain[:2]), *plain[2:])
    head = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 2.0]])
    shifted = torch.cat([head, torch.full((3, 1), 7.0)], dim=1)
    for definition, tolerance in (("paper", 1e-5), ("released", 1e-12)):
        values = []
        for each, lm_head in ((plain, head), (task, shifted)):
            frame = KNN_CENTROID.distances(answers_of(each), lm_head).filter(definition=definition)
            values.append(frame["distances"][0].to_list())
        assert values[0] == pytest.approx(values[1], abs=tolerance)


# Two tokens, so a state (x, y) says softmax(x, y). The head is the identity: logits are the state.
TWO_TOKENS = Task(
    queries=[[0.0, 0.0]],
    anchors=[[math.log(3), 0.0], [0.0, math.log(3)], [0.0, 0.0]],  # (3/4, 1/4), (1/4, 3/4) and (1/2, 1/2)
    labels=[0, 0, 1],
    label_names=["a", "b", "c"],
)


def test_a_worked_example_of_distances_to_centroids():
    frame = KNN_CENTROID.distances(answers_of(TWO_TOKENS), torch.eye(2)).sort("definition")
    paper, released = frame["distances"].to_list()
    # The mean distribution of "a" is (1/2, 1/2), the query's own. Its mean logits are (log(3)/2, log(3)/2).
    assert paper[:2] == pytest.approx([0, 0], abs=1e-6)
    assert released[:2] == pytest.approx([math.log(3) / math.sqrt(2), 0], abs=1e-7)
    assert paper[2] is released[2] is None


def test_a_worked_example_of_distances_to_neighbours():
    frame = KNN_NEIGHBOURS.distances(answers_of(TWO_TOKENS), torch.eye(2)).sort("definition")
    # 3/4 log(3/4 : 1/2) + 1/4 log(1/4 : 1/2) = 3/4 log 3 - log 2
    from_uniform = 0.75 * math.log(3) - math.log(2)
    assert frame["distances"][0].to_list() == pytest.approx([from_uniform, from_uniform, 0], abs=1e-6)
    assert frame["distances"][1].to_list() == pytest.approx([math.log(3), math.log(3), 0], abs=1e-7)


VOTERS = Task(queries=[[0.0]] * 3, anchors=[[0.0]] * 5, labels=[1, 1, 0, 2, 0], label_names=["a", "b", "c"])


def voted(definition):
    distances = [
        [1.0, 2.0, 3.0, 4.0, 5.0],  # labels 1, 1, 0
        [5.0, 1.0, 2.0, 1.5, 9.0],  # labels 1, 2, 0: a tie of all
        [7.0, 7.0, 7.0, 7.0, 7.0],  # equal distances: the first three, labels 1, 1, 0
    ]
    answers = answers_of(VOTERS, {("knn_neighbours", definition): distances})
    return neighbour_label_probs(answers, definition)


def test_the_three_nearest_vote_and_the_first_training_prompts_come_first_of_equals():
    third = 1 / 3
    probs = np.array(probs_of(voted("paper")))
    assert probs == pytest.approx(np.array([[third, 2 * third, 0], [third, third, third], [third, 2 * third, 0]]))
    assert probs[1].argmax() == 0
    assert np.array(probs_of(voted("released")))[0] == pytest.approx(softmax([1, 2, 0]), abs=1e-15)


def test_without_training_prompts_of_a_class_it_gets_no_probability_under_paper_and_vanilla_stands_under_released():
    missing = TWO_TOKENS._replace(queries=[[0.0, 1.0]])
    for method in METHODS.values():
        answers = answers_of(missing)
        answers = replace(answers, distances=method.distances(answers, torch.eye(2)).lazy())
        (paper,) = probs_of(method.label_probs(answers, "paper"))
        assert paper[2] == 0
        assert sum(paper) == pytest.approx(1)
        (released,) = probs_of(method.label_probs(answers, "released"))
        assert released == pytest.approx(softmax([0, -1, -2]))


def test_half_precision_heads_and_more_rows_than_one_slice_are_taken(monkeypatch):
    monkeypatch.setattr("evaluator.methods.hidden_states._VOCABULARY_ROWS", 7)
    answers = answer(KNN_CENTROID.prompts.requests(context("sst5", n_shots=2, n_queries=12)))
    head = HEAD.bfloat16()
    released = KNN_CENTROID.distances(answers, head).filter(definition="released", prompt_id=_first_prompt(answers))
    states = answers.states.filter(part="training_states").collect()
    anchors = np.stack(states["hidden_state"].to_numpy()).astype(np.float64)
    query = hidden_state(_first_prompt(answers)).astype(np.float64)
    wide = head.double().numpy()
    expected = [
        np.linalg.norm(wide @ query - wide @ anchors[states["gold"].to_numpy() == label].mean(0)) for label in range(5)
    ]
    assert released["distances"][0].to_list() == pytest.approx(expected, rel=1e-12)


def _first_prompt(answers) -> str:
    return answers.states.filter(part="query_states").sort("position").collect()["prompt_id"][0]
