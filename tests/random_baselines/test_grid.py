"""Tables over examples and tries, and contour lines: levels, where they lie, what is shown."""

import numpy as np
import polars as pl
import pytest
from scipy import stats

from evaluator.random_baselines.calculator import (
    accuracy_contours,
    accuracy_levels,
    baseline_table,
    log_spaced,
    table_text,
    tail_contours,
)
from evaluator.report.random_baseline_figures import baseline_figure


def test_a_table_has_a_row_for_every_chance_size_and_number_of_tries() -> None:
    table = baseline_table([2, 1], [0.5, 0.25], [1, 2])
    assert table.columns == ["chance", "n", "tries", "max_random"]
    assert table.select("chance", "n", "tries").rows()[:5] == [
        (0.5, 2, 1),
        (0.5, 2, 2),
        (0.5, 1, 1),
        (0.5, 1, 2),
        (0.25, 2, 1),
    ]
    # one example, chance 1/4, the best of two: 1 - (3/4)^2 = 7/16
    assert table["max_random"][-1] == pytest.approx(7 / 16)


def test_a_table_of_mixed_choices_has_their_mean_chance() -> None:
    table = baseline_table([2], [{2: 1, 4: 1}], [2])
    assert table.row(0)[:3] == (0.375, 2, 2)
    assert table["max_random"][0] == pytest.approx(35 / 64)  # worked in test_max_random


def test_the_text_of_a_table_has_examples_down_and_tries_across() -> None:
    blocks = table_text(baseline_table([100, 1_000], [0.5, 0.25], [1, 10])).split("\n\nchance ")
    lines = blocks[0].splitlines()
    assert lines[0] == "chance 0.5"
    assert lines[2].split() == ["n", "\\", "tries", "1", "10"]
    assert lines[3].split() == ["100", "0.5000", "0.5768"]  # the paper's example, 0.57678
    assert lines[4].split()[:2] == ["1,000", "0.5000"]
    assert blocks[1].startswith("0.25")
    assert table_text(baseline_table([100], [0.5], [10, 7, 1])).splitlines()[2].split()[3:] == ["10", "7", "1"]


def test_numbers_along_an_axis_are_whole_and_rise_from_end_to_end() -> None:
    assert log_spaced(1, 1_000, 4).tolist() == [1, 10, 100, 1_000]
    assert log_spaced(1, 4, 30).tolist() == [1, 2, 3, 4]


def test_contour_levels_are_those_of_the_papers_figures() -> None:
    # 0.525 and 0.55, 0.6, ... for two choices; 0.355 and 0.38, 0.43, ... for three
    assert accuracy_levels(0.5).tolist() == [0.525, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95]
    assert accuracy_levels(1 / 3)[:3].tolist() == [0.355, 0.38, 0.43]
    assert accuracy_levels(0.98).tolist() == []


def test_a_contour_lies_where_the_papers_text_says() -> None:
    # n = 100 has 0.57678 after t = 10 tries, so 0.6 takes fewer examples and 0.55 more
    contours = accuracy_contours(0.5, log_spaced(10, 10_000, 200), np.array([10]))
    of_level = {level: (n, inside) for level, _, n, inside in contours.rows()}
    n_at_60, n_at_55 = of_level[0.6][0], of_level[0.55][0]
    assert n_at_60 < 100 < n_at_55
    # the excess over chance falls as one over the root of n: (0.07678 / 0.05)^2 x 100 = 235.8
    assert n_at_55 == pytest.approx(235.8, rel=0.01)
    assert not of_level[0.95][1]
    assert of_level[0.95][0] == pytest.approx(10)


def test_a_tail_contour_is_the_lowest_accuracy_that_is_rare_enough() -> None:
    contours = tail_contours(0.5, np.array([10, 100]), 1).filter(pl.col("level") == 0.1)
    # SciPy: the smallest c with P(X >= c) <= 0.1
    expected = [next(c for c in range(n + 2) if stats.binom.sf(c - 1, n, 0.5) <= 0.1) / n for n in (10, 100)]
    assert contours["accuracy"].to_list() == expected


def test_a_tail_that_is_never_rare_enough_ends_at_all_right() -> None:
    # two coin flips: both are right with probability 1/4
    contours = tail_contours(0.5, np.array([2]), 1)
    assert contours.filter(pl.col("level") == 0.1)["accuracy"].to_list() == [1]


def test_large_numbers_of_a_table_do_not_run_together() -> None:
    lines = table_text(baseline_table([100, 10_000_000], [0.5], [100_000, 1_000_000, 10**12])).splitlines()
    assert lines[2].split()[3:] == ["100,000", "1,000,000", "1,000,000,000,000"]
    assert len({len(line) for line in lines[2:]}) == 1


def test_a_chance_above_every_level_has_a_figure_without_contours() -> None:
    assert accuracy_contours(0.99, log_spaced(1, 100, 5), np.array([1, 10])).filter("inside").is_empty()
    assert baseline_figure([0.99], [1, 100], [1, 10]).startswith("<svg")
