"""Design studies worked by hand."""

import math

import pytest

from evaluator.metrics.total_error import Design, Variances, cheapest, more_prompts, queries_needed

VARIANCES = Variances(query=0.08, level=0.002, interaction=0.04, draw=0.02, residual=0.1)


def test_standard_error_worked_by_hand() -> None:
    # 100 queries, 4 levels, 2 draws: .08/100 + .002/4 + .04/400 + .02/200 + .1/800 = .001625
    assert VARIANCES.standard_error(Design(100, 4, 2)) == pytest.approx(math.sqrt(0.001625))


def test_more_prompts_go_to_one_factor_at_a_time() -> None:
    names = {"query": "query", "level": "template", "draw": "demonstration set"}
    assert dict(more_prompts(Design(500, 1, 2), 10_000, names)) == {
        "query": Design(5_500, 1, 2),
        "template": Design(500, 11, 2),
        "demonstration set": Design(500, 1, 22),
    }
    # 10,000 prompts are not enough for another set of 20,000 queries.
    assert dict(more_prompts(Design(20_000, 1, 1), 10_000, names)) == {"query": Design(30_000, 1, 1)}
    assert set(dict(more_prompts(Design(500, 1, 1), 10_000, {"query": "query"}))) == {"query"}


def test_no_number_of_queries_undoes_what_a_single_template_is_off_by() -> None:
    # 1.96 sqrt(.002) = .0877: below it more queries do not help.
    assert queries_needed(VARIANCES, 0.087, 1, 2) is None
    # (.1 / 1.96)^2 - .002 = .000603; (.08 + .04 + .01 + .05) / .000603 = 298.5
    assert queries_needed(VARIANCES, 0.1, 1, 2) == 299


@pytest.mark.parametrize("has_draws", [True, False])
def test_the_cheapest_design_is_the_cheapest_of_all_that_reach_the_half_width(has_draws: bool) -> None:
    found = cheapest(VARIANCES, 0.05, has_draws=has_draws)
    assert found is not None
    assert 1.959964 * VARIANCES.standard_error(found) <= 0.05 + 1e-9
    others = [
        Design(n_queries, n_levels, n_draws)
        for n_levels in range(1, 30)
        for n_draws in (range(1, 6) if has_draws else [1])
        for n_queries in range(2, found.n_prompts // (n_levels * n_draws) + 1)
    ]
    reaching = [design for design in others if 1.959964 * VARIANCES.standard_error(design) <= 0.05]
    assert min(design.n_prompts for design in reaching) == found.n_prompts


def test_a_half_width_that_nothing_reaches_has_no_design() -> None:
    assert cheapest(Variances(0.1, 1.0, 0.0, 0.0, 0.0), 0.01, has_draws=False) is None
