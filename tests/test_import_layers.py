"""Imports run one way: the contracts of [tool.importlinter] in pyproject.toml, as `make check` holds them too."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from importlinter.cli import EXIT_STATUS_SUCCESS, lint_imports

ROOT = Path(__file__).parents[1]


def test_no_layer_imports_a_higher_one(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.setattr("logging.config.dictConfig", lambda _settings: None)  # it silences every logger there is
    status = lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True, no_logo=True)
    assert status == EXIT_STATUS_SUCCESS, capsys.readouterr().out


def test_what_draws_and_suites_that_are_not_asked_for_are_not_loaded_before_the_first_score() -> None:
    loaded = "import sys, evaluator.run.pipeline, evaluator.suites; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", loaded], capture_output=True, check=True, text=True).stdout.split()
    assert "scipy.special" in modules
    assert not {"altair", "scipy.stats", "sklearn", "vllm"} & {*modules}
    assert not [name for name in modules if name.startswith("evaluator.suites.") and name.endswith(".suite")]


def test_every_module_and_package_has_its_layer() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = {name.strip() for line in settings["contracts"][0]["layers"] for name in line.split(":")}
    modules = {path.stem for path in (ROOT / "evaluator").glob("*.py")} - {"__init__", "__main__"}
    packages = {path.parent.name for path in (ROOT / "evaluator").glob("*/__init__.py")}
    assert layers == modules | packages
