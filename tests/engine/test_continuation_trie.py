import pytest

from evaluator.engine.continuation_trie import ContinuationTrie, NextTokenQuestion


def test_continuations_that_begin_alike_ask_once_for_what_they_share():
    trie = ContinuationTrie([1], [[5, 6], [5, 7], [8]])
    # After the context 5 or 8 may come, after 5 either 6 or 7.
    assert list(trie.missing_questions(128)) == [NextTokenQuestion((), [5, 8]), NextTokenQuestion((5,), [6, 7])]


def test_what_is_known_is_not_asked_again():
    trie = ContinuationTrie([1], [[5, 6], [5, 7], [8]])
    trie.learn((5,), -1.0)
    trie.learn((8,), -2.0)
    trie.learn((5, 6), -0.5)
    assert list(trie.missing_questions(128)) == [NextTokenQuestion((5,), [7])]
    assert not trie.is_complete
    trie.learn((5, 7), -0.25)
    assert trie.is_complete
    assert trie.token_log_probs([5, 7]) == [-1.0, -0.25]


def test_a_missing_token_is_never_made_up():
    with pytest.raises(KeyError):
        ContinuationTrie([1], [[5, 6]]).token_log_probs([5, 6])


def test_long_questions_are_cut():
    trie = ContinuationTrie([1], [[token] for token in range(300)])
    assert [len(question.token_ids) for question in trie.first_token_questions(128)] == [128, 128, 44]
