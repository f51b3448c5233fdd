"""Computed cache blocks by what they hold: a prefix and the tokens after it enter, a block that begins alike leaves."""

from bisect import bisect_left
from collections.abc import Callable, Hashable, Sequence
from itertools import takewhile
from typing import NamedTuple

Tokens = tuple[int, ...]


class Match(NamedTuple):
    """A block that begins as was asked."""

    block: int
    n_tokens: int  # that are alike; 1 or more


class BlockIndex:
    """Blocks of one cache, each with the tokens that were computed in it and the prefix that they stand behind."""

    def __init__(self) -> None:
        self._behind: dict[Hashable, list[tuple[Tokens, int]]] = {}  # prefix -> tokens and block, sorted
        self._entries: dict[int, tuple[Hashable, Tokens]] = {}

    def __contains__(self, block: int) -> bool:
        return block in self._entries

    def add(self, prefix: Hashable, tokens: Tokens, block: int) -> None:
        """Say what a block holds now, whatever it held before."""
        self.discard(block)
        self._entries[block] = (prefix, tokens)
        rows = self._behind.setdefault(prefix, [])
        rows.insert(bisect_left(rows, (tokens, block)), (tokens, block))

    def discard(self, block: int) -> None:
        """Forget a block, known or not."""
        if (entry := self._entries.pop(block, None)) is not None:
            prefix, tokens = entry
            rows = self._behind[prefix]
            del rows[bisect_left(rows, (tokens, block))]
            if not rows:
                del self._behind[prefix]

    def clear(self) -> None:
        self._behind.clear()
        self._entries.clear()

    def longest(self, prefix: Hashable, tokens: Tokens, holds: Callable[[int], bool]) -> Match | None:
        """The block behind `prefix` that shares most of `tokens` from the first on; None where none shares any.

        Args:
            holds: whether a block still holds what it was added with. One that does not is forgotten.
        """
        # Sorted, so the longest shared beginning is that of a neighbour.
        while rows := self._behind.get(prefix):
            place = bisect_left(rows, (tokens, -1))
            matches = [Match(block, n_shared(own, tokens)) for own, block in rows[max(0, place - 1) : place + 1]]
            best = max(matches, key=lambda match: match.n_tokens)
            if holds(best.block):
                return best if best.n_tokens else None
            self.discard(best.block)
        return None


def n_shared(a: Sequence[int], b: Sequence[int]) -> int:
    """How many tokens two rows have in common before they part."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))
