"""A mutation run draws seeded changes of one place each, and knows which tests belong to a module."""

import ast
from collections import Counter

import pytest

from benchmarks.harness import ROOT
from benchmarks.mutants import N_DRAWN, draw, importers_of, mutants, related_tests


def test_two_hundred_changes_are_drawn_by_folder_and_each_is_another_program() -> None:
    drawn = draw(ROOT, 0)
    assert drawn == draw(ROOT, 0) != draw(ROOT, 1)
    parts = Counter(mutant["path"].split("/")[1] for mutant in drawn)
    assert {part: parts[part] for part in N_DRAWN if part != "elsewhere"} == dict.fromkeys([*N_DRAWN][:-1], 20)
    assert len({(mutant["path"], mutant["start"], mutant["after"]) for mutant in drawn}) == len(drawn) == 200
    for mutant in drawn:
        source = (ROOT / mutant["path"]).read_bytes()
        changed = source[: mutant["start"]] + mutant["after"].encode() + source[mutant["end"] :]
        assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(source))


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
    ],
)
def test_changes_are_worked_by_hand(source: str, changes: list[tuple[str, str]]) -> None:
    found = list(mutants("m.py", source.encode()))
    assert [(mutant["kind"], mutant["after"].replace("not (é)", "not é")) for mutant in found] == changes


def test_the_mirror_file_is_first_and_files_that_import_the_module_follow() -> None:
    found = related_tests("evaluator/compare/gate.py", importers_of(ROOT), ROOT)
    assert found[0] == "tests/compare/test_gate.py"
    assert len(found) > 3
