"""Vector scaling against another minimiser of the loss written out, and on models of known mistakes."""

import math

import numpy as np
import polars as pl
import pytest
from scipy.optimize import minimize, minimize_scalar
from scipy.special import log_softmax

from evaluator.methods.calibration import (
    PENALTY,
    SCALING,
    fit_scaling,
    fit_temperature,
    scaled_label_probs,
    scaling_requests,
    tempered_label_probs,
)
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
    found = np.concatenate(fit_scaling(log_probs, gold))
    start = np.concatenate([np.ones(n_labels), np.zeros(n_labels)])
    options = {"xatol": 1e-9, "fatol": 1e-12, "maxiter": 50_000, "maxfev": 50_000, "adaptive": True}
    expected = minimize(objective, start, (log_probs, gold), method="Nelder-Mead", options=options).x
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_model_that_says_the_opposite_is_reversed():
    random = np.random.default_rng(0)
    gold = random.integers(2, size=128)
    wrong = np.where(gold[:, None] == [0, 1], 0.2, 0.8)  # the probability of the true label is always .2
    training = table(SCALING, np.log(wrong).tolist()).with_columns(gold=pl.Series(gold))
    queries = table("normal", np.log([[0.2, 0.8], [0.8, 0.2]]).tolist())
    found = scaled_label_probs(answers(training, queries), "paper").sort("position").collect()["label_probs"].to_list()
    assert found[0][0] > 0.9
    assert found[1][1] > 0.9
    assert np.sum(found, axis=1) == pytest.approx([1, 1])


def test_a_calibrated_model_is_left_almost_as_it_is():
    random = np.random.default_rng(1)
    probs = random.dirichlet([1, 1, 1], size=20_000)
    gold = (random.random((20_000, 1)) > probs.cumsum(axis=1)).sum(axis=1)
    scale, shift = fit_scaling(np.log(probs), gold)
    np.testing.assert_allclose(scale, 1, atol=0.05)  # five standard errors are less
    np.testing.assert_allclose(shift - shift.mean(), 0, atol=0.08)


def test_it_asks_for_the_labels_of_128_training_prompts_with_their_truth():
    asked = next(scaling_requests(context("sst5")))
    assert asked.height == 128
    assert set(asked["ask"]) == {"labels"}
    assert asked["gold"].null_count() == 0


def drawn(temperature: float, n: int, *, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Log-probabilities that are too large by a factor, and labels drawn from the right ones."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, 3))
    probs = np.exp(log_softmax(logits, axis=1))
    gold = (rng.random((n, 1)) > probs.cumsum(axis=1)).sum(axis=1).clip(0, 2)
    return log_softmax(temperature * logits, axis=1), gold


def fitted(log_probs: np.ndarray, gold: np.ndarray, groups: np.ndarray | None = None):
    return fit_temperature(pl.Series(np.exp(log_probs).tolist()), pl.Series(gold), groups)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.7])
def test_the_temperature_is_the_minimum_of_the_log_loss_by_another_minimiser(temperature: float):
    log_probs, gold = drawn(temperature, 300)

    def loss(log_t: float) -> float:
        return -log_softmax(log_probs / math.exp(log_t), axis=1)[np.arange(300), gold].sum()

    expected = math.exp(minimize_scalar(loss, bounds=(-3, 3), method="bounded", options={"xatol": 1e-10}).x)
    found = fitted(log_probs, gold)
    assert found.value == pytest.approx(expected, rel=1e-6)
    assert found.ci_low < temperature < found.ci_high


def test_the_interval_of_the_temperature_holds_the_truth_in_95_percent_of_samples_and_copies_do_not_narrow_it():
    held = [
        found.ci_low < 2.7 < found.ci_high for seed in range(200) for found in [fitted(*drawn(2.7, 200, seed=seed))]
    ]
    assert 0.9 <= np.mean(held) <= 1
    log_probs, gold = drawn(2.7, 200)
    once = fitted(log_probs, gold)
    copies = fitted(np.repeat(log_probs, 3, axis=0), np.repeat(gold, 3), np.repeat(np.arange(200), 3))
    assert copies == pytest.approx(once, rel=1e-9)


def test_rows_may_have_different_options_and_probabilities_of_0():
    probs = pl.Series([[0.7, 0.3], [0.1, 0.2, 0.7], [1.0, 0.0], [0.0, 1.0]])
    found = fit_temperature(probs, pl.Series([0, 2, 0, 0]))
    assert 1 < found.value < 100
    assert fit_temperature(probs[:3], pl.Series([0, 2, 0])).ci_high is None  # all right: no temperature is least


def test_always_certain_answers_that_are_sometimes_wrong_are_overconfident():
    certain = pl.Series([[1.0, 0.0, 0.0]] * 40)
    found = fit_temperature(certain, pl.Series([0] * 28 + [1] * 6 + [2] * 6))
    # 1 / (1 + 2 e^(1/T)) = 0.7 with e = 0.005, as a reported 0 counts: T = ln 200 / ln(0.7 / 0.15).
    assert found.value == pytest.approx(math.log(200) / math.log(0.7 / 0.15), rel=1e-6)
    assert found.ci_low is not None
    assert found.ci_low > 1


def test_an_end_of_the_interval_beyond_all_temperatures_that_are_tried_is_unbounded():
    probs = pl.Series([[0.6, 0.4], [0.45, 0.55], [0.51, 0.49]])
    found = fit_temperature(probs, pl.Series([0, 0, 1]))
    assert 0.01 < found.value < 100
    assert (found.ci_low, found.ci_high) == (0.0, math.inf)


def test_temperature_scaling_keeps_predictions_and_never_sees_the_own_label():
    log_probs, gold = drawn(2.7, 100)
    queries = table("normal", log_probs.tolist()).with_columns(gold=pl.Series(gold), query_id=pl.int_range(pl.len()))
    before = tempered_label_probs(answers(queries), "paper").sort("position").collect()
    changed = queries.with_columns(
        gold=pl.when(pl.col("position") == 0).then((pl.col("gold") + 1) % 3).otherwise("gold")
    )
    after = tempered_label_probs(answers(changed), "paper").sort("position").collect()
    assert before["label_probs"][0].to_list() == after["label_probs"][0].to_list()
    assert before["label_probs"].list.arg_max().to_list() == log_probs.argmax(axis=1).tolist()
    scaled = before["label_probs"].list.get(0).to_numpy()
    ratios = [
        np.log(row[0] / row[1]) / (log[0] - log[1]) for row, log in zip(before["label_probs"], log_probs, strict=True)
    ]
    assert len(np.unique(np.round(ratios, 9))) == 5  # a temperature a fold
    assert scaled.std() < np.exp(log_probs[:, 0]).std()


def test_both_prompts_of_a_query_are_in_one_fold_and_have_one_temperature():
    log_probs, gold = drawn(2.7, 60)
    rows = table("normal", log_probs.tolist()).with_columns(gold=pl.Series(gold), query_id=pl.int_range(pl.len()) // 2)
    probs = tempered_label_probs(answers(rows), "paper").sort("position").collect()["label_probs"]
    inverse = [np.log(row[0] / row[1]) / (log[0] - log[1]) for row, log in zip(probs, log_probs, strict=True)]  # 1 / T
    np.testing.assert_allclose(inverse[0::2], inverse[1::2], rtol=1e-9)
    assert len(np.unique(np.round(inverse, 9))) == 5
