"""Falsified demonstrations: how many, which, and what they say instead."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from scipy import stats

from evaluator.datasets import DATASETS
from evaluator.errors import TemplateError
from evaluator.prompts.build import normal_requests
from evaluator.prompts.label_noise import NOISE_RATES, falsified_labels, label_noise_requests
from evaluator.prompts.template import Verbalizer


@pytest.fixture(scope="module")
def sst5():
    return DATASETS["sst5"]()


def shown_labels(dataset, prompts: pl.Series, n_shots: int) -> np.ndarray:
    """Label indices read off the text, [prompts, n_shots]: what stands between the label prefix and the line's end."""
    names = dataset.verbalizer.label_names
    lines = [prompt.split("\n")[:n_shots] for prompt in prompts]
    return np.array([[names.index(line.rsplit("sentiment: ", 1)[1]) for line in of_prompt] for of_prompt in lines])


def test_at_rate_zero_the_prompts_are_those_of_the_normal_test(sst5):
    noisy = label_noise_requests(sst5, n_shots=4, rate=0.0, n_queries=16)
    assert noisy.equals(normal_requests(sst5, n_shots=4, n_queries=16))


@pytest.mark.parametrize(
    ("n_shots", "wrong_by_rate"),
    [(4, (0, 1, 2, 3, 4)), (8, (0, 2, 4, 6, 8)), (1, (0, 0, 1, 1, 1)), (0, (0, 0, 0, 0, 0))],
)
def test_as_many_labels_are_wrong_as_the_rate_says(sst5, n_shots, wrong_by_rate):
    for rate, expected in zip(NOISE_RATES, wrong_by_rate, strict=True):
        rows = label_noise_requests(sst5, n_shots=n_shots, rate=rate, n_queries=32)
        shown = shown_labels(sst5, rows["prompt"], n_shots).reshape(rows.height, n_shots)
        ids = np.array(rows["demonstration_ids"].to_list(), dtype=int).reshape(rows.height, n_shots)
        own = sst5.demonstration["gold"].to_numpy()[ids]
        assert set((shown != own).sum(axis=1)) == {expected}


def test_a_label_that_is_wrong_stays_the_same_wrong_label_at_higher_rates():
    labels = np.random.default_rng(1).integers(0, 5, size=(2, 50, 8))
    shown = [falsified_labels(labels, n_labels=5, n_wrong=n, seed=0) for n in range(9)]
    for fewer, more in pairwise(shown):
        wrong = fewer != labels
        assert (more[wrong] == fewer[wrong]).all()
        assert ((more != labels).sum(-1) == wrong.sum(-1) + 1).all()


def test_wrong_labels_are_drawn_evenly_and_so_are_the_demonstrations_that_show_them():
    labels = np.full((20_000, 4), 2)
    shown = falsified_labels(labels, n_labels=5, n_wrong=1, seed=3)
    counts = np.bincount(shown[shown != 2], minlength=5)
    assert counts[2] == 0
    assert stats.chisquare(counts[[0, 1, 3, 4]]).pvalue > 1e-3
    assert stats.chisquare((shown != 2).sum(axis=0)).pvalue > 1e-3


def test_a_run_of_fewer_queries_asks_a_part_of_the_same_prompts(sst5):
    few = label_noise_requests(sst5, n_shots=4, rate=0.5, n_queries=8)
    many = label_noise_requests(sst5, n_shots=4, rate=0.5, n_queries=64)
    assert many.filter(pl.col("query_id") < 8).equals(few)


def test_another_seed_falsifies_others(sst5):
    one, other = (label_noise_requests(sst5, n_shots=4, rate=0.5, n_queries=8, seed=seed) for seed in (0, 1))
    assert not one["prompt"].equals(other["prompt"])


def test_one_label_cannot_be_falsified(sst5):
    lonely = replace(sst5, verbalizer=Verbalizer(label_names=("only",)))
    with pytest.raises(TemplateError, match="has one label"):
        label_noise_requests(lonely, n_shots=4, rate=0.5, n_queries=8)


@pytest.mark.parametrize("rate", [-0.1, 1.1, float("nan")])
def test_a_rate_outside_zero_to_one_is_refused(sst5, rate):
    with pytest.raises(TemplateError, match="between 0 and 1"):
        label_noise_requests(sst5, n_shots=4, rate=rate, n_queries=8)
