import math

import polars as pl
import pytest

from evaluator.errors import PromptTooLongError, ScoreError
from evaluator.schemas import SCORES, TOKENS
from evaluator.scores.table import check_prompt_lengths, require_complete, warn_if_equal

REQUESTS = pl.LazyFrame(
    {
        "suite": "s",
        "part": "p",
        "dataset": "d",
        "position": [0, 1],
        "for_part": None,
        "prompt_id": ["a", "b"],
    }
)
PROMPTS = pl.LazyFrame({"prompt_id": ["a", "b"], "ask": "labels", "continuations": [["x", "y"]] * 2})
SCORED = pl.LazyFrame(
    {
        "prompt_id": ["a", "b"],
        "label_log_likelihoods": [[-1.0, -2.0]] * 2,
        "last_token_log_probs": [[-1.0, -2.0]] * 2,
        "label_token_counts": [[1, 1]] * 2,
    },
    schema=SCORES,
)


def test_complete_scores_pass():
    require_complete(REQUESTS, PROMPTS, SCORED)


def test_a_request_without_a_score_is_named():
    with pytest.raises(ScoreError, match="1 of 2 requests have no score; the first is s, p, d, position 1"):
        require_complete(REQUESTS, PROMPTS, SCORED.head(1))


def test_a_prompt_scored_twice_is_refused():
    with pytest.raises(ScoreError, match="several scores; the first is a"):
        require_complete(REQUESTS, PROMPTS, pl.concat([SCORED, SCORED.head(1)]))


def test_scores_for_another_number_of_labels_are_refused():
    shorter = SCORED.with_columns(label_log_likelihoods=pl.lit([-1.0]))
    with pytest.raises(ScoreError, match="1 scores for the 2 labels"):
        require_complete(REQUESTS, PROMPTS, shorter)


def test_a_text_has_one_score():
    text = PROMPTS.with_columns(ask=pl.lit("text"), continuations=pl.lit([], pl.List(pl.String)))
    require_complete(REQUESTS, text, SCORED.with_columns(label_log_likelihoods=pl.lit([-1.0])))
    with pytest.raises(ScoreError, match="2 scores for the"):
        require_complete(REQUESTS, text, SCORED)


def test_prompts_longer_than_the_context_are_listed_with_their_length_and_none_is_cut():
    tokens = pl.LazyFrame(
        {
            "prompt_id": ["a", "b"],
            "token_id": ["1", "2"],
            "ask": "labels",
            "context": [[1] * 9, [1] * 4],
            "continuations": [[[1], [1, 2]], [[1], [1, 2]]],
        },
        schema=TOKENS,
    )
    prompts = pl.LazyFrame({"prompt_id": ["a", "b"], "prompt": ["the long one", "the short one"]})
    check_prompt_lengths(tokens, prompts, context_length=11)  # nine tokens and a label of two fit exactly
    # The last tokens of the same prompt's labels are a row of its own, and the prompt counts once.
    last = tokens.head(1).with_columns(ask=pl.lit("last_tokens"), token_id=pl.lit("3"))
    with pytest.raises(PromptTooLongError, match=r"1 of 2 prompts .* 10 tokens.*\n  11 tokens: 'the long one"):
        check_prompt_lengths(pl.concat([tokens, last]), prompts, context_length=10)
    with pytest.raises(PromptTooLongError, match=r"\n  6 tokens: 'the short one'\.\.\.\n  11 tokens: 'the long one"):
        check_prompt_lengths(tokens, prompts, context_length=5)  # the longest is the last


def test_a_text_without_labels_is_too_long_by_itself():
    tokens = pl.LazyFrame(
        {"prompt_id": ["a"], "token_id": ["1"], "ask": "state", "context": [[1] * 50], "continuations": [[]]},
        schema=TOKENS,
    )
    prompts = pl.LazyFrame({"prompt_id": ["a"], "prompt": ["a text whose hidden state is asked for"]})
    # vLLM samples one more token.
    check_prompt_lengths(tokens, prompts, context_length=51)
    with pytest.raises(PromptTooLongError, match=r"1 of 1 prompts .* 50 tokens.*\n  51 tokens: 'a text whose"):
        check_prompt_lengths(tokens, prompts, context_length=50)


def equal_numbers(of_token: float = -1.5) -> pl.DataFrame:
    """Scores of a server that gives every token of every prompt the same number; labels have one to three tokens."""
    counts = [[1, 2], [1, 2], [3, 1], [3, 1], [1, 1, 2], [1, 1, 2]]
    return pl.DataFrame(
        {
            "prompt_id": [str(number) for number in range(6)],
            "label_log_likelihoods": [[of_token * n for n in of_labels] for of_labels in counts],
            "last_token_log_probs": [[of_token] * len(of_labels) for of_labels in counts],
            "label_token_counts": counts,
        },
        schema=SCORES,
    )


def test_equal_numbers_of_all_prompts_are_a_warning_whatever_the_lengths_of_their_labels(caplog):
    same = equal_numbers()
    warn_if_equal(same.lazy())
    assert "All prompts have the same log-likelihoods of their labels" in caplog.text
    caplog.clear()
    # One prompt of six that says something else, and prompts of which no two have labels of the same lengths.
    other = pl.when(prompt_id="5").then(pl.lit([-1.5, -1.5, -3.1])).otherwise("label_log_likelihoods")
    warn_if_equal(same.with_columns(label_log_likelihoods=other).lazy())
    warn_if_equal(same.gather_every(2).lazy())
    constant = pl.col("label_log_likelihoods").list.eval(
        pl.when(pl.int_range(pl.len()) == 0).then(0.0).otherwise(-math.inf)
    )
    warn_if_equal(same.with_columns(constant).lazy())  # an imported run of answers that are all the first label
    assert not caplog.text
