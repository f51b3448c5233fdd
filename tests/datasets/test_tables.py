"""Which columns of a Parquet file are read, and files that are refused."""

from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evaluator.datasets.tables import read_columns, read_parquet, scan_columns
from evaluator.errors import DatasetError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    pl.DataFrame({"a": [1, 2], "b": ["x", "y"], "c": [0.5, 1.5]}).write_parquet(tmp_path / "rows.parquet")
    return tmp_path / "rows.parquet"


def test_the_columns_come_in_the_order_asked_for_and_others_are_left_out(path: Path) -> None:
    assert scan_columns(path, ["c", "a"]).collect().to_dict(as_series=False) == {"c": [0.5, 1.5], "a": [1, 2]}


def test_a_column_that_is_missing_is_named_with_those_that_are_there(path: Path) -> None:
    with pytest.raises(DatasetError, match=r"rows.parquet has no column 'd'. It has: a, b, c\."):
        scan_columns(path, ["a", "d"])


def test_a_file_that_is_no_parquet_is_refused(path: Path) -> None:
    path.write_text("a,b,c")
    with pytest.raises(DatasetError, match=r"rows.parquet cannot be read as Parquet"):
        scan_columns(path, ["a"])


def test_bytes_that_other_programs_keep_with_a_column_change_nothing(tmp_path: Path) -> None:
    field = pa.field("a", pa.int64(), metadata={b"origin\xff": b"\x00\xff"})
    pq.write_table(pa.table([[1, 2]], schema=pa.schema([field])), tmp_path / "rows.parquet")
    assert read_columns(tmp_path / "rows.parquet", ["a"])["a"].to_list() == [1, 2]


def test_a_parquet_file_may_have_any_name(path: Path) -> None:
    named = path.rename(path.with_name("rows.csv"))
    assert read_parquet(named, ["b"])["b"].to_list() == ["x", "y"]
    named.write_text("a,b\n1,x\n")
    with pytest.raises(DatasetError, match=r"rows.csv cannot be read as Parquet"):
        read_parquet(named, ["b"])
