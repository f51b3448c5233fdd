"""What calibrating methods learn from, against what the toolkit's own training functions ask."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from StaICC.prefabricate_inference.standard_calibration import contextual_calibration, hidden_calibration

from evaluator.datasets.staicc_sources import SOURCES
from evaluator.errors import DatasetError
from evaluator.prompts.pseudo_queries import empty_queries
from evaluator.prompts.render import classification_prompts
from evaluator.prompts.training_prompts import training_demonstrations, training_requests, training_sample
from evaluator.schemas import PROMPTS, REQUESTS
from tests.toolkit import our_dataset, toolkit_experiment


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
    shown = training_demonstrations(dataset, n_shots=n_shots)
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
    sample = training_sample(dataset, n_shots=n_shots)
    ours = classification_prompts(
        dataset.template,
        dataset.verbalizer,
        queries=dataset.calibration["texts"].gather(sample.query_ids),
        demonstrations=dataset.calibration,
        demonstration_ids=sample.demonstration_ids,
    )
    assert len(asked) == 128
    assert ours["prompt"].to_list() == asked
    if not trained.failed:  # the place of each sample among those of its label tells which label it was given
        golds = dataset.calibration["gold"].to_numpy()[sample.query_ids]
        means = [(np.flatnonzero(golds == label) + 1).mean() for label in range(len(dataset.verbalizer.label_names))]
        assert [centroid[0] for centroid in trained.centroid] == pytest.approx(means, abs=1e-9)


def test_draws_repeat_and_stay_inside_the_calibration_split():
    dataset = dataclasses.replace(our_dataset("sst5"), calibration=our_dataset("sst5").calibration.head(3))
    sample = training_sample(dataset, n_shots=4)
    assert sample.demonstration_ids.shape == (128, 4)
    assert sample.query_ids.shape == (128,)
    assert {*sample.demonstration_ids.ravel(), *sample.query_ids} == {0, 1, 2}


def test_fewer_samples_are_the_first_of_more():
    dataset = our_dataset("trec")
    few, many = (training_sample(dataset, n_shots=2, n_samples=n) for n in (5, 128))
    np.testing.assert_array_equal(few.demonstration_ids, many.demonstration_ids[:5])
    np.testing.assert_array_equal(few.query_ids, many.query_ids[:5])


def test_a_dataset_without_calibration_examples_is_refused_with_a_way_out():
    dataset = dataclasses.replace(our_dataset("sst5"), calibration=our_dataset("sst5").calibration.clear())
    for draw in (training_sample, training_demonstrations):
        with pytest.raises(DatasetError, match=r"sst5 has no calibration examples.*--methods"):
            draw(dataset, n_shots=4)


def test_rows_answer_no_query_and_say_which_calibration_examples_they_show():
    dataset = our_dataset("trec")
    shown = training_demonstrations(dataset, n_shots=2)
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
