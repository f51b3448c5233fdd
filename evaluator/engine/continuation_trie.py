"""Continuations of one context as a trie: a token after its own prefix is one node and has one log-probability.

So it does not matter which request to an engine brought a node, nor whether another brought it too.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

Path = tuple[int, ...]  # the tokens of a continuation up to some point; () is the end of the context


class NextTokenQuestion(NamedTuple):
    """What are the log-probabilities of these tokens right after context + path?"""

    path: Path
    token_ids: list[int]


class ContinuationTrie:
    """The continuations asked for after one context, and what is known of them so far."""

    def __init__(self, context: Sequence[int], continuations: Iterable[Sequence[int]]) -> None:
        self.context = list(context)
        self.continuations: dict[Path, None] = {}  # distinct, in the order asked
        self._children: dict[Path, dict[int, None]] = defaultdict(dict)
        self._log_probs: dict[Path, float] = {}
        self.extend(continuations)

    def extend(self, continuations: Iterable[Sequence[int]]) -> None:
        for continuation in map(tuple, continuations):
            self.continuations[continuation] = None
            for end in range(len(continuation)):
                self._children[continuation[:end]][continuation[end]] = None

    def learn(self, path: Path, log_prob: float) -> None:
        """Note the log-probability of a path's last token after the rest; the first that is brought stays."""
        self._log_probs.setdefault(path, log_prob)

    def first_token_questions(self, most_ids: int) -> Iterator[NextTokenQuestion]:
        yield from _chunked((), list(self._children[()]), most_ids)

    def missing_questions(self, most_ids: int) -> Iterator[NextTokenQuestion]:
        """Questions for all that is not known yet."""
        for path, tokens in self._children.items():
            yield from _chunked(path, [token for token in tokens if (*path, token) not in self._log_probs], most_ids)

    @property
    def is_complete(self) -> bool:
        return next(self.missing_questions(1), None) is None

    def token_log_probs(self, continuation: Sequence[int]) -> list[float]:
        """Log-probability (nats) of each token after those before it; KeyError while one is missing."""
        path = tuple(continuation)
        return [self._log_probs[path[:end]] for end in range(1, len(path) + 1)]


def _chunked(path: Path, token_ids: list[int], most_ids: int) -> Iterator[NextTokenQuestion]:
    for start in range(0, len(token_ids), most_ids):
        yield NextTokenQuestion(path, token_ids[start : start + most_ids])
