"""Checks of prompts before they are scored, and of scores before they are measured."""

import polars as pl

from evaluator.errors import PromptTooLongError, ScoreError
from evaluator.schemas import PROMPTS_KEY


def require_finite(scores: pl.DataFrame) -> None:
    """Raise ScoreError, naming the first prompt, if a log-likelihood is missing, NaN or infinite."""
    finite = pl.col("log_likelihoods").list.eval(pl.element().is_finite().fill_null(False)).list.all()
    bad = scores.filter(~finite)
    if not bad.is_empty():
        first = bad.row(0, named=True)
        raise ScoreError(
            f"{bad.height} of {scores.height} prompts have a label whose log-likelihood is not a finite number; the "
            f"first is prompt {first['prompt_id']} with {first['log_likelihoods']}. The model overflows or is "
            "damaged: check its weights, or try --dtype float32."
        )


def require_finite_states(states: pl.DataFrame) -> None:
    """Raise ScoreError, naming the first prompt, if a hidden state has an entry that is NaN or infinite."""
    finite = pl.col("hidden_state").list.eval(pl.element().is_finite()).list.all()
    bad = states.filter(~finite)
    if not bad.is_empty():
        raise ScoreError(
            f"{bad.height} of {states.height} prompts have a hidden state that is not finite; the first is prompt "
            f"{bad['prompt_id'][0]}. The model overflows or is damaged: check its weights, or try --dtype float32."
        )


def require_complete(requests: pl.DataFrame, scores: pl.DataFrame) -> None:
    """Raise ScoreError unless every request has exactly one score, with one number per continuation.

    Args:
        requests: schemas.REQUESTS for log-likelihoods, with `ask` and `continuations`.
        scores: schemas.SCORES.
    """
    repeated = scores.filter(pl.col("prompt_id").is_duplicated())
    if not repeated.is_empty():
        raise ScoreError(
            f"{repeated['prompt_id'].n_unique()} prompts have several scores; the first is {repeated['prompt_id'][0]}. "
            "The score folder is damaged: remove it and run `evaluator score` again."
        )
    unscored = requests.join(scores, on=PROMPTS_KEY, how="anti")
    if not unscored.is_empty():
        first = unscored.row(0, named=True)
        raise ScoreError(
            f"{unscored.height} of {requests.height} requests have no score; the first is {first['suite']}, "
            f"{first['dataset']}, position {first['position']}. Finish with `evaluator score`."
        )
    sizes = requests.join(scores, on=PROMPTS_KEY).filter(n_scores() != pl.col("label_log_likelihoods").list.len())
    if not sizes.is_empty():
        first = sizes.row(0, named=True)
        raise ScoreError(
            f"{first['dataset']}, position {first['position']}: {len(first['label_log_likelihoods'])} scores for the "
            f"{len(first['continuations'])} labels {first['continuations']}. The scores belong to another store."
        )


def n_scores() -> pl.Expr:
    """Return how many log-likelihoods a request has: one of a whole text, else one of each continuation."""
    return pl.when(pl.col("ask") == "text").then(1).otherwise(pl.col("continuations").list.len()).cast(pl.Int64)


def require_states(requests: pl.DataFrame, states: pl.DataFrame) -> None:
    """Raise ScoreError unless every request has its hidden state.

    Args:
        requests: schemas.REQUESTS for hidden states.
        states: schemas.HIDDEN_STATES.
    """
    without = requests.join(states, on=PROMPTS_KEY, how="anti")
    if not without.is_empty():
        first = without.row(0, named=True)
        raise ScoreError(
            f"{without.height} of {requests.height} hidden states are missing; the first is {first['suite']}, "
            f"{first['part']}, {first['dataset']}, position {first['position']}. Finish with `evaluator score`."
        )


def longest_tokens() -> pl.Expr:
    """Return the number of tokens of a row of schemas.TOKENS: its context and its longest continuation.

    Where a hidden state is wanted there is none, and one more token is counted: vLLM always samples one.
    """
    continuation = pl.col("continuations").list.eval(pl.element().list.len()).list.max()
    return pl.col("context").list.len() + continuation.fill_null(pl.when(pl.col("ask") == "state").then(1).otherwise(0))


def check_prompt_lengths(tokens: pl.LazyFrame, prompts: pl.LazyFrame, context_length: int | None) -> None:
    """Raise PromptTooLongError, listing the longest prompts, if a prompt and its longest label exceed the context.

    Args:
        tokens: schemas.TOKENS of a store.
        prompts: schemas.PROMPTS of the same store.
        context_length: of the model, in tokens; None: no limit.
    """
    if context_length is None:
        return
    lengths = tokens.filter(pl.col("ask") != "last_tokens").select("prompt_id", n=longest_tokens())
    over = lengths.filter(pl.col("n") > context_length).collect(engine="streaming")
    if over.is_empty():
        return
    too_long = over.lazy().join(prompts, on=PROMPTS_KEY).sort("n", "prompt").collect()
    listed = "".join(f"\n  {row['n']} tokens: {row['prompt'][:60]!r}..." for row in too_long.tail(3).to_dicts())
    n_prompts = prompts.select(pl.len()).collect().item()
    raise PromptTooLongError(
        f"{too_long.height} of {n_prompts} prompts with their labels are longer than the model's context of "
        f"{context_length} tokens, and prompts are never truncated. The longest:{listed}\n"
        "Use fewer demonstrations (--shots), leave out the dataset (--datasets), or choose a model with a longer "
        "context."
    )
