"""The last lines of a prompt search."""

import polars as pl
import pytest

from evaluator.suites.prompt_search.schema import SEARCH_RESULTS
from evaluator.suites.prompt_search.suite import summary_lines
from tests.report.made_record import made_record
from tests.report.made_run import MadeRun


@pytest.mark.parametrize(
    ("p_holm", "n_tests", "words"),
    [
        (0.0312, 12, "better than uniform guessing, p 0.031 after Holm's correction for 12 tests"),
        (0.3, 1, "not better than uniform guessing, p 0.300 after Holm's correction for 1 test"),
        (1e-9, 1, "better than uniform guessing, p < 0.001 after Holm's correction for 1 test"),
    ],
)
def test_the_best_prompt_stands_with_what_guessing_gets_and_its_test(p_holm: float, n_tests: int, words: str) -> None:
    row = {"part": "demonstrations", "method": "per_token", "dataset": "zoo", "n_shots": 4, "n_prompts": 1200}
    numbers = {"best_accuracy": 0.75, "chance": 0.25, "max_random": 0.5, "verdict": "above both"}
    tests = {"p_holm": p_holm, "n_tests": n_tests, "better_than_uniform": p_holm <= 0.05}
    results = pl.DataFrame([row | numbers | tests], schema=SEARCH_RESULTS)
    assert list(summary_lines(MadeRun(record=made_record(), tables={"search_results": results}))) == [
        f"demonstrations, per_token, zoo, 4-shot: best of 1,200 prompts 0.750, chance 0.250, max random 0.500: {words}"
    ]
