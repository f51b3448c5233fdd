"""Variance components: analysis of variance by hand, exact expectations, and intervals that hold the truth."""

import numpy as np
import pytest
from scipy import stats

from evaluator.statistics.variance_components import COMPONENTS, level_widening, variance_components
from evaluator.templates.template import ORTHOGONAL_ARRAY


def estimates(cells: np.ndarray, **arguments: object) -> dict[str, float]:
    found = variance_components(cells, **arguments)
    return {name: component.variance for name, component in found.items()}


def test_two_crossed_factors_worked_by_hand() -> None:
    # Queries down, levels across: 0 2 / 2 6 / 4 4. Means of queries 1, 4, 4, of levels 2, 4, of all 3.
    # MS_query = 2 (4 + 1 + 1) / 2 = 6; MS_level = 3 (1 + 1) / 1 = 6; residuals 0 0 / -1 1 / 1 -1: MS = 4 / 2 = 2.
    # query = (6 - 2) / 2 = 2, level = (6 - 2) / 3 = 4/3, interaction with residual = 2.
    cells = np.array([[0.0, 2.0], [2.0, 6.0], [4.0, 4.0]])[:, :, None]
    assert estimates(cells) == pytest.approx({"query": 2.0, "level": 4 / 3, "interaction": 2.0})


def test_draws_nested_in_queries_worked_by_hand() -> None:
    # Draws of two queries: 1 3 and 5 9. Means 2, 7, of all 9/2. MS_query = 2 (25/4 + 25/4) = 25;
    # MS_draw = (1 + 1 + 4 + 4) / 2 = 5. query = (25 - 5) / 2 = 10, draw with residual = 5.
    cells = np.array([[[1.0, 3.0]], [[5.0, 9.0]]])
    assert estimates(cells) == pytest.approx({"query": 10.0, "draw": 5.0})


def test_levels_crossed_with_draws_nested_in_queries_worked_by_hand() -> None:
    # y[q, a, d], rows are levels: query 0 has 0 2 / 4 2, query 1 has 4 8 / 10 10. Mean 5.
    # Queries 2, 8: MS = 4 (9 + 9) / 1 = 72. Levels 7/2, 13/2: MS = 4 (9/4 + 9/4) / 1 = 18.
    # Means by query and level: 1 3 and 6 10. Within queries 2 (1 + 1 + 4 + 4) = 20, less 18: interaction MS = 2 / 1.
    # Means by query and draw: 2 2 and 7 9. MS_draw = 2 (0 + 0 + 1 + 1) / 2 = 2.
    # Squares from query means: 4 + 0 + 4 + 0 + 16 + 0 + 4 + 4 = 32; less 20 and 4: MS_residual = 8 / 2 = 4.
    # residual 4; draw (2 - 4) / 2 = -1; interaction (2 - 4) / 2 = -1; level (18 - 2) / 4 = 4;
    # query (72 - 2 - 2 + 4) / 4 = 18.
    cells = np.array([[[0.0, 2.0], [4.0, 2.0]], [[4.0, 8.0], [10.0, 10.0]]])
    expected = {"query": 18.0, "level": 4.0, "interaction": -1.0, "draw": -1.0, "residual": 4.0}
    assert estimates(cells) == pytest.approx(expected)


def test_components_are_unbiased_over_all_answers_there_could_be() -> None:
    # Every effect is -1 or 1 with probability 1/2, so that each component is 1 times its scale squared. The mean over
    # all combinations of signs is exact: 2 queries, 2 levels, 1 draw have 2 + 2 + 4 effects.
    scales = {"query": 1.0, "level": 2.0, "interaction": 0.5}
    sums = dict.fromkeys(scales, 0.0)
    signs = np.array(np.meshgrid(*[[-1.0, 1.0]] * 8)).reshape(8, -1).T
    for row in signs:
        cells = (
            scales["query"] * row[:2, None] + scales["level"] * row[2:4] + scales["interaction"] * row[4:].reshape(2, 2)
        )
        for name, value in estimates(cells[:, :, None]).items():
            sums[name] += value / len(signs)
    assert sums == pytest.approx({name: scale**2 for name, scale in scales.items()})


def test_a_row_of_an_orthogonal_array_varies_as_its_attributes_do_together() -> None:
    # Each attribute's three values are -1, 0, 1 or any order of them: variance 1 with two degrees of freedom, four of
    # them: 4. The nine sums have squares 4 x 3 x 2 = 24, over 8 is 3: times 4/3.
    rng = np.random.default_rng(0)
    values = np.array([rng.permutation([-1.0, 0.0, 1.0]) for _ in range(4)])
    of_level = sum(values[attribute][np.array(ORTHOGONAL_ARRAY)[:, attribute]] for attribute in range(4))
    cells = np.tile(of_level, (3, 1))[:, :, None]
    assert level_widening(9, ORTHOGONAL_ARRAY) == pytest.approx(4 / 3)
    assert estimates(cells, attributes=ORTHOGONAL_ARRAY)["level"] == pytest.approx(4.0)
    noisy = cells + rng.normal(size=(3, 9, 1))  # the interval is wider by the same factor
    plain, widened = (variance_components(noisy, each)["level"] for each in (None, ORTHOGONAL_ARRAY))
    assert widened == pytest.approx(tuple(4 / 3 * np.array(plain)))


def test_large_means_cost_no_digits() -> None:
    cells = np.random.default_rng(1).normal(size=(40, 5, 3))
    assert estimates(cells + 1e6) == pytest.approx(estimates(cells), abs=1e-8)


def test_the_interval_of_levels_is_that_of_their_chi_squared_mean_square() -> None:
    cells = np.random.default_rng(2).normal(size=(30, 6, 1))
    found = variance_components(cells)
    levels, queries = cells.mean(axis=(0, 2)), cells.mean(axis=(1, 2))
    residuals = cells[:, :, 0] - queries[:, None] - levels + cells.mean()
    of_level, noise = 30 * levels.var(ddof=1), (residuals**2).sum() / (29 * 5)
    # Up from the noise at least, so that no interval is 0 to 0.
    scaled = 5 * np.array([of_level, max(of_level, noise)]) / stats.chi2.ppf([0.975, 0.025], 5)
    assert found["level"][1:] == pytest.approx(tuple(np.maximum((scaled - noise) / 30, 0)))


def test_the_other_intervals_reach_t_times_the_jackknife_over_queries() -> None:
    cells = np.random.default_rng(3).normal(size=(7, 3, 2))
    without_one = [estimates(np.delete(cells, query, axis=0)) for query in range(7)]
    for name in ("query", "interaction", "draw", "residual"):
        values = np.array([each[name] for each in without_one])
        error = np.sqrt(6 / 7 * ((values - values.mean()) ** 2).sum())
        value, *limits = variance_components(cells)[name]
        reach = stats.t.ppf(0.975, 6) * error
        assert limits == pytest.approx([max(value - reach, 0.0), max(value, 0.0) + reach])


@pytest.mark.parametrize("n_levels", [2, 3, 9])
def test_no_interval_of_a_component_has_zero_width(n_levels: int) -> None:
    rng = np.random.default_rng(n_levels)
    for _ in range(300):
        cells = (rng.random((20, n_levels, int(rng.integers(1, 3)))) < rng.choice([0.02, 0.5, 1.0])) * 1.0
        for _value, low, high in variance_components(cells).values():
            assert np.isnan([low, high]).all() or high - low > 1e-9


def test_intervals_hold_the_components_of_right_and_wrong_answers() -> None:
    # Probabilities of right answers: 0.5 + query 0.2 + level 0.1 + draw 0.1 (each with its sign). A query's answer is 1
    # with that probability: query .04, level .01, draw .01, no interaction; residual 1/4 - .06.
    rng, n_runs = np.random.default_rng(3), 300
    truth = {"query": 0.04, "level": 0.01, "interaction": 0.0, "draw": 0.01, "residual": 0.19}
    held = dict.fromkeys(COMPONENTS, 0)
    for _ in range(n_runs):
        query, level, draw = (rng.choice([-1.0, 1.0], shape) for shape in ((80, 1, 1), (1, 9, 1), (80, 1, 2)))
        ease = 0.5 + 0.2 * query + 0.1 * level + 0.1 * draw
        for name, (_, low, high) in variance_components((rng.random(ease.shape) < ease) * 1.0).items():
            held[name] += low <= truth[name] <= high
    # Binomial bounds of 300 runs at 95%, four standard errors wide; Level effects of two values vary less than normal
    # ones, and an interval that is cut at 0 holds a component of 0 whenever its upper end is not below it.
    assert min(held.values()) / n_runs >= 0.95 - 4 * np.sqrt(0.95 * 0.05 / n_runs)


def test_one_query_or_one_answer_a_query_has_no_components_to_tell_apart() -> None:
    assert estimates(np.ones((1, 1, 1))) == {}
    assert np.isnan(variance_components(np.array([[[1.0], [0.0]], [[0.0], [1.0]]]))["query"].ci_low)
