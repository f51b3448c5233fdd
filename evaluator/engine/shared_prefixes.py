"""Find the prefixes that are worth a request of their own before the contexts that share them.

A recurrent state sums up all tokens before it, and a cache keeps it for few places: of a prompt, near its end. Prompts
that go on differently after a shared beginning find no state there, unless that beginning was a prompt itself.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from evaluator.engine.block_index import n_shared

Tokens = Sequence[int]

_MIN_GAIN_TOKENS = 64  # saved by a prefix of its own; a request costs about as much


class _Shared(NamedTuple):
    """A beginning that neighbouring contexts share."""

    first: int
    last: int  # the context after the last one
    n_tokens: int


def shared_prefixes(contexts: Sequence[Tokens], unit: int) -> list[list[Tokens]]:
    """Return prompts to send before the contexts, in levels: those of a level begin with ones of earlier levels.

    Each is one token longer than what is shared: the state before the last token of a prompt is kept.

    Args:
        contexts: in prefix order; in another order fewer prefixes are found.
        unit: states are kept at multiples of so many tokens.
    """
    levels: list[list[Tokens]] = []
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


def _shared(contexts: Sequence[Tokens], unit: int) -> Iterator[_Shared]:
    """Yield the beginnings, in units, that save enough: counted from the longest shorter one of the same contexts."""
    lengths = [n_shared(one, other) // unit * unit for one, other in pairwise(contexts)]
    open_since = [(0, 0)]  # tokens, first context; longer ones last
    for place, n_tokens in enumerate([*lengths, 0], start=1):
        first = place - 1
        while open_since[-1][0] > n_tokens:
            longer, first = open_since.pop()
            shorter = max(n_tokens, open_since[-1][0])
            if (place - first - 1) * (longer - shorter) >= _MIN_GAIN_TOKENS:
                yield _Shared(first, place, longer)
        if open_since[-1][0] < n_tokens:
            open_since.append((n_tokens, first))
