import pytest

from evaluator.engine.continuation_trie import ContinuationTrie, NextTokenQuestion


def test_a_stem_that_continuations_share_is_one_question():
    trie = ContinuationTrie([1], [[5, 6], [5, 7], [8]])
    # After the context 5 or 8 may come, after 5 either 6 or 7.
    assert list(trie.missing_questions(128)) == [NextTokenQuestion((), [5, 8]), NextTokenQuestion((5,), [6, 7])]


def test_a_stored_log_probability_is_not_requested_again():
    trie = ContinuationTrie([1], [[5, 6], [5, 7], [8]])
    trie.learn((5,), -1.0)
    trie.learn((8,), -2.0)
    trie.learn((5, 6), -0.5)
    assert list(trie.missing_questions(128)) == [NextTokenQuestion((5,), [7])]
    assert not trie.is_complete
    trie.learn((5, 7), -0.25)
    assert trie.is_complete
    assert trie.token_log_probs([5, 7]) == [-1.0, -0.25]


def test_a_missing_log_probability_is_an_error():
    with pytest.raises(KeyError):
        ContinuationTrie([1], [[5, 6]]).token_log_probs([5, 6])


def test_a_question_for_more_tokens_than_the_limit_is_split():
    trie = ContinuationTrie([1], [[token] for token in range(300)])
    assert [len(question.token_ids) for question in trie.first_token_questions(128)] == [128, 128, 44]
