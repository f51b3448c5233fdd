"""Turn predictions of a prompt search into answers: right or wrong, of which prompt, to which query."""

import polars as pl

from evaluator.suites.prompt_search.schema import SEARCH_GROUP, TRIED_PROMPTS_KEY

TRY = TRIED_PROMPTS_KEY
"""Identifies one tried prompt, whatever the method."""

_PROMPT_NUMBER = pl.when(part="demonstrations").then("demonstration_set").otherwise("template")
"""Of a request: which prompt of its part and number of shots, by what the part varies."""

CHANCE = pl.col("correct").list.len() / pl.col("n_choices")
"""Of guessing a query right, from schemas.SEARCH_EXAMPLES: any correct choice is right."""

ANSWERS = pl.Schema(
    {
        "part": pl.String(),
        "dataset": pl.String(),
        "n_shots": pl.Int64(),
        "method": pl.String(),
        "prompt_number": pl.Int64(),
        "place": pl.Int64(),  # of the query, in the order in which all prompts are asked
        "prompt_id": pl.String(),
        "is_correct": pl.Boolean(),  # the choice is one of the correct ones
        "is_tied": pl.Boolean(),  # it was drawn among several equally probable ones
    }
)


def planned(requests: pl.LazyFrame, examples: pl.LazyFrame) -> pl.DataFrame:
    """Return every request of a search as TRY, place, prompt_id and position, with the queries' order from `examples`.

    Args:
        requests, examples: schemas.REQUESTS and schemas.SEARCH_EXAMPLES of one store; what methods ask besides is left
            out, as it answers no query.
    """
    rows = requests.filter(pl.col("query_id").is_not_null()).select(
        "part", "dataset", "n_shots", "query_id", "prompt_id", "position", prompt_number=_PROMPT_NUMBER
    )
    placed = rows.join(examples.select("dataset", "query_id", "place"), on=["dataset", "query_id"])
    return placed.select(*TRY, "place", "prompt_id", "position").sort(*TRY, "place").collect()


def answers(predictions: pl.DataFrame, plan: pl.DataFrame, examples: pl.LazyFrame) -> pl.DataFrame:
    """Return ANSWERS of all methods, sorted by try, method and place.

    Args:
        predictions: schemas.PREDICTIONS with `n_tied`, as ties.break_ties gives them.
        plan: as planned() gives it; rows of a plan without a prediction have no answer.
        examples: schemas.SEARCH_EXAMPLES.
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
