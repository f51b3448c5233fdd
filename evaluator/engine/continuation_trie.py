"""The continuations of one context as a trie, whose nodes hold token log-probabilities.

A token after its prefix is one node with one log-probability, whichever request to vLLM returned it.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

TokenPath = tuple[int, ...]  # the first tokens of a continuation; () is the end of the context


class NextTokenQuestion(NamedTuple):
    """A query for the log-probabilities of these tokens right after context + path."""

    path: TokenPath
    token_ids: list[int]


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

    def first_token_questions(self, max_ids: int) -> Iterator[NextTokenQuestion]:
        """Yield questions for the first tokens of all continuations, at most `max_ids` tokens each."""
        yield from _chunked((), list(self._children[()]), max_ids)

    def missing_questions(self, max_ids: int) -> Iterator[NextTokenQuestion]:
        """Yield questions for all log-probabilities that are not stored yet, at most `max_ids` tokens each."""
        for path, tokens in self._children.items():
            yield from _chunked(path, [token for token in tokens if (*path, token) not in self._log_probs], max_ids)

    @property
    def is_complete(self) -> bool:
        """Whether every token has its log-probability."""
        return next(self.missing_questions(1), None) is None

    def token_log_probs(self, continuation: Sequence[int]) -> list[float]:
        """Return the log-probability (nats) of each token of a continuation. Raises KeyError if one is missing."""
        path = tuple(continuation)
        return [self._log_probs[path[:end]] for end in range(1, len(path) + 1)]


def _chunked(path: TokenPath, token_ids: list[int], max_ids: int) -> Iterator[NextTokenQuestion]:
    for start in range(0, len(token_ids), max_ids):
        yield NextTokenQuestion(path, token_ids[start : start + max_ids])
