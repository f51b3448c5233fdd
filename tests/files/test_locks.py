"""A folder has one writer at a time, and what stands in the way of a lock is one sentence."""

import filelock
import pytest

from evaluator.errors import ConfigError, OutputInUseError
from evaluator.files.locks import acquire_lock, writing_to


def test_a_second_writer_is_refused_until_the_first_has_ended(tmp_path):
    refused = pytest.raises(OutputInUseError, match="Another process is writing to")
    with writing_to(tmp_path / "out"), refused, writing_to(tmp_path / "out"):
        raise AssertionError("two writers")
    with writing_to(tmp_path / "out"):
        pass


def test_a_file_system_without_locks_is_named(tmp_path, monkeypatch):
    def refuse(*_arguments: object, **_options: object) -> None:
        raise NotImplementedError("FileSystem does not appear to support flock")

    monkeypatch.setattr(filelock.FileLock, "acquire", refuse)
    with pytest.raises(OSError, match="no locks"):
        acquire_lock(tmp_path / ".lock")
    with (
        pytest.raises(ConfigError, match=r"cannot be written to: .*no locks.*Choose another folder"),
        writing_to(tmp_path),
    ):
        raise AssertionError("there was no lock")


def test_a_lock_that_ends_with_an_error_leaves_no_folder(tmp_path):
    with pytest.raises(ValueError, match="stop"), acquire_lock(tmp_path / "new" / "folder" / ".lock"):
        raise ValueError("stop")
    assert not (tmp_path / "new").exists()
