"""`evaluator export` as a user types it; what each format holds is tested under tests/exports."""

import dataclasses
import math
import re
import shutil
from pathlib import Path

import polars as pl
import pytest

from evaluator.compare.schema import COMPARISON
from evaluator.exports import FORMATS
from evaluator.files.json_files import write_json
from evaluator.files.whole import write_table
from evaluator.runs.export import export
from tests.command_line import command, command_outputs
from tests.compare.run_folders import put_table


@pytest.fixture
def folder(run_folders, tmp_path) -> Path:
    return Path(shutil.copytree(run_folders[0], tmp_path / "run"))


def test_help_lists_every_format() -> None:
    said = command_outputs("export", "--help").out
    assert all(name in said for name in FORMATS)


@pytest.mark.parametrize("name", ["csv", "markdown", "latex", "model-index"])
def test_a_file_lands_where_the_command_says(folder, tmp_path, name):
    said = command_outputs("export", folder, "--format", name).out.split()
    assert [Path(path).parent for path in said] == [folder / "exports"]
    target = tmp_path / "elsewhere" / "file"
    assert command_outputs("export", folder, "--format", name, "--out", target).out.split() == [str(target)]
    assert target.read_bytes() == Path(said[0]).read_bytes()


@pytest.mark.parametrize("file", ["run.json", "tables/metrics.parquet"])
def test_no_file_of_the_run_is_replaced(folder, file):
    before = (folder / file).read_bytes()
    assert "would be replaced" in command("export", folder, "--format", "csv", "--out", folder / file, exits=2)
    assert (folder / file).read_bytes() == before


@pytest.mark.parametrize("name", FORMATS)
def test_equal_runs_give_equal_files(measured_folder, tmp_path, name):
    first, second = (export(measured_folder, name, tmp_path / place) for place in ("a", "b"))
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert FORMATS[name].is_folder or len(first) == 1


@pytest.mark.parametrize("name", ["model-index", "lm-eval", "every-eval-ever"])
def test_numbers_that_are_not_finite_are_left_out_of_formats_that_cannot_hold_them(made, name):
    value, low, high = 0.123456789, 0.0123456789, 0.23456789
    rows = made.metrics.filter(dataset="plain", method="vanilla", definition="paper", metric="accuracy")
    ends = [(value, low, high), (value, low, math.inf), (math.inf, low, high), (math.nan, low, high)]
    cases = [
        rows.with_columns(part=pl.lit(f"case {place}"), value=pl.lit(v), ci_low=pl.lit(a), ci_high=pl.lit(b))
        for place, (v, a, b) in enumerate(ends)
    ]
    run = dataclasses.replace(made, metrics=pl.concat(cases))
    text = b"".join(file.content for file in FORMATS[name].files(run)).decode().lower()
    assert [text.count(str(number)) for number in (value, low, high)] == [2, 1, 1]
    assert re.findall(r"(?<![\"-])infinity|\b(?:inf|nan)\b", text) == []


def test_one_definition_alone(folder, tmp_path):
    [path] = export(folder, "csv", tmp_path / "file", definition="released")
    assert set(pl.read_csv(path)["definition"]) == {"released"}


def test_names_and_runs_that_do_not_exist_are_answered_with_those_that_do(folder, tmp_path):
    assert "There are: csv, markdown" in command("export", folder, "--format", "excel", exits=2)
    assert "holds no run" in command("export", tmp_path, "--format", "csv", exits=2)
    paper = pl.read_parquet(folder / "tables" / "metrics.parquet").filter(definition="paper")
    put_table(folder, "metrics", paper)
    said = command("export", folder, "--format", "csv", "--definition", "released", exits=2)
    assert "was not measured under 'released', but under paper" in said
    put_table(folder, "metrics", paper.clear())
    assert "has no metrics to export" in command("export", folder, "--format", "csv", exits=2)


def test_a_comparison_without_accuracies_is_no_empty_file(tmp_path):
    tables = {"comparison": write_table(tmp_path, "comparison", COMPARISON.to_frame())}
    write_json(tmp_path / "compare.json", {"tables": tables, "models": []})
    assert "has no metrics to export" in command("export", tmp_path, "--format", "markdown", exits=2)
    assert not (tmp_path / "exports").exists()


def test_a_damaged_table_is_not_exported(folder):
    table = folder / "tables" / "metrics.parquet"
    table.write_bytes(table.read_bytes()[:-1])
    assert "is damaged or of another run" in command("export", folder, "--format", "csv", exits=2)
    assert not (folder / "exports").exists()
