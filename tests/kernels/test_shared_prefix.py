"""Shared prefix lengths: the compiled kernel against its reference, and both against a comparison token by token."""

import logging
import operator
import subprocess
import sys
from collections.abc import Iterator
from itertools import takewhile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator_kernels import implementations, shared_prefix
from evaluator_kernels.shared_prefix import numba_kernel, reference, shared_prefix_lengths

INT32 = np.iinfo(np.int32)
KERNELS = [reference.shared_prefix_lengths, numba_kernel.shared_prefix_lengths, shared_prefix_lengths]

# Few different tokens, or random rows would share nothing; the extremes, where a subtraction would overflow.
tokens_ = st.sampled_from([0, 1, -1, INT32.min, INT32.max])
token_rows = st.lists(st.lists(tokens_, max_size=9), max_size=25)


def flat(rows):
    offsets = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    return np.array([token for row in rows for token in row], dtype=np.int32), offsets


@pytest.fixture
def fresh_choice() -> Iterator[None]:
    shared_prefix._kernel.cache_clear()
    yield
    shared_prefix._kernel.cache_clear()


@given(token_rows)
def test_every_implementation_gives_the_common_prefix_of_neighbours(rows):
    pairs = zip([[], *rows], rows, strict=False)
    expected = [len([*takewhile(bool, map(operator.eq, above, row))]) for above, row in pairs]
    for kernel in KERNELS:
        np.testing.assert_array_equal(kernel(*flat(rows)), np.array(expected, dtype=np.int32), strict=True)


def test_hand_worked_rows():
    rows = [[7, 8, 9], [7, 8], [7, 8], [], [7], [INT32.min, INT32.max], [INT32.min, INT32.max, 1], [INT32.max]]
    # No row above; 7 8; 7 8; nothing with an empty row, twice; 7 against min; the whole row above; min against max.
    assert shared_prefix_lengths(*flat(rows)).tolist() == [0, 2, 2, 0, 0, 0, 2, 0]


@pytest.mark.parametrize("rows", [[], [[]], [[], [], []], [[5]], [[5, 6, 7]]])
def test_rows_without_a_neighbour_or_without_tokens_share_nothing(rows):
    assert shared_prefix_lengths(*flat(rows)).tolist() == [0] * len(rows)


def test_kernel_agrees_with_the_reference_on_long_ragged_rows():
    random = np.random.default_rng(0)
    stems = random.integers(0, 2, size=(7, 1_009))
    rows = [[*stems[random.integers(7), : random.integers(1_010)], *random.integers(0, 2, 13)] for _ in range(997)]
    expected = reference.shared_prefix_lengths(*flat(rows))
    assert expected.max() > 500
    np.testing.assert_array_equal(numba_kernel.shared_prefix_lengths(*flat(rows)), expected, strict=True)


def test_rows_may_begin_and_end_inside_the_tokens_as_in_a_sliced_column():
    tokens, offsets = flat([[9, 9], [1, 2, 3], [1, 2], [9, 9]])
    assert shared_prefix_lengths(tokens, offsets[1:4]).tolist() == [0, 2]


def test_read_only_strided_and_unaligned_arrays_are_accepted():
    tokens, offsets = flat([[1, 2, 3], [1, 2, 4]])
    read_only = tokens.copy()
    read_only.flags.writeable = False
    unaligned = np.frombuffer(b"\0" + tokens.tobytes(), dtype=np.int32, offset=1)
    assert not unaligned.flags.aligned
    for same_tokens in (read_only, np.repeat(tokens, 2)[::2], unaligned):
        assert shared_prefix_lengths(same_tokens, offsets).tolist() == [0, 2]


@pytest.mark.parametrize(
    ("tokens", "offsets", "error", "message"),
    [
        (np.zeros(2, np.int64), np.array([0, 2]), TypeError, "tokens must be int32, got int64"),
        (np.zeros(2, np.int32), np.array([0, 2], np.int32), TypeError, "offsets must be int64, got int32"),
        (np.zeros((2, 1), np.int32), np.array([0, 2]), ValueError, r"tokens must have one axis, got shape \(2, 1\)"),
        (np.zeros(2, np.int32), np.array([[0, 2]]), ValueError, r"offsets must have one axis, got shape \(1, 2\)"),
        (np.zeros(2, np.int32), np.zeros(0, np.int64), ValueError, "offsets must hold n_rows"),
        (np.zeros(2, np.int32), np.array([-1, 2]), ValueError, "within the 2 tokens, got -1 to 2"),
        (np.zeros(2, np.int32), np.array([0, 3]), ValueError, "within the 2 tokens, got 0 to 3"),
        (np.zeros(2, np.int32), np.array([0, 1, 0, 2]), ValueError, "row 1 ends before it begins"),
        (np.zeros(2, np.int32), np.array([0, 9, 2]), ValueError, "row 1 ends before it begins"),
    ],
)
def test_what_is_not_a_flat_column_of_rows_is_refused(tokens, offsets, error, message):
    with pytest.raises(error, match=message):
        shared_prefix_lengths(tokens, offsets)


@pytest.mark.usefixtures("fresh_choice")
def test_the_compiled_kernel_is_chosen_where_numba_works():
    shared_prefix_lengths(*flat([[1, 2], [1, 3]]))
    assert implementations()["shared_prefix"] == "numba"


@pytest.mark.usefixtures("fresh_choice")
def test_without_numba_the_reference_is_used_and_logged_once(monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "evaluator_kernels.shared_prefix.numba_kernel", None)  # its import fails
    with caplog.at_level(logging.WARNING):
        answers = [shared_prefix_lengths(*flat([[1, 2], [1, 3]])).tolist() for _ in range(2)]
    assert answers == [[0, 1], [0, 1]]
    assert implementations()["shared_prefix"] == "numpy"
    assert [record.message.split(",")[0] for record in caplog.records] == [
        "Shared prefixes fall back to the NumPy reference"
    ]


def test_a_machine_where_no_compiled_code_can_be_cached_still_compiles_without_a_warning():
    # No folder that Numba knows for its cache can be written to: the same state as a read-only install and home.
    script = """if True:
        from numba.core.caching import _CacheLocator
        def refuse(self): raise PermissionError("read-only")
        _CacheLocator.ensure_cache_path = refuse
        import numpy as np
        from evaluator_kernels import implementations
        from evaluator_kernels.shared_prefix import numba_kernel, shared_prefix_lengths
        shared_prefix_lengths(np.array([1], np.int32), np.array([0, 1]))
        assert implementations() == {"shared_prefix": "numba"}
        assert not numba_kernel.shared_prefix_lengths.stats.cache_path
    """
    run = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")
