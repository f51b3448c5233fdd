"""A mutation run draws seeded changes of one place each, and knows which tests belong to a module."""

import ast
import shutil
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from benchmarks.harness import ROOT
from benchmarks.mutants import (
    N_DRAWN,
    RelatedTests,
    draw,
    found_again,
    importers_of,
    mutants,
    related_files,
    run_all_tests,
)


def few_files(tree: Path) -> Path:
    """Copy the largest file of every folder that changes are drawn from, and of two others."""
    for folder in (*(f"evaluator/{part}" for part in [*N_DRAWN][:-1]), "evaluator/files", "evaluator/tokens"):
        largest = max((ROOT / folder).rglob("*.py"), key=lambda path: path.stat().st_size)
        copy = tree / largest.relative_to(ROOT)
        copy.parent.mkdir(parents=True)
        shutil.copy(largest, copy)
    return tree


@pytest.mark.parametrize("is_whole", [False, pytest.param(True, marks=pytest.mark.exhaustive)])
def test_two_hundred_changes_are_drawn_by_folder_and_each_is_another_program(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_whole: bool
) -> None:
    tree = ROOT if is_whole else few_files(tmp_path)
    of_source = cache(lambda path, source: [*mutants(path, source)])  # three draws from the same changes
    monkeypatch.setattr("benchmarks.mutants.mutants", of_source)
    drawn = draw(tree, 0)
    assert drawn == draw(tree, 0) != draw(tree, 1)
    parts = Counter(mutant["path"].split("/")[1] for mutant in drawn)
    assert {part: parts[part] for part in N_DRAWN if part != "elsewhere"} == dict.fromkeys([*N_DRAWN][:-1], 20)
    assert len({(mutant["path"], mutant["start"], mutant["after"]) for mutant in drawn}) == len(drawn) == 200
    program = cache(lambda source: ast.dump(ast.parse(source)))  # several changes are of one file
    for mutant in drawn:
        source = (tree / mutant["path"]).read_bytes()
        changed = source[: mutant["start"]] + mutant["after"].encode() + source[mutant["end"] :]
        assert program(changed) != program(source)


@pytest.mark.parametrize(
    ("source", "changes"),
    [
        ("a < b", [("comparison", "(a <= b)")]),
        ("a + 1", [("arithmetic", "(a - 1)"), ("constant", "(2)")]),
        ("a and not b", [("boolean", "(a or not b)"), ("arithmetic", "(b)")]),
        ("f(a, b)", [("statement", "pass"), ("arguments", "(f(b, a))")]),
        ("if é: x.y = True", [("condition", "(not é)"), ("statement", "pass"), ("constant", "(False)")]),
        ("def f(a: int | None) -> 3:\n    raise a", [("statement", "pass")]),
        ("f'{a + b}'", []),
        ("zip(a, a, strict=True)", [("statement", "pass")]),
    ],
)
def test_changes_are_worked_by_hand(source: str, changes: list[tuple[str, str]]) -> None:
    found = list(mutants("m.py", source.encode()))
    assert [(mutant["kind"], mutant["after"].replace("not (é)", "not é")) for mutant in found] == changes


def test_a_draw_is_found_again_where_its_lines_still_are(tmp_path: Path) -> None:
    for tree, source in (("before", "a = 1\nb = 1 + 1\nc = 4\n"), ("now", "c = 5\n\n\nb = 1 + 1\n")):
        (tmp_path / tree).mkdir()
        (tmp_path / tree / "m.py").write_text(source)
    drawn = list(mutants("m.py", (tmp_path / "before" / "m.py").read_bytes()))
    again = found_again(drawn[::-1], tmp_path / "before", tmp_path / "now")
    assert [(mutant["line"], mutant["start"], mutant["after"]) for mutant in again] == [
        (4, 16, "(2)"),
        (4, 12, "(2)"),
        (4, 12, "(1 - 1)"),
    ]


def test_the_mirror_file_is_first_and_files_that_import_the_module_follow(tmp_path: Path) -> None:
    for folder in ("evaluator/compare", "tests/compare"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    found = related_files("evaluator/compare/differences.py", importers_of(tmp_path), tmp_path)
    assert found[0] == "tests/compare/test_differences.py"
    assert "tests/compare/test_gate.py" in found[1:]
    assert len(found) > 3


def test_the_tests_that_run_a_line_are_chosen(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    files = {
        "evaluator/__init__.py": "",
        "evaluator/sums.py": "\n".join(
            f"def {name}(n):\n    return {name[0] == 'd'} or n\n" for name in ("d", "h", "none")
        ),
        "tests/test_sums.py": "import pytest\nfrom evaluator.sums import d, h\n\n\n@pytest.fixture(scope='module')\n"
        "def made():\n    return h(2)\n\n\n"
        "def test_d():\n    assert d(1)\n\n\ndef test_h(made):\n    assert made == 2\n",
        "kernels/none.py": "",
    }
    for name, text in files.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)
    run_all_tests(tree)
    related = RelatedTests(tree, limit_s=60)
    of_call, of_fixture, of_none = (related.of({"path": "evaluator/sums.py", "line": line}) for line in (2, 5, 8))
    assert of_call == ["tests/test_sums.py::test_d"]
    assert sorted(of_fixture) == ["tests/test_sums.py::test_d", "tests/test_sums.py::test_h"]  # all may read it
    assert of_none == ["tests/test_sums.py"]  # the mirror file
