"""Accuracy over templates: hand-worked numbers, and intervals that hold the truth over queries and templates."""

import numpy as np
import polars as pl
import pytest

from tests.suites.staicc.diagnostics.part_predictions import Probs, interval, part_predictions, values
from tests.suites.staicc.measured import staicc_metrics

MEAN, SD = "accuracy_mean_over_templates", "accuracy_sd_over_templates"


def answers(correct: "np.ndarray[tuple[int, ...], np.dtype[np.bool_]]") -> Probs:
    """Label probabilities [template, demonstration set, query, label] of answers to queries of gold label 0."""
    right = correct[..., None]
    return np.where(right, [0.75, 0.25], [0.25, 0.75])


def test_mean_and_spread_worked_by_hand() -> None:
    # Queries down, templates across:  1 1 0 / 1 0 0 / 1 1 1 / 1 0 1. Templates: 1, 1/2, 1/2; mean 2/3; squares of
    # 1/3, -1/6, -1/6 add up to 1/6, over 2 is 1/12: standard deviation 0.288675.
    right = np.array([[1, 1, 0], [1, 0, 0], [1, 1, 1], [1, 0, 1]], dtype=bool)
    table = staicc_metrics(part_predictions("template", answers(right.T[:, None, :]), [0] * 4))
    found = values(table)
    assert found[MEAN] == pytest.approx(2 / 3)
    assert found[SD] == pytest.approx(0.288675, abs=1e-6)


def test_answers_behind_several_demonstration_sets_are_averaged_first() -> None:
    rng = np.random.default_rng(0)
    right = rng.random((5, 2, 30)) < 0.6
    table = staicc_metrics(part_predictions("template", answers(right), [0] * 30))
    of_template = right.mean(axis=(1, 2))
    assert values(table)[MEAN] == pytest.approx(of_template.mean(), abs=1e-12)
    assert values(table)[SD] == pytest.approx(of_template.std(ddof=1), abs=1e-12)


def test_templates_that_differ_make_the_mean_less_certain_than_queries_alone() -> None:
    rng = np.random.default_rng(1)
    alike = rng.random((9, 1, 400)) < 0.6
    apart = rng.random((9, 1, 400)) < np.linspace(0.4, 0.8, 9)[:, None, None]
    widths = []
    for right in (alike, apart):
        low, high = interval(staicc_metrics(part_predictions("template", answers(right), [0] * 400)), MEAN)
        assert low is not None
        assert high is not None
        widths.append(high - low)
    assert widths[1] > 3 * widths[0]


def test_equal_templates_spread_by_nothing_and_still_have_an_interval() -> None:
    right = np.tile(np.arange(20) < 12, (9, 1, 1))
    table = staicc_metrics(part_predictions("template", answers(right), [0] * 20))
    low, high = interval(table, SD)
    assert values(table)[SD] == low == 0.0
    assert high is not None
    assert high > 0.0


def test_one_query_has_values_and_no_interval() -> None:
    table = staicc_metrics(part_predictions("template", [[[[0.75, 0.25]]], [[[0.25, 0.75]]]], [0]))
    assert values(table)[MEAN] == 0.5
    assert table.filter(pl.col("metric") != "none")["ci_low"].null_count() == table.height
