"""Mutation testing (make mutants): change one place of the code at a time, and count the changes that make a test fail.

Draw 20 changes (mutants) each in metrics, statistics, methods, random_baselines and suites, and 100 elsewhere in
evaluator/ and kernels/. Make every change in a copy of the last commit, and run tests until one fails. These are the
tests that run the changed line, by coverage of the whole suite; tests in files that import the module run first. For a
line that only other processes run, they are all tests of such files. The same command resumes a stopped run. Survivors
that results/mutants_equivalent.csv lists with a reason change nothing that could be tested. The tools mutmut and
cosmic-ray do not sample by folder, and run the same tests for every mutant.
"""

import argparse
import ast
import csv
import importlib
import json
import multiprocessing
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from coverage import CoverageData

from benchmarks.harness import RESULTS, ROOT, append_rows, code_commit

N_DRAWN = dict.fromkeys(("metrics", "statistics", "methods", "random_baselines", "suites"), 20) | {"elsewhere": 100}
MAX_FILES = 8  # maximum number of related test files of a module
TIMES, LINES = "times.json", "lines.db"  # files with the seconds of tests, and with the lines that they run
MAX_TIMES_LIMIT = 8  # wall time limit / processor time limit, because other programs may use the processor
IMPORT = "::import"  # suffix of the verdict if a test file cannot be imported with the mutant
TEST_TIMEOUT_S = 100  # a test fails after this time, because it may wait for something that the mutant never does
IMPORTED_ONCE = ("altair", "hypothesis", "pyarrow", "scipy.optimize", "selenium.webdriver", "torch")
PAIRS = [word.split() for word in ("Lt LtE", "Gt GtE", "Eq NotEq", "Is IsNot", "In NotIn", "And Or", "Add Sub")]
PAIRS += [["Mult", "Div"], ["BitAnd", "BitOr"]]
OTHER: dict[type, Any] = {getattr(ast, a): getattr(ast, b) for x, y in PAIRS for a, b in ((x, y), (y, x))}
OTHER |= {ast.FloorDiv: ast.Div, ast.Mod: ast.Mult, ast.Pow: ast.Mult}
SYMMETRIC = {"max", "min", "np.maximum", "np.minimum"}  # functions for which the order of arguments does not matter
UNCHANGED = {"annotation", "returns", "decorator_list", "pattern"}

SELECTED = ["-p", "no:cacheprovider", "-m", "not gpu and not exhaustive and not slow"]
SELECTED += ["-W", "ignore::pytest.PytestAssertRewriteWarning", "-W", "ignore::coverage.exceptions.CoverageWarning"]

Mutant = dict[str, Any]  # keys: path, line, text (of the line), kind, start and end (in bytes), before, after
PLACE = ("path", "text", "before", "after")  # identifies a mutant even if lines above it change


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--seed", type=int, default=0, help="of the draw")
    arguments.add_argument("--commit", default=code_commit().rstrip("+"), help="whose code is changed and tested")
    arguments.add_argument(
        "--drawn-at", help="an earlier commit: its draw is judged again, as far as it is still there"
    )
    arguments.add_argument("--limit", type=int, default=120, help="seconds of processor time a mutant")
    arguments.add_argument("--hours", type=float, default=24, help="stop after these")
    options = arguments.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs and their children ignore SIGINT
    tree, stop = copy_of(options.commit), time.monotonic() + 3600 * options.hours
    drawn_in = copy_of(options.drawn_at) if options.drawn_at else tree
    name = "-".join(filter(None, (str(options.seed), options.drawn_at)))
    folder, kept = tree.parent, tree.parent / f"judged-{name}.jsonl"
    if not (folder / TIMES).exists():
        run_all_tests(tree)
    for package in IMPORTED_ONCE:
        importlib.import_module(package)
    judged = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    drawn = found_again(draw(drawn_in, options.seed), drawn_in, tree)
    related = RelatedTests(tree, options.limit)
    for number, mutant in enumerate(drawn[len(judged) :], len(judged) + 1):
        if time.monotonic() > stop:
            break
        judged.append(mutant | {"verdict": judge(mutant, related.of(mutant), tree, options.limit)})
        with kept.open("a") as file:
            file.write(json.dumps(judged[-1]) + "\n")
        print(f"{number:4} {mutant['path']}:{mutant['line']} {mutant['kind']}: {judged[-1]['verdict']}", flush=True)
    # A test that fails without a mutant does not count as killing a mutant, so run the killers without one.
    killers = {row["verdict"].removesuffix(IMPORT) for row in judged if row["verdict"].startswith("tests/")}
    broken = run_tests(["tests/test_main.py", *sorted(killers)], tree, 3600)
    if broken != "survived":
        sys.exit(f"{broken} fails in {tree} without a mutant, too. Mend it, commit, and run again.")
    for part in ("core", "elsewhere"):
        append_rows(
            "mutants", part, ["pytest"], [score([row for row in judged if part_of(row["path"]) == part], options)]
        )


def score(judged: list[Mutant], options: argparse.Namespace) -> dict[str, Any]:
    """Print the survivors; return the counts of verdicts, and the share killed / (killed + survived).

    Mutants that are equivalent or out of time do not count in the share.
    """
    with (RESULTS / "mutants_equivalent.csv").open(newline="") as file:
        equivalent = {tuple(row[name] for name in PLACE) for row in csv.DictReader(file)}
    count = Counter[str]()
    for row in judged:
        verdict = row["verdict"] if row["verdict"] in ("survived", "out of time") else "killed"
        if verdict != "killed" and tuple(row[name] for name in PLACE) in equivalent:
            verdict = "equivalent"
        elif verdict != "killed":
            print(f"{verdict}: {row['path']}:{row['line']}: {row['before']} -> {row['after']}")
        count[verdict] += 1
    left = {"out_of_time": count["out of time"], "equivalent": count["equivalent"]}
    share = count["killed"] / max(count["killed"] + count["survived"], 1)
    return {
        "commit": options.commit,
        "seed": options.seed,
        "killed": count["killed"],
        "survived": count["survived"],
        **left,
        "score": round(share, 4),
    }


def copy_of(commit: str) -> Path:
    """Return a folder with the files of a commit, in which only this program makes changes."""
    tree = Path(tempfile.gettempdir()) / f"evaluator-mutants-{commit}" / "tree"
    if not tree.exists():
        tree.mkdir(parents=True)
        archive = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, capture_output=True).stdout  # noqa: S607
        subprocess.run(["tar", "x"], cwd=tree, input=archive, check=True)  # noqa: S607
    return tree


def part_of(path: str) -> str:
    return "core" if path.split("/")[1] in N_DRAWN else "elsewhere"


def draw(tree: Path, seed: int) -> list[Mutant]:
    """Draw mutants, in random order, so that any initial part of the list is a random sample."""
    rng, parts = random.Random(seed), {part: list[Mutant]() for part in N_DRAWN}
    for path in sorted([*(tree / "evaluator").rglob("*.py"), *(tree / "kernels").rglob("*.py")]):
        part = parts.get(path.relative_to(tree).parts[1], parts["elsewhere"])
        part += mutants(str(path.relative_to(tree)), path.read_bytes())
    chosen = [mutant for part, n in N_DRAWN.items() for mutant in rng.sample(parts[part], n)]
    return rng.sample(chosen, len(chosen))


def found_again(drawn: list[Mutant], before: Path, now: Path) -> list[Mutant]:
    """Find the mutants of one tree again in another tree; mutants whose line no longer exists are left out."""

    def numbered(tree: Path, path: str) -> Iterator[tuple[tuple[object, ...], Mutant]]:
        count = Counter[tuple[object, ...]]()
        for mutant in mutants(path, (tree / path).read_bytes()) if (tree / path).exists() else ():
            place = tuple(mutant[name] for name in PLACE)
            count[place] += 1
            yield (*place, count[place]), mutant

    paths = sorted({mutant["path"] for mutant in drawn})
    places = {str(mutant): place for path in paths for place, mutant in numbered(before, path)}
    there = {place: mutant for path in paths for place, mutant in numbered(now, path)}
    return [there[place] for mutant in drawn if (place := places[str(mutant)]) in there]


def mutants(path: str, source: bytes) -> Iterator[Mutant]:
    """Yield all mutants of a source file: every change of one syntax node that this program knows."""
    lines = source.splitlines(keepends=True)
    for kind, node, after in changes(ast.parse(source)):
        start = sum(map(len, lines[: node.lineno - 1])) + node.col_offset
        end = sum(map(len, lines[: node.end_lineno - 1])) + node.end_col_offset
        text = lines[node.lineno - 1].decode().strip()
        place = {"path": path, "line": node.lineno, "text": text, "start": start, "end": end}
        yield place | {"kind": kind, "before": source[start:end].decode(), "after": after}


def changes(node: Any) -> Iterator[tuple[str, Any, str]]:
    """Yield the changes of a syntax tree: kind, node and new text.

    Strings, annotations, decorators and patterns are not changed.
    """
    match node:
        case ast.Compare(ops=[op]) if type(op) in OTHER:
            yield "comparison", node, f"({ast.unparse(ast.Compare(node.left, [OTHER[type(op)]()], node.comparators))})"
        case ast.BinOp(op=op) if type(op) in OTHER:
            yield "arithmetic", node, f"({ast.unparse(ast.BinOp(node.left, OTHER[type(op)](), node.right))})"
        case ast.BoolOp(op=op):
            yield "boolean", node, f"({ast.unparse(ast.BoolOp(OTHER[type(op)](), node.values))})"
        case ast.UnaryOp(op=ast.USub() | ast.Not()):
            yield "arithmetic", node, f"({ast.unparse(node.operand)})"
        case ast.Constant(value=bool() | int() | float() as value):
            yield "constant", node, f"({not value if isinstance(value, bool) else value + 1})"
        case ast.Call(args=[first, second, *rest]) if (
            not any(isinstance(a, ast.Starred) for a in node.args)
            and ast.unparse(first) != ast.unparse(second)
            and ast.unparse(node.func) not in SYMMETRIC
        ):
            yield "arguments", node, f"({ast.unparse(ast.Call(node.func, [second, first, *rest], node.keywords))})"
        case ast.Expr(value=ast.Call()) | ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield "statement", node, "pass"
        case ast.AugAssign() | ast.Raise() | ast.Continue() | ast.Break():
            yield "statement", node, "pass"
    for test in node.ifs if isinstance(node, ast.comprehension) else [getattr(node, "test", None)]:
        if test and ast.unparse(test) != "TYPE_CHECKING":
            yield "condition", test, f"(not ({ast.unparse(test)}))"
    for name, value in ast.iter_fields(node):
        for child in (value if isinstance(value, list) else [value]) if name not in UNCHANGED else ():
            is_strict = isinstance(child, ast.keyword) and child.arg == "strict"  # zip's check of equal lengths
            if isinstance(child, ast.AST) and not isinstance(child, ast.JoinedStr | ast.Assert) and not is_strict:
                yield from changes(child)


class RelatedTests:
    """Find the tests that can fail because of a mutant."""

    def __init__(self, tree: Path, limit_s: int) -> None:
        self._tree, self._limit_s = tree, limit_s
        self._times: dict[str, dict[str, float]] = json.loads((tree.parent / TIMES).read_text())
        self._of_file: dict[str, list[str]] = {}
        for test in self._times:
            self._of_file.setdefault(test.partition("::")[0], []).append(test)
        self._lines = CoverageData(str(tree.parent / LINES))
        self._lines.read()
        self._importers = importers_of(tree)

    def of(self, mutant: Mutant) -> list[str]:
        """Return the tests that run the line: all in related files, then in other files as the time limit allows.

        In both groups, the quickest files are first. If no test runs the line in its own process, return the related
        files.
        """
        contexts = self._lines.contexts_by_lineno(str(self._tree / mutant["path"])).get(mutant["line"], [])
        tests: dict[str, set[str]] = {}
        for test, _, phase in (context.rpartition("|") for context in contexts if context):
            file = test.partition("::")[0]
            # All tests of a file may use the result of a fixture, so a line that a fixture runs selects all of them.
            tests.setdefault(file, set()).update([test] if phase == "run" else self._of_file.get(file, ()))
        cost = {file: self._seconds(file, of_file) for file, of_file in tests.items()}
        near = related_files(mutant["path"], self._importers, self._tree)
        chosen, spent = list[str](), 0.0
        for file in sorted(tests, key=lambda file: (file not in near, cost[file])):
            spent += cost[file]
            if file in near or spent <= self._limit_s:
                chosen += [test for test in self._of_file.get(file, ()) if test in tests[file]]
        return chosen or near

    def _seconds(self, file: str, tests: Collection[str]) -> float:
        """Return the seconds of the given tests of a file and of all its fixtures."""
        times = [self._times[test] for test in self._of_file.get(file, ())]
        calls = [self._times[test]["call"] for test in tests if test in self._times]
        return sum(each["setup"] for each in times) + sum(calls)


def run_all_tests(tree: Path) -> None:
    """Run the test suite once, and record how long every test takes and which lines it runs."""
    lines = tree.parent / LINES
    (settings := tree.parent / "coverage.ini").write_text(f"[run]\ndata_file = {lines}\n")
    words = ["-q", "-p", "benchmarks.mutants", "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder", *SELECTED]
    words += ["--cov=evaluator", "--cov=kernels", "--cov-context=test", "--cov-report=", f"--cov-config={settings}"]
    path = os.pathsep.join(map(str, (tree, tree / "kernels", ROOT)))
    subprocess.run(
        [sys.executable, "-m", "pytest", *words], cwd=tree, env=os.environ | {"PYTHONPATH": path}, check=False
    )


_times: dict[str, dict[str, float]] = {}
_failed: set[str] = set()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Record the seconds of a test and of its fixtures; a hook of pytest, for which this module is a plug-in."""
    _times.setdefault(report.nodeid, {"setup": 0.0, "call": 0.0, "teardown": 0.0})[report.when] = report.duration
    if report.failed:  # for example tests that need a git clone fail in a copy; they cannot judge a mutant
        _failed.add(report.nodeid)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the seconds of all tests that passed; a hook of pytest."""
    if not hasattr(session.config, "workerinput"):
        passed = {test: times for test, times in _times.items() if test not in _failed}
        (session.config.rootpath.parent / TIMES).write_text(json.dumps(passed))


def importers_of(tree: Path) -> dict[str, set[str]]:
    """Return dotted name of a module -> files that import it, including test files."""
    found: dict[str, set[str]] = {}
    for path in [path for top in ("evaluator", "kernels", "tests") for path in (tree / top).rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.ImportFrom):
                names = [str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)]
            else:
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for name in names:
                found.setdefault(name, set()).add(str(path.relative_to(tree)))
    return found


def related_files(path: str, importers: dict[str, set[str]], tree: Path) -> list[str]:
    """Return at most MAX_FILES test files of a module: its mirror, then files with the most direct imports."""
    mirror = Path("tests", *Path(path).parts[1:-1], f"test_{Path(path).stem}.py")
    tests, seen, level = [str(mirror)] if (tree / mirror).exists() else [], {path}, {path}
    while level and len(tests) < MAX_FILES:
        modules = {name.removeprefix("kernels/").removesuffix(".py").removesuffix("/__init__") for name in level}
        level = {file for name in modules for file in importers.get(name.replace("/", "."), ())} - seen
        seen |= level
        near = sorted(level, key=lambda file: (Path(file).parent != mirror.parent, file))
        tests += [file for file in near if Path(file).name.startswith("test_") and file not in tests]
    return tests[:MAX_FILES]


def judge(mutant: Mutant, tests: list[str], tree: Path, limit_s: int) -> str:
    """Run tests with a mutant; return the test that fails, "survived", or "out of time"."""
    file, source = tree / mutant["path"], (tree / mutant["path"]).read_bytes()
    try:
        file.write_bytes(source[: mutant["start"]] + mutant["after"].encode() + source[mutant["end"] :])
        return run_tests(tests, tree, limit_s)
    finally:
        file.write_bytes(source)


def run_tests(tests: list[str], tree: Path, limit_s: int) -> str:
    """Run tests until the first failure, in a fork of this process that imports the copy; return as judge does."""
    (failure := tree.parent / "failure").unlink(missing_ok=True)
    process = multiprocessing.get_context("fork").Process(target=_pytest, args=(tests, tree, failure, limit_s))
    process.start()
    process.join(MAX_TIMES_LIMIT * limit_s)
    with suppress(ProcessLookupError):
        os.killpg(process.pid or 0, signal.SIGKILL)  # also kills processes that tests have started
    process.join()
    if failure.exists():
        return failure.read_text()
    return {0: "survived", -signal.SIGKILL: "out of time"}.get(process.exitcode or 0, "pytest.exit")


def _pytest(tests: list[str], tree: Path, failure: Path, limit_s: int) -> None:
    class FirstFailure:
        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            if report.failed:
                failure.write_text(report.nodeid)

        def pytest_collectreport(self, report: pytest.CollectReport) -> None:
            if report.failed:
                failure.write_text(report.nodeid + IMPORT)

    os.setsid()
    resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s))
    os.chdir(tree)
    for name in [name for name in sys.modules if name.split(".")[0] in {"benchmarks", "evaluator", "tests"}]:
        del sys.modules[name]
    os.environ["PYTHONPATH"] = f"{tree}{os.pathsep}{tree / 'kernels'}"
    sys.path[:0] = [str(tree), str(tree / "kernels")]
    os.dup2(os.open(tree.parent / "pytest.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
    options = ["-q", "-x", "--tb=line", f"--timeout={TEST_TIMEOUT_S}", *SELECTED]
    os._exit(pytest.main([*options, *tests], plugins=[FirstFailure()]) not in {0, 5})


if __name__ == "__main__":
    main()
