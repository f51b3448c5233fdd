"""Rows in an unnamed temporary file."""

from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from evaluator.errors import WriteError
from evaluator.store.spool import spooled, spooled_frames

ROWS = pl.DataFrame({"name": ["a", "b", None], "numbers": [[1.5], [], None]})


def test_rows_come_back_and_the_folder_stays_empty(tmp_path: Path):
    with spooled(ROWS.lazy(), tmp_path) as rows:
        assert_frame_equal(rows.collect(), ROWS)
        assert list(tmp_path.iterdir()) == []


def test_frames_come_back_as_one(tmp_path: Path):
    with spooled_frames([ROWS, ROWS.clear(), ROWS], ROWS.schema, tmp_path) as rows:
        assert_frame_equal(rows.collect(), pl.concat([ROWS, ROWS]))


def test_without_frames_there_are_columns_and_no_rows(tmp_path: Path):
    with spooled_frames([], ROWS.schema, tmp_path) as rows:
        assert_frame_equal(rows.collect(), ROWS.clear())


@pytest.mark.parametrize("name", ["[a]", "*", "a?"])
def test_a_folder_whose_name_is_a_pattern_is_taken_literally(tmp_path: Path, name: str):
    (tmp_path / name).mkdir()
    with spooled(ROWS.lazy(), tmp_path / name) as rows, spooled_frames([ROWS], ROWS.schema, tmp_path / name) as frames:
        assert_frame_equal(rows.collect(), frames.collect())


def test_what_fails_while_the_rows_are_read_is_not_taken_for_a_full_disk(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="elsewhere"), spooled(ROWS.lazy(), tmp_path):
        raise FileNotFoundError("elsewhere")


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path):
    with pytest.raises(WriteError, match="missing"), spooled(ROWS.lazy(), tmp_path / "missing"):
        pass
