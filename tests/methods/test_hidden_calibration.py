import math
import warnings
from contextlib import redirect_stdout
from io import StringIO

import numpy as np
import pytest
from scipy.special import softmax
from StaICC.prefabricate_inference.standard_calibration import hidden_calibration

from evaluator.methods.hidden_states import HIDDEN_CALIBRATION
from tests.methods.answered import context
from tests.methods.state_answers import Task, answer, answers_of, hidden_state, probs_of, toolkit_experiment


@pytest.mark.parametrize("dataset", ["sst5", "hate_speech_18"])
def test_released_is_the_toolkit_on_the_same_states(dataset):
    question = context(dataset, n_shots=2, n_queries=12)
    answers = answer([question.rows.collect(), *HIDDEN_CALIBRATION.prompts.requests(question)])
    experiment = toolkit_experiment(dataset)
    method = hidden_calibration(experiment.get_label_space())
    with warnings.catch_warnings(), redirect_stdout(StringIO()):
        warnings.simplefilter("ignore")
        method.train(
            experiment.prompt_former.write_prompt_from_dataline,
            lambda prompt, label_space: (None, hidden_state(prompt).tolist()),  # noqa: ARG005
            experiment.calibration_set(),
            k=2,
        )
    assert method.failed == (dataset == "hate_speech_18")
    rows = label_probs(answers, "released").collect()
    prompts = dict(question.rows.collect().select("position", "prompt").iter_rows())
    for position, scores, probs in rows.select("position", "last_token_log_probs", "label_probs").iter_rows():
        expected = method(softmax(scores).tolist(), None, hidden_state(prompts[position]).tolist())
        assert probs == pytest.approx(expected, abs=1e-9)


HALVES = Task(
    queries=[[0.0, 0.0], [3.0, 3.0]],
    anchors=[[0.0, 0.0], [0.0, 4.0], [3.0, 2.0], [3.0, 0.0]],
    labels=[0, 0, 1, 1],
    label_names=["a", "b"],
)


@pytest.mark.parametrize("definition", ["paper", "released"])
def test_a_worked_example(definition):
    # Centroids (0, 2) and (3, 1). The first query is at 2 and sqrt(10) from them, the second at sqrt(10) and 2.
    odds = math.exp(math.sqrt(10) - 2)
    expected = odds / (1 + odds)
    first, second = probs_of(label_probs(answers_of(HALVES), definition))
    assert first == pytest.approx([expected, 1 - expected], abs=1e-12)
    assert second == pytest.approx([1 - expected, expected], abs=1e-12)


label_probs = HIDDEN_CALIBRATION.label_probs


def test_moving_all_states_alike_changes_nothing():
    moved = HALVES._replace(
        queries=(np.array(HALVES.queries) + 8).tolist(), anchors=(np.array(HALVES.anchors) + 8).tolist()
    )
    assert np.array(probs_of(label_probs(answers_of(moved), "paper"))) == pytest.approx(
        np.array(probs_of(label_probs(answers_of(HALVES), "paper"))), abs=1e-12
    )


def test_renaming_labels_permutes_the_answer():
    swapped = HALVES._replace(labels=[1 - label for label in HALVES.labels])
    assert [row[::-1] for row in probs_of(label_probs(answers_of(swapped), "paper"))] == probs_of(
        label_probs(answers_of(HALVES), "paper")
    )


def test_a_class_without_training_prompts_gets_nothing_under_paper_and_leaves_the_dataset_to_vanilla_under_released():
    missing = HALVES._replace(label_names=["a", "b", "c"])
    for with_c, without in zip(
        probs_of(label_probs(answers_of(missing), "paper")),
        probs_of(label_probs(answers_of(HALVES), "paper")),
        strict=True,
    ):
        assert with_c == pytest.approx([*without, 0.0], abs=1e-12)
    # Its scores of the three labels are 0, -1 and -2.
    assert probs_of(label_probs(answers_of(missing), "released")) == [pytest.approx(softmax([0, -1, -2]))] * 2


def test_every_asked_query_has_one_answer_under_its_scored_prompt():
    question = context("trec", n_shots=2, n_queries=12)
    rows = label_probs(
        answer([question.rows.collect(), *HIDDEN_CALIBRATION.prompts.requests(question)]), "paper"
    ).collect()
    assert rows["position"].sort().to_list() == question.rows.collect()["position"].sort().to_list()
    assert rows["part"].unique().to_list() == ["normal"]
    assert rows["label_probs"].list.sum().to_list() == pytest.approx([1.0] * rows.height)
