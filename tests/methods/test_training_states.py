import warnings
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO

import polars as pl
import pytest
from StaICC.prefabricate_inference.standard_calibration import hidden_calibration

from evaluator.datasets.base import ClassificationDataset, OwnDemonstrations
from evaluator.methods.hidden_states import (
    class_weights,
    dataset_states,
    labelled_examples,
    missing_classes,
    state_requests,
)
from tests.methods.answered import context, named
from tests.methods.state_answers import Task, answer, answers_of, toolkit_experiment


@pytest.mark.parametrize(("dataset", "n_shots"), [("sst5", 2), ("hate_speech_18", 1), ("financial_phrasebank", 0)])
def test_training_prompts_and_their_labels_are_those_of_the_toolkit(dataset, n_shots):
    experiment = toolkit_experiment(dataset, n_shots)
    seen = []
    method = hidden_calibration(experiment.get_label_space())
    with warnings.catch_warnings(), redirect_stdout(StringIO()):
        warnings.simplefilter("ignore")
        method.train(
            experiment.prompt_former.write_prompt_from_dataline,
            lambda prompt, label_space: (seen.append(prompt), [float(len(seen))]),  # noqa: ARG005
            experiment.calibration_set(),
            k=n_shots,
        )
    _, training = state_requests(context(dataset, n_shots=n_shots))
    assert training["prompt"].to_list() == seen
    assert training.select("ask", "continuations").unique().rows() == [("state", [])]
    assert training["position"].to_list() == list(range(128))
    assert training["query_id"].null_count() == 128
    # The toolkit keeps each class's mean state, here the mean of 1-based positions; it stops at a missing class.
    means = training.group_by("gold").agg(pl.col("position").mean() + 1).sort("gold")["position"].to_list()
    known = [centroid[0] for centroid in method.centroid]
    assert known
    assert means[: len(known)] == pytest.approx(known, abs=1e-12)


def test_queries_are_asked_at_their_own_positions_with_their_own_prompts():
    question = context("trec", n_shots=2, n_queries=12)
    queries, _ = state_requests(question)
    asks = ["part", "ask", "continuations"]
    assert queries.drop(asks).equals(question.rows.collect().drop(asks))
    assert queries["part"].unique().to_list() == ["query_states"]
    assert queries.select("ask", "continuations").unique().rows() == [("state", [])]


def test_no_training_prompt_of_ones_own_data_shows_the_row_that_it_asks():
    question = context("sst5", n_shots=2)
    few = replace(question.dataset, calibration=question.dataset.calibration.head(6))
    texts = few.calibration["texts"].list.first()

    def n_shown(dataset: ClassificationDataset) -> int:
        *_, rows = state_requests(question._replace(dataset=dataset))
        asked = rows["prompt"].str.split("sentence: ").list.last().str.strip_suffix(" sentiment: ").to_list()
        shown = rows["demonstration_ids"].to_list()
        assert {*asked} == {*texts}
        assert {row for ids in shown for row in ids} == {*range(6)}
        return sum(text in texts.gather(ids).to_list() for text, ids in zip(asked, shown, strict=True))

    # Drawn from six rows with repetition, 1 - (5/6)^2 = 31% of prompts show their own query with its label.
    assert n_shown(few) > 25
    assert n_shown(replace(few, own_demonstrations=OwnDemonstrations())) == 0


def test_every_training_prompt_takes_labels_for_its_demonstrations_and_its_query():
    assert labelled_examples(4) == 128 * 5
    assert labelled_examples(0) == 128


TASK = Task(
    queries=[[0.0, 0.0]],
    anchors=[[1.0, 0.0], [0.0, 1.0], [3.0, 0.0]],
    labels=[0, 2, 0],
    label_names=["a", "b", "c"],
)


def test_a_class_that_no_training_prompt_shows_is_named_for_each_method_that_trains():
    notes = missing_classes(answers_of(TASK), named("vanilla", "knn_centroid", "hidden_calibration"))
    assert notes.rows() == [("d", "hidden_calibration", "b"), ("d", "knn_centroid", "b")]
    assert missing_classes(answers_of(TASK), named("vanilla")).rows() == []
    whole = TASK._replace(labels=[0, 2, 1])
    assert missing_classes(answers_of(whole), named("hidden_calibration")).rows() == []


def test_rare_classes_of_a_real_dataset_are_named():
    answers = answer(state_requests(context("hate_speech_18", n_shots=4)))
    shown = {answers.states.collect().filter(part="training_states")["gold"][row] for row in range(128)}
    expected = [name for label, name in enumerate(["normal", "hate", "skip", "relation"]) if label not in shown]
    assert expected, "five of 1,024 examples: the draw of four shots misses a class"
    assert missing_classes(answers, named("knn_neighbours"))["label"].to_list() == sorted(expected)


def test_each_class_weighs_its_own_training_prompts_equally():
    (states,) = dataset_states(answers_of(TASK))
    assert class_weights(states).tolist() == [[0.5, 0, 0.5], [0, 1, 0]]
    assert states.labels.tolist() == [0, 2, 0]
