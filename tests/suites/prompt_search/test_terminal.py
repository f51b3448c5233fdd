"""The last lines of a prompt search."""

import polars as pl

from evaluator.suites.prompt_search.schema import SEARCH_RESULTS
from evaluator.suites.prompt_search.terminal import best_prompt_lines
from tests.report.made_record import made_record
from tests.report.made_run import MadeRun


def test_the_best_prompt_stands_with_what_guessing_gets() -> None:
    row = {"part": "demonstrations", "method": "per_token", "dataset": "zoo", "n_shots": 4, "n_prompts": 1200}
    numbers = {"best_accuracy": 0.75, "chance": 0.25, "max_random": 0.5, "verdict": "above both"}
    results = pl.DataFrame([row | numbers], schema=SEARCH_RESULTS)
    assert list(best_prompt_lines(MadeRun(record=made_record(), tables={"search_results": results}))) == [
        "demonstrations, per_token, zoo, 4-shot: best of 1,200 prompts 0.750, chance 0.250, max random 0.500: "
        "above both"
    ]
