import pickle

import polars as pl
import pytest

from evaluator.tokens import rows as token_rows
from evaluator.tokens.rows import TokenRows
from tests.tokens.token_frames import token_table

TOKENS = token_table(*((f"p{i}", [i, i + 1], [[7], [8]]) for i in range(10)))


@pytest.fixture(params=[4, 3, 100])
def rows(tmp_path, monkeypatch, request):
    """The rows in three files, one of them empty, read in pieces of several sizes."""
    monkeypatch.setattr(token_rows, "ROWS_PER_SLICE", request.param)
    paths = [tmp_path / f"{start}.arrow" for start in (0, 4, 5)]
    for path, part in zip(paths, (TOKENS[:4], TOKENS[:0], TOKENS[4:]), strict=True):
        part.write_ipc(path)
    return TokenRows(pl.scan_ipc(paths))


def test_rows_of_shards_are_chosen_as_those_of_a_frame_are(rows):
    assert rows.frame().equals(TOKENS)
    odd = rows.filter(pl.col("context").list.first() % 2 == 1)
    assert odd.frame()["prompt_id"].to_list() == ["p1", "p3", "p5", "p7", "p9"]
    assert odd.column(pl.col("context").list.last()).to_list() == [2, 4, 6, 8, 10]
    middle = odd.slice(1, 3)
    assert middle.height == 3
    assert middle.frame()["prompt_id"].to_list() == ["p3", "p5", "p7"]
    assert middle.slice(3, 5).frame().equals(TOKENS[:0])
    true_or_null = pl.when(pl.col("context").list.first() > 7).then(True)
    assert rows.filter(true_or_null).frame()["prompt_id"].to_list() == ["p8", "p9"]


def test_a_pickle_holds_the_rows_for_hosts_that_have_no_files(rows, tmp_path):
    pickled = pickle.dumps(rows.slice(3, 4))
    for path in tmp_path.iterdir():
        path.unlink()
    assert pickle.loads(pickled).frame().equals(TOKENS[3:7])


def test_a_piece_is_read_once_for_neighbouring_slices(monkeypatch):
    """Each job of a run takes some rows of one piece, whichever it is."""
    monkeypatch.setattr(token_rows, "ROWS_PER_SLICE", 4)
    reads = []
    noted = TOKENS.lazy().map_batches(lambda frame: (reads.append(frame.height), frame)[1])
    rows = TokenRows(noted)
    reads.clear()
    pieces = [rows.slice(first, 2).frame() for first in range(0, 10, 2)]
    assert len(reads) == 3
    assert pl.concat(pieces).equals(TOKENS)
    assert rows.slice(10, 2).frame().equals(TOKENS[:0])
    rows.slice(0, 2).frame()
    assert len(reads) == 4, "only the last piece is in memory"
