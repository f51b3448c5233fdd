"""The continuations of one context as a trie, whose nodes hold token log-probabilities.

A token after its prefix is one node with one log-probability, whichever request to vLLM returned it.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

MAX_IDS = 128  # vLLM's limit on the tokens whose log-probabilities one request can return

TokenPath = tuple[int, ...]  # the first tokens of a continuation; () is the end of the context


class Question(NamedTuple):
    """A prompt of context + path, and the tokens whose log-probabilities are wanted at its last positions.

    The last row has the tokens wanted after the whole path, the row before it those wanted after the path without its
    last token, and so on.
    """

    path: TokenPath
    rows: list[list[int]]

    def paths(self) -> Iterator[tuple[TokenPath, list[int]]]:
        """Yield each row with the beginning of the path that its tokens follow."""
        for n_dropped, tokens in zip(range(len(self.rows) - 1, -1, -1), self.rows, strict=True):
            yield self.path[: len(self.path) - n_dropped], tokens


class ContinuationTrie:
    """The continuations to score after one context, and the log-probabilities received so far."""

    def __init__(self, context: Sequence[int], continuations: Iterable[Sequence[int]]) -> None:
        self.context = list(context)
        self.continuations: dict[TokenPath, None] = {}  # distinct, in the order in which they were added
        self._children: dict[TokenPath, dict[int, None]] = defaultdict(dict)
        self._log_probs: dict[TokenPath, float] = {}
        self.extend(continuations)

    def extend(self, continuations: Iterable[Sequence[int]]) -> None:
        """Add continuations and all of their tokens."""
        for continuation in map(tuple, continuations):
            self.continuations[continuation] = None
            for end in range(len(continuation)):
                self._children[continuation[:end]][continuation[end]] = None

    def learn(self, path: TokenPath, log_prob: float) -> None:
        """Store the log-probability of the last token of a path; a value stored earlier stays."""
        self._log_probs.setdefault(path, log_prob)

    def first_token_questions(self, max_ids: int) -> Iterator[Question]:
        """Yield questions for the first tokens of all continuations, at most `max_ids` tokens each."""
        yield from _one_row_each((), list(self._children[()]), max_ids)

    def path_questions(self, max_ids: int) -> Iterator[Question]:
        """Yield one question for each longest path, with a row for each of its beginnings that no earlier one has.

        A path differs from every earlier one before the first of its rows, so a prefix cache with blocks of earlier
        ones hides none of them. A row has at most `max_ids` tokens; others are left to missing_questions.
        """
        covered: set[TokenPath] = set()
        for path in sorted(self._children):  # paths with a common beginning are neighbours
            if any((*path, token) in self._children for token in self._children[path]):
                continue  # the beginning of a longer path
            beginnings = [path[:end] for end in range(len(path) + 1) if path[:end] not in covered]
            covered.update(beginnings)
            yield Question(path, [list(self._children[beginning])[:max_ids] for beginning in beginnings])

    def missing_questions(self, max_ids: int) -> Iterator[Question]:
        """Yield questions for all log-probabilities that are not stored yet, at most `max_ids` tokens each."""
        for path, tokens in self._children.items():
            missing = [token for token in tokens if (*path, token) not in self._log_probs]
            yield from _one_row_each(path, missing, max_ids)

    @property
    def is_complete(self) -> bool:
        """Whether every token has its log-probability."""
        return next(self.missing_questions(1), None) is None

    def largest_sum(self) -> float:
        """Return the largest sum of the probabilities of the tokens that follow one path: at most 1 and rounding."""
        sums = (
            math.fsum(math.exp(self._log_probs[(*path, token)]) for token in tokens)
            for path, tokens in self._children.items()
        )
        return max(sums, default=0.0)

    def token_log_probs(self, continuation: Sequence[int]) -> list[float]:
        """Return the log-probability (nats) of each token of a continuation. Raises KeyError if one is missing."""
        path = tuple(continuation)
        return [self._log_probs[path[:end]] for end in range(1, len(path) + 1)]


def _one_row_each(path: TokenPath, token_ids: list[int], max_ids: int) -> Iterator[Question]:
    for start in range(0, len(token_ids), max_ids):
        yield Question(path, [token_ids[start : start + max_ids]])
