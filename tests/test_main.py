"""What happens before a command is imported."""

import os

import pytest

from evaluator.__main__ import ALLOCATOR, TABLE_MEMORY, main


@pytest.fixture(autouse=True)
def help_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["evaluator", "--help"])
    monkeypatch.setattr("evaluator.garbage.set_aside", lambda: None)
    monkeypatch.setenv(ALLOCATOR, "")
    monkeypatch.setenv(TABLE_MEMORY, "200")


def test_freed_memory_goes_back_to_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ALLOCATOR)
    with pytest.raises(SystemExit):
        main()
    assert os.environ[ALLOCATOR] == "muzzy_decay_ms:0"


def test_large_tables_are_sorted_and_joined_in_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TABLE_MEMORY)
    with pytest.raises(SystemExit):
        main()
    assert os.environ[TABLE_MEMORY] == "200"


def test_settings_of_the_user_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ALLOCATOR, "muzzy_decay_ms:10")
    with pytest.raises(SystemExit):
        main()
    assert os.environ[ALLOCATOR] == "muzzy_decay_ms:10"
