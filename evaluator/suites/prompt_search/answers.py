"""Decide the answers of a prompt search: draw among tied choices, and mark each answer as right or wrong."""

import numpy as np
import numpy.typing as npt
import polars as pl

from evaluator.suites.prompt_search.schema import SEARCH, SEARCH_GROUP, TRIED_PROMPTS_KEY

ANSWERS = pl.Schema(
    {
        **SEARCH,
        "prompt_number": pl.Int64(),
        "place": pl.Int64(),  # of the query in the search, from 0; the same order for every prompt
        "prompt_id": pl.String(),
        "is_correct": pl.Boolean(),  # the predicted choice is one of the correct choices
        "is_tied": pl.Boolean(),  # the prediction was drawn among several equally probable choices
    }
)

_GAMMA, _FIRST, _SECOND = (np.uint64(c) for c in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def planned(requests: pl.LazyFrame, examples: pl.LazyFrame) -> pl.DataFrame:
    """Return every request of a search as TRIED_PROMPTS_KEY, place, prompt_id and position, sorted by prompt and place.

    Args:
        requests, examples: schemas.REQUESTS and SEARCH_EXAMPLES of one store. Requests that methods add are left out,
            because they belong to no query.
    """
    # The number of a prompt within its part and number of shots is in the column that differs between prompts.
    prompt_number = pl.when(part="demonstrations").then("demonstration_set").otherwise("template")
    rows = requests.filter(pl.col("query_id").is_not_null()).with_columns(prompt_number=prompt_number)
    with_places = rows.join(examples.select("dataset", "query_id", "place"), on=["dataset", "query_id"])
    columns = [*TRIED_PROMPTS_KEY, "place"]
    return with_places.select(*columns, "prompt_id", "position").sort(columns).collect()


def answers(predictions: pl.DataFrame, plan: pl.DataFrame, examples: pl.LazyFrame) -> pl.DataFrame:
    """Return ANSWERS of all methods, sorted by search, prompt and place.

    Args:
        predictions: schemas.PREDICTIONS with `n_tied`, as returned by break_ties.
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


def break_ties(predictions: pl.DataFrame, seed: int) -> pl.DataFrame:
    """Return the frame with `pred` drawn among the most probable choices of each row, and `n_tied`, their number.

    The draw depends only on the seed and the row's `position`, not on the other rows. A classifier that ties everywhere
    then has the accuracy of chance, whatever the order of the choices.
    """
    most_probable = pl.col("label_probs").list.eval((pl.element() == pl.element().max()).arg_true())
    draw = pl.lit(pl.Series(uniform(predictions["position"].to_numpy(), seed)))
    with_ties = predictions.with_columns(tied=most_probable, n_tied=most_probable.list.len().cast(pl.Int64))
    drawn = pl.col("tied").list.get((draw * pl.col("n_tied")).floor().cast(pl.Int64))
    return with_ties.with_columns(pred=drawn.cast(pl.Int64)).drop("tied")


def uniform(keys: npt.NDArray[np.int64], seed: int) -> npt.NDArray[np.float64]:
    """Return a pseudo-random number in [0, 1) for each key, by the mixing steps of SplitMix64."""
    mixed = _mix(_mix(keys.astype(np.uint64) * _GAMMA) + np.uint64(seed % 2**64))
    return (mixed >> np.uint64(11)) / 2.0**53  # the upper 53 bits, as many as a float holds exactly


def _mix(state: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    state = (state ^ (state >> np.uint64(30))) * _FIRST
    state = (state ^ (state >> np.uint64(27))) * _SECOND
    return state ^ (state >> np.uint64(31))
