import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import NoReturn

import pyarrow as pa
import pytest

from evaluator.datasets.base import cached_table
from evaluator.errors import DatasetError

COLUMNS = {"texts": [["a"], ["needle"], [""]], "gold": [0, 1, 1]}
TABLE = pa.table(COLUMNS)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the files come to lie; the folder above it does not exist yet."""
    monkeypatch.setenv("EVALUATOR_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "datasets"


def convert() -> pa.Table:
    return TABLE


def only_file(folder: Path) -> Path:
    (path,) = folder.iterdir()
    assert path.name.startswith("key.")
    return path


def never() -> NoReturn:
    raise AssertionError("converted a second time")


def test_a_table_is_converted_once_and_then_read(folder: Path):
    assert cached_table("key", convert).equals(TABLE)
    assert cached_table("key", never).equals(TABLE)
    only_file(folder)


@pytest.mark.usefixtures("folder")
def test_another_key_is_another_table():
    other = TABLE.slice(1)
    cached_table("key", convert)
    assert cached_table("other", lambda: other).equals(other)
    assert cached_table("key", never).equals(TABLE)


def test_the_file_can_be_opened_by_any_arrow_reader(folder: Path):
    cached_table("key", convert)
    assert pa.ipc.open_file(only_file(folder)).read_all().equals(TABLE)


def test_conversion_gives_the_same_bytes_every_time(folder: Path):
    cached_table("one", convert)
    cached_table("two", lambda: pa.table(COLUMNS))
    one, two = sorted(folder.iterdir())
    assert one.read_bytes() == two.read_bytes()


def test_no_damage_to_the_file_ever_changes_the_rows(folder: Path):
    cached_table("key", convert)
    path = only_file(folder)
    whole = path.read_bytes()
    for place in range(0, len(whole), 3):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x41]) + whole[place + 1 :])
        assert cached_table("key", convert).equals(TABLE), f"byte {place}"


def test_a_damaged_file_is_replaced_and_the_log_says_so(folder: Path, caplog: pytest.LogCaptureFixture):
    cached_table("key", convert)
    path = only_file(folder)
    whole = path.read_bytes()
    text = whole.index(b"needle")
    for damaged in (b"", whole[: len(whole) // 2], whole[:text] + b"noodle" + whole[text + 6 :]):
        path.write_bytes(damaged)
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            assert cached_table("key", convert).equals(TABLE)
        assert f"{path} has changed since it was written" in caplog.text
        assert only_file(folder) == path
        assert path.read_bytes() == whole


def test_a_conversion_that_fails_leaves_nothing(folder: Path):
    def fail() -> NoReturn:
        raise DatasetError("malformed")

    with pytest.raises(DatasetError, match="malformed"):
        cached_table("key", fail)
    assert not folder.exists()


def test_a_write_that_fails_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch):
    def full(_handle: int) -> NoReturn:
        raise OSError("No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(DatasetError, match=r"No space left on device.*set EVALUATOR_CACHE"):
        cached_table("key", convert)
    assert list(folder.iterdir()) == []


def test_many_may_convert_at_once(folder: Path):
    together = Barrier(8)

    def convert_together() -> pa.Table:
        together.wait()
        return TABLE

    with ThreadPoolExecutor(8) as pool:
        tables = list(pool.map(lambda _: cached_table("key", convert_together), range(8)))
    assert all(table.equals(TABLE) for table in tables)
    only_file(folder)
    assert cached_table("key", never).equals(TABLE)


def test_a_cache_folder_that_cannot_be_made_is_an_error_that_names_the_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "file").touch()
    monkeypatch.setenv("EVALUATOR_CACHE", str(tmp_path / "file"))
    with pytest.raises(DatasetError, match="set EVALUATOR_CACHE"):
        cached_table("key", convert)
