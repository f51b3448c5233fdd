"""Contextual calibration by hand, by NumPy, and by the toolkit's own functions on the same scores."""

import math
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from scipy.special import logsumexp, softmax
from StaICC.prefabricate_inference.standard_calibration import contextual_calibration

from evaluator.errors import DatasetError
from evaluator.methods.calibration import CONTEXTUAL as PART
from evaluator.methods.calibration import CONTEXTUAL_CALIBRATION, contextual_requests
from evaluator.methods.scoring_rules import VANILLA
from tests.methods.answered import answers, context, record_scores, table
from tests.toolkit import our_dataset, toolkit_experiment

label_probs = CONTEXTUAL_CALIBRATION.label_probs


def probs(*tables: pl.DataFrame, definition: str = "paper") -> list[list[float]]:
    found = label_probs(answers(*tables), definition).sort("dataset", "position").collect()
    return found["label_probs"].to_list()


def test_probabilities_are_divided_by_those_without_a_query_and_normalised():
    without = table(PART, np.log([[0.9, 0.1], [0.6, 0.4]]).tolist())
    given = table("normal", np.log([[0.6, 0.4], [0.75, 0.25]]).tolist())
    # Means without a query .75 and .25: .6/.75 = .8 and .4/.25 = 1.6, that is 1 : 2. And .75/.75 = .25/.25 = 1.
    assert probs(without, given)[0] == pytest.approx([1 / 3, 2 / 3], abs=1e-12)
    assert probs(without, given)[1] == pytest.approx([1 / 2, 1 / 2], abs=1e-12)


def test_means_are_of_probabilities_over_the_label_space_however_unlikely_its_labels_are():
    without = table(PART, [[math.log(0.9) - 800, math.log(0.1) - 800], np.log([0.6, 0.4]).tolist()])
    given = table("normal", [[math.log(0.6) - 500, math.log(0.4) - 500]])
    assert probs(without, given)[0] == pytest.approx([1 / 3, 2 / 3], abs=1e-9)


@pytest.mark.parametrize("spread", [1.0, 800.0])
def test_paper_is_the_normalised_ratio_of_numpy(spread: float):
    random = np.random.default_rng(3)
    without, given = -spread * random.random((128, 4)), -spread * random.random((20, 4))
    log_mean = logsumexp(without - logsumexp(without, axis=1, keepdims=True), axis=0) - math.log(128)
    expected = softmax(given - log_mean, axis=1)
    found = probs(table(PART, without.tolist()), table("normal", given.tolist()))
    np.testing.assert_allclose(found, expected, atol=1e-9)
    np.testing.assert_allclose(np.sum(found, axis=1), 1, atol=1e-12)


@pytest.mark.parametrize("n_shots", [0, 4])
@pytest.mark.parametrize("name", ["glue_sst2", "trec"])
def test_released_is_what_the_toolkit_computes(name: str, n_shots: int):
    question = context(name, n_shots=n_shots)
    extra, rows = (record_scores(frame) for frame in (*contextual_requests(question), question.rows.collect()))
    last = dict(zip(extra["prompt"], extra["last_token_log_probs"].to_list(), strict=True))
    experiment = toolkit_experiment(name)
    oracle = contextual_calibration(experiment.get_label_space())
    oracle.train(
        experiment.get_prompt_writter_from_dataline(),
        lambda prompt, **_: softmax(last[prompt]).tolist(),
        experiment.calibration_set(),
        k=n_shots,
    )
    scores = rows.sort("position")["last_token_log_probs"].to_list()
    expected = [oracle(softmax(score).tolist(), None, None) for score in scores]
    np.testing.assert_allclose(probs(extra, rows, definition="released"), expected, atol=1e-9)


def test_without_a_bias_nothing_changes():
    given = table("normal", [[-1.0, -2.0, -4.0], [-3.0, -0.5, -0.1]])
    even = table(PART, [[-2.0] * 3, [-7.0] * 3])
    balanced = table(PART, np.log([[0.7, 0.2, 0.1], [0.1, 0.7, 0.2], [0.2, 0.1, 0.7]]).tolist())
    vanilla = VANILLA.label_probs(answers(given), "paper").sort("position").collect()["label_probs"].to_list()
    for unbiased in (even, balanced):
        np.testing.assert_allclose(probs(unbiased, given), vanilla, atol=1e-12)


def test_each_dataset_is_calibrated_by_its_own_prompts():
    tables = [
        table(PART, np.log([[0.75, 0.25]]).tolist(), dataset="a"),
        table(PART, np.log([[0.2, 0.2, 0.6]]).tolist(), dataset="b"),
        table("normal", np.log([[0.5, 0.5]]).tolist(), dataset="a"),
        table("normal", np.log([[0.2, 0.2, 0.6]]).tolist(), dataset="b"),
    ]
    by_hand = [[1 / 4, 3 / 4], [1 / 3] * 3]  # .5/.75 : .5/.25 = 1 : 3, and each over itself
    for found, expected in zip(probs(*tables), by_hand, strict=True):
        assert found == pytest.approx(expected, abs=1e-12)


def test_the_order_of_rows_changes_not_a_single_bit():
    random = np.random.default_rng(6)
    rows = pl.concat([table(part, (-5 * random.random((128, 6))).tolist()) for part in (PART, "normal")])
    shuffled = (rows.sample(fraction=1, shuffle=True, seed=seed).lazy() for seed in range(10))
    found = [
        label_probs(replace(answers(rows), rows=scored), "paper").sort("position").collect() for scored in shuffled
    ]
    assert all(each["label_probs"].equals(found[0]["label_probs"]) for each in found)


def test_only_the_part_normal_is_answered_each_request_once():
    found = label_probs(answers(table(PART, [[-1.0, -2.0]]), table("normal", [[-1.0, -2.0]] * 3)), "paper").collect()
    assert found["part"].to_list() == ["normal"] * 3
    assert sorted(found["position"]) == [0, 1, 2]
    assert sorted(found["prompt_id"]) == ["normal-d-0", "normal-d-1", "normal-d-2"]


def test_a_label_space_of_one_label_is_certain():
    for definition in ("paper", "released"):
        assert probs(table(PART, [[-2.0]]), table("normal", [[-1.0]]), definition=definition) == [[1.0]]


def test_it_asks_for_128_empty_queries_whichever_queries_a_run_takes():
    few, many = (next(contextual_requests(context("sst5", n_queries=n))) for n in (1, 9))
    assert few.equals(many)
    assert few.height == 128
    assert few["part"].unique().to_list() == [PART]
    assert few["prompt"].str.ends_with("\nsentence:  sentiment: ").all()
    assert CONTEXTUAL_CALIBRATION.labelled_examples(4) == 512


def test_a_dataset_without_calibration_examples_is_refused():
    question = context("sst5")
    bare = replace(our_dataset("sst5"), calibration=our_dataset("sst5").calibration.clear())
    with pytest.raises(DatasetError, match="sst5 has no calibration examples"):
        next(contextual_requests(question._replace(dataset=bare)))
