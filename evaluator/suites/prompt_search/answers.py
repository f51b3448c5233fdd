"""Mark the predictions of a prompt search as right or wrong, by prompt and query."""

import polars as pl

from evaluator.suites.prompt_search.schema import SEARCH_GROUP, TRIED_PROMPTS_KEY

_PROMPT_NUMBER = pl.when(part="demonstrations").then("demonstration_set").otherwise("template")
"""Number of the prompt of a request within its part and number of shots: the column that differs between prompts."""

CHANCE = pl.col("correct").list.len() / pl.col("n_choices")
"""Probability that a random choice is right, from the columns of SEARCH_EXAMPLES; any correct choice counts."""

ANSWERS = pl.Schema(
    {
        "part": pl.String(),
        "dataset": pl.String(),
        "n_shots": pl.Int64(),
        "method": pl.String(),
        "prompt_number": pl.Int64(),
        "place": pl.Int64(),  # of the query in the search, from 0; the same order for every prompt
        "prompt_id": pl.String(),
        "is_correct": pl.Boolean(),  # the predicted choice is one of the correct ones
        "is_tied": pl.Boolean(),  # the prediction was drawn among several equally probable choices
    }
)


def planned(requests: pl.LazyFrame, examples: pl.LazyFrame) -> pl.DataFrame:
    """Return every request of a search as TRIED_PROMPTS_KEY, place, prompt_id and position, sorted by prompt and place.

    Args:
        requests, examples: schemas.REQUESTS and SEARCH_EXAMPLES of one store. Requests that methods add are left out,
            because they belong to no query.
    """
    rows = requests.filter(pl.col("query_id").is_not_null()).select(
        "part", "dataset", "n_shots", "query_id", "prompt_id", "position", prompt_number=_PROMPT_NUMBER
    )
    placed = rows.join(examples.select("dataset", "query_id", "place"), on=["dataset", "query_id"])
    return (
        placed.select(*TRIED_PROMPTS_KEY, "place", "prompt_id", "position").sort(*TRIED_PROMPTS_KEY, "place").collect()
    )


def answers(predictions: pl.DataFrame, plan: pl.DataFrame, examples: pl.LazyFrame) -> pl.DataFrame:
    """Return ANSWERS of all methods, sorted by search, prompt and place.

    Args:
        predictions: schemas.PREDICTIONS with `n_tied`, as returned by ties.break_ties.
        plan: as returned by planned(); a request without a prediction has no row in the result.
        examples: SEARCH_EXAMPLES.
    """
    key = ["part", "dataset", "position"]
    joined = (
        predictions.lazy()
        .select(*key, "method", "query_id", "pred", "n_tied")
        .join(plan.lazy(), on=key)
        .join(examples.select("dataset", "query_id", "correct"), on=["dataset", "query_id"])
        .with_columns(is_correct=pl.col("correct").list.contains(pl.col("pred")), is_tied=pl.col("n_tied") > 1)
    )
    return joined.select(ANSWERS.names()).sort(*SEARCH_GROUP, "prompt_number", "place").collect()
