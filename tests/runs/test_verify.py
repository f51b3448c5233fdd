"""A run whose files are damaged one at a time: what verify says, what it repairs, and what every reader refuses."""

import json
import os
import shlex
import shutil
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import polars as pl
import pytest

from evaluator import schemas
from evaluator.config import ModelConfig, RunConfig
from evaluator.errors import StoreError
from evaluator.exports import FORMATS, TRACKERS
from evaluator.files.json_files import read_json, write_json
from evaluator.models.fake_source import FakeModelSource
from evaluator.progress import finish
from evaluator.run import folder, measure, pipeline
from evaluator.run.folders import read_run
from evaluator.run.measure import complete_run
from evaluator.run_log import started_as
from evaluator.runs import verify as verifying
from evaluator.runs.verify import verify
from evaluator.store import write_shard
from evaluator.suites.in_context_pvi import suite as pvi_suite
from evaluator.suites.in_context_pvi.prompts import PviMeasureOptions
from tests.command_line import command

pytestmark = pytest.mark.usefixtures("without_pages")

FAKE = ModelConfig(model="fake", engine="fake")
DATASET = "financial_phrasebank"  # the fewest demonstrations
WORDS = ("run", "staicc-normal", "--datasets", DATASET, "--queries", 4, "--methods", "vanilla,knn_centroid", "--model",
         "fake", "--engine", "fake", "--dtype", "float32")  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("verify") / "out"
    command(*WORDS, "--out", out)
    return out


@pytest.fixture
def out(whole, tmp_path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "out"))


def checked_files(out: Path) -> list[Path]:
    """Every file of a run but its log and locks."""
    return sorted(
        path.relative_to(out)
        for path in out.rglob("*")
        if path.suffix in (".json", ".arrow", ".parquet", ".html") and path.is_file()
    )


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at % len(content)] ^= 4
    path.write_bytes(content)


def tables(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (out / "tables").iterdir()}


def test_an_undamaged_run_has_no_faults(whole):
    assert finish(verify(whole)) == []
    assert "every file is as it was written" in command("verify", whole)


def rows_of(schema: pl.Schema, **columns: object) -> pl.DataFrame:
    given = pl.DataFrame(columns)
    absent = [pl.lit(None).alias(name) for name in schema.names() if name not in columns]
    return given.with_columns(absent).select(schema.names()).cast(schema)


@pytest.mark.parametrize(
    ("asked", "known", "fault"),
    [
        ("ab", "ab", None),
        ("abx", "ab", "Requests without a prompt, or prompts without a request: 1."),
        ("ab", "abx", "Requests without a prompt, or prompts without a request: 1."),
        ("ab", "abb", "2 rows share their key (prompt_id) with another."),
    ],
)
def test_requests_and_prompts_that_lack_each_other_are_a_fault(monkeypatch, asked, known, fault):
    requests = rows_of(schemas.REQUESTS, prompt_id=[*asked], position=range(len(asked)))
    prompts = rows_of(schemas.PROMPTS, prompt_id=[*known])
    store = SimpleNamespace(requests=requests.lazy, prompts=prompts.lazy)
    monkeypatch.setattr(verifying, "PromptStore", lambda *_, **__: store)
    manifest = SimpleNamespace(files={}, n_requests=requests.height, n_prompts=prompts.height)
    found = [what for _, what in verifying._prompt_rows(Path("store"), manifest)]
    assert found == ([fault] if fault else [])


@pytest.mark.parametrize(("n_prompts", "n_faults"), [(1, 0), (2, 0), (3, 1)])
def test_a_shard_of_scores_has_a_row_for_each_of_its_prompts_or_more(monkeypatch, n_prompts, n_faults):
    rows = rows_of(schemas.TOKEN_SCORES, token_id=["1", "2"])
    monkeypatch.setattr(verifying, "scan_arrow", lambda _: rows.lazy())
    manifest = SimpleNamespace(reused={}, shards={"scores-0": SimpleNamespace(prompts=n_prompts)})
    assert len([*verifying._score_rows(Path("scores"), manifest)]) == n_faults


def of_each_kind(names: list[Path]) -> list[Path]:
    """The first file of every folder and kind: prompts, requests, tokens, scores, states, tables and so on."""
    kinds = {}
    for name in names:
        kinds.setdefault((name.parent, name.suffix, name.suffix == ".arrow" and name.name.partition("-")[0]), name)
    return [*kinds.values()]


@pytest.mark.parametrize(
    ("damage", "files"),
    [
        ("flip", list),
        pytest.param("truncate", list, marks=pytest.mark.exhaustive),
        *((damage, of_each_kind) for damage in ("remove", "empty", "folder")),
        *(pytest.param(damage, list, marks=pytest.mark.exhaustive) for damage in ("remove", "empty", "folder")),
    ],
)
def test_every_damaged_file_is_named_with_a_command(whole, tmp_path, damage, files):
    for number, name in enumerate(files(checked_files(whole))):
        out = Path(shutil.copytree(whole, tmp_path / str(number)))
        path = out / name
        if damage == "flip":
            flip(path, 1009 * (number + 1))
        elif damage == "truncate":
            path.write_bytes(path.read_bytes()[:-3])
        elif damage == "empty":
            path.write_bytes(b"")
        else:
            path.unlink()
            if damage == "folder":
                path.mkdir()
        if name == Path("run.json") and damage == "remove":
            with pytest.raises(StoreError, match="holds no run"):
                finish(verify(out))
            continue
        faults = finish(verify(out))
        assert path in {fault.path for fault in faults} or (path.parent.name == "tables" and faults), (name, faults)
        assert all(fault.command for fault in faults)


@pytest.mark.parametrize("name", ["store", "tables", "report.html"])
def test_what_needs_no_model_is_repaired_to_the_same_bytes(out, whole, name):
    for path in [out / name] if (out / name).is_file() else sorted((out / name).rglob("*.*")):
        if path.is_file() and "tokens" not in path.parent.name:
            path.write_bytes(b"")
    (out / "report.html").unlink()
    command("verify", out, exits=2)
    assert "every file is as it was written" in command("verify", out, "--repair")
    assert tables(out) == tables(whole)
    assert (out / "report.html").is_file()


def test_in_a_folder_with_a_space_every_command_can_be_typed_and_tables_are_repaired(whole, tmp_path):
    out = Path(shutil.copytree(whole, tmp_path / "my runs" / "out"))
    command("measure", out)  # without options, so that verify may measure again
    (out / "report.html").unlink()
    (out / "tables" / "metrics.parquet").write_bytes(b"")
    next(out.glob("store/*/manifest.json")).write_bytes(b"")
    faults = finish(verify(out))
    assert {"prompts", "tables", "page"} <= {fault.damaged for fault in faults}
    for fault in faults:
        assert fault.damaged == "scores" or str(out) in shlex.split(fault.command)
    assert finish(verify(out, repair=True)) == []
    assert tables(out) == tables(whole)


def test_tables_of_options_are_not_measured_again_without_them(tmp_path, monkeypatch):
    """The files that options name may have changed since, so that the command is named and not run."""
    finish(pipeline.run(RunConfig(suites=("pvi",), datasets=(DATASET,), n_queries=4), FAKE, tmp_path))
    finish(pipeline.measure(tmp_path, lambda suites: {name: PviMeasureOptions() for name in suites}))
    assert read_run(tmp_path).measures.options == {}  # nothing was chosen
    measured, chosen = pvi_suite.pvi_measures, PviMeasureOptions(annotations=(Path("a.parquet"),))
    monkeypatch.setattr(pvi_suite, "pvi_measures", lambda *given, **more: measured(*given[:2], **more))
    with started_as(["measure", str(tmp_path), "--annotations", "a.parquet"]):
        finish(pipeline.measure(tmp_path, lambda suites: dict.fromkeys(suites, chosen)))
    (tmp_path / "tables" / "metrics.parquet").write_bytes(b"")
    fault, *_ = finish(verify(tmp_path, repair=True))
    assert (fault.damaged, fault.command) == ("tables", f"evaluator measure {tmp_path} --annotations a.parquet")


def test_damaged_prompts_of_imported_answers_are_left_to_the_command_that_imports(tmp_path):
    table, out = tmp_path / "answers.csv", tmp_path / "out"
    pl.DataFrame({"gold": ["a", "b"] * 4, "pred": ["a", "b"] * 4}).write_csv(table)
    words = ("import", table, "--labels", "a,b", "--out", out)
    command(*words)
    for path in out.glob("store/*/prompts-*"):
        path.write_bytes(b"")
    faults = [fault for fault in finish(verify(out)) if fault.damaged == "prompts"]
    assert [fault.command for fault in faults] == [shlex.join(["evaluator", *map(str, words)])]
    command(*words)
    assert finish(verify(out)) == []


def test_damaged_scores_are_left_to_the_command_that_scores(out, whole):
    shard = next(path for path in sorted(out.glob("scores/*/*/scores-*.arrow")))
    flip(shard, 100)
    said = command("verify", out, "--repair", exits=2)
    assert f"evaluator {' '.join(map(str, WORDS))} --out {whole}" in said
    with pytest.raises(StoreError, match=r"missing, damaged or made again since .*evaluator run"):
        finish(pipeline.measure(out))
    command("score", out, "--model", "fake", "--engine", "fake")
    command("measure", out)
    assert finish(verify(out)) == []
    assert tables(out) == tables(whole)


def test_a_table_of_another_run_is_refused_by_name_and_never_parsed(run_folders, tmp_path, monkeypatch):
    first, second = (Path(shutil.copytree(run, tmp_path / run.name)) for run in run_folders[:2])
    scan, scanned = folder.scan_parquet, list[Path]()
    monkeypatch.setattr(folder, "scan_parquet", lambda path: (scanned.append(path), scan(path))[1])
    for name in ("predictions", "metrics"):
        path = first / "tables" / f"{name}.parquet"
        own, foreign = path.read_bytes(), (second / "tables" / path.name).read_bytes()
        path.write_bytes(foreign)
        scanned.clear()
        said = command("compare", first, run_folders[2], "--out", tmp_path / "compared", exits=2)
        assert f"{path} is damaged or of another run: its SHA-256 is not the one in {first / 'run.json'}" in said
        assert f"`evaluator measure {first}`" in " ".join(said.split())
        assert path not in scanned
        path.write_bytes(own)


def test_a_damaged_manifest_of_prompts_is_built_again_with_a_notice(out, whole):
    manifest = next(out.glob("store/*/manifest.json"))
    flip(manifest, 300)
    said = command("run", "staicc-normal", "--datasets", DATASET, "--queries", 4, "--methods", "vanilla,knn_centroid",
                   "--model", "fake", "--engine", "fake", "--out", out)  # fmt: skip
    assert f"Note: {manifest} is damaged" in said
    assert tables(out) == tables(whole)


def test_scores_made_again_by_another_run_are_not_measured_with_the_second_round_of_the_first(tmp_path):
    """Other numbers for the same prompts, as after a damage repaired on another machine."""
    config = RunConfig(suites=("staicc-normal",), datasets=(DATASET,), n_queries=4, methods=("vanilla", "sa_icl"))
    finish(pipeline.run(config, FAKE, tmp_path))
    manifest = next(path for path in sorted(tmp_path.glob("scores/*/*/manifest.json")))
    name = sorted(json.loads(manifest.read_text())["shards"])[0]
    rows = pl.read_ipc(manifest.parent / name)
    lower = rows.with_columns(pl.col("log_likelihoods").list.eval(pl.element() - 1))
    digest = write_shard(manifest.parent / name, lower)
    content = read_json(manifest)
    assert content is not None
    content["shards"][name]["sha256"] = digest
    write_json(manifest, content)
    with pytest.raises(StoreError, match="made again since they were recorded"):
        finish(pipeline.measure(tmp_path))


@pytest.mark.usefixtures("pages")
def test_the_log_has_a_line_for_each_command_and_fault(out):
    table = out / "tables" / "metrics.parquet"
    table.write_bytes(b"")
    command("report", out, exits=2)
    lines = (out / "evaluator.log").read_text().splitlines()
    assert [line.split(" ", 2)[1] for line in lines[-2:]] == ["INFO", "ERROR"]
    assert lines[-2].endswith(f"started: evaluator report {out}")
    assert f"{table} is damaged or of another run" in lines[-1]


def test_a_log_that_cannot_be_written_stops_nothing(out):
    (out / "evaluator.log").unlink()
    os.mkfifo(out / "evaluator.log")
    command("report", out)


SECRETS = {
    "HF_TOKEN": "hf_AbCdEfGhIjKlMnOpQr",
    "MADE_UP_API_KEY": "plain-looking-value-1",
    "MY_PASSWORD": "correct horse",
    "OTHER_PASSWORD": "it's-a-secret",
}


@pytest.mark.usefixtures("pages")
def test_secrets_of_environment_addresses_and_headers_are_in_no_file_page_comparison_export_log_or_message(
    tmp_path, monkeypatch
):
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    address = "https://alice:wonderland9@hub.example/m?access_token=queryvalue77&x=1"
    others = "https://bob:rabbit'hole1@2@hub.example/m#token=fragment55 gho_Ab1Cd2Ef3Gh4Ij5"
    header = "Authorization: Token headervalue99 Authorization: Bearer headervalue88"
    planted = [*SECRETS.values(), "wonderland9", "queryvalue77", "headervalue88"]
    planted += ["rabbit", "hole1", "fragment55", "headervalue99", "gho_Ab1Cd2", "a-secret"]
    model = " ".join([address, header, others, *SECRETS.values()])
    words = ("staicc-normal", "--datasets", "sst5", "--queries", 2, "--model", model, "--out", tmp_path / "out")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    said = command("run", *words, "--engine", "fake") + command("run", *words, "--engine", "transformers", exits=2)
    for name in (*FORMATS, *filter(find_spec, TRACKERS)):
        said += command("export", tmp_path / "out", "--format", name, "--out", tmp_path / "exports" / name)
    said += command("receipt", tmp_path / "out", "--n", 2, "--model", model)
    with patch.object(FakeModelSource, "fingerprint", "another"):
        said += command("run", *words[:-1], tmp_path / "other", "--engine", "fake")
    said += command("compare", tmp_path / "out", tmp_path / "other", "--out", tmp_path / "compared")
    said += command("verify", tmp_path / "out")
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"run.json", "report.html", "evaluator.log", "csv"} <= {path.name for path in files}
    for secret in planted:
        assert secret not in said
        assert not [path for path in files if secret.encode() in path.read_bytes()]
    assert "***" in (tmp_path / "out" / "run.json").read_text()


SMALL = ("run", "staicc-normal", "--datasets", "sst5", "--queries", 2, "--model", "fake", "--engine", "fake", "--out")


@pytest.mark.parametrize("name", ["run.json", "report.html", "tables/metrics.parquet", ".lock"])
def test_a_folder_in_the_way_of_a_file_is_one_sentence_and_the_run_goes_on_without_it(tmp_path, name):
    (tmp_path / name / "inner").mkdir(parents=True)
    said = command(*SMALL, tmp_path, exits=2)
    assert name in said
    assert "cannot be written" in said
    shutil.rmtree(tmp_path / name)
    command(*SMALL, tmp_path)
    assert finish(verify(tmp_path)) == []


@pytest.mark.parametrize("name", ["tables", "store", "scores"])
def test_a_file_in_the_way_of_a_folder_is_one_sentence(tmp_path, name):
    (tmp_path / name).write_bytes(b"in the way")
    said = command(*SMALL, tmp_path, exits=2)
    assert f"{tmp_path / name}" in said
    assert "cannot be written" in said
    assert (tmp_path / name).read_bytes() == b"in the way"


def test_a_folder_that_is_deleted_while_it_is_written_to_is_one_sentence_or_a_run(tmp_path, monkeypatch):
    def measured_and_gone(*given: object) -> object:
        shutil.rmtree(tmp_path / "out")
        return complete_run(*given)

    monkeypatch.setattr(measure, "complete_run", measured_and_gone)
    said = command(*SMALL, tmp_path / "out", exits=2)
    assert "Error: " in said
    monkeypatch.undo()
    command(*SMALL, tmp_path / "out")
    assert finish(verify(tmp_path / "out")) == []


def test_an_argument_that_is_no_utf_8_is_refused(tmp_path):
    said = command(*SMALL, os.fsdecode(bytes(tmp_path) + b"/\xff"), exits=2)
    assert "is not UTF-8" in said


def test_damage_below_a_comparison_is_found_and_repaired(tmp_path):
    config = RunConfig(suites=("staicc-normal",), datasets=(DATASET,), n_queries=4)
    finish(pipeline.run(config, [FAKE, ModelConfig(model="fake:2", engine="fake")], tmp_path))
    assert finish(verify(tmp_path)) == []
    for name in ("tables/comparison.parquet", "compare.json", "models/fake/tables/metrics.parquet"):
        flip(tmp_path / name, 101)
        assert [fault.path for fault in finish(verify(tmp_path))] == [tmp_path / name]
        assert finish(verify(tmp_path, repair=True)) == []
