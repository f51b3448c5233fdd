"""The expected best of several prompts, against a hand-worked number and every draw there is."""

from itertools import product

import numpy as np
import pytest

from evaluator.baselines.expected_max import expected_max_accuracy


def test_two_draws_from_two_prompts() -> None:
    # Of four equally likely pairs of .2 and .6 only one has .2 as its best: (.2 + 3 x .6) / 4 = .5
    assert expected_max_accuracy([0.6, 0.2], 2) == pytest.approx(0.5)


@pytest.mark.parametrize("tries", [1, 2, 3, 4])
def test_it_is_the_mean_over_every_draw_with_replacement(tries: int) -> None:
    accuracies = [0.1, 0.4, 0.4, 0.9, 0.3]
    every_best = [max(draw) for draw in product(accuracies, repeat=tries)]
    assert expected_max_accuracy(accuracies, tries) == pytest.approx(np.mean(every_best))


def test_one_try_gives_the_mean_and_many_come_near_the_best() -> None:
    found = expected_max_accuracy([0.25, 0.5, 0.75], np.array([1, 1000]))
    assert found == pytest.approx([0.5, 0.75])
