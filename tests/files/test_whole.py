import errno
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl
import pytest

from evaluator.errors import WriteError
from evaluator.files import json_files, whole
from evaluator.store import kept


def test_a_write_that_fails_leaves_the_old_file_and_no_other(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def fail_midway():
        with whole.replacing(path) as file:
            file.write(b"half of the new one")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail_midway()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]
    assert json_files.read_json(tmp_path / "manifest.json") is None


def test_a_table_that_was_changed_since_it_was_recorded_stays(tmp_path):
    earlier = {name: whole.write_table(tmp_path, name, pl.DataFrame({"a": [1]})) for name in ("kept", "old", "changed")}
    whole.write_table(tmp_path, "changed", pl.DataFrame({"a": [2]}))
    whole.remove_tables(tmp_path, earlier | {"gone": ""}, ["kept"])
    assert sorted(os.listdir(tmp_path / "tables")) == ["changed.parquet", "kept.parquet"]


@pytest.mark.parametrize(
    ("n_bytes", "text"),
    [(1023, "1023 bytes"), (2**10, "1.0 KiB"), (2**20, "1.0 MiB"), (2**30, "1.0 GiB"), (3 * 2**29, "1.5 GiB")],
)
def test_sizes_have_the_largest_unit_that_they_reach(n_bytes, text):
    assert whole.size_text(n_bytes) == text


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
def test_a_disk_that_takes_no_more_is_one_sentence_and_leaves_the_old_file(tmp_path, monkeypatch, number):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def fail(_file: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(WriteError, match=rf"file cannot be written: {os.strerror(number)}"):
        whole.write_bytes(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def write(frame: pl.DataFrame, folder: Path) -> None:
    whole.write_table(folder, "numbers", frame)


def keep(frame: pl.DataFrame, folder: Path) -> None:
    with kept(frame.lazy(), folder):
        pass


def keep_slices(frame: pl.DataFrame, folder: Path) -> None:
    with kept([frame], folder, frame.schema):
        pass


@pytest.mark.parametrize("n_bytes", [0, 1000])
@pytest.mark.parametrize(
    "frame", [pl.DataFrame({"number": range(5000)}), pl.DataFrame({f"column {number}": [0] for number in range(40)})]
)
@pytest.mark.parametrize("writer", [write, keep, keep_slices])
def test_a_file_that_may_grow_no_further_is_one_sentence(
    tmp_path, writer: Callable[[pl.DataFrame, Path], None], frame: pl.DataFrame, n_bytes: int
):
    # The system refuses the writes of Polars itself, which no replaced function of Python sees. Of a wide table the
    # footer fails, of slices the file's buffer when it is closed.
    with file_size_limit(n_bytes), pytest.raises(WriteError, match=r"cannot be .*File too large"):
        writer(frame, tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@contextmanager
def file_size_limit(n_bytes: int) -> Iterator[None]:
    """Refuse this process larger files, as a quota does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP, errno.ENOSYS])
def test_a_file_system_that_flushes_no_folders_is_written_to(tmp_path, monkeypatch, number):
    def fail(file: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{file}"):
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)
    whole.write_bytes(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"new"


def test_a_file_system_that_renames_no_open_file_is_written_to(tmp_path, monkeypatch):
    rename, path = Path.replace, tmp_path / "file"

    def refuse_open(partial: Path, target: Path) -> Path:
        if str(partial) in {os.readlink(f"/proc/self/fd/{number}") for number in open_files()}:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(partial))
        return rename(partial, target)

    monkeypatch.setattr(Path, "replace", refuse_open)
    path.write_bytes(b"old")
    whole.write_bytes(path, b"new")
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["file"]


def open_files() -> list[str]:
    return [number for number in os.listdir("/proc/self/fd") if os.path.islink(f"/proc/self/fd/{number}")]


def test_a_folder_in_the_way_of_a_file_is_one_sentence_and_stays(tmp_path):
    (tmp_path / "file" / "inner").mkdir(parents=True)
    with pytest.raises(WriteError, match="file cannot be written: Is a directory"):
        whole.write_bytes(tmp_path / "file", b"new")
    with pytest.raises(WriteError, match=r"below cannot be written: File exists: .*plain"):
        whole.write_bytes(tmp_path / "plain" / "below", whole.write_bytes(tmp_path / "plain", b"").encode())
    assert sorted(os.listdir(tmp_path)) == ["file", "plain"]


@pytest.mark.parametrize("name", ["file", "é" * 127 + "x"])  # the second has 255 bytes, the most of a name
def test_two_writers_of_one_file_do_not_disturb_each_other(tmp_path, name):
    path = tmp_path / name
    with whole.replacing(path) as first, whole.replacing(path) as second:
        first.write(b"first")
        second.write(b"second")
    assert path.read_bytes() == b"first"  # whose writer ended last
    assert os.listdir(tmp_path) == [name]


def test_what_a_killed_writer_left_is_removed_and_what_is_being_written_is_not(tmp_path):
    dead = tmp_path / "tables" / f".a.parquet.0123abcd{whole.PARTIAL}"
    of_others = tmp_path / f".a{whole.PARTIAL}"
    dead.parent.mkdir()
    for path in (dead, of_others):
        path.write_bytes(b"half")
    with whole.replacing(tmp_path / "b") as file:
        file.write(b"whole")
        whole.remove_partial_files(tmp_path, "tables/")
    assert not dead.exists()
    assert of_others.exists()
    assert (tmp_path / "b").read_bytes() == b"whole"


@pytest.mark.parametrize("n_rows", [0, 1, 1000])
def test_rows_from_files_are_written_as_a_table_is(tmp_path, n_rows: int):
    table = pl.DataFrame(
        {"name": ["a", None] * n_rows, "numbers": [[0.5, 1.5], []] * n_rows},
        schema={"name": pl.String, "numbers": pl.List(pl.Float64)},
    )
    table.write_ipc(tmp_path / "rows.arrow")
    digest = whole.write_table(tmp_path, "table", table)
    assert whole.write_table(tmp_path, "rows", pl.scan_ipc(tmp_path / "rows.arrow")) == digest


def test_how_rows_are_cut_in_frames_does_not_change_a_long_table(tmp_path, monkeypatch):
    monkeypatch.setattr(whole, "ROWS_PER_GROUP", 64)
    table = pl.DataFrame({"number": range(300)})
    cuts = {
        whole.write_table(tmp_path, "rows", pl.concat([table[:cut], table[cut:]], rechunk=False).lazy())
        for cut in (1, 63, 64, 65, 200)
    }
    assert len(cuts) == 1
