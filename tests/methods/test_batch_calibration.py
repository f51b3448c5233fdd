"""Batch calibration by hand, by NumPy, and by the toolkit's own function on the same scores."""

import numpy as np
import polars as pl
import pytest
from scipy.special import logsumexp, softmax
from StaICC.prefabricate_inference.standard_calibration import batch_calibration

from evaluator.methods.calibration import batch_calibrated
from evaluator.methods.scoring_rules import VANILLA
from tests.methods.answered import answers, table


def probs(*tables: pl.DataFrame, definition: str = "paper") -> np.ndarray:
    found = batch_calibrated(answers(*tables), definition).sort("dataset", "position").collect()
    return np.array(found["label_probs"].to_list())


def test_probabilities_are_divided_by_their_mean_in_the_batch_and_normalised():
    # Means .75 and .25: .9/.75 = 1.2 and .1/.25 = .4, that is 3 : 1; .6/.75 = .8 and .4/.25 = 1.6, that is 1 : 2.
    found = probs(table("normal", np.log([[0.9, 0.1], [0.6, 0.4]]).tolist()))
    np.testing.assert_allclose(found, [[3 / 4, 1 / 4], [1 / 3, 2 / 3]], atol=1e-12)


def test_released_subtracts_the_mean_and_takes_a_softmax():
    # .9 - .75 = .15 and .1 - .25 = -.15; .6 - .75 = -.15 and .4 - .25 = .15.
    found = probs(table("normal", np.log([[0.9, 0.1], [0.6, 0.4]]).tolist()), definition="released")
    np.testing.assert_allclose(found, [softmax([0.15, -0.15]), softmax([-0.15, 0.15])], atol=1e-12)


@pytest.mark.parametrize("n_requests", [1, 100, 128, 129, 256, 300])
def test_released_is_what_the_toolkit_computes(n_requests: int):
    scores = -5 * np.random.default_rng(n_requests).random((n_requests, 3))
    expected = batch_calibration(softmax(scores, axis=1).tolist())
    np.testing.assert_allclose(probs(table("normal", scores.tolist()), definition="released"), expected, atol=1e-9)


@pytest.mark.parametrize("spread", [2.0, 900.0])
def test_paper_is_the_normalised_ratio_of_numpy_batch_by_batch(spread: float):
    scores = -spread * np.random.default_rng(5).random((300, 4))
    log_probs = scores - logsumexp(scores, axis=1, keepdims=True)
    batches = [log_probs[:128], log_probs[128:256], log_probs[256:]]
    expected = np.concatenate(
        [softmax(batch - logsumexp(batch, axis=0) + np.log(len(batch)), axis=1) for batch in batches]
    )
    found = probs(table("normal", scores.tolist()))
    np.testing.assert_allclose(found, expected, atol=1e-9)
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-12)


def test_batches_are_made_of_the_requests_there_are_in_the_order_of_their_positions():
    scores = -3 * np.random.default_rng(2).random((200, 2))
    places = [*range(100), *range(512, 612)]  # 100 of 512 queries, behind both demonstration sets
    some, all_of_them = table("normal", scores.tolist(), positions=places), table("normal", scores.tolist())
    np.testing.assert_array_equal(probs(some), probs(all_of_them))
    first_batch = probs(table("normal", scores[:128].tolist()))
    np.testing.assert_array_equal(probs(some)[:128], first_batch)


def test_datasets_share_no_batch():
    random = np.random.default_rng(1)
    a, b = (table("normal", (-2 * random.random((150, 3))).tolist(), dataset=name) for name in "ab")
    np.testing.assert_array_equal(probs(a, b), np.concatenate([probs(a), probs(b)]))


def test_parts_that_are_not_normal_are_in_no_batch():
    given = table("normal", np.log([[0.9, 0.1], [0.6, 0.4]]).tolist())
    found = batch_calibrated(answers(given, table("gler", [[-9.0, -0.1]] * 50)), "paper").collect()
    assert found["part"].to_list() == ["normal"] * 2
    np.testing.assert_array_equal(found.sort("position")["label_probs"].to_list(), probs(given))


def test_without_a_bias_nothing_changes():
    given = table("normal", np.log([[0.7, 0.2, 0.1], [0.1, 0.7, 0.2], [0.2, 0.1, 0.7]]).tolist())
    vanilla = VANILLA.label_probs(answers(given), "paper").sort("position").collect()["label_probs"].to_list()
    np.testing.assert_allclose(probs(given), vanilla, atol=1e-12)


def test_a_request_alone_in_its_batch_says_nothing():
    np.testing.assert_allclose(probs(table("normal", [[-1.0, -5.0]])), [[1 / 2, 1 / 2]], atol=1e-12)
