import math

import pytest

from evaluator.engine.prefixes import ContinuationTrie, Question


def test_a_stem_that_continuations_share_is_one_question():
    trie = ContinuationTrie([1], [[5, 6], [5, 7], [8]])
    # After the context 5 or 8 may come, after 5 either 6 or 7.
    assert list(trie.missing_questions()) == [Question((), [[5, 8]]), Question((5,), [[6, 7]])]


def test_a_stored_log_probability_is_not_requested_again():
    trie = ContinuationTrie([1], [[5, 6], [5, 7], [8]])
    trie.learn((5,), -1.0)
    trie.learn((8,), -2.0)
    trie.learn((5, 6), -0.5)
    assert list(trie.missing_questions()) == [Question((5,), [[7]])]
    assert not trie.is_complete
    trie.learn((5, 7), -0.25)
    assert trie.is_complete
    assert trie.token_log_probs([5, 7]) == [-1.0, -0.25]


def test_the_first_log_probability_of_a_path_stays():
    trie = ContinuationTrie([1], [[5]])
    trie.learn((5,), -1.0)
    trie.learn((5,), -1.25)
    assert trie.token_log_probs([5]) == [-1.0]


def test_a_missing_log_probability_is_an_error():
    with pytest.raises(KeyError):
        ContinuationTrie([1], [[5, 6]]).token_log_probs([5, 6])


def test_a_question_for_more_tokens_than_the_limit_is_split():
    trie = ContinuationTrie([1], [[token] for token in range(300)])
    assert [len(question.rows[0]) for question in trie.first_token_questions()] == [128, 128, 44]


def test_a_longest_path_asks_for_everything_on_its_way_that_no_earlier_path_has():
    trie = ContinuationTrie([1], [[5, 6, 7, 8], [5, 6, 9], [5, 4, 3], [2, 2], [5]])
    assert list(trie.path_questions()) == [
        Question((2,), [[5, 2], [2]]),  # after the context 5 or 2, after 2 another 2
        Question((5, 4), [[6, 4], [3]]),  # what comes after the context is asked for above
        Question((5, 6, 7), [[7, 9], [8]]),
    ]


def test_rows_belong_to_the_last_beginnings_of_a_path():
    assert list(Question((5, 6, 7), [[7, 9], [8]]).paths()) == [((5, 6), [7, 9]), ((5, 6, 7), [8])]


def test_a_row_has_no_more_tokens_than_the_limit_and_the_rest_is_missing():
    trie = ContinuationTrie([1], [[token, 7] for token in range(130)])
    first = next(trie.path_questions())
    assert first == Question((0,), [[*range(128)], [7]])
    for path, tokens in first.paths():
        for token in tokens:
            trie.learn((*path, token), -1.0)
    assert next(trie.missing_questions()) == Question((), [[128, 129]])


def test_the_largest_sum_of_probabilities_is_that_of_the_tokens_after_one_path():
    trie = ContinuationTrie([0], [[1, 2], [3]])
    for path, prob in (((1,), 0.5), ((3,), 0.4), ((1, 2), 0.7)):
        trie.learn(path, math.log(prob))
    assert trie.largest_sum() == pytest.approx(0.5 + 0.4)  # at the start; 0.7 after the token 1
