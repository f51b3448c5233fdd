"""Prefixes that prompts share: the computed cache block that a prompt can continue, and prefixes worth a request."""

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

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
        """Register the content of a block, replacing what was registered before."""
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


def n_shared(a: Sequence[int], b: Sequence[int]) -> int:
    """Return the number of leading tokens that two sequences share."""
    for n, (one, other) in enumerate(zip(a, b, strict=False)):
        if one != other:
            return n
    return min(len(a), len(b))


_MIN_SAVED_TOKENS = 64  # saved by a prefix of its own; a request costs about as much


class _Shared(NamedTuple):
    """A beginning that neighbouring contexts share."""

    first: int
    last: int  # the context after the last one
    n_tokens: int


def shared_prefixes(contexts: Sequence[Sequence[int]], unit: int) -> list[list[Sequence[int]]]:
    """Return prompts to send before the contexts, in levels: those of a level begin with ones of earlier levels.

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
