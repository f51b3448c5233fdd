"""Test whether a prompt that beats a baseline in a search is also accurate on queries that the search did not see."""

import polars as pl

from evaluator.random_baselines.held_out import HELD_OUT_TRIALS, held_out_trials
from evaluator.suites.prompt_search.answers import CHANCE
from evaluator.suites.prompt_search.schema import SEARCH_GROUP


def search_held_out(answers: pl.DataFrame, prompts: pl.DataFrame, examples: pl.DataFrame, seed: int) -> pl.DataFrame:
    """Return HELD_OUT_TRIALS of every search in which no prompt was stopped.

    In each of 100 splits, the best distinct prompt on 75% of the queries is evaluated on the other 25%, as described in
    held_out_trials. `experiment` is part/dataset/n_shots/method.

    Args:
        answers, prompts: as returned by answers.answers and tables.prompts_table.
        examples: SEARCH_EXAMPLES.
        seed: draws the splits.
    """
    complete = prompts.filter(~pl.col("is_stopped").any().over(SEARCH_GROUP), pl.col("n_queries") > 1)
    # Of prompts with the same text, only the first counts.
    distinct = complete.filter(pl.col("prompt_number") == pl.col("first_alike"))
    if distinct.is_empty():
        return pl.DataFrame(schema=HELD_OUT_TRIALS)
    experiment = pl.concat_str((pl.col(name).cast(pl.String) for name in SEARCH_GROUP), separator="/")
    correctness = answers.join(distinct, on=[*SEARCH_GROUP, "prompt_number"], how="semi").select(
        experiment=experiment, prompt="prompt_number", example="place", correct="is_correct"
    )
    chances = examples.select("dataset", example="place", chance=CHANCE)
    experiments = distinct.select("dataset", experiment=experiment).unique()
    return held_out_trials(
        correctness.lazy(),
        experiments.join(chances, on="dataset").select("experiment", "example", "chance").sort("experiment", "example"),
        tries=[int(distinct.group_by(SEARCH_GROUP).len()["len"].to_numpy().max())],
        seed=seed,
    )
