"""Checks of prompts before they are scored, and of scores before they are measured."""

import logging

import polars as pl

from evaluator.errors import PromptTooLongError, ScoreError, VocabularyError
from evaluator.schemas import PROMPTS_KEY, REQUESTS_KEY
from evaluator.tokens.tokenizer import TextTokenizer

logger = logging.getLogger(__name__)


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


def require_complete(requests: pl.LazyFrame, prompts: pl.LazyFrame, scores: pl.LazyFrame) -> None:
    """Raise ScoreError unless every prompt has exactly one score, with one number per continuation.

    Args:
        requests: schemas.REQUESTS of these prompts, for messages.
        prompts: schemas.PROMPTS for log-likelihoods.
        scores: schemas.SCORES.
    """
    repeated = scores.group_by("prompt_id").len().filter(pl.col("len") > 1).collect(engine="streaming")
    if not repeated.is_empty():
        raise ScoreError(
            f"{repeated.height} prompts have several scores; the first is {repeated['prompt_id'].sort()[0]}. "
            "The score folder is damaged: remove it and run `evaluator score` again."
        )
    # A whole text has one log-likelihood, any other prompt one for each continuation.
    n_continuations = pl.when(pl.col("ask") == "text").then(1).otherwise(pl.col("continuations").list.len())
    found = scores.select("prompt_id", n_scores=pl.col("label_log_likelihoods").list.len())
    joined = prompts.select("prompt_id", "ask", "continuations").join(found, on=PROMPTS_KEY, how="left")
    wrong = joined.filter(pl.col("n_scores").ne_missing(n_continuations)).collect(engine="streaming")
    if wrong.is_empty():
        return
    rows = requests.join(wrong.lazy(), on=PROMPTS_KEY).sort(REQUESTS_KEY).collect()
    unscored = rows.filter(pl.col("n_scores").is_null())
    if not unscored.is_empty():
        first = unscored.row(0, named=True)
        raise ScoreError(
            f"{unscored.height} of {_n_requests(requests, prompts)} requests have no score; the first is "
            f"{first['suite']}, {first['dataset']}, position {first['position']}. Finish with `evaluator score`."
        )
    first = rows.row(0, named=True)
    raise ScoreError(
        f"{first['dataset']}, position {first['position']}: {first['n_scores']} scores for the "
        f"{len(first['continuations'])} labels {first['continuations']}. The scores belong to another store."
    )


def warn_if_equal(scores: pl.LazyFrame) -> None:
    """Log a warning if all prompts with equally many labels have the same log-likelihoods: no text changes an answer.

    Args:
        scores: schemas.SCORES.
    """
    labels = pl.col("label_log_likelihoods")
    several = scores.filter(labels.list.len() > 1)
    counts = several.group_by(labels.list.len()).agg(pl.len().alias("n"), distinct=labels.hash().n_unique())
    sizes = counts.select(pl.col("n").max(), pl.col("distinct").max()).collect(engine="streaming").row(0, named=True)
    if sizes["distinct"] == 1 and sizes["n"] > 1:
        logger.warning(
            "All prompts have the same log-likelihoods of their labels, whatever they say: the server or the model "
            "does not read them. No number of this run means anything."
        )


def require_states(requests: pl.LazyFrame, prompts: pl.LazyFrame, states: pl.LazyFrame) -> None:
    """Raise ScoreError unless every prompt has its hidden state.

    Args:
        requests: schemas.REQUESTS of these prompts, for messages.
        prompts: schemas.PROMPTS for hidden states.
        states: schemas.HIDDEN_STATES.
    """
    missing = prompts.select("prompt_id").join(states, on=PROMPTS_KEY, how="anti").collect(engine="streaming")
    if not missing.is_empty():
        rows = requests.join(missing.lazy(), on=PROMPTS_KEY, how="semi").sort(REQUESTS_KEY).collect()
        first = rows.row(0, named=True)
        raise ScoreError(
            f"{rows.height} of {_n_requests(requests, prompts)} hidden states are missing; the first is "
            f"{first['suite']}, {first['part']}, {first['dataset']}, position {first['position']}. Finish with "
            "`evaluator score`."
        )


def _n_requests(requests: pl.LazyFrame, prompts: pl.LazyFrame) -> int:
    n: int = requests.join(prompts, on=PROMPTS_KEY, how="semi").select(pl.len()).collect().item()
    return n


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


def check_vocabulary(tokens: pl.LazyFrame, prompts: pl.LazyFrame, tokenizer: TextTokenizer, vocab_size: int) -> None:
    """Raise VocabularyError, naming the first prompt and token, if ids are past the embedding of the model.

    Args:
        tokens: schemas.TOKENS of a store.
        prompts: schemas.PROMPTS of the same store.
        tokenizer: of the model.
        vocab_size: rows of the model's embedding.
    """
    largest = pl.max_horizontal(
        pl.col("context").list.max(), pl.col("continuations").list.eval(pl.element().list.max()).list.max()
    )
    past = tokens.select("prompt_id", n=largest).filter(pl.col("n") >= vocab_size).collect(engine="streaming")
    if past.is_empty():
        return
    first = past.lazy().join(prompts, on=PROMPTS_KEY).sort("prompt").head(1).collect().row(0, named=True)
    raise VocabularyError(
        f"{past['prompt_id'].n_unique():,} prompts have tokens that the model has no embedding for: "
        f"{tokenizer.pieces([first['n']])[0]!r} is token {first['n']:,}, and the embedding has {vocab_size:,} rows. "
        f"The first prompt begins {first['prompt'][:60]!r}, its labels are {first['continuations']}. Use the "
        "tokenizer that belongs to the model, or resize its embedding; or leave out the dataset (--datasets)."
    )
