"""Rows in a temporary file without a name."""

from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from evaluator.errors import WriteError
from evaluator.store import kept, slices

ROWS = pl.DataFrame({"name": ["a", "b", None], "numbers": [[1.5], [], None]})


def test_rows_come_back_and_the_folder_stays_empty(tmp_path: Path):
    with kept(ROWS.lazy(), tmp_path) as rows:
        assert_frame_equal(rows.collect(), ROWS)
        assert list(tmp_path.iterdir()) == []


def test_frames_come_back_as_one(tmp_path: Path):
    with kept([ROWS, ROWS.clear(), ROWS], tmp_path, ROWS.schema) as rows:
        assert_frame_equal(rows.collect(), pl.concat([ROWS, ROWS]))


def test_without_frames_there_are_columns_and_no_rows(tmp_path: Path):
    with kept([], tmp_path, ROWS.schema) as rows:
        assert_frame_equal(rows.collect(), ROWS.clear())


@pytest.mark.parametrize("name", ["[a]", "*", "a?"])
def test_a_folder_whose_name_is_a_pattern_is_taken_literally(tmp_path: Path, name: str):
    (tmp_path / name).mkdir()
    with kept(ROWS.lazy(), tmp_path / name) as rows, kept([ROWS], tmp_path / name, ROWS.schema) as frames:
        assert_frame_equal(rows.collect(), frames.collect())


def test_what_fails_while_the_rows_are_read_is_not_taken_for_a_full_disk(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="elsewhere"), kept(ROWS.lazy(), tmp_path):
        raise FileNotFoundError("elsewhere")


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path):
    with pytest.raises(WriteError, match="missing"), kept(ROWS.lazy(), tmp_path / "missing"):
        pass


def test_slices_are_all_rows_in_order(tmp_path: Path):
    numbers = pl.DataFrame({"number": range(10)})
    with kept(numbers.lazy(), tmp_path) as rows:
        parts = list(slices(rows, 4))
    assert [part.height for part in parts] == [4, 4, 2]
    assert_frame_equal(pl.concat(parts), numbers)


def test_a_file_is_read_anew_where_an_earlier_one_is_gone(tmp_path: Path):
    for number in range(3):
        with kept(pl.LazyFrame({"number": [number]}), tmp_path) as rows:
            assert rows.collect().item() == number
