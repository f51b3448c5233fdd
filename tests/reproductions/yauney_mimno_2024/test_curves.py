"""Lines of the published figures, against SciPy and hand-worked numbers."""

import numpy as np
import polars as pl
import pytest
from scipy.stats import binom

from evaluator.reproductions.yauney_mimno_2024.recompute import (
    PUBLISHED_BASELINES,
    PUBLISHED_CURVES,
    accuracy_histogram,
    baseline_curves,
    expected_curves,
)


def prompts(dataset: str, shots: int, correct: list[int], n: int) -> pl.DataFrame:
    return pl.DataFrame(
        {"model": "m", "dataset": dataset, "shots": shots, "prompt_id": range(len(correct)), "correct": correct}
        | {"n_examples": n}
    )


def test_a_line_starts_at_the_mean_and_its_tails_are_of_the_next_whole_count() -> None:
    curves = expected_curves(prompts("emoji_movie", 2, [20, 31], 98))
    assert curves.schema == PUBLISHED_CURVES
    first, last = curves.row(0, named=True), curves.row(-1, named=True)
    # One try: the mean of 20/98 and 31/98, .2602; of 100 examples, as the task has, that is 26.02, so 27 or more.
    assert first["expected_maximum"] == pytest.approx(51 / 196)
    assert first["standard_tail"] == pytest.approx(binom.sf(26, 100, 0.2))
    assert first["max_tail"] == pytest.approx(first["standard_tail"])
    # 200 tries of two prompts find the better one: 31/98, .3163, and 32 or more of 100.
    assert last["tries"] == 200
    assert last["expected_maximum"] == pytest.approx(31 / 98)
    assert last["max_tail"] == pytest.approx(1 - binom.cdf(31, 100, 0.2) ** 200)


def test_an_accuracy_that_is_a_whole_count_has_the_tail_of_that_count() -> None:
    (row,) = expected_curves(prompts("strategyqa", 1, [114], 200)).filter(tries=1).iter_rows(named=True)
    assert row["standard_tail"] == pytest.approx(binom.sf(113, 200, 0.5))  # 200 x .57 is 113.99999999999999 in floats


def test_one_shot_lines_of_small_tasks_end_at_the_tasks_size() -> None:
    assert expected_curves(prompts("novel_concepts", 1, [5, 9], 31))["tries"].to_numpy().max() <= 32
    assert expected_curves(prompts("novel_concepts", 2, [5, 9], 30))["tries"].to_numpy().max() == 200


def test_baselines_are_drawn_as_stated_and_as_the_examples_are() -> None:
    # Two of the examples that are there have two choices, one four: mean chance 5/12.
    chances = pl.DataFrame({"dataset": ["strange_stories"] * 3, "chance": [0.5, 0.5, 0.25]})
    curves = baseline_curves(chances)
    assert curves.schema == PUBLISHED_BASELINES
    stated, sound = (curves.filter(rules=rules, tries=1).row(0, named=True) for rules in ("released", "sound"))
    assert (stated["n"], stated["chance"]) == (174, pytest.approx(1 / 3))
    assert (sound["n"], sound["chance"], sound["max_random"]) == (3, pytest.approx(5 / 12), pytest.approx(5 / 12))


def test_figure_1_holds_three_distributions() -> None:
    histogram = accuracy_histogram(prompts("emoji_movie", 4, [20, 20, 29, 25], 96), 96, 0.2, 200)
    assert histogram["accuracy"].to_numpy() == pytest.approx(np.arange(97) / 96)
    assert histogram["prompts"].to_numpy()[[20, 25, 29]].tolist() == [0.5, 0.25, 0.25]
    counts = np.arange(97)
    assert histogram["random classifier"].to_numpy() == pytest.approx(binom.pmf(counts, 96, 0.2), abs=1e-12)
    below = binom.cdf(counts, 96, 0.2) ** 200
    assert histogram["best of many random classifiers"].to_numpy() == pytest.approx(
        np.diff(below, prepend=0), abs=1e-12
    )
