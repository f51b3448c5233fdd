"""What `evaluator list` and `evaluator show` say of runs that are finished, stopped, at work and damaged."""

import json
import os
import shlex
import shutil
from dataclasses import fields, replace
from unittest.mock import patch

import pytest

from evaluator.config import ModelConfig, RunConfig
from evaluator.engine import ENGINES
from evaluator.files.json_files import read_record, write_record
from evaluator.files.whole import lock_holder, writing_to
from evaluator.models.fake_source import FakeModelSource, fake_model_source
from evaluator.progress import finish
from evaluator.run import pipeline
from evaluator.run.folders import read_run
from evaluator.run_log import started_as
from evaluator.runs.state import Scoring, find_runs, how_far, run_state
from evaluator.scores.table import ScoreManifest
from tests.command_line import command, command_outputs

pytestmark = pytest.mark.usefixtures("without_pages")

CONFIG = RunConfig(suites=("staicc-normal",), datasets=("sst5",), n_queries=3)
FAKE = ModelConfig(model="fake", engine="fake")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A folder with a finished run, one whose prompts are built, and one whose record is damaged."""
    folder = tmp_path_factory.mktemp("runs")
    finish(pipeline.run(CONFIG, FAKE, folder / "finished", data=folder / "shared"))
    with started_as(["build", "staicc-normal", "--datasets", "sst5"]):
        finish(pipeline.build(CONFIG, folder / "below" / "built"))
    finish(pipeline.build(CONFIG, folder / "damaged"))
    (folder / "damaged" / "run.json").write_text("{")
    return folder


def stopped_while_scoring(out):
    """Stop a run after its first shard."""
    stage = pipeline.run(CONFIG, FAKE, out)
    for now in stage:
        if now.stage == "Scoring" and now.done == now.total:
            stage.close()
            return


def test_a_finished_run_says_what_it_is(runs):
    state = run_state(runs / "finished")
    assert (state.state, state.suites, state.datasets, state.model) == ("finished", ["staicc-normal"], ["sst5"], "fake")
    assert state.stages == ["built", "checked", "scored", "measured"]
    assert state.prompts == 6
    assert state.data_bytes > 0
    assert state.run_bytes == sum(p.stat().st_size for p in (runs / "finished").rglob("*") if p.is_file())


def test_a_run_without_one_of_its_tables_is_unfinished(runs, tmp_path):
    shutil.copytree(runs / "finished", tmp_path / "copy")
    (tmp_path / "copy" / "tables" / "metrics.parquet").unlink()
    state = run_state(tmp_path / "copy")
    assert (state.state, state.finished) == ("unfinished", "")
    assert state.stages == ["built", "checked", "scored"]


def test_a_run_whose_prompts_are_built_is_unfinished_and_says_how_to_go_on(runs):
    said = command_outputs("show", runs / "below" / "built").out
    assert said.splitlines()[0].endswith("unfinished, built")
    assert f"to go on      evaluator score {runs / 'below' / 'built'} --model MODEL" in said
    # Of two models, the first has 6 of 6 prompts and the second 6 of 18.
    state = replace(run_state(runs / "below" / "built"), stages=["built", "checked"])
    assert how_far(state) == "unfinished, checked"
    scoring = [Scoring(model="a", done=6, planned=6), Scoring(model="b", done=6, planned=18)]
    assert how_far(replace(state, scoring=scoring)) == "unfinished, 50% scored"


def test_after_a_stage_that_has_ended_the_next_one_comes_and_after_one_that_failed_the_same(tmp_path):
    out = tmp_path / "it's"
    finish(pipeline.build(CONFIG, out))
    with started_as(["score", str(out), "--model", "fake"]):
        finish(pipeline.score(out, FAKE))
        assert run_state(out).command == f"evaluator measure {shlex.quote(str(out))}"
        with pytest.raises(KeyboardInterrupt), writing_to(out):
            raise KeyboardInterrupt
    assert run_state(out).command == f"evaluator score {shlex.quote(str(out))} --model fake"


def test_a_run_that_was_stopped_says_how_much_is_scored(tmp_path):
    stopped_while_scoring(tmp_path / "out")
    state = run_state(tmp_path / "out")
    assert state.state == "unfinished"
    (scoring,) = state.scoring
    assert (scoring.done, scoring.planned) == (6, 6)
    assert "6 of 6 planned prompts" in command("show", tmp_path / "out")
    # With a shard of another replica that took as long and ended a minute earlier.
    (path,) = (tmp_path / "out" / "scores").rglob("manifest.json")
    manifest = read_record(path, ScoreManifest)
    ((name, shard),) = manifest.shards.items()
    other = replace(shard, finished_s=shard.finished_s - 60, replica=1)
    write_record(path, replace(manifest, shards={name: shard, f"{name}-earlier": other}))
    (both,) = run_state(tmp_path / "out").scoring
    assert (both.done, both.last_s, both.elapsed_s) == (12, shard.finished_s, 2 * shard.elapsed_s)


class OtherModel(FakeModelSource):
    fingerprint = "other"


def of_its_name(config: ModelConfig, **_: object) -> FakeModelSource:
    fake = fake_model_source()
    return fake if config.model == "fake" else OtherModel(**{one.name: getattr(fake, one.name) for one in fields(fake)})


def test_a_comparison_of_several_models_is_finished_once_it_is_written(tmp_path):
    models = [FAKE, replace(FAKE, model="other")]
    with patch.dict(ENGINES, {"fake": replace(ENGINES["fake"], find=of_its_name)}):
        page = finish(pipeline.run(CONFIG, models, tmp_path)).page
        os.utime(page, (0, 0))  # as a copy or another clock sets it
        assert run_state(tmp_path).state == "finished"
    for folder in (tmp_path / "models").iterdir():
        took = read_run(folder).elapsed_s
        assert took["build"] == read_run(tmp_path).elapsed_s["build"] > 0
        assert took["tokenise"] > 0
    state = run_state(tmp_path)
    assert (state.state, state.stages, state.scoring) == ("finished", ["built", "compared"], [])
    assert state.finished >= state.started
    # With the page of the earlier prompts, while another comparison is at work or after it was stopped.
    with patch.dict(ENGINES, {"fake": replace(ENGINES["fake"], find=of_its_name)}):
        stage = pipeline.run(replace(CONFIG, n_queries=4), models, tmp_path)
        next(now for now in stage if now.stage == "Scoring")
        # No other command writes to the folder of the model at work; that of the other model is free.
        folders = [*(tmp_path / "models").iterdir()]
        assert sorted(lock_holder(each / ".lock") is not None for each in folders) == [False, True]
        stage.close()
    os.utime(page)
    state = run_state(tmp_path)
    assert (state.state, state.stages, state.finished) == ("unfinished", ["built"], "")


def test_a_run_at_work_is_seen_and_not_disturbed(runs):
    out = runs / "below" / "built"
    with writing_to(out):
        assert lock_holder(out / ".lock") in (os.getpid(), 0)
        assert run_state(out).state == "running"
        assert "running" in command("show", out)
    assert run_state(out).state == "unfinished"


def test_a_run_that_has_not_built_its_prompts_yet_is_shown(tmp_path):
    with writing_to(tmp_path / "out"):
        assert "running, building prompts" in command("show", tmp_path / "out")


def test_a_run_whose_log_is_empty_as_a_full_disk_leaves_it_does_not_hide_the_others(runs, tmp_path):
    shutil.copytree(runs / "below", tmp_path / "below")
    (tmp_path / "first").mkdir()
    for name in ("evaluator.log", ".lock"):
        (tmp_path / "first" / name).touch()
    listed = command_outputs("list", tmp_path).out.splitlines()
    assert [line.split()[1] for line in listed] == ["unfinished,", "unfinished,"]


def test_a_damaged_record_is_said(runs):
    state = run_state(runs / "damaged")
    assert state.state == "damaged"
    assert "run.json" in state.problem


def test_list_finds_the_runs_below_a_folder_and_no_stores(runs):
    names = ["below/built", "damaged", "finished"]
    assert [str(path.relative_to(runs)) for path in find_runs(runs)] == names
    assert [line.split()[0] for line in command_outputs("list", runs).out.splitlines()] == [
        str(runs / name) for name in names
    ]
    listed = json.loads(command_outputs("list", runs, "--json").out)["runs"]
    assert [run["state"] for run in listed] == ["unfinished", "damaged", "finished"]


def test_runs_are_searched_five_folders_down(tmp_path):
    deepest = tmp_path / "1/2/3/4/5"
    (deepest / "6").mkdir(parents=True)
    for folder in (deepest, deepest / "6"):
        (folder / "run.json").touch()
    assert [*find_runs(tmp_path)] == [deepest]


def test_a_folder_without_a_run_is_said(tmp_path):
    assert "holds no run" in command("show", tmp_path, exits=2)
    assert command("list", tmp_path) == f"No runs in {tmp_path}.\n"
