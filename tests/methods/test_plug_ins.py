"""Methods of other packages: found by their entry points, left out with a reason if they do not fit."""

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from evaluator.methods import METHODS, plug_ins

MODULE = """
import polars as pl
from evaluator.methods.base import Method, MethodPrompts, NO_QUERY
from evaluator.prompts.rows import requests

def flat(scored, definition):
    label_probs = pl.col("label_names").list.eval(pl.lit({first}) + 0.0 * pl.element().str.len_chars())
    return scored.queries.with_columns(label_probs=label_probs / label_probs.list.sum())

FLAT = Method(summary="every label alike", label_probs=flat)
NUMBER = 7
"""


def package(folder: Path, entries: str, module: str = MODULE, name: str = "flat_method") -> Path:
    """An installed package with one module and these entry points."""
    (folder / f"{name}.py").write_text(module.replace("{first}", "1.0"))
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[evaluator.methods]\n{entries}")
    return folder


def test_a_plug_in_is_found_and_its_identity_follows_its_code_and_not_its_comments(tmp_path, monkeypatch):
    identities = []
    for number, module in enumerate((MODULE, MODULE + "\n# a comment", MODULE + "\nOTHER = 1")):
        folder = tmp_path / str(number)
        folder.mkdir()
        monkeypatch.syspath_prepend(package(folder, "flat = flat_method:FLAT\n", module))
        sys.modules.pop("flat_method", None)
        found = plug_ins(())
        assert found["flat"].method.summary == "every label alike"
        identities.append(found["flat"].identity)
        monkeypatch.undo()
    assert identities[0] == identities[1] != identities[2]
    sys.modules.pop("flat_method", None)


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ("flat = flat_method:NUMBER", "7 is no Method"),
        ("flat = flat_method:MISSING", "no attribute 'MISSING'"),
        ("flat = no_such_module:FLAT", "No module named 'no_such_module'"),
        ("vanilla = flat_method:FLAT", "its name is taken"),
    ],
)
def test_what_is_no_method_is_left_out_with_a_reason(tmp_path, monkeypatch, caplog, entry, why):
    monkeypatch.syspath_prepend(package(tmp_path, entry + "\n"))
    sys.modules.pop("flat_method", None)
    with caplog.at_level(logging.WARNING):
        assert plug_ins(METHODS) == {}
    assert why in caplog.text
    sys.modules.pop("flat_method", None)


def test_a_run_takes_the_method_by_name_and_measures_it(tmp_path):
    folder = package(tmp_path, "flat = flat_method:FLAT\n")
    command = [sys.executable, "-m", "evaluator", "run", "staicc-normal", "--datasets", "trec", "--queries", "4"]
    command += ["--methods", "vanilla,flat", "--model", "fake", "--engine", "fake", "--out", str(tmp_path / "out")]
    paths = os.pathsep.join([str(folder), *sys.path])
    subprocess.run(command, check=True, capture_output=True, env=os.environ | {"PYTHONPATH": paths})
    metrics = pl.read_parquet(tmp_path / "out" / "tables" / "metrics.parquet")
    probability = metrics.filter(method="flat", metric="true_label_probability", dataset="trec", definition="paper")
    assert probability["value"].to_list() == [pytest.approx(1 / 6)]
    assert "flat" in json.dumps(json.loads((tmp_path / "out" / "run.json").read_text()))
