"""Tokens that requests share: an index of cache blocks, shared prefixes to compute first, and tries of continuations.

In the trie of a context, every node is a token after a prefix, with one log-probability, whichever request returned it.
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
"""Minimum number of additional shared tokens for which a request waits for the step that computes them.

For a thousand SNLI prompts 1 or 8 tokens instead of 4 made a difference of 1%.
"""


MAX_SHARED_TOKENS, NO_REUSE = "max_shared_tokens", "no_reuse"
"""Keys of a request's `kv_transfer_params`.

MAX_SHARED_TOKENS: number of its tokens that may be taken from blocks of other requests; default: all but the last.
NO_REUSE: whether its last block is useless to other requests.
"""

_BLOCKS_PER_KEPT_BLOCK = 4
"""Number of cache blocks for which one partly filled block of a finished request may be kept."""


def max_kept_blocks(n_blocks: int) -> int:
    """Return the number of partly filled blocks of finished requests that a cache of `n_blocks` blocks keeps."""
    return n_blocks // _BLOCKS_PER_KEPT_BLOCK


class Match(NamedTuple):
    """A block whose first tokens are equal to the first of the requested tokens."""

    block: int
    n_tokens: int  # number of equal leading tokens


class BlockIndex:
    """An index of the blocks of one cache: the tokens computed in each block, and the prefix before them."""

    def __init__(self) -> None:
        self._after: dict[Hashable, list[tuple[Tokens, int]]] = {}  # prefix -> sorted (tokens, block) pairs
        self._entries: dict[int, tuple[Hashable, Tokens]] = {}  # block -> (prefix, tokens)

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
        """Return block -> (prefix, tokens). Raises AssertionError if the two tables of the index disagree."""
        rows = [(block, (prefix, tokens)) for prefix, after in self._after.items() for tokens, block in after]
        assert len(rows) == len(self._entries), f"{len(rows)} rows of {len(self._entries)} blocks"
        assert dict(rows) == self._entries, "rows and entries differ"
        assert all(after and after == sorted(after) for after in self._after.values()), "rows out of order"
        return dict(self._entries)

    def longest(self, prefix: Hashable, tokens: Tokens, holds: Callable[[int], bool]) -> Match | None:
        """Return the block after `prefix` that shares the most leading tokens with `tokens`, or None.

        Args:
            prefix: prefix before the block.
            tokens: requested tokens after the prefix.
            holds: returns whether a block still has its registered content; other blocks are removed.
        """
        # Rows are sorted, so one of the two rows next to the place of `tokens` shares the longest beginning.
        while rows := self._after.get(prefix):
            place = bisect_left(rows, (tokens, -1))
            neighbours = rows[max(0, place - 1) : place + 1]
            matches = [Match(block, n_shared(block_tokens, tokens)) for block_tokens, block in neighbours]
            best = max(matches, key=lambda match: match.n_tokens)
            if holds(best.block):
                return best if best.n_tokens else None
            self.discard(best.block)
        return None


_MIN_SAVED_TOKENS = 64  # minimum number of tokens that a request for a prefix must save, which is about its cost


def shared_prefixes(contexts: Sequence[Sequence[int]], unit: int) -> list[list[Sequence[int]]]:
    """Return the prompts to compute before the contexts, in levels: a prompt continues prompts of earlier levels.

    A recurrent state sums up all tokens before it, and a cache keeps states at only a few positions of a prompt, near
    its end. Prompts that differ after a shared prefix find no state at the end of this prefix, unless the prefix was a
    prompt itself. Such a prompt is one token longer than the prefix, because the cache keeps the state before the last
    token of a prompt.

    A group of consecutive contexts has a prompt if it saves at least _MIN_SAVED_TOKENS: the tokens that the group
    shares beyond the group around it, for each context but one.

    Args:
        contexts: token ids, in prefix order; in another order fewer prefixes are detected.
        unit: number of tokens; states are kept at multiples of it.
    """
    # Number of tokens that each context shares with the next one, in whole units.
    lengths = [n_shared(one, other) // unit * unit for one, other in pairwise(contexts)]
    # Groups that have a prompt: first context, index after the last, number of shared tokens.
    groups: list[tuple[int, int, int]] = []
    # Groups around the current pair of neighbours, the innermost last: number of shared tokens, first context.
    around = [(0, 0)]
    for end, shared in enumerate([*lengths, 0], start=1):
        first = end - 1
        while (group_shared := around[-1][0]) > shared:  # this group ends before the context `end`
            first = around.pop()[1]
            saved = (end - first - 1) * (group_shared - max(shared, around[-1][0]))
            if saved >= _MIN_SAVED_TOKENS:
                groups.append((first, end, group_shared))
        if shared > around[-1][0]:
            around.append((shared, first))

    levels = defaultdict[int, list[Sequence[int]]](list)
    ends: list[int] = []  # ends of the groups around a group, which come before it in this order
    for first, end, shared in sorted(groups, key=lambda group: (group[0], -group[1])):
        while ends and ends[-1] <= first:
            ends.pop()
        # In prefix order the last of the contexts is certainly longer than their shared prefix.
        levels[len(ends)].append(contexts[end - 1][: shared + 1])
        ends.append(end)
    return [*levels.values()]


MAX_IDS = 128  # vLLM's maximum number of tokens whose log-probabilities one request can return

TokenPath = tuple[int, ...]  # the first tokens of a continuation; () is the end of the context


class Question(NamedTuple):
    """A prompt of context + path, and the tokens whose log-probabilities are wanted at its last positions.

    The last row has the tokens wanted after the whole path, the row before it the tokens wanted after the path without
    its last token, and so on.
    """

    path: TokenPath
    rows: list[list[int]]

    def paths(self) -> Iterator[tuple[TokenPath, list[int]]]:
        """Yield the rows as (beginning of the path, tokens wanted after it)."""
        for end, tokens in enumerate(self.rows, start=len(self.path) - len(self.rows) + 1):
            yield self.path[:end], tokens


class ContinuationTrie:
    """The continuations to score after one context, and the log-probabilities received so far."""

    def __init__(self, context: Sequence[int], continuations: Iterable[Sequence[int]]) -> None:
        self.context = list(context)
        self.continuations: dict[TokenPath, None] = {}  # distinct, in the order in which they were added
        self._children: dict[TokenPath, dict[int, None]] = defaultdict(dict)  # path -> distinct next tokens
        self._log_probs: dict[TokenPath, float] = {}  # path -> log-probability of its last token, nats
        self.extend(continuations)

    def extend(self, continuations: Iterable[Sequence[int]]) -> None:
        """Add continuations and all of their tokens."""
        for continuation in map(tuple, continuations):
            self.continuations[continuation] = None
            for end in range(len(continuation)):
                self._children[continuation[:end]][continuation[end]] = None

    def learn(self, path: TokenPath, log_prob: float) -> None:
        """Store the log-probability (nats) of the last token of a path, unless one is stored already."""
        self._log_probs.setdefault(path, log_prob)

    def first_token_questions(self) -> Iterator[Question]:
        """Yield questions for the first tokens of all continuations, at most MAX_IDS tokens each."""
        yield from _one_row_each((), list(self._children[()]))

    def path_questions(self) -> Iterator[Question]:
        """Yield one question for each longest path, with a row for each beginning that no earlier question covers.

        The rows start where the path differs from all earlier paths. vLLM returns no rows for tokens that it reads from
        the prefix cache, and blocks of earlier paths end before these rows. A row has at most MAX_IDS tokens; the other
        tokens are left to missing_questions.
        """
        covered: set[TokenPath] = set()
        for path in sorted(self._children):  # paths with a common beginning are neighbours
            if any((*path, token) in self._children for token in self._children[path]):
                continue  # a longer path contains this one
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
        """Return the largest sum of probabilities of the tokens after one path: at most 1, except for rounding."""
        sums = (
            math.fsum(math.exp(self._log_probs[(*path, token)]) for token in tokens)
            for path, tokens in self._children.items()
        )
        return max(sums, default=0.0)

    def token_log_probs(self, continuation: Sequence[int]) -> list[float]:
        """Return the log-probability (nats) of each token of a continuation. Raises KeyError if it is not stored."""
        path = tuple(continuation)
        return [self._log_probs[path[:end]] for end in range(1, len(path) + 1)]


def _one_row_each(path: TokenPath, token_ids: list[int]) -> Iterator[Question]:
    for start in range(0, len(token_ids), MAX_IDS):
        yield Question(path, [token_ids[start : start + MAX_IDS]])
