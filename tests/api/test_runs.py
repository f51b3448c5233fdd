"""Runs from Python: the same as the commands, options under the same names, frames in and out."""

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from polars.testing import assert_frame_equal

import evaluator
from evaluator.compare.differences import against_lines
from evaluator.errors import ConfigError, EvaluatorError, StoreError
from evaluator.run.folders import read_run
from tests.command_line import command, command_outputs

pytestmark = pytest.mark.usefixtures("without_pages")

FAKE = {"model": "fake", "engine": "fake", "progress": False}
SMALL = {"datasets": ["sst5", "trec"], "queries": 4, **FAKE}


@pytest.fixture(scope="module")
def run():
    return evaluator.evaluate("staicc-normal", methods=("vanilla", "batch_calibration"), **SMALL)


def test_a_run_is_that_of_the_command_with_these_options(run, tmp_path):
    words = ("--datasets", "sst5,trec", "--queries", 4, "--methods", "vanilla,batch_calibration")
    command("run", "staicc-normal", "--model", "fake", "--engine", "fake", *words, "--out", tmp_path)
    for name in run.table_names:
        assert_frame_equal(run.table(name), pl.read_parquet(tmp_path / "tables" / f"{name}.parquet"))
    assert run.metrics.equals(run.table("metrics"))
    assert run.predictions.height > 0


def test_a_run_is_taken_wherever_its_folder_is(run):
    assert evaluator.open_run(run).metrics.equals(run.metrics)
    assert evaluator.read_scores(run).collect().equals(evaluator.read_scores(run.folder).collect())
    assert evaluator.threshold_report(run).file == evaluator.threshold_report(run.folder).file


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: evaluator.evaluate(["staicc-normal"], **SMALL), r"run takes names .* got \['staicc-normal'\]"),
        (lambda: evaluator.evaluate(3, **SMALL), "run takes names or folders one by one, got 3"),
        (
            lambda: evaluator.compare_runs(["runs/a", "runs/b"]),
            "compare takes names or folders one by one, got .'runs/a'",
        ),
        (lambda: evaluator.evaluate("staicc-normal", out=3, **SMALL), "A folder is a path, got 3"),
        (lambda: evaluator.open_run(3), "A folder is a path, got 3"),
    ],
)
def test_what_is_no_name_and_no_folder_is_one_sentence(call, said):
    with pytest.raises(ConfigError, match=said):
        call()


def test_a_forked_process_that_ends_leaves_the_folders_of_its_parent():
    """Its exit calls what its parent has registered: the folder of a run, and the classifier's, were removed."""
    code = """if True:
        import os, sys, evaluator
        from evaluator.api.classifier import answers_folder
        fake = {"model": "fake", "engine": "fake", "progress": False}
        run = evaluator.evaluate("staicc-normal", datasets="sst5", queries=4, **fake)
        folder = answers_folder()
        if not (child := os.fork()):
            sys.exit()
        os.waitpid(child, 0)
        print(run.predictions.height > 0, folder.exists(), folder)"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    *said, folder = done.stdout.split()
    assert said == ["True", "True"]
    assert not Path(folder).exists()


def test_the_command_that_would_do_the_same_is_recorded(run):
    typed = read_run(run.folder).commands["measure"]
    assert typed.startswith("evaluator run staicc-normal --out ")
    assert "--datasets sst5,trec --queries 4 --model fake --engine fake" in typed


def test_a_summary_has_the_accuracies_of_datasets_and_no_mean_over_one(run):
    rows = run.metrics.filter(metric="accuracy", definition="paper")
    assert run.summary["accuracy"].to_list() == rows["value"].to_list()
    assert set(run.summary["dataset"]) == {"sst5", "trec", "mean"}
    one = evaluator.evaluate("staicc-normal", **(SMALL | {"datasets": ["sst5"]}))
    assert set(one.metrics["dataset"]) == {"sst5", "mean"}
    assert one.summary["dataset"].to_list() == ["sst5"]
    assert len(one.summary.columns) == 8  # as many as Polars shows
    assert "normal, vanilla: accuracy on sst5 " in str(one)


def test_a_notebook_shows_an_error_of_ours_as_its_message():
    with pytest.raises(ConfigError) as refused:
        evaluator.evaluate("clasify", model="embedded")
    assert refused.value._render_traceback_() == [f"ConfigError: {refused.value}"]


def test_a_run_without_a_folder_leaves_none_behind():
    run = evaluator.evaluate("staicc-normal", **SMALL)
    folder = run.folder
    assert run.page.is_file()
    del run
    assert not folder.exists()


def test_a_run_is_printed_as_its_summary(run):
    assert "staicc-normal / normal, vanilla: mean accuracy" in str(run)


def test_a_table_that_a_run_does_not_have_is_told_of_those_that_it_has(run):
    with pytest.raises(StoreError, match=r"This run has no table 'metric'\. Did you mean 'metrics'.*\? It has: "):
        run.table("metric")


def test_a_run_in_a_folder_can_be_opened_again(tmp_path):
    first = evaluator.evaluate("staicc-normal", out=tmp_path, **SMALL)
    again = evaluator.open_run(tmp_path)
    assert again.metrics.equals(first.metrics)
    assert again.page == first.page
    with pytest.raises(StoreError, match="holds no run"):
        evaluator.open_run(tmp_path / "elsewhere")


@pytest.mark.parametrize("library", [pl.DataFrame, pl.LazyFrame, pa.table])
def test_a_frame_is_evaluated_as_a_table_of_ones_own(library):
    rows = {"body": [f"review {number}" for number in range(60)], "stars": ["bad", "good"] * 30}
    run = evaluator.evaluate("classify", data=library(rows), input_column="body", gold_column="stars", **FAKE)
    assert set(run.predictions["label_names"].list.join(",")) == {"bad,good"}


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (["bad", "good"] * 30, "bad,good"),
        (pa.array([1.0, 0.0] * 30), "0,1"),
        (pa.array([True, False] * 30), "false,true"),
    ],
)
@pytest.mark.parametrize("form", [dict, lambda columns: pa.table(columns).to_pylist(), pa.table])
def test_rows_may_be_a_dictionary_or_a_list_of_dictionaries(form, labels, names):
    columns = {"text": [f"review {number}" for number in range(60)], "label": labels}
    run = evaluator.evaluate("classify", data=form(columns), **FAKE)
    assert set(run.predictions["label_names"].list.join(",")) == {names}


class IterableDataset:
    """What datasets.IterableDataset has of the attributes that are looked at."""

    features = None

    def with_format(self, _form):
        return self


class Dataset:
    """What datasets.Dataset has of the methods that are used: rows, features, a format."""

    def __init__(self, table, metadata):
        self.table, self.features = table, SimpleNamespace(arrow_schema=SimpleNamespace(metadata=metadata))

    def __len__(self):
        return len(self.table)

    def with_format(self, form):
        assert form == "arrow"
        return self

    def __getitem__(self, rows):
        return self.table[rows]


def test_a_dataset_has_the_names_in_its_features_and_may_be_the_training_data():
    rows = pa.table({"text": [f"review {number}" for number in range(60)], "label": [0, 1] * 30})
    names = b'{"info": {"features": {"label": {"names": ["bad", "good"], "_type": "ClassLabel"}}}}'
    dataset = Dataset(rows, {b"huggingface": names})
    run = evaluator.evaluate("classify", data=dataset, training_data=dataset, **FAKE)
    assert set(run.predictions["label_names"].list.join(",")) == {"bad,good"}
    assert run.record.prompts.notes["table"][0] == "60 of 60 queries have the same texts as a training row"
    with pytest.raises(ConfigError, match=r"it holds splits: name one, as in data\['test'\]"):
        evaluator.evaluate("classify", data={"test": dataset}, **FAKE)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            {"text": ["a", "b"], "label": ["x"]},
            r"data of the type dict is no table\. Give .* columns of one length",
        ),
        ({"text": "a film", "label": ["x"]}, "type dict is no table: the cells of its column 'text' are no list of"),
        ([{"text": 1}, {"text": "a"}], "type list is no table: the cells of its column 'text' are no list of one kind"),
        (
            pd.DataFrame({"text": ["a", "b"], "label": ["x", 1]}),
            "no table: the cells of its column 'label' are no list",
        ),
        (
            pd.DataFrame({"text": ["a", "b"], "label": pd.cut([1, 2], [0, 1, 2])}),
            "no table: the cells of its column 'label' are no list of one kind that Parquet has",
        ),
        (pa.table({"text": pc.run_end_encode(pa.array(["a"]))}), "type Table is no table"),
        ([("a", "x")], 'type list is no table: its columns have no names. .*schema=."text", "label".'),
        (np.array([["a", "x"]]), 'type ndarray is no table: its columns have no names. .*schema=."text", "label".'),
        (np.array(["a"]), "type ndarray is no table: it is one column. Name it"),
        (pl.Series("text", ["a"]), "type Series is no table: it is one column. Name it"),
        (pd.Series(["a"]), "type Series is no table: it is one column. Name it"),
        (pa.array(["a"]), "type StringArray is no table: it is one column. Name it"),
        (iter([{"text": "a"}]), r"type list_iterator is no table: its rows arrive one by one. list\(data\)"),
        (IterableDataset(), r"IterableDataset is no table: its rows .*from_list\(list\(data\), data.features\)"),
        (3, r"data of the type int is no table\. Give a path"),
        (pa.table([["a"], ["b"], ["c"]], names=["text", "text", "label"]), "has several columns 'text'"),
    ],
)
def test_rows_that_are_no_table_are_one_sentence(data, message):
    with pytest.raises(EvaluatorError, match=message):
        evaluator.evaluate("classify", data=data, **FAKE)


def test_runs_in_folders_are_compared(run_folders, tmp_path):
    comparison = evaluator.compare_runs(*run_folders, out=tmp_path / "out", margin=0.05, progress=False)
    assert {"comparison", "differences", "equivalence"} <= {*comparison.table_names}
    for name in comparison.table_names:
        assert_frame_equal(comparison.table(name), pl.read_parquet(tmp_path / "out" / "tables" / f"{name}.parquet"))
    assert comparison.differences.equals(comparison.table("differences"))
    assert comparison.page == tmp_path / "out" / "compare.html"
    shown = command_outputs("compare", *run_folders, "--out", tmp_path / "again", "--margin", 0.05).out.splitlines()
    assert str(comparison).splitlines()[-1] == shown[-1]
    against = evaluator.compare_runs(*run_folders[1:], against=run_folders[0], progress=False)
    assert str(against).splitlines()[-1] == [*against_lines(against.table("against"), run_folders[0].name)][-1]


def test_a_model_is_not_compared_with_itself(run):
    with pytest.raises(ConfigError, match="are the same model"):
        evaluator.compare_runs(run, evaluator.open_run(run.folder), progress=False)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"quries": 4}, "There is no option 'quries'. Did you mean 'queries'"),
        ({"queries": "many"}, "'many' is not a valid integer"),
        ({"datasets": ["sst6"]}, "sst6"),
        ({"model": ["fake", "random"]}, "one model in one form"),
    ],
)
def test_a_mistake_is_one_sentence(options, said):
    with pytest.raises(ConfigError, match=said) as refused:
        evaluator.evaluate("staicc-normal", **{**SMALL, **options})
    assert "click" not in str(refused.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"queries": 3.7}, "not a valid integer"),
        ({"seed": 1.9}, "not a valid integer"),
        ({"shots": [2.5]}, "whole numbers"),
        ({"halving": True}, "--halving belongs to prompt-search"),
        ({"instruction": ["a", "b"]}, "--instruction takes one value"),
        ({"force": 1}, "--force is true or false, received 1"),
    ],
)
def test_an_option_is_refused_that_the_command_refuses(options, message):
    given = {"model": "fake", "engine": "fake", "datasets": "sst5", "progress": False}
    with pytest.raises(ConfigError, match=message):
        evaluator.evaluate("staicc-normal", **given, **options)


def test_options_may_be_scalars_of_numpy(tmp_path):
    options = {"out": tmp_path, "force": np.bool_(True), "shots": np.int64(1), "eager": np.bool_(False)}
    record = evaluator.evaluate("staicc-normal", **SMALL, **options).record
    assert record.prompts.shots == "1"
    words = record.commands["measure"]
    assert "--force --shots 1" in words
    assert "--eager" not in words


@pytest.mark.usefixtures("pages")
def test_a_run_is_read_and_a_notebook_shows_its_page_after_the_working_folder_has_changed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = {"model": "fake", "engine": "fake", "datasets": "sst5", "queries": 2, "progress": False}
    run, opened = evaluator.evaluate("staicc-normal", out="run", **given), evaluator.open_run("run")
    monkeypatch.chdir("/")
    assert run.metrics.equals(opened.metrics)
    assert re.fullmatch(r'<iframe srcdoc="&lt;!doctype html[^"]*" style="[^"]*"></iframe>', run._repr_html_())


def test_a_settings_file_gives_defaults_of_options_from_python_too(tmp_path):
    (tmp_path / "s.toml").write_text("engine = 'fake'\nlabel_boundary = 'merged'\n")
    given = {"model": "fake", "settings": tmp_path / "s.toml", "datasets": "sst5", "queries": 2, "progress": False}
    assert evaluator.evaluate("staicc-normal", **given).record.scores.label_boundary == "merged"
    separate = evaluator.evaluate("staicc-normal", **given, label_boundary="separate")
    assert separate.record.scores.label_boundary == "separate"
    assert f"--settings {tmp_path / 's.toml'}" in separate.record.commands["measure"]


def test_a_base_may_be_the_result_of_a_run(run):
    other = evaluator.evaluate("staicc-normal", shots=2, **SMALL)
    against = evaluator.compare_runs(other, against=run, progress=False)
    assert against.table("against").height > 0


def test_no_rows_are_no_data_that_were_left_out():
    with pytest.raises(EvaluatorError, match=r"^data has no column 'label'"):
        evaluator.evaluate("classify", data=[], **FAKE)


@pytest.mark.parametrize("name", ["data", "training_data"])
def test_a_fault_in_a_frame_names_the_argument_and_not_a_file_that_was_never_given(name):
    good = {"text": [f"review {number}" for number in range(60)], "label": ["bad", "good"] * 30}
    frames = {"data": good, "training_data": good} | {name: good | {"text": ["a", " "] * 30}}
    with pytest.raises(EvaluatorError, match=rf"^{name}, row 1 \(from 0\): text is missing"):
        evaluator.evaluate("classify", **frames, **FAKE)


def test_pandas_periods_are_the_texts_that_pandas_shows_and_not_their_ordinals():
    months = pd.Series(pd.PeriodIndex(["2026-01", "2026-02"] * 30, freq="M"))
    frame = pd.DataFrame({"text": [f"review {number}" for number in range(60)], "label": months})
    run = evaluator.evaluate("classify", data=frame, **FAKE)
    assert set(run.predictions["label_names"].list.join(",")) == {"2026-01,2026-02"}
