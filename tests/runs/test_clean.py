"""What `evaluator clean` removes: nothing that a run needs, whichever runs there are and wherever it is killed."""

import json
import shutil
from contextlib import suppress
from itertools import count, takewhile
from pathlib import Path
from unittest.mock import patch

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evaluator.config import ModelConfig, RunConfig
from evaluator.files.whole import write_table, writing_to
from evaluator.progress import finish
from evaluator.run import pipeline
from evaluator.run.folders import read_run, write_run
from evaluator.runs import clean as cleaning
from evaluator.runs.clean import clean, removable
from evaluator.runs.state import run_state
from evaluator.runs.verify import verify
from tests.command_line import command, command_outputs

pytestmark = pytest.mark.usefixtures("without_pages")

FAKE = ModelConfig(model="fake", engine="fake")
DATASET = "financial_phrasebank"  # the fewest demonstrations


def config(n_queries: int, *methods: str) -> RunConfig:
    return RunConfig(
        suites=("staicc-normal",),
        datasets=(DATASET,),
        n_queries=n_queries,
        methods=methods or ("vanilla",),
        definitions=("paper",),
    )


RUNS = {
    "alone": (config(3), None),
    "first": (config(3), "shared"),
    "larger": (config(4), "shared"),  # takes scores from the folder of `first`
    "states": (config(3, "vanilla", "knn_centroid"), "shared"),
    "guest": (config(2), "alone"),  # keeps its prompts in another run's folder
}


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("clean")
    for name, (what, data) in RUNS.items():
        finish(pipeline.run(what, FAKE, folder / name, data=folder / data if data else None))
    finish(pipeline.build(config(1), folder / "built", data=folder / "shared"))
    return folder


@pytest.fixture
def runs(made, tmp_path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "runs"))


def contents(out: Path) -> dict[str, bytes]:
    """A run's record, tables and page."""
    return {
        str(path): path.read_bytes() for path in [out / "run.json", out / "report.html", *(out / "tables").iterdir()]
    }


def kinds(folder: Path, **options: bool) -> set[str]:
    return {one.kind for one in removable(folder, **options).removable}


def test_nothing_can_go_where_runs_need_everything(runs):
    assert removable(runs).removable == []
    assert "Nothing in" in command("clean", runs, "--yes")


@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sets(st.sampled_from([*RUNS, "built"]), min_size=1), st.data())
def test_the_runs_that_are_left_verify_and_report_the_same_bytes(made, tmp_path_factory, removed, data):
    runs = Path(shutil.copytree(made, tmp_path_factory.mktemp("some") / "runs"))
    for name in removed - {"alone"}:
        shutil.rmtree(runs / name)
    if "alone" in removed:  # its folder holds the prompts of another
        (runs / "alone" / "run.json").unlink()
    left = [name for name in RUNS if name not in removed]
    before = {name: contents(runs / name) for name in left}
    killed_at = data.draw(st.integers(0, 6), label="files removed before it is killed")
    steps = count()

    def unlink(path, *, missing_ok=False, real=Path.unlink):
        if next(steps) == killed_at:
            raise KeyboardInterrupt
        real(path, missing_ok=missing_ok)

    with patch.object(Path, "unlink", unlink), suppress(KeyboardInterrupt):
        clean(runs, gone=True)
    clean(runs, gone=True)
    assert removable(runs, gone=True).removable == []
    for name in left:
        assert finish(verify(runs / name)) == []
        assert contents(runs / name) == before[name]
        if name != "guest" or "alone" not in removed:
            what, folder = RUNS[name]
            run = pipeline.run(what, FAKE, runs / name, data=runs / folder if folder else None)
            stages = [*takewhile(lambda stage: stage != "Measuring", (now.stage for now in run))]
            run.close()
            assert "Looking ahead" in stages
            assert "Loading the model" not in stages


def test_prompts_and_scores_of_a_run_that_is_gone_can_go_and_those_of_others_stay(runs):
    shutil.rmtree(runs / "states")
    assert kinds(runs, gone=True) == {"prompts", "scores", "marks"}
    unneeded = next(one.path for one in removable(runs, gone=True).removable if one.kind == "prompts")
    (unneeded / ".requests.01234567.partial").write_bytes(b"12345")
    found = removable(runs, gone=True)
    files = {path for one in found.removable for path in one.files}  # the partial file once, with its folder
    assert found.n_bytes == sum(path.stat().st_size for path in files)
    said = command("clean", runs, "--gone")
    assert "would free" in said
    assert removable(runs, gone=True).removable
    assert "Freed" in command("clean", runs, "--gone", "--yes")
    assert removable(runs, gone=True).removable == []
    for name in ("alone", "first", "larger", "guest"):
        assert finish(verify(runs / name)) == []


def test_scores_that_another_run_took_stay_when_the_run_that_made_them_is_gone(runs):
    shutil.rmtree(runs / "first")
    clean(runs, gone=True)
    assert finish(verify(runs / "larger")) == []


def test_runs_outside_the_folder_that_use_its_prompts_are_known(runs, tmp_path):
    shutil.move(runs / "shared", tmp_path / "apart")
    shutil.move(runs, tmp_path / "moved")
    for path in [*(tmp_path / "moved").iterdir()]:
        shutil.rmtree(path)
    outside = tmp_path / "outside"
    finish(pipeline.run(config(3), FAKE, outside, data=tmp_path / "apart"))
    clean(tmp_path / "apart", gone=True)
    assert finish(verify(outside)) == []
    shutil.rmtree(outside)
    clean(tmp_path / "apart", gone=True)
    assert not [*(tmp_path / "apart").rglob("*.arrow")]


def test_a_run_at_work_is_not_touched_and_neither_are_prompts_and_scores(runs):
    shutil.rmtree(runs / "states")
    with writing_to(runs / "larger"):
        found = clean(runs, gone=True)
        assert found.removable == []
        assert "a process is at work" in found.kept[str(runs / "larger")]
        assert str(runs / "larger") in found.kept[str(runs / "shared")]
        assert "kept" in command("clean", runs)
    assert clean(runs, gone=True).removable


def test_a_damaged_record_keeps_everything_that_it_may_need(runs):
    shutil.rmtree(runs / "states")
    (runs / "larger" / "run.json").write_text("{")
    assert clean(runs, gone=True).removable == []


def test_prompts_that_another_process_writes_just_now_stay(runs):
    shutil.rmtree(runs / "states")
    first = removable(runs, gone=True).removable[1]
    with cleaning.acquire_lock(first.path.with_name(f".{first.path.name}.lock")):
        assert first.path not in [one.path for one in clean(runs, gone=True).removable]
    assert first.path.exists()
    # All tokens of a prompt store have one lock; here tokens of another tokenizer, which no run uses.
    tokens = next((runs / "alone" / "store").glob("*/tokens-*"))
    other = Path(shutil.copytree(tokens, tokens.with_name("tokens-0123456789abcdef")))
    with cleaning.acquire_lock(other.with_name(".tokens.lock")):
        assert other not in [one.path for one in clean(runs).removable]
    assert other in [one.path for one in clean(runs).removable]
    assert (other.exists(), tokens.exists()) == (False, True)


def test_logs_and_what_killed_processes_left_can_go(runs):
    out = runs / "alone"
    (out / "logs").mkdir(exist_ok=True)
    left = [
        out / "tables" / ".x.01234567.partial",
        out / "logs" / "replica-0.log",
        out / ".page.00000000.partial",
    ]
    log_of_unfinished = runs / "built" / "logs" / "replica-0.log"
    log_of_unfinished.parent.mkdir(exist_ok=True)
    for path in [*left, log_of_unfinished]:
        path.write_bytes(b"12345")
    listed = json.loads(command_outputs("clean", runs, "--json").out)
    assert {row["path"] for row in listed["removable"]} == {str(path) for path in left}
    assert (listed["bytes"], listed["removed"]) == (15, False)
    clean(runs)
    assert not any(path.exists() for path in left)
    assert log_of_unfinished.exists()  # why a run failed
    assert finish(verify(out)) == []


def test_a_table_of_earlier_options_goes_when_a_run_is_measured_again_and_one_of_others_stays(runs):
    out = runs / "alone"
    (out / "tables" / "mine.parquet").write_bytes(b"12345")
    record = read_run(out)
    for name in ("old", "changed"):
        digest = write_table(out, name, pl.DataFrame({"a": [1]}))
        record.measures.tables[name] = digest
    (out / "tables" / "changed.parquet").write_bytes(b"by hand")
    write_run(out, record)
    finish(pipeline.measure(out))
    left = {path.stem for path in (out / "tables").iterdir()}
    assert "old" not in left
    assert {"mine", "changed", "metrics"} <= left
    assert clean(runs).removable == []


def a_foreign_thing(place: Path, kind: str) -> Path:
    """Put something that this program has not written into a folder."""
    if kind in ("note", "shard", "hidden"):
        path = place / {"note": "notes.txt", "shard": "precious-00000.arrow", "hidden": ".gitignore"}[kind]
        path.write_bytes(b"precious")
    elif kind == "link":
        path = place / "latest"
        path.symlink_to(place.parent)
    else:  # folders with names that are not ours, or that are
        path = place / {"folder": "my_notes", "run": "inner", "hexadecimal": "0123456789abcdef"}[kind]
        path.mkdir()
        (path / "a.txt").write_text("precious")
        if kind != "folder":
            (path / "run.json").write_text("{}")
            (path / "manifest.json").write_text('{"name": "an app"}')
    return path


KINDS = ["note", "shard", "hidden", "link", "folder", "run", "hexadecimal"]


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_what_others_put_into_a_tree_stays_and_the_dry_run_shows_what_goes(made, tmp_path_factory, data):
    runs = Path(shutil.copytree(made, tmp_path_factory.mktemp("foreign") / "runs"))
    removed = data.draw(st.sets(st.sampled_from(["first", "larger", "states", "built", "guest"])), label="removed runs")
    for name in removed:
        shutil.rmtree(runs / name)
    places = sorted(path for path in [runs, *runs.rglob("*")] if path.is_dir())
    chosen = data.draw(
        st.lists(st.tuples(st.sampled_from(places), st.sampled_from(KINDS)), max_size=8), label="foreign"
    )
    foreign = {place / "x": kind for place, kind in chosen}  # one a place
    things = [a_foreign_thing(place.parent, kind) for place, kind in foreign.items()]
    folders = [thing for thing in things if not thing.is_symlink()]
    theirs = {path: path.read_bytes() for one in folders for path in [one, *one.rglob("*")] if path.is_file()}
    before = {path for path in runs.rglob("*") if path.is_file()}
    found = removable(runs, gone=True)
    assert json.loads(command_outputs("clean", runs, "--gone", "--json").out)["removable"] == [
        {"kind": one.kind, "path": str(one.path), "bytes": one.n_bytes} for one in found.removable
    ]
    lines = command("clean", runs, "--gone")
    assert all(f"  {one.path}\n" in lines for one in found.removable)
    assert {path for path in runs.rglob("*") if path.is_file()} == before
    clean(runs, gone=True)
    gone = before - {path for path in runs.rglob("*") if path.is_file()}
    assert gone == {path for one in found.removable for path in one.files}
    assert {path: path.read_bytes() for path in theirs} == theirs
    assert all(path.is_symlink() or path.exists() for path in things)
    for one in found.removable:  # no folder goes that anything foreign is in
        assert not any(one.path in (thing, *thing.parents) for thing in things)
    for name in {*RUNS} - removed - {"alone"}:
        assert (runs / name / "run.json").exists()


def test_a_run_and_notes_within_folders_of_prompts_and_scores_stay(runs):
    shutil.copytree(runs / "alone", runs / "shared" / "store" / "inner")
    shutil.copytree(runs / "alone", runs / "shared" / "scores" / "inner")
    shutil.rmtree(runs / "states")
    unneeded = [one.path for one in removable(runs, gone=True).removable if one.kind in ("prompts", "scores")]
    assert len(unneeded) > 1
    for path in unneeded:
        shutil.copytree(runs / "alone", path / "inner")
    found = clean(runs, gone=True)
    assert {one.kind for one in found.removable} == {"marks"}
    assert all("inner" in found.kept[str(path)] for path in unneeded)
    assert "which this program has not written" in command("clean", runs)
    for path in [runs / "shared" / "store", runs / "shared" / "scores", *unneeded]:
        assert finish(verify(path / "inner")) == []


def test_prompts_of_which_it_is_not_known_who_uses_them_stay(runs):
    shutil.rmtree(runs / "shared" / "users")
    for name in ("first", "larger", "states", "built"):
        shutil.rmtree(runs / name)
    assert clean(runs, gone=True).removable == []
    assert "by hand" in clean(runs).kept[str(runs / "shared")]


def test_a_run_that_was_moved_keeps_its_prompts_and_is_known_again_once_it_is_opened(runs, tmp_path):
    for run in ("first", "larger", "built"):
        shutil.rmtree(runs / run)
    shutil.move(runs / "shared", tmp_path / "shared")
    moved = Path(shutil.move(runs / "states", tmp_path / "renamed"))  # next to the store, as its record says
    found = clean(tmp_path / "shared")
    assert found.removable == []
    assert "removed and not moved" in found.kept[str(tmp_path / "shared")]
    assert finish(verify(moved)) == []  # which marks its new place
    clean(tmp_path / "shared", gone=True)
    assert finish(verify(moved)) == []


def test_prompts_and_scores_behind_links_stay_where_a_run_needs_them(runs, tmp_path):
    for name in ("store", "scores"):
        shutil.move(runs / "alone" / name, tmp_path / name)
        (runs / "alone" / name).symlink_to(tmp_path / name)
    assert clean(runs, gone=True).removable == []
    assert finish(verify(runs / "alone")) == []


def test_a_run_whose_folder_is_a_link_knows_its_prompts_and_scores(tmp_path):
    (tmp_path / "disk" / "run").mkdir(parents=True)
    (tmp_path / "runs").mkdir()
    out, shared = tmp_path / "runs" / "out", tmp_path / "runs" / "shared"
    out.symlink_to(tmp_path / "disk" / "run")  # ".." of it is the folder "disk"
    finish(pipeline.run(config(2), FAKE, out, data=shared))
    assert finish(verify(out)) == []
    assert clean(tmp_path / "runs").removable == []
    finish(pipeline.measure(out))
    assert run_state(out).data_bytes > 0


def test_a_comparison_among_the_runs_stops_nothing(runs):
    for model, predicted in (("a", "no"), ("b", "yes")):
        (runs / "rows.csv").write_text("gold,pred\n" + f"no,no\nyes,{predicted}\n" * 5)
        command("import", runs / "rows.csv", "--labels", "no,yes", "--model", model, "--out", runs / model)
    command("compare", runs / "a", runs / "b", "--out", runs / "compared")
    shutil.rmtree(runs / "states")
    assert kinds(runs, gone=True) >= {"prompts", "marks"}
    assert "compared" not in str(removable(runs).kept)
    assert f"{runs / 'compared'}" in command("list", runs)
    assert "unfinished" not in command("list", runs / "compared")


def test_the_cache_goes_only_when_it_is_named_and_what_others_put_there_stays(runs, tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    monkeypatch.setenv("EVALUATOR_CACHE", str(cache))
    ours = ["datasets/sst5.0.arrow", "digests/code-0f.json", "hub/acme--sums-0123456/a.parquet"]
    others = [
        "datasets/notes.txt",
        "digests/a.json/b.json",
        "hub/acme--sums-89abcdef/notes.md",
        "models/own/config.json",
    ]
    for name in (*ours, *others):
        (cache / name).parent.mkdir(parents=True, exist_ok=True)
        (cache / name).write_bytes(b"1")
    (cache / "datasets" / "trec.0.arrow").symlink_to(cache / "datasets" / "notes.txt")
    assert kinds(runs) == set()
    assert kinds(runs, cache=True) == {"datasets", "digests"}
    command("clean", runs, "--cache", "--yes")
    left = {str(path.relative_to(cache)) for path in cache.rglob("*") if not path.is_dir()}
    assert left == {*others, "datasets/trec.0.arrow"}
