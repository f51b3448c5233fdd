"""Vector scaling against another minimiser of the loss written out, and on models of known mistakes."""

import math

import numpy as np
import polars as pl
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax

from evaluator.methods.vector_scaling import PART, PENALTY, fit, label_probs, requests
from tests.methods.answered import answers, context, table


def objective(parameters: np.ndarray, log_probs: np.ndarray, gold: np.ndarray) -> float:
    """The penalised loss, a prompt and a label at a time."""
    n_labels = log_probs.shape[1]
    scale, shift = parameters[:n_labels], parameters[n_labels:]
    loss = 0.0
    for row, label in zip(log_probs, gold, strict=True):
        logits = [scale[each] * row[each] + shift[each] for each in range(n_labels)]
        loss += math.log(sum(math.exp(logit) for logit in logits)) - logits[label]
    return loss + PENALTY / 2 * (sum((each - 1) ** 2 for each in scale) + sum(each**2 for each in shift))


@pytest.mark.parametrize("n_labels", [2, 3])
def test_the_fit_is_the_minimum_that_a_search_without_derivatives_finds(n_labels: int):
    random = np.random.default_rng(n_labels)
    log_probs = log_softmax(3 * random.random((40, n_labels)), axis=1)
    gold = random.integers(n_labels, size=40)
    found = np.concatenate(fit(log_probs, gold))
    start = np.concatenate([np.ones(n_labels), np.zeros(n_labels)])
    options = {"xatol": 1e-9, "fatol": 1e-12, "maxiter": 50_000, "maxfev": 50_000, "adaptive": True}
    expected = minimize(objective, start, (log_probs, gold), method="Nelder-Mead", options=options).x
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_model_that_says_the_opposite_is_reversed():
    random = np.random.default_rng(0)
    gold = random.integers(2, size=128)
    wrong = np.where(gold[:, None] == [0, 1], 0.2, 0.8)  # the probability of the true label is always .2
    training = table(PART, np.log(wrong).tolist()).with_columns(gold=pl.Series(gold))
    queries = table("normal", np.log([[0.2, 0.8], [0.8, 0.2]]).tolist())
    found = label_probs(answers(training, queries), "paper").sort("position").collect()["label_probs"].to_list()
    assert found[0][0] > 0.9
    assert found[1][1] > 0.9
    assert np.sum(found, axis=1) == pytest.approx([1, 1])


def test_a_calibrated_model_is_left_almost_as_it_is():
    random = np.random.default_rng(1)
    probs = random.dirichlet([1, 1, 1], size=20_000)
    gold = (random.random((20_000, 1)) > probs.cumsum(axis=1)).sum(axis=1)
    scale, shift = fit(np.log(probs), gold)
    np.testing.assert_allclose(scale, 1, atol=0.05)  # five standard errors are less
    np.testing.assert_allclose(shift - shift.mean(), 0, atol=0.08)


def test_it_asks_for_the_labels_of_128_training_prompts_with_their_truth():
    asked = next(requests(context("sst5")))
    assert asked.height == 128
    assert set(asked["ask"]) == {"labels"}
    assert asked["gold"].null_count() == 0
