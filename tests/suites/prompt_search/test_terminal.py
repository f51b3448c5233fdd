"""The last lines of a prompt search."""

import polars as pl
import pytest

from evaluator.suites.prompt_search.schema import SEARCH_RESULTS
from evaluator.suites.prompt_search.suite import summary_lines
from tests.report.made_record import made_record
from tests.report.made_run import MadeRun


@pytest.mark.parametrize(
    ("p_uniform", "p_majority", "words"),
    [
        (0.0312, 0.2, "better than uniform guessing, p 0.031 against uniform guessing and 0.200"),
        (0.3, 0.01, "not better than uniform guessing, p 0.300 against uniform guessing and 0.010"),
        (1e-9, 0.05, "better than guessing, p < 0.001 against uniform guessing and 0.050"),
    ],
)
def test_the_best_prompt_stands_with_its_baselines_and_both_tests(
    p_uniform: float, p_majority: float, words: str
) -> None:
    row = {"part": "demonstrations", "method": "per_token", "dataset": "zoo", "n_shots": 4}
    row |= {"n_prompts": 1_300, "tries": 1_200}  # prompts of the same text count once, as in the baseline
    numbers = {"best_accuracy": 0.75, "chance": 0.25, "max_random": 0.5, "majority": 0.4, "verdict": "above both"}
    tests = {"p_holm": p_uniform, "p_majority_holm": p_majority, "n_tests": 1_200}
    tests |= {"better_than_uniform": p_uniform <= 0.05, "better_than_guessing": max(p_uniform, p_majority) <= 0.05}
    results = pl.DataFrame([row | numbers | tests], schema=SEARCH_RESULTS)
    assert list(summary_lines(MadeRun(record=made_record(), tables={"search_results": results}))) == [
        f"demonstrations, per_token, zoo, 4-shot: best of 1,200 prompts 0.750, chance 0.250, max random 0.500, "
        f"constant answer 0.400: {words} against the constant answer after Holm's correction for 1,200 tests"
    ]
