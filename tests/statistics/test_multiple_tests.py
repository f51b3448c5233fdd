"""Holm's correction against the closed testing procedure that it is a shortcut of, and by hand."""

from itertools import combinations

import numpy as np
import polars as pl
import pytest

from evaluator.statistics.paired import holm


def corrected(p_values: list[float | None]) -> list[float | None]:
    return pl.DataFrame({"p": p_values}, schema={"p": pl.Float64}).select(holm(pl.col("p"))).to_series().to_list()


def closed_testing(p_values: list[float]) -> list[float]:
    """The largest Bonferroni p-value of all sets of hypotheses with this one (Marcus, Peritz & Gabriel 1976)."""
    places = range(len(p_values))
    sets = [chosen for size in places for chosen in combinations(places, size + 1)]
    together = {chosen: min(1.0, len(chosen) * min(p_values[place] for place in chosen)) for chosen in sets}
    return [max(p for chosen, p in together.items() if place in chosen) for place in places]


def test_four_p_values_worked_by_hand() -> None:
    # In order .01, .02, .03, .04, times 4, 3, 2 and 1: .04, .06, .06, .04; none below the one before it.
    assert corrected([0.03, 0.01, 0.04, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])


@pytest.mark.parametrize("seed", range(5))
def test_it_is_the_closed_testing_procedure_of_bonferroni(seed: int) -> None:
    random = np.random.default_rng(seed)
    p_values = (random.random(8) ** 3).round(2 if seed % 2 else 9).tolist()  # rounded to two places they tie
    assert corrected(p_values) == pytest.approx(closed_testing(p_values))


def test_what_was_not_tested_stays_null_and_is_no_test() -> None:
    assert corrected([None, 0.03, None, 0.01]) == [None, 0.03, None, 0.02]
    assert corrected([None, None]) == [None, None]


def test_one_test_needs_no_correction_and_none_goes_above_1() -> None:
    assert corrected([0.3]) == [0.3]
    assert corrected([0.7, 0.9]) == [1, 1]


def test_groups_are_corrected_by_themselves() -> None:
    frame = pl.DataFrame({"run": [1, 2, 1, 2, 2], "p": [0.04, 0.01, 0.02, None, 0.5]})
    found = frame.select(holm(pl.col("p")).over("run")).to_series().to_list()
    assert found == [0.04, 0.02, 0.04, None, 0.5]
