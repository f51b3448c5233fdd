"""What a stage reads of a run's folder: everything once, and nothing that another version or a damage has left."""

import errno
import os
import re
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import filelock
import polars as pl
import pytest

from evaluator import store
from evaluator.config import DataOptions, ModelConfig, RunConfig, TableColumns
from evaluator.errors import ConfigError, StoreError
from evaluator.files.json_files import read_json, write_json
from evaluator.progress import finish
from evaluator.run import folder as run_folder
from evaluator.run import folders, pipeline
from evaluator.run.folder import BuiltFolder, config_from_json, read_table
from evaluator.run.folders import config_to_json, identity
from evaluator.runs.verify import verify
from evaluator.suites import TABLES
from evaluator.suites.in_context_pvi.prompts import PviOptions
from evaluator.suites.prompt_search.prompts import SearchOptions
from tests.compare.run_folders import put_table

pytestmark = pytest.mark.usefixtures("without_pages")

FAKE = ModelConfig(model="fake", engine="fake")
CONFIG = RunConfig(suites=("staicc",), datasets=("financial_phrasebank",), n_queries=4)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A run with hidden states and a second round."""
    out = tmp_path_factory.mktemp("whole") / "out"
    finish(pipeline.run(replace(CONFIG, suites=("staicc-normal",), methods=("vanilla", "topk")), FAKE, out))
    return out


@pytest.fixture
def finished(whole, tmp_path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "out"))


@pytest.mark.usefixtures("pages")
@pytest.mark.parametrize("stage", [pipeline.measure, pipeline.report, lambda out: pipeline.score(out, FAKE)])
def test_a_stage_parses_the_record_once_and_hashes_no_file_twice(finished, stage, monkeypatch):
    read, hashed = Counter(), Counter()
    read_record, digest = folders.read_record, store.file_digest
    monkeypatch.setattr(folders, "read_record", lambda path, *how: (read.update([path]), read_record(path, *how))[1])
    monkeypatch.setattr(store, "file_digest", lambda path: (hashed.update([path]), digest(path))[1])
    finish(stage(finished))
    assert read == {finished / "run.json": 1}
    assert set(hashed.values()) <= {1}


def test_a_run_in_a_folder_that_is_read_only_is_refused_without_an_option_that_the_stage_lacks(finished, monkeypatch):
    def refuse(*_arguments: object, **_options: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(finished / ".lock"))

    monkeypatch.setattr(filelock.FileLock, "acquire", refuse)
    with pytest.raises(ConfigError, match=r"Permission denied.*'\. Make it writable, or copy the run\.$"):
        finish(pipeline.report(finished))


def test_a_record_of_another_version_is_an_error_that_names_the_field(finished):
    content = read_json(finished / "run.json")
    write_json(finished / "run.json", content | {"prompts": content["prompts"] | {"n_queries": "four"}})
    with pytest.raises(StoreError, match=r"run\.json is damaged or of another version .*\$\.prompts\.n_queries"):
        finish(pipeline.measure(finished))


def test_in_a_folder_with_a_space_the_next_command_can_be_typed(tmp_path):
    out = tmp_path / "my runs"
    finish(pipeline.build(replace(CONFIG, suites=("staicc-normal",)), out))
    with pytest.raises(StoreError, match=re.escape(f"Run `evaluator score '{out}' --model MODEL` first.")):
        finish(pipeline.measure(out))
    with pytest.raises(StoreError, match=re.escape(f"Run `evaluator measure '{out}'` first.")):
        read_table(out, "metrics", {})
    finish(pipeline.score(out, FAKE))
    with pytest.raises(StoreError, match=re.escape(f"{out} has no tables yet. Run `evaluator measure '{out}'` first.")):
        finish(pipeline.report(out))


def test_a_run_that_was_moved_is_known_at_its_new_place_once_it_is_opened(finished, tmp_path):
    data = folders.DataFolder(tmp_path / "data")
    for name in ("store", "scores"):
        shutil.move(finished / name, data.path / name)
    folders.write_run(finished, replace(folders.read_run(finished), data="../data"))
    assert BuiltFolder(finished).built.store.fingerprint in {path.name for path in (data.path / "store").iterdir()}
    assert [run for _, run in data.users()] == [finished]
    assert not (finished / "users").exists()


def test_tables_of_earlier_scores_are_not_reported(finished):
    config = RunConfig(suites=("staicc-normal",), datasets=("sst5",), n_queries=5)
    finish(pipeline.build(config, finished, force=True))
    finish(pipeline.score(finished, FAKE))
    with pytest.raises(StoreError, match=r"those of earlier scores\. Run `evaluator measure"):
        finish(pipeline.report(finished))


def test_tables_of_every_suite_have_declared_columns(finished, tmp_path):
    searched = tmp_path / "search"
    options = {"prompt-search": SearchOptions(tries=3, shots=(1,))}
    search = RunConfig(suites=("prompt-search",), datasets=("trec",), n_queries=4, suite_options=options)
    finish(pipeline.run(search, FAKE, searched))
    names = {path.stem for out in (finished, searched) for path in (out / "tables").iterdir()}
    assert len(names) > 20
    assert names <= {*TABLES}


@pytest.mark.usefixtures("pages")
def test_a_table_with_the_columns_of_another_version_is_a_sentence_and_is_written_again(finished):
    older = {}
    for name in ("metrics", "label_spaces", "coverage", "queries", "method_differences"):
        path = finished / f"tables/{name}.parquet"
        record, content, table = (finished / "run.json").read_bytes(), path.read_bytes(), pl.read_parquet(path)
        older[name] = table.drop(table.columns[-1]).with_columns(older=1)
        put_table(finished, name, older[name])
        text = (
            rf"{name}\.parquet was written by another version of evaluator: its columns differ in .*older.*\. Run "
            rf"`evaluator measure {finished}`"
        )
        for read in (pipeline.report, verify):
            try:
                found = [str(fault) for fault in finish(read(finished))]
            except StoreError as error:
                found = [str(error)]
            assert re.search(text, found[0])
        (finished / "run.json").write_bytes(record)
        path.write_bytes(content)
    for name, table in older.items():
        put_table(finished, name, table)
    finish(pipeline.measure(finished))
    finish(pipeline.report(finished))
    assert not finish(verify(finished))


@pytest.mark.parametrize(
    "config",
    [
        CONFIG,
        replace(CONFIG, parts=("gler",), n_queries=None, definitions=("paper",)),
        RunConfig(
            suites=("prompt-search",),
            data=DataOptions(paths=(Path("/data/task.json"),), columns=TableColumns(inputs=("a", "b"), example_id="c")),
            suite_options={"prompt-search": SearchOptions(shots=(0, 2), candidates=Path("/c.json"), halving=True)},
        ),
        RunConfig(
            suites=("pvi",),
            datasets=("rte",),
            data=DataOptions(hub=True),
            suite_options={"pvi": PviOptions(shots=None, source="published", prompts=Path("/p.parquet"), seed=7)},
        ),
    ],
)
def test_a_configuration_is_read_as_it_was_written(config):
    assert config_from_json(config_to_json(config), where="run.json") == config


def test_every_path_of_a_configuration_is_valid_in_any_working_folder():
    data = DataOptions(paths=(Path("t.csv"),), questions=Path("q.toml"), template=Path("t.toml"))
    options = {"prompt-search": SearchOptions(candidates=Path("c.json"))}
    written = config_to_json(RunConfig(suites=("prompt-search",), data=data, suite_options=options))
    paths = [*written["data"]["paths"], written["data"]["questions"], written["data"]["template"]]
    paths.append(written["suite_options"]["prompt-search"]["candidates"])
    assert paths == [str(Path(name).absolute()) for name in ("t.csv", "q.toml", "t.toml", "c.json")]


def test_where_files_are_does_not_name_a_store_and_what_is_searched_does():
    def named(**options: object) -> dict[str, object]:
        return identity(
            RunConfig(
                suites=("prompt-search",), datasets=("sst5",), suite_options={"prompt-search": SearchOptions(**options)}
            )
        )

    assert named(candidates=Path("/a.json")) == named(candidates=Path("/b.json"))
    assert named(tries=5) != named(tries=6)


def test_the_same_model_twice_is_refused_before_anything_is_built(tmp_path):
    config = RunConfig(suites=("staicc-normal",), datasets=("sst5",))
    with pytest.raises(ConfigError, match=r"fake and fake are the same model: weights [0-9a-f]{16}, in the same form"):
        finish(pipeline.run(config, [FAKE, FAKE], tmp_path))
    assert not list(tmp_path.rglob("*.arrow"))


def test_every_suite_writes_tables_that_are_sorted_the_same_way_twice(tmp_path):
    """A run again in another folder has the same bytes in every table."""
    options = {"prompt-search": SearchOptions(tries=20)}
    for name in ("staicc-bias", "prompt-search", "pvi"):
        config = RunConfig(suites=(name,), datasets=("trec",), n_queries=20, n_shots=1, suite_options=options)
        for folder in ("a", "b"):
            finish(pipeline.run(config, FAKE, tmp_path / name / folder))
        first, second = (
            {path.name: path.read_bytes() for path in (tmp_path / name / folder / "tables").iterdir()}
            for folder in ("a", "b")
        )
        assert first == second


def test_changed_code_of_prompts_builds_them_again_and_keeps_every_score(tmp_path, monkeypatch):
    config = RunConfig(suites=("staicc-normal",), datasets=("sst5",), n_queries=4)
    finish(pipeline.run(config, FAKE, tmp_path))
    before = folders.read_run(tmp_path)
    monkeypatch.setattr("evaluator.run.build.source_fingerprint", lambda *_: "an upgrade")
    monkeypatch.setattr("evaluator.engine.replicas.load_engine", None)  # would fail if a model was loaded
    finish(pipeline.run(config, FAKE, tmp_path))
    after = folders.read_run(tmp_path)
    assert before.prompts.fingerprint != after.prompts.fingerprint
    assert before.scores.tables == after.scores.tables
    assert pl.read_parquet(tmp_path / "tables" / "metrics.parquet").height


def test_a_prompt_of_both_rounds_has_one_row_of_scores_a_request(monkeypatch):
    prompts = pl.LazyFrame({"prompt_id": ["a", "b"], "prompt": ["first", "second"]})
    stores = [
        SimpleNamespace(store=SimpleNamespace(prompts=rows)) for rows in (lambda: prompts, lambda: prompts.head(1))
    ]
    scored = SimpleNamespace(scored=SimpleNamespace(rows=pl.LazyFrame({"prompt_id": ["b", "a"], "position": [0, 1]})))
    monkeypatch.setattr(run_folder, "BuiltFolder", lambda _: SimpleNamespace(built=None))
    monkeypatch.setattr(run_folder, "open_scored", lambda _: stores)
    monkeypatch.setattr(run_folder, "scored_run", lambda *_: scored)
    assert run_folder.read_scores("out").collect().rows() == [("b", 0, "second"), ("a", 1, "first")]
