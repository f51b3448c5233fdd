"""Falsified demonstrations: how many, which, and what they say instead."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from scipy import stats

from evaluator.config import RunConfig
from evaluator.datasets.staicc import load_staicc
from evaluator.errors import TemplateError
from evaluator.prompts.rows import normal_requests
from evaluator.suites.staicc.robustness import NOISE_RATES, falsified_labels, label_noise_requests, next_labels
from evaluator.templates.template import Verbalizer


def noisy_requests(dataset, definition="paper", **settings) -> pl.DataFrame:
    config = RunConfig(suites=("staicc-robustness",), datasets=("sst5",), definitions=(definition,), **settings)
    return pl.concat(label_noise_requests(dataset, config))


@pytest.fixture(scope="module")
def sst5():
    return load_staicc("sst5")


def shown_labels(dataset, prompts: pl.Series, n_shots: int) -> np.ndarray:
    """Label indices read off the text, [prompts, n_shots]: what stands between the label prefix and the line's end."""
    names = dataset.verbalizer.label_names
    lines = [prompt.split("\n")[:n_shots] for prompt in prompts]
    return np.array([[names.index(line.rsplit("sentiment: ", 1)[1]) for line in of_prompt] for of_prompt in lines])


def wrong_of_each_prompt(dataset, rows: pl.DataFrame, n_shots: int) -> np.ndarray:
    """Whether each demonstration shows another label than its own, [prompts, n_shots]."""
    ids = np.array(rows["demonstration_ids"].to_list(), dtype=int).reshape(rows.height, n_shots)
    shown = shown_labels(dataset, rows["prompt"], n_shots).reshape(rows.height, n_shots)
    return shown != dataset.demonstration["gold"].to_numpy()[ids]


@pytest.mark.parametrize("definition", ["paper", "released"])
def test_at_rate_zero_the_prompts_are_those_of_the_normal_test(sst5, definition):
    noisy = noisy_requests(sst5, n_shots=4, n_queries=16, definition=definition)
    assert noisy.filter(noise_rate=0.0).equals(pl.concat(normal_requests(sst5, n_shots=4, n_queries=16)))


# Rates 0, 1/4, 1/2, 3/4, 1 of the demonstrations: rounded with halves up, or cut.
@pytest.mark.parametrize(
    ("definition", "n_shots", "wrong_by_rate"),
    [
        ("paper", 4, (0, 1, 2, 3, 4)),
        ("paper", 6, (0, 2, 3, 5, 6)),  # 1.5 and 4.5 round up
        ("paper", 16, (0, 4, 8, 12, 16)),
        ("paper", 1, (0, 0, 1, 1, 1)),
        ("paper", 0, (0, 0, 0, 0, 0)),
        ("released", 4, (0, 1, 2, 3, 4)),
        ("released", 6, (0, 1, 3, 4, 6)),
        ("released", 1, (0, 0, 0, 0, 1)),
        ("released", 0, (0, 0, 0, 0, 0)),
    ],
)
def test_as_many_labels_are_wrong_as_the_rate_says(sst5, definition, n_shots, wrong_by_rate):
    rows = noisy_requests(sst5, n_shots=n_shots, n_queries=32, definition=definition)
    for rate, expected in zip(NOISE_RATES, wrong_by_rate, strict=True):
        at_rate = rows.filter(noise_rate=rate)
        assert at_rate.height == 64
        assert set(wrong_of_each_prompt(sst5, at_rate, n_shots).sum(axis=1)) == {expected}
        assert set(at_rate["n_wrong_labels"]) == {expected}


def test_rates_follow_each_other_a_whole_benchmark_apart(sst5):
    # 512 queries behind two sets of demonstrations: a rate has 1,024 places, whatever part of them is asked.
    rows = noisy_requests(sst5, n_shots=1, n_queries=2)
    assert rows["position"].to_list() == [place + 1024 * rate for rate in range(5) for place in (0, 1, 512, 513)]
    assert rows["noise_rate"].to_list() == [rate for rate in NOISE_RATES for _ in range(4)]


@pytest.mark.parametrize(("n_shots", "warned"), [(4, False), (1, True)])
def test_rates_that_falsify_as_many_labels_as_others_are_told(sst5, caplog, n_shots, warned):
    noisy_requests(sst5, n_shots=n_shots, n_queries=1)
    assert ("sst5: at 1 shots" in caplog.text) == warned


def test_the_next_label_is_shown_where_the_generator_points():
    # From seed 42 the draws are .25235, .08813, ... (states 1083814273, 378494188 of 2**32). At the
    # rate of one wrong label the first prompt's is place int(.25235 * 2) = 0, the second's int(.08813 * 2) = 0; at the
    # rate of two the generator goes on, and every place is drawn. The last label is followed by the first.
    own = np.array([[2, 0], [1, 2]])
    none, one, two = next_labels(own, n_labels=3, n_wrong=(0, 1, 2))
    assert none.tolist() == own.tolist()
    assert one.tolist() == [[0, 0], [2, 2]]
    assert two.tolist() == [[0, 1], [2, 0]]


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


@pytest.mark.parametrize("definition", ["paper", "released"])
def test_a_run_of_fewer_queries_asks_a_part_of_the_same_prompts(sst5, definition):
    few, many = (noisy_requests(sst5, n_shots=4, n_queries=n_queries, definition=definition) for n_queries in (8, None))
    assert many.height == 5 * 1024
    assert many.filter(pl.col("query_id") < 8).equals(few)


def test_another_seed_falsifies_others():
    labels = np.random.default_rng(1).integers(0, 5, size=(50, 8))
    one, other = (falsified_labels(labels, n_labels=5, n_wrong=4, seed=seed) for seed in (0, 1))
    assert (one != other).any()


@pytest.mark.parametrize("definition", ["paper", "released"])
def test_one_label_cannot_be_falsified(sst5, definition):
    lonely = replace(sst5, verbalizer=Verbalizer(label_names=("only",)))
    with pytest.raises(TemplateError, match="sst5 has one label"):
        noisy_requests(lonely, n_shots=4, n_queries=8, definition=definition)
