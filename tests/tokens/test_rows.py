import pickle

import numpy as np
import polars as pl
import pytest

from evaluator.tokens.rows import Shards, TokenRows
from tests.tokens.token_frames import token_table

TOKENS = token_table(*((f"p{i}", [i, i + 1], [[7], [8]]) for i in range(10)))


@pytest.fixture
def rows(tmp_path):
    """The rows in three shards, one of them empty."""
    paths = [tmp_path / f"{start}.arrow" for start in (0, 4, 5)]
    for path, part in zip(paths, (TOKENS[:4], TOKENS[:0], TOKENS[4:]), strict=True):
        part.write_ipc(path)
    return TokenRows.of_shards([pl.scan_ipc(path) for path in paths])


def test_rows_of_shards_are_chosen_as_those_of_a_frame_are(rows):
    assert rows.frame().equals(TOKENS)
    assert [part.height for part in rows.frames()] == [4, 6]
    odd = rows.filter(pl.col("context").list.first() % 2 == 1)
    assert odd.frame()["prompt_id"].to_list() == ["p1", "p3", "p5", "p7", "p9"]
    assert odd.column(pl.col("context").list.last()).to_list() == [2, 4, 6, 8, 10]
    middle = odd.slice(1, 3)
    assert middle.height == 3
    assert middle.frame()["prompt_id"].to_list() == ["p3", "p5", "p7"]
    assert middle.slice(3, 5).frame().equals(TOKENS[:0])


def test_a_pickle_holds_the_rows_for_hosts_that_have_no_files(rows, tmp_path):
    pickled = pickle.dumps(rows.slice(3, 4))
    for path in tmp_path.iterdir():
        path.unlink()
    assert pickle.loads(pickled).frame().equals(TOKENS[3:7])


def test_a_shard_is_read_once_for_neighbouring_pieces():
    """Each job of a run takes some rows of one shard, whichever it is."""
    reads = []
    parts = [TOKENS[:4], TOKENS[4:]]
    noted = [part.lazy().map_batches(lambda frame, n=n: (reads.append(n), frame)[1]) for n, part in enumerate(parts)]
    rows = TokenRows(Shards(noted), enumerate([np.arange(4, dtype=np.int32), np.arange(6, dtype=np.int32)]))
    pieces = [rows.slice(first, 2).frame() for first in range(0, 10, 2)]
    assert reads == [0, 1]
    assert pl.concat(pieces).equals(TOKENS)
    assert rows.slice(10, 2).frame().equals(TOKENS[:0])
