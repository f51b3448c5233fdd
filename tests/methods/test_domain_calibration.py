"""Domain calibration: its prompts and numbers against the toolkit's, its words against the calibration split's."""

from typing import Any

import numpy as np
import pytest
from scipy.special import softmax
from StaICC.prefabricate_inference.standard_calibration import domain_calibration

from evaluator.config import DEFINITIONS
from evaluator.datasets import SOURCES
from evaluator.methods.base import measured_definitions
from evaluator.methods.calibration import DOMAIN as PART
from evaluator.methods.calibration import DOMAIN_CALIBRATION, domain_requests
from evaluator.prompts.method_prompts import training_draws
from tests.methods.answered import answers, context, record_scores, table
from tests.toolkit import our_dataset, toolkit_experiment


@pytest.mark.parametrize("n_shots", [0, 1, 4])
@pytest.mark.parametrize("name", SOURCES)
def test_released_prompts_and_probabilities_are_those_of_the_toolkit(name: str, n_shots: int):
    question = context(name, n_shots=n_shots, definitions=("released",))
    extra, rows = (record_scores(frame) for frame in (*domain_requests(question), question.rows.collect()))
    last = dict(zip(extra["prompt"], extra["last_token_log_probs"].to_list(), strict=True))
    prompts: list[str] = []

    def feedforward(*, prompt: str, **_: Any) -> list[float]:
        prompts.append(prompt)
        return softmax(last[prompt]).tolist()

    experiment = toolkit_experiment(name)
    oracle = domain_calibration(experiment.get_label_space())
    oracle.train(experiment.get_prompt_writter_from_dataline(), feedforward, experiment.calibration_set(), k=n_shots)
    assert extra.sort("position")["prompt"].to_list() == prompts
    found = label_probs(answers(extra, rows), "released").sort("position").collect()["label_probs"]
    scores = rows.sort("position")["last_token_log_probs"].to_list()
    expected = [oracle(softmax(score).tolist(), None, None) for score in scores]
    np.testing.assert_allclose(found.to_list(), expected, atol=1e-9)


label_probs = DOMAIN_CALIBRATION.label_probs


def test_paper_queries_are_64_words_of_the_calibration_split_behind_the_same_demonstrations():
    (rows,) = domain_requests(context("trec"))
    (released,) = domain_requests(context("trec", definitions=("released",)))
    queries = rows["prompt"].str.extract(r"question: ([^\n]*) target: $", 1).str.split(" ")
    assert queries.list.len().to_list() == [64] * 128
    known = {word for texts in our_dataset("trec").calibration["texts"] for word in texts[0].split()}
    assert {*queries.explode()} <= known
    shown = training_draws(our_dataset("trec"), n_draws=4)
    np.testing.assert_array_equal(rows["demonstration_ids"].to_list(), shown)
    assert rows["demonstration_ids"].equals(released["demonstration_ids"])
    assert not rows["prompt"].equals(released["prompt"])


def test_paper_divides_by_the_means_of_its_own_part():
    means = table(PART, np.log([[0.9, 0.1], [0.6, 0.4]]).tolist())
    others = table("contextual_calibration", np.log([[0.1, 0.9]]).tolist())
    given = table("normal", np.log([[0.6, 0.4]]).tolist())
    found = label_probs(answers(means, others, given), "paper").collect()["label_probs"].to_list()
    assert found == [pytest.approx([1 / 3, 2 / 3], abs=1e-12)]  # .6/.75 : .4/.25 = .8 : 1.6


def test_a_run_has_it_under_the_definition_its_prompts_follow():
    assert measured_definitions(DOMAIN_CALIBRATION, DEFINITIONS) == ["paper"]
    assert measured_definitions(DOMAIN_CALIBRATION, ("published",)) == ["released"]
    assert DOMAIN_CALIBRATION.labelled_examples(4) == 512
