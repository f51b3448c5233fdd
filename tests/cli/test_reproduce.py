"""`evaluator reproduce` as a user types it; what each paper's tables are is tested under tests/reproductions."""

from pathlib import Path

import pytest

from evaluator.reproductions import REPRODUCTIONS
from evaluator.reproductions.base import text_table
from tests.command_line import command_outputs


def without_space(text: str) -> str:
    return "".join(text.split())  # the help breaks lines at hyphens


def test_help_lists_every_reproduction_with_the_files_that_it_needs() -> None:
    said = without_space(command_outputs("reproduce", "--help").out)
    for name, load in REPRODUCTIONS.items():
        assert name in said
        assert without_space(load().title) in said
        assert all(file.name in said for file in load().files)


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    said = command_outputs("reproduce", "lu-2024", "--data", "x", "--out", "y", exits=2).err
    assert all(repr(name) in said for name in REPRODUCTIONS)


@pytest.mark.parametrize("name", [name for name, load in REPRODUCTIONS.items() if load().files])
def test_a_folder_without_the_files_leaves_no_output(name: str, tmp_path) -> None:  # type: ignore[no-untyped-def]
    said = command_outputs("reproduce", name, "--data", tmp_path, "--out", tmp_path / "out", exits=2).err
    assert "lacks" in said
    assert "Name their folder with --data." in said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["run.json", "compare.json", "report.html"])
def test_a_run_a_comparison_and_another_papers_page_are_not_replaced(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(REPRODUCTIONS["lu-2023"]().heading)
    said = command_outputs("reproduce", "cho-inoue-2025", "--out", tmp_path, exits=2).err
    assert "holds other results, whose page or tables this would replace. Choose another --out." in " ".join(
        said.split()
    )
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_table_of_the_terminal_has_names_to_the_left_and_numbers_to_the_right() -> None:
    rows = [("name", "n", "share"), ("a", 1000, 0.5)]
    assert [*text_table(rows)] == ["name     n  share", "a     1000    0.5"]
