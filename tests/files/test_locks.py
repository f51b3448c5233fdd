"""A folder has one writer at a time, and what stands in the way of a lock is one sentence."""

import errno
import os

import filelock
import pytest

from evaluator.errors import ConfigError, OutputInUseError
from evaluator.files.whole import acquire_lock, writing_to


def test_a_second_writer_is_refused_until_the_first_has_ended(tmp_path):
    refused = pytest.raises(OutputInUseError, match=r"Another process is writing to .* another folder with --out")
    with writing_to(tmp_path / "out"), refused, writing_to(tmp_path / "out"):
        raise AssertionError("two writers")
    refused = pytest.raises(OutputInUseError, match=r"Another process is writing to .*\. Wait for it, or stop it\.$")
    with writing_to(tmp_path / "out"), refused, writing_to(tmp_path / "out", holds_run=True):
        raise AssertionError("two writers")
    with writing_to(tmp_path / "out"):
        pass


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOTSUP, errno.EINVAL, None])
def test_a_file_system_without_locks_is_written_to_with_a_warning(tmp_path, monkeypatch, caplog, number):
    def refuse(*_arguments: object, **_options: object) -> None:
        raise OSError(number, os.strerror(number)) if number else NotImplementedError("no flock")

    monkeypatch.setattr(filelock.FileLock, "acquire", refuse)
    with writing_to(tmp_path / "out"):
        assert f"{tmp_path / 'out'} is on a file system without locks: let one process at a time" in caplog.text


def test_a_lock_that_fails_for_another_reason_is_one_sentence(tmp_path, monkeypatch):
    def refuse(*_arguments: object, **_options: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(filelock.FileLock, "acquire", refuse)
    refused = pytest.raises(ConfigError, match=r"cannot be written to: .*Choose another folder with --out")
    with refused, writing_to(tmp_path):
        raise AssertionError("there was no lock")


def test_a_lock_that_ends_with_an_error_leaves_no_folder(tmp_path):
    with pytest.raises(ValueError, match="stop"), acquire_lock(tmp_path / "new" / "folder" / ".lock"):
        raise ValueError("stop")
    assert not (tmp_path / "new").exists()
