import numpy as np
import polars as pl

from evaluator.prompts.rows import render_prompts

SHOWN = pl.Series(["rain: wet\n", "sun: dry\n", "fog: wet\n"])


def test_prompts_hold_the_opening_the_demonstrations_in_their_order_and_the_query():
    prompts = render_prompts("Weather\n", SHOWN, np.array([[2, 0], [0, 0]]), pl.Series(["hail: ", "snow: "]))
    assert prompts.to_list() == [
        "Weather\nfog: wet\nrain: wet\nhail: ",
        "Weather\nrain: wet\nrain: wet\nsnow: ",
    ]


def test_without_queries_prompts_end_in_front_of_them():
    assert render_prompts("", SHOWN, np.array([[1], [2]])).to_list() == ["sun: dry\n", "fog: wet\n"]


def test_without_demonstrations_there_is_still_one_prompt_a_row():
    none = np.empty((2, 0), np.int64)
    assert render_prompts("Weather\n", SHOWN, none).to_list() == ["Weather\n"] * 2
    assert render_prompts("", SHOWN, none, pl.Series(["a", "b"])).to_list() == ["a", "b"]
    assert render_prompts("", SHOWN, none[:0], pl.Series([], dtype=pl.String)).to_list() == []
