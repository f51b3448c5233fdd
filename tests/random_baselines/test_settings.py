"""Settings as callers give them: what broadcasts, what is one per example and one per setting, what is refused."""

import numpy as np
import polars as pl
import pytest
from scipy import stats

from evaluator.errors import BaselineError, EvaluatorError
from evaluator.random_baselines import (
    max_random_accuracy,
    max_random_cdf,
    max_random_pmf,
    max_random_quantile,
    max_random_tail,
)
from evaluator.random_baselines.settings import Chances, poisson_binomial_log_pmf


def one_by_one(n: object, chance: object, tries: object) -> np.ndarray:
    """Each setting asked for by itself."""
    broadcast = np.broadcast(n, chance, tries)
    return np.array([max_random_accuracy(*map(float, setting)) for setting in broadcast]).reshape(broadcast.shape)


def test_one_setting_gives_a_plain_float() -> None:
    for chance in (0.5, [0.5] * 4, {2: 4}, np.float64(0.5)):
        assert type(max_random_accuracy(4, chance, 3)) is float
        assert type(max_random_tail(2, 4, chance, 3)) is float
    assert max_random_pmf(4, 0.5).shape == (5,)


@pytest.mark.parametrize(
    ("n", "chance", "tries"),
    [
        (np.array([3, 50, 7, 50, 3]), 0.5, 10),
        (np.array([3, 50, 7, 50, 3]), np.array([0.2, 0.5, 0.2, 0.5, 0.3]), np.array([1, 2, 3, 4, 5])),
        (np.array([[5], [200]]), np.array([0.5, 0.25, 0.5]), 10),
        (np.arange(1, 5)[:, None, None], np.array([[0.5], [0.25]]), np.array([1, 10, 1e12])),
        (12, 0.3, np.array([[1, 2], [200, 1e6]])),
    ],
    ids=["sizes", "all alike", "outer", "three axes", "tries"],
)
def test_arrays_of_settings_are_each_setting_by_itself(n: object, chance: object, tries: object) -> None:
    np.testing.assert_allclose(max_random_accuracy(n, chance, tries), one_by_one(n, chance, tries), rtol=1e-13)


def test_many_settings_are_each_setting_by_itself_across_blocks() -> None:
    rng = np.random.default_rng(0)
    n, chance, tries = rng.integers(1, 900, 500), rng.choice([0.2, 0.5], 500), rng.integers(1, 300, 500)
    np.testing.assert_allclose(max_random_accuracy(n, chance, tries), one_by_one(n, chance, tries), rtol=1e-12)
    correct = n // 2
    tails = [
        max_random_tail(int(c), int(k), float(p), int(t)) for c, k, p, t in zip(correct, n, chance, tries, strict=True)
    ]
    np.testing.assert_allclose(max_random_tail(correct, n, chance, tries), tails, rtol=1e-12)


def test_a_list_holds_one_setting_an_item_whichever_way_each_is_given() -> None:
    different = [0.5, 0.2, 0.2]
    found = max_random_accuracy(3, [different, {2: 1, 5: 2}, [0.5] * 3, 0.5], 4)
    assert found[0] == found[1] == max_random_accuracy(3, different, 4)
    assert found[2] == found[3] == pytest.approx(max_random_accuracy(3, 0.5, 4))
    sizes = max_random_accuracy([3, 2], [different, {4: 2}], [[4], [9]])
    assert sizes.shape == (2, 2)
    assert sizes[1].tolist() == [max_random_accuracy(3, different, 9), max_random_accuracy(2, {4: 2}, 9)]


def test_every_count_of_one_setting_at_once() -> None:
    for chance in (0.5, {2: 4, 3: 6}):
        tails = max_random_tail(np.arange(11), 10, chance, 5)
        assert tails.tolist() == pytest.approx([max_random_tail(k, 10, chance, 5) for k in range(11)])


def test_distributions_of_different_sizes_end_at_their_own_n() -> None:
    masses, cdf = max_random_pmf([1, 3], 0.5), max_random_cdf([1, 3], 0.5)
    # one coin flip; three: 1/8, 3/8, 3/8, 1/8
    np.testing.assert_allclose(masses, [[0.5, 0.5, 0, 0], [0.125, 0.375, 0.375, 0.125]])
    np.testing.assert_allclose(cdf, [[0.5, 1, 1, 1], [0.125, 0.5, 0.875, 1]])
    np.testing.assert_allclose(max_random_pmf([1, 2], [[0.5], [0.5, 0.25]]), [[0.5, 0.5, 0], [3 / 8, 4 / 8, 1 / 8]])


def test_log_masses_of_different_chances_are_those_of_scipy_from_the_first_count_to_n() -> None:
    chances = Chances(np.array([0.2, 0.25, 0.5]), np.array([3, 1, 4]))
    expected = stats.poisson_binom([0.2] * 3 + [0.25] + [0.5] * 4).logpmf(np.arange(9))
    np.testing.assert_allclose(poisson_binomial_log_pmf(chances), expected, rtol=1e-12)
    expected[:5] = -np.inf
    np.testing.assert_allclose(poisson_binomial_log_pmf(chances, first=5), expected, rtol=1e-12)


def test_no_settings_give_no_values() -> None:
    assert max_random_accuracy([], 0.5, 10).shape == (0,)
    assert max_random_tail([], 10, 0.5, 10).shape == (0,)
    assert max_random_accuracy(np.empty((0, 3)), [0.5, 0.2, 0.1]).shape == (0, 3)
    assert max_random_quantile(0.5, [], 0.5).shape == (0,)


def test_columns_of_a_frame_are_settings() -> None:
    frame = pl.DataFrame({"n": [10, 20], "chance": [0.5, 0.25], "tries": [1, 7], "correct": [4, 9]})
    found = max_random_tail(frame["correct"], frame["n"], frame["chance"], frame["tries"])
    assert found.tolist() == pytest.approx([max_random_tail(4, 10, 0.5, 1), max_random_tail(9, 20, 0.25, 7)])


def test_whole_numbers_may_be_floats() -> None:
    assert max_random_tail(58.0, 100.0, 0.5, 1e1) == max_random_tail(58, 100, 0.5, 10)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 0.5), r"n must be a whole number from 1 to 10,000,000; received 0\."),
        ((-3, 0.5), "n must be a whole number"),
        ((10.5, 0.5), r"n must be a whole number .* received 10\.5"),
        ((float("nan"), 0.5), "n must be a whole number .* received nan"),
        ((10**8, 0.5), "from 1 to 10,000,000; received 100000000"),
        (("10", 0.5), "n must be a number or an array of numbers; received '10'"),
        ((None, 0.5), "received None"),
        ((True, 0.5), "received True"),
        (([[1, 2], [3]], 0.5), r"n must be .* rows differ in length: \[\[1, 2\], \[3\]\]"),
        ((3, [[[0.5, 0.5], [0.5]]]), "chance must be .* rows differ in length"),
        ((10, 0), r"chance must lie between 0 and 1, both excluded; received 0\."),
        ((10, 1), r"received 1\."),
        ((10, "0.5"), "chance must be a number or an array of numbers; received '0.5'"),
        ((10, -0.1), r"received -0\.1"),
        ((10, float("nan")), "received nan"),
        ((10, "0.5"), "chance must be a number"),
        ((10, 0.5, 0), "tries must be a whole number from 1 to 1,000,000,000,000,000; received 0"),
        ((10, 0.5, 1.5), r"tries must be a whole number .* received 1\.5"),
        ((10, 0.5, float("inf")), "tries must be a whole number .* received inf"),
        (([10, 0, 5], 0.5), r"received 0, the first at 1\."),
        ((np.array([[4, 4], [4, 4]]), [[0.5], [2.0]]), "given for 1 examples, but n is 4"),
        ((np.array([[4, 4], [4, 4]]), np.array([[0.5], [2.0]])), "received 2, the first at 1, 0"),
        ((3, [0.5, 0.5]), "chance is given for 2 examples, but n is 3"),
        ((3, [0.5, 0.5, 0.5, 0.5]), "chance is given for 4 examples, but n is 3"),
        ((3, [0.5, 1.0, 0.5]), "received 1, the first at 1"),
        ((3, []), "chance is given for 0 examples, but n is 3"),
        ((3, np.full((2, 3), 0.5)), r"chance has shape \(2, 3\) with one n"),
        ((3, [[[0.5, 0.5, 0.5]]]), "must be a flat list"),
        ((3, [[0.5] * 3, [0.5] * 2]), "given for 2 examples, but n is 3"),
        ((3, {2: 2}), "add up to 2 examples, but n is 3"),
        ((3, {}), "add up to 0 examples, but n is 3"),
        ((3, {1: 3}), "2 or more choices, .* received 1: 3"),
        ((3, {2: 4, 3: -1}), "received 3: -1"),
        ((3, {2.5: 3}), r"received 2\.5: 3"),
        ((3, {"2": 3}), "received '2': 3"),
        (([1, 2], 0.5, [1, 2, 3]), r"do not fit each other: .* \(2,\), \(3,\)"),
    ],
)
def test_settings_that_no_baseline_has_are_refused(arguments: tuple[object, ...], message: str) -> None:
    with pytest.raises(BaselineError, match=message):
        max_random_accuracy(*arguments)
    assert issubclass(BaselineError, EvaluatorError)


@pytest.mark.parametrize(
    ("correct", "message"),
    [
        (11, r"correct must be a count from 0 to n = 10; received 11\."),
        (-1, r"correct must be a count from 0 to n = 10; received -1\."),
        (-0.5, "from 0 to n = 10; received -0.5"),
        (10.5, "from 0 to n = 10; received 10.5"),
        (float("nan"), "received nan"),
        (float("inf"), "received inf"),
        (5.5, r"received 5\.5; the nearest counts of n = 10 are 5 \(accuracy 0\.5\) and 6 \(accuracy 0\.6\)"),
        (0.55, r"received 0\.55; as an accuracy, .* 5 \(accuracy 0\.5\) and 6 \(accuracy 0\.6\)"),
        (0.7, r"received 0\.7; as an accuracy, the nearest counts of n = 10 are 7 \(accuracy 0\.7\)\."),
        (0.57 * 10, r"received 5\.6\d+; the nearest counts of n = 10 are 5 \(accuracy 0\.5\) and 6 \(accuracy 0\.6\)"),
        ([3, 4, 11], "received 11"),
        ("5", "correct must be a number"),
    ],
)
def test_counts_that_no_result_has_are_refused_and_the_nearest_are_named(correct: object, message: str) -> None:
    with pytest.raises(BaselineError, match=message):
        max_random_tail(correct, 10, 0.5)


def test_an_accuracy_times_n_that_is_beside_its_count_is_refused_with_that_count() -> None:
    beside = 0.57 * 100  # 56.99999999999999
    with pytest.raises(BaselineError, match=r"received 56\.99999999999999; the nearest counts of n = 100 are 57 \(acc"):
        max_random_tail(beside, 100, 0.5)


@pytest.mark.parametrize("q", [0, 1, -0.5, float("nan"), "0.5"])
def test_a_quantile_of_no_probability_is_refused(q: object) -> None:
    with pytest.raises(BaselineError, match="q must"):
        max_random_quantile(q, 10, 0.5)
