"""How answers of vLLM are read, whichever of its two model runners wrote them."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from evaluator.engine.prefixes import ContinuationTrie, Question
from evaluator.engine.vllm_requests import learn_question, learn_suffix
from evaluator.errors import ScoreError

CONTEXT, CONTINUATION = [1, 2, 3, 4], (5, 6, 7)


def suffix_answer(rows: list[float], n_cached: int) -> Any:
    """Log-probabilities of prompt tokens."""
    prompt = [*CONTEXT, *CONTINUATION]
    return SimpleNamespace(
        prompt_token_ids=prompt, num_cached_tokens=n_cached, prompt_logprobs=SimpleNamespace(logprobs=rows)
    )


def answer(token_ids: list[int], log_probs: list[float], scored: list[list[float]] | None = None) -> Any:
    """Log-probabilities after a prompt, the sampled token's first, and those of given tokens within it."""
    return SimpleNamespace(
        prompt_token_ids=CONTEXT,
        num_cached_tokens=0,
        outputs=[SimpleNamespace(logprobs=SimpleNamespace(token_ids=token_ids, logprobs=log_probs))],
        prompt_token_id_logprobs=None if scored is None else np.array(scored, np.float32),
    )


@pytest.mark.parametrize("n_cached", [0, 3])
def test_rows_of_all_prompt_tokens_and_rows_of_computed_ones_are_read_alike(n_cached):
    all_rows = [-1.0, -2.0, -3.0, -4.0, -5.0, -6.0]  # of the tokens 2 to 7
    for rows in (all_rows, all_rows[n_cached:]):  # runner V1, runner V2
        trie = ContinuationTrie(CONTEXT, [CONTINUATION])
        learn_suffix(trie, CONTINUATION, suffix_answer(rows, n_cached))
        assert trie.token_log_probs(CONTINUATION) == [-4.0, -5.0, -6.0]


@pytest.mark.parametrize("rows", [[0.0, 0.0, 0.0, 0.0, 0.0, -6.0], [-6.0]])
def test_rows_hidden_by_the_cache_are_not_believed(rows):
    trie = ContinuationTrie(CONTEXT, [CONTINUATION])
    learn_suffix(trie, CONTINUATION, suffix_answer(rows, n_cached=5))  # token 7 alone was predicted by a computed one
    assert list(trie.missing_questions()) == [Question((), [[5]]), Question((5,), [[6]])]


def test_another_number_of_rows_than_either_runner_returns_is_refused():
    with pytest.raises(ScoreError, match=r"5 rows .* 7 tokens, 3 of them cached\. This is vLLM .*; .* were tested"):
        learn_suffix(ContinuationTrie(CONTEXT, [CONTINUATION]), CONTINUATION, suffix_answer([-1.0] * 5, n_cached=3))


def test_padding_after_the_tokens_of_a_request_is_not_read():
    trie = ContinuationTrie(CONTEXT, [[0], [5]])
    # The greedy token 9 first; then what was asked for; then padding with token 0.
    padded = answer([9, 0, 5, 0, 0], [-0.5, -1.0, -2.0, -np.inf, -np.inf])
    learn_question(trie, Question((), [[0, 5]]), padded)
    assert trie.token_log_probs([0]) == [-1.0]
    assert trie.token_log_probs([5]) == [-2.0]


def test_log_probabilities_of_other_tokens_are_refused():
    with pytest.raises(ScoreError, match="other tokens"):
        learn_question(ContinuationTrie(CONTEXT, [[5]]), Question((), [[5]]), answer([9, 6], [-0.5, -1.0]))


QUESTION = Question((5,), [[5, 8], [6]])  # of the continuations 5 6 and 8


def test_rows_within_a_prompt_come_before_the_one_after_it():
    trie = ContinuationTrie(CONTEXT, [[5, 6], [8]])
    learn_question(trie, QUESTION, answer([9, 6], [-0.5, -3.0], scored=[[-1.0, -2.0]]))
    assert trie.token_log_probs([5, 6]) == [-1.0, -3.0]
    assert trie.token_log_probs([8]) == [-2.0]


def test_rows_that_the_cache_hid_are_missing_afterwards():
    trie = ContinuationTrie(CONTEXT, [[5, 6], [8]])
    learn_question(trie, QUESTION, answer([9, 6], [-0.5, -3.0]))
    assert list(trie.missing_questions()) == [Question((), [[5, 8]])]


def test_another_number_of_rows_than_was_asked_for_is_refused():
    trie = ContinuationTrie(CONTEXT, [[5, 6], [8]])
    with pytest.raises(ScoreError, match="2 rows for 1 positions"):
        learn_question(trie, QUESTION, answer([9, 6], [-0.5, -3.0], scored=[[-1.0, -2.0], [-1.0, -2.0]]))
