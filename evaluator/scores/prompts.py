"""Join scores, which are stored by tokens, to prompts."""

import polars as pl

from evaluator.schemas import HIDDEN_STATES, SCORES
from evaluator.scores.table import ScoreTable


def scan_prompt_scores(tokens: pl.LazyFrame, table: ScoreTable) -> pl.LazyFrame:
    """Return schemas.SCORES of all scored prompts, in the order of their scores.

    Args:
        tokens: schemas.TOKENS.
        table: scores of these tokens.
    """
    # The right side is what a join holds in memory: ids are shorter than scores, and can be of some prompts alone.
    return scores_by_prompt(
        table.read("scores").join(token_ids(tokens), on="token_id", how="inner", maintain_order="left")
    )


def join_prompt_scores(tokens: pl.LazyFrame, token_scores: pl.LazyFrame) -> pl.LazyFrame:
    """Return schemas.SCORES of the prompts in schemas.TOKENS that have schemas.TOKEN_SCORES, in the order of tokens.

    The scores are held in memory: they may be of a few of the tokens.
    """
    return scores_by_prompt(token_ids(tokens).join(token_scores, on="token_id", how="inner", maintain_order="left"))


def token_ids(tokens: pl.LazyFrame) -> pl.LazyFrame:
    """Return prompt_id, token_id and ask of the rows of schemas.TOKENS that have log-likelihoods."""
    return tokens.filter(pl.col("ask") != "state").select("prompt_id", "token_id", "ask")


def scores_by_prompt(rows: pl.LazyFrame) -> pl.LazyFrame:
    """Return schemas.SCORES of rows of TOKENS that were joined with TOKEN_SCORES."""
    whole = rows.filter(pl.col("ask") != "last_tokens")
    last = rows.filter(pl.col("ask") == "last_tokens").select("prompt_id", last_token_log_probs="log_likelihoods")
    # Labels of one token each have no row of last tokens: their log-likelihoods are the same numbers.
    one_token_each = (pl.col("ask") == "labels") & (pl.col("token_counts").list.max() == 1)
    same = pl.when(one_token_each).then(pl.col("log_likelihoods"))
    return (
        whole.join(last, on="prompt_id", how="left", maintain_order="left")
        .select(
            "prompt_id",
            label_log_likelihoods="log_likelihoods",
            last_token_log_probs=pl.coalesce("last_token_log_probs", same),
            label_token_counts="token_counts",
        )
        .select(pl.col(name).cast(dtype) for name, dtype in SCORES.items())
    )


def prompt_states(tokens: pl.LazyFrame, table: ScoreTable) -> pl.LazyFrame:
    """Return schemas.HIDDEN_STATES of all prompts whose state is computed, in the order of their tokens."""
    rows = tokens.filter(pl.col("ask") == "state").select("prompt_id", "token_id")
    joined = rows.join(table.read("states"), on="token_id", how="inner", maintain_order="left")
    return joined.select(HIDDEN_STATES.names())
