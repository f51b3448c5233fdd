"""What requests share: blocks of the cache that a prompt can continue, prefixes worth a request, and tries.

In the trie of a context a token after its prefix is one node with one log-probability, whichever request returned it.
"""

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from evaluator.tokens.boundary import n_shared

Tokens = tuple[int, ...]

MIN_GAIN_TOKENS = 4
"""Minimum number of shared tokens for which a request waits for the step that computes them.

For a thousand SNLI prompts 1 or 8 tokens instead of 4 made a difference of 1%.
"""


MAX_SHARED_TOKENS, NO_REUSE = "max_shared_tokens", "no_reuse"
"""Keys of a request's `kv_transfer_params`: how many of its tokens may be taken from blocks of other requests (all but
the last if left out); whether its last block is useless to other requests."""

_BLOCKS_PER_KEPT_BLOCK = 4
"""At most one in so many blocks of the cache holds the last, partly filled block of a finished request."""


def max_kept_blocks(n_blocks: int) -> int:
    """Return the number of partly filled blocks of finished requests that a cache of `n_blocks` blocks keeps."""
    return n_blocks // _BLOCKS_PER_KEPT_BLOCK


class Match(NamedTuple):
    """A block that begins with the same tokens as the requested ones."""

    block: int
    n_tokens: int  # number of equal leading tokens


class BlockIndex:
    """Blocks of one cache, with the tokens computed in each block and the prefix that precedes them."""

    def __init__(self) -> None:
        self._after: dict[Hashable, list[tuple[Tokens, int]]] = {}  # prefix -> sorted (tokens, block) pairs
        self._entries: dict[int, tuple[Hashable, Tokens]] = {}

    def __contains__(self, block: int) -> bool:
        return block in self._entries

    def add(self, prefix: Hashable, tokens: Tokens, block: int) -> None:
        """Register the content of a block, in place of its earlier content."""
        self.discard(block)
        self._entries[block] = (prefix, tokens)
        rows = self._after.setdefault(prefix, [])
        rows.insert(bisect_left(rows, (tokens, block)), (tokens, block))

    def discard(self, block: int) -> None:
        """Remove a block if it is registered."""
        if (entry := self._entries.pop(block, None)) is not None:
            prefix, tokens = entry
            rows = self._after[prefix]
            del rows[bisect_left(rows, (tokens, block))]
            if not rows:
                del self._after[prefix]

    def clear(self) -> None:
        self._after.clear()
        self._entries.clear()

    def entries(self) -> dict[int, tuple[Hashable, Tokens]]:
        """Return the prefix and tokens of every block. Raises AssertionError if the two ways of finding one differ."""
        rows = [(block, (prefix, tokens)) for prefix, after in self._after.items() for tokens, block in after]
        assert len(rows) == len(self._entries), f"{len(rows)} rows of {len(self._entries)} blocks"
        assert dict(rows) == self._entries, "rows and entries differ"
        assert all(after and after == sorted(after) for after in self._after.values()), "rows out of order"
        return dict(self._entries)

    def longest(self, prefix: Hashable, tokens: Tokens, holds: Callable[[int], bool]) -> Match | None:
        """Return the block after `prefix` that shares the most leading tokens with `tokens`, or None.

        Args:
            prefix: of the block.
            tokens: after the prefix.
            holds: returns whether a block still has its registered content; blocks that do not are removed.
        """
        # Rows are sorted, so the longest shared beginning is that of one of the two neighbours.
        while rows := self._after.get(prefix):
            place = bisect_left(rows, (tokens, -1))
            neighbours = rows[max(0, place - 1) : place + 1]
            matches = [Match(block, n_shared(block_tokens, tokens)) for block_tokens, block in neighbours]
            best = max(matches, key=lambda match: match.n_tokens)
            if holds(best.block):
                return best if best.n_tokens else None
            self.discard(best.block)
        return None


_MIN_SAVED_TOKENS = 64  # saved by a prefix of its own; a request costs about as much


class _Shared(NamedTuple):
    """A beginning that neighbouring contexts share."""

    first: int
    last: int  # the context after the last one
    n_tokens: int


def shared_prefixes(contexts: Sequence[Sequence[int]], unit: int) -> list[list[Sequence[int]]]:
    """Return prompts to send before the contexts, in levels: a prompt begins with prompts of earlier levels.

    A recurrent state sums up all tokens before it, and a cache keeps it for few places of a prompt, near its end.
    Prompts that go on differently after a shared beginning find no state there, unless that beginning was a prompt
    itself. Such a prompt is one token longer than what is shared: the state before the last token of a prompt is kept.

    Args:
        contexts: token ids, in prefix order; in another order fewer prefixes are found.
        unit: states are kept at multiples of so many tokens.
    """
    levels: list[list[Sequence[int]]] = []
    around: list[_Shared] = []
    for shared in sorted(_shared(contexts, unit), key=lambda shared: (shared.first, shared.n_tokens)):
        while around and around[-1].last <= shared.first:
            around.pop()
        if len(levels) == len(around):
            levels.append([])
        # The last of them in prefix order is the one that is surely longer.
        levels[len(around)].append(contexts[shared.last - 1][: shared.n_tokens + 1])
        around.append(shared)
    return levels


def _shared(contexts: Sequence[Sequence[int]], unit: int) -> Iterator[_Shared]:
    """Yield the beginnings, in units, that save enough: counted from the longest shorter one of the same contexts."""
    lengths = [n_shared(one, other) // unit * unit for one, other in pairwise(contexts)]
    open_since = [(0, 0)]  # tokens, first context; longer ones last
    for place, n_tokens in enumerate([*lengths, 0], start=1):
        first = place - 1
        while open_since[-1][0] > n_tokens:
            longer, first = open_since.pop()
            shorter = max(n_tokens, open_since[-1][0])
            if (place - first - 1) * (longer - shorter) >= _MIN_SAVED_TOKENS:
                yield _Shared(first, place, longer)
        if open_since[-1][0] < n_tokens:
            open_since.append((n_tokens, first))


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
        for end, tokens in enumerate(self.rows, start=len(self.path) - len(self.rows) + 1):
            yield self.path[:end], tokens


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

    def first_token_questions(self) -> Iterator[Question]:
        """Yield questions for the first tokens of all continuations, at most MAX_IDS tokens each."""
        yield from _one_row_each((), list(self._children[()]))

    def path_questions(self) -> Iterator[Question]:
        """Yield one question for each longest path, with a row for each of its beginnings that no earlier one has.

        A path differs from every earlier one before the first of its rows, so a prefix cache with blocks of earlier
        ones hides none of them. A row has at most MAX_IDS tokens; others are left to missing_questions.
        """
        covered: set[TokenPath] = set()
        for path in sorted(self._children):  # paths with a common beginning are neighbours
            if any((*path, token) in self._children for token in self._children[path]):
                continue  # the beginning of a longer path
            beginnings = [path[:end] for end in range(len(path) + 1) if path[:end] not in covered]
            covered.update(beginnings)
            yield Question(path, [list(self._children[beginning])[:MAX_IDS] for beginning in beginnings])

    def missing_questions(self) -> Iterator[Question]:
        """Yield questions for all log-probabilities that are not stored yet, at most MAX_IDS tokens each."""
        for path, tokens in self._children.items():
            missing = [token for token in tokens if (*path, token) not in self._log_probs]
            yield from _one_row_each(path, missing)

    @property
    def is_complete(self) -> bool:
        """Whether every token has its log-probability."""
        return next(self.missing_questions(), None) is None

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


def _one_row_each(path: TokenPath, token_ids: list[int]) -> Iterator[Question]:
    for start in range(0, len(token_ids), MAX_IDS):
        yield Question(path, [token_ids[start : start + MAX_IDS]])
