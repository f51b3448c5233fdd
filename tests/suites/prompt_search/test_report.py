"""What a reader sees of a search, from hand-made tables."""

import polars as pl

from evaluator.suites.prompt_search.report import best_prompts, curve_figure
from evaluator.suites.prompt_search.schema import SEARCH_CURVES, SEARCH_PROMPTS, SEARCH_RESULTS

SEARCH = {"part": "demonstrations", "method": "per_token"}


def curves(*shots: int, tries: int = 3) -> pl.DataFrame:
    rows = [
        SEARCH
        | {"dataset": "zoo", "n_shots": k, "tries": n, "expected_maximum": 0.5 + 0.1 * k + 0.01 * n}
        | {"max_random": 0.5 + 0.02 * n, "chance": 0.5, "standard_tail": 0.125, "max_tail": 0.25, "definition": name}
        for k in shots
        for name in ("paper", "distinct")
        for n in range(1, tries + 1)
    ]
    return pl.DataFrame(rows, schema=SEARCH_CURVES)


def test_the_first_of_the_best_prompts_is_shown_with_how_many_others_reach_as_much():
    results = [
        SEARCH | {"dataset": "abc", "n_shots": k, "n_queries": 4, "best_correct": 3, "best_prompt_numbers": [2, 5]}
        for k in (1, 4)
    ]
    prompts = [
        row | {"prompt_number": 2, "text": f"{row['dataset']} {row['n_shots']}", "demonstrations": ["x"]}
        for row in results
    ]
    best, _ = best_prompts(pl.DataFrame(prompts, schema=SEARCH_PROMPTS), pl.DataFrame(results, schema=SEARCH_RESULTS))
    assert best.title == "abc, 1-shot: 3 of 4 correct (1 other prompt has as many)"
    about, text = best.content
    assert about == "Try 2, examples x."
    assert text.variables == {"lines": "abc 1"}


def test_a_curve_names_each_number_of_shots_and_says_its_end_to_a_screen_reader():
    svg = curve_figure(curves(1, 4))
    assert ">1-shot<" in svg
    assert ">4-shot<" in svg
    # 0.5 + 0.1 x 4 + 0.01 x 3 and 0.5 + 0.02 x 3.
    for drawn in ("drawn with replacement", "different prompts"):
        assert (
            f"4-shot, {drawn}: the best of 3 prompts has accuracy 0.93, the best of as many random classifiers 0.56 "
            "(reached with probability 0.25), chance 0.5 (0.125)" in svg
        )


def test_lines_that_end_together_share_a_name():
    together = curves(1, 2).with_columns(expected_maximum=pl.lit(0.7))
    assert ">1, 2-shot<" in curve_figure(together)


def test_one_try_is_drawn_too():
    assert curve_figure(curves(1, tries=1)).startswith("<svg")
