"""Join scores and hidden states, which are stored by tokens, to prompts."""

import polars as pl

from evaluator.schemas import HIDDEN_STATES, SCORES


def prompt_scores(tokens: pl.LazyFrame, token_scores: pl.LazyFrame) -> pl.LazyFrame:
    """Return schemas.SCORES of the prompts in schemas.TOKENS that have schemas.TOKEN_SCORES, in no particular order."""
    ids = tokens.filter(pl.col("ask") != "state").select("prompt_id", "token_id", "ask")
    rows = token_scores.join(ids, on="token_id")
    whole = rows.filter(pl.col("ask") != "last_tokens")
    last = rows.filter(pl.col("ask") == "last_tokens").select("prompt_id", last_token_log_probs="log_likelihoods")
    # Labels of one token each have no row of last tokens: their log-likelihoods are the same numbers.
    one_token_each = (pl.col("ask") == "labels") & (pl.col("token_counts").list.max() == 1)
    same = pl.when(one_token_each).then(pl.col("log_likelihoods"))
    return (
        whole.join(last, on="prompt_id", how="left")
        .select(
            "prompt_id",
            label_log_likelihoods="log_likelihoods",
            last_token_log_probs=pl.coalesce("last_token_log_probs", same),
            label_token_counts="token_counts",
        )
        .select(pl.col(name).cast(dtype) for name, dtype in SCORES.items())
    )


def prompt_states(tokens: pl.LazyFrame, token_states: pl.LazyFrame) -> pl.LazyFrame:
    """Return schemas.HIDDEN_STATES of the prompts in schemas.TOKENS that have schemas.TOKEN_STATES, in no order."""
    rows = tokens.filter(pl.col("ask") == "state").select("prompt_id", "token_id")
    return token_states.join(rows, on="token_id").select(HIDDEN_STATES.names())
