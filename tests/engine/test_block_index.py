"""Which block begins like the tokens that are asked for, against looking at every one."""

from hypothesis import given
from hypothesis import strategies as st

from evaluator.engine.prefixes import BlockIndex, Match
from evaluator.tokens.boundary import n_shared

tokens = st.lists(st.integers(0, 2), max_size=6).map(tuple)
prefixes = st.sampled_from([b"", b"a"])
blocks = st.integers(0, 5)


@given(added=st.lists(st.tuples(prefixes, tokens, blocks), max_size=12), gone=st.sets(blocks), asked=tokens)
def test_the_longest_shared_beginning_is_found_among_blocks_that_still_hold_their_tokens(
    added: list[tuple[bytes, tuple[int, ...], int]], gone: set[int], asked: tuple[int, ...]
) -> None:
    index = BlockIndex()
    for prefix, own, block in added:
        index.add(prefix, own, block)
    holds = {block: own for prefix, own, block in added}
    behind = {block: prefix for prefix, _, block in added}  # the last thing said of a block counts
    for prefix in (b"", b"a"):
        shared = {
            block: max(n for n in range(len(asked) + 1) if own[:n] == asked[:n])
            for block, own in holds.items()
            if behind[block] == prefix and block not in gone
        }
        found = index.longest(prefix, asked, lambda block: block not in gone)
        most = max(shared.values(), default=0)
        assert (found.n_tokens if found else 0) == most
        if found:
            assert shared[found.block] == most


def test_a_block_has_the_content_registered_last_and_is_not_found_after_it_is_discarded() -> None:
    index = BlockIndex()
    index.add(b"", (1, 2, 3), 7)
    index.add(b"a", (1, 2, 4), 7)
    assert index.longest(b"", (1, 2, 3), lambda _: True) is None
    assert index.longest(b"a", (1, 2, 3), lambda _: True) == Match(7, 2)
    index.discard(7)
    assert 7 not in index
    assert index.longest(b"a", (1, 2, 3), lambda _: True) is None
    index.add(b"", (1,), 3)
    index.clear()
    assert 3 not in index


def test_rows_share_the_tokens_before_their_first_difference() -> None:
    assert n_shared([1, 2, 3], (1, 2, 4, 5)) == 2
    assert n_shared([], [1]) == 0
