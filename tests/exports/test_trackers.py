"""Exports to trackers of experiments, written by their own clients offline and read back with what these bring."""

import json
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from evaluator.errors import WriteError
from evaluator.exports import TRACKERS, trackers
from evaluator.exports.trackers import Tracker, numbers, settings
from evaluator.runs.export import export, exported_run
from tests.command_line import command, command_outputs

SECRET = "wandb-key-0123456789abcdef0123456789abcdef"


def records(path: Path) -> list[Any]:
    """Read the log of a run of W&B: 7 bytes, then LevelDB's log format; its records are the client's messages."""
    from wandb.proto import wandb_internal_pb2 as messages

    content, at, found, part = path.read_bytes(), 7, [], b""
    assert content[:4] == b":W&B"
    while at + 7 <= len(content):
        if 32_768 - at % 32_768 < 7:  # padding at the end of a block
            at += 32_768 - at % 32_768
            continue
        _, length, kind = struct.unpack("<IHB", content[at : at + 7])
        part += content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            found.append(messages.Record.FromString(part))
            part = b""
    return found


def items(rows: Any) -> dict[str, Any]:
    return {row.key or "/".join(row.nested_key): json.loads(row.value_json) for row in rows}


@pytest.fixture
def wandb_run(measured_folder, tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("WANDB_API_KEY", SECRET)
    monkeypatch.setenv("WANDB_MODE", "online")  # of no account
    (said,) = command_outputs("export", measured_folder, "--format", "wandb", "--out", tmp_path / "out").out.split()
    assert Path(said).is_relative_to(tmp_path / "out")
    return Path(said)


def test_wandb_has_settings_numbers_and_files_and_no_key(measured_folder, wandb_run):
    (path,) = wandb_run.glob("*.wandb")
    run = exported_run(measured_folder)
    found = records(path)
    (begun,) = [record.run for record in found if record.HasField("run")]
    config = {name: value for name, value in items(begun.config.update).items() if name != "_wandb"}
    assert config == settings(run)
    assert (begun.project, begun.display_name, begun.job_type) == ("evaluator", "fake", "evaluation")
    summary = {key: value for record in found for key, value in items(record.summary.update).items()}
    assert {name: summary[name] for name in numbers(run)} == numbers(run)
    files = {entry.path for record in found for entry in record.request.log_artifact.artifact.manifest.contents}
    files |= {entry.path for record in found for entry in record.artifact.manifest.contents}
    assert {"tables/metrics.parquet", "tables/predictions.parquet"} <= files
    assert not [file for file in wandb_run.rglob("*") if file.is_file() and SECRET.encode() in file.read_bytes()]


def test_numbers_are_those_of_the_table(measured_folder):
    run = exported_run(measured_folder)
    found = numbers(run)
    table = pl.read_parquet(measured_folder / "tables" / "metrics.parquet")
    row = table.filter(
        part="normal", dataset="sst5", method="vanilla", metric="accuracy", definition="paper", suite="staicc-bias"
    ).row(0, named=True)
    assert found["normal/sst5/vanilla/accuracy"] == row["value"]
    assert found["normal/sst5/vanilla/accuracy/ci_low"] == row["ci_low"]
    assert found["normal/sst5/vanilla/accuracy/max_random"] == row["max_random"]
    released = numbers(exported_run(measured_folder, "released"))
    assert released.keys() & found.keys()


def test_numbers_of_several_suites_are_named_by_their_suite_and_are_of_the_first_definition(made):
    first = replace(made, metrics=made.metrics.filter(definition="paper"))
    alone = numbers(first)
    assert numbers(made) == alone
    others = first.metrics.with_columns(suite=pl.lit("other"), value=pl.col("value") / 2)
    both = numbers(replace(first, metrics=pl.concat([first.metrics, others])))
    (suite,) = {*first.metrics["suite"]}
    assert {name: both[f"{suite}/{name}"] for name in alone} == alone
    halves = [name for name in alone if name.count("/") == 3]  # without intervals and baselines
    assert [both[f"other/{name}"] for name in halves] == [alone[name] / 2 for name in halves]
    assert len(both) == 2 * len(alone)


def test_names_have_only_characters_that_trackers_take(made):
    assert all(
        set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-. :/")
        for name in numbers(made)
    )


def test_datasets_with_names_that_trackers_refuse_each_keep_their_numbers(made):
    one = made.metrics.filter(metric="accuracy", definition="paper").head(1)
    names = ["a?", "a!", "a_", "..", ".", "x" * 300, "x" * 301, "a/b"]
    rows = [one.with_columns(dataset=pl.lit(name), value=pl.lit(float(number))) for number, name in enumerate(names)]
    found = numbers(replace(made, metrics=pl.concat(rows)))
    (part, method) = one.row(0, named=True)["part"], one.row(0, named=True)["method"]
    datasets = ["a__", "a_", "a___", "__", "_", "x" * 100, "x" * 100 + "_", "a_b"]
    values = {name: found[f"{part}/{name}/{method}/accuracy"] for name in datasets}
    assert values == {name: float(number) for number, name in enumerate(datasets)}


def test_a_server_that_does_not_take_a_run_is_named_without_its_password(measured_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "nothing://user:hunter2@host")
    with pytest.raises(
        WriteError, match=r"MLflow cannot write the run to nothing://\*\*\*@host: .* MLFLOW_TRACKING_URI"
    ):
        export(measured_folder, "mlflow", tmp_path / "out")


def test_mlflow_reads_back_what_was_run(measured_folder, tmp_path, monkeypatch):
    from mlflow.tracking import MlflowClient

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setattr(trackers, "MLFLOW_MAX_METRICS", 20)  # several calls
    for _ in range(2):  # a second export is a second run of the same experiment
        (database,) = export(measured_folder, "mlflow", tmp_path / "out")
    client = MlflowClient(tracking_uri=f"sqlite:///{database}")
    experiment = client.get_experiment_by_name("evaluator")
    found = client.search_runs([experiment.experiment_id])
    assert len(found) == 2
    run = exported_run(measured_folder)
    assert found[0].data.metrics == pytest.approx(numbers(run))
    expected = {name: str(value) for name, value in settings(run).items() if value is not None}
    assert found[0].data.params == expected
    assert found[0].info.status == "FINISHED"
    names = {file.path for file in client.list_artifacts(found[0].info.run_id, "tables")}
    assert "tables/metrics.parquet" in names


def test_a_client_that_is_not_installed_is_named_with_its_extra(measured_folder, monkeypatch):
    absent = Tracker(summary="", package="no_such_client", log=lambda _run, folder: folder)
    monkeypatch.setitem(TRACKERS, "wandb", absent)
    assert "pip install 'evaluator[no_such_client]'" in command("export", measured_folder, "--format", "wandb", exits=2)


def test_help_lists_trackers():
    assert all(name in command("export", "--help") for name in TRACKERS)
