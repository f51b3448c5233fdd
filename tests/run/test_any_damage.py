"""Whatever is damaged, in the way, removed or shared: the tables that a run has undisturbed, or one sentence.

Generated cases of what the fault campaign does with kills and forks (benchmarks/faults), in this process.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from benchmarks.faults import damage
from evaluator.config import ModelConfig, RunConfig
from evaluator.errors import EvaluatorError
from evaluator.progress import Progress, Stage, finish
from evaluator.run import folders, pipeline
from evaluator.runs.verify import verify
from tests.command_line import command_outputs

FAKE = ModelConfig(model="fake", engine="fake")
DATASET = "financial_phrasebank"  # the fewest demonstrations
CONFIG = RunConfig(
    suites=("staicc-normal",), datasets=(DATASET,), n_queries=2, methods=("vanilla", "sa_icl"), definitions=("paper",)
)
SEEDS = st.integers(0, 2**32)


def stages(out: Path, data: Path | None = None) -> Stage[None]:
    """All stages but the page, which takes longer than these together."""
    yield from pipeline.build(CONFIG, out, data=data)
    yield from pipeline.score(out, FAKE)
    yield from pipeline.measure(out)


def tables(out: Path) -> dict[str, bytes]:
    """Return the tables of a run. A folder among them is not its own, and stays where it is."""
    return {path.name: path.read_bytes() for path in sorted((out / "tables").iterdir()) if not path.is_dir()}


def said_or_done(stage: Stage[None]) -> str:
    """What the command line would say; other exceptions than it has sentences for are not caught."""
    try:
        finish(stage)
    except (EvaluatorError, OSError) as error:
        return str(error) or pytest.fail("an error without a word")
    return ""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole") / "out"
    finish(stages(out))
    finish(pipeline.report(out))
    return out


@settings(max_examples=5)
@given(place=st.integers(0, 99), edit=st.sampled_from(damage.BYTES), seed=SEEDS)
def test_a_table_with_any_damage_is_refused_with_its_name_and_the_command_that_makes_it_again(
    whole, tmp_path_factory, place, edit, seed
):
    out = Path(shutil.copytree(whole, tmp_path_factory.mktemp("tables") / "out"))
    paths = sorted((out / "tables").glob("*.parquet"))
    path = paths[place % len(paths)]
    damaged = edit(path.read_bytes(), Random(seed))
    assume(damaged != path.read_bytes())
    path.write_bytes(damaged)
    assert str(path) in {str(fault.path) for fault in finish(verify(out))}
    readers = {"metrics": [("export", out, "--format", "csv", "--out", out.parent / "csv"), ("report", out)]}
    readers["group_metrics"] = []  # its groups are those of several suites, and no page of this run has them
    for words in readers.get(path.stem, [("report", out)]):
        said = " ".join("".join(command_outputs(*words, exits=2)).split())
        assert f"{path} is damaged or of another run" in said
        assert f"`evaluator measure {out}`" in said
    finish(pipeline.measure(out))
    assert tables(out) == tables(whole)


@settings(max_examples=5)
@given(place=st.integers(0, 99), edit=st.sampled_from([*damage.BYTES, *damage.JSON]), seed=SEEDS)
def test_any_damage_of_prompts_scores_and_records_gives_the_same_tables_or_one_sentence(
    whole, tmp_path_factory, place, edit, seed
):
    out = Path(shutil.copytree(whole, tmp_path_factory.mktemp("files") / "out"))
    paths = [path for path in sorted(out.rglob("*")) if path.suffix in (".json", ".arrow") and path.is_file()]
    path = paths[place % len(paths)]
    path.write_bytes(edit(path.read_bytes(), Random(seed)))
    if not said_or_done(pipeline.measure(out)):
        assert tables(out) == tables(whole)
    if not said_or_done(stages(out)):
        assert tables(out) == tables(whole)


def in_the_way(path: Path, what: str) -> None:
    """Put something else where a file or folder is or will be."""
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    if what == "folder":
        (path / "inner").mkdir(parents=True)
    elif what == "pipe":
        os.mkfifo(path)
    elif what == "file":
        path.write_bytes(b"in the way")
    else:
        path.symlink_to(path.name if what == "link to itself" else "nowhere")


def cleared(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)


@settings(max_examples=5)
@given(
    place=st.integers(0, 99) | st.just("tables"),
    what=st.sampled_from(["folder", "pipe", "file", "link to itself", "link to nothing"]),
    finished=st.booleans(),
)
@example(place="tables", what="folder", finished=False)
def test_anything_in_the_way_of_a_file_is_one_sentence_and_nothing_is_lost(
    whole, tmp_path_factory, place, what, finished
):
    out = tmp_path_factory.mktemp("obstacle") / "out"
    if finished:
        shutil.copytree(whole, out)
    names = sorted(path.relative_to(whole) for path in whole.rglob("*") if path.name != "report.html")
    path = out / (place if place == "tables" else names[place % len(names)])
    in_the_way(path, what)
    if not said_or_done(stages(out)):
        assert tables(out) == tables(whole)
    cleared(path)
    finish(stages(out))
    assert tables(out) == tables(whole)


def next_of(stage: Iterator[Progress]) -> bool:
    """Go one step on; return whether there are more."""
    return next(stage, None) is not None


@settings(max_examples=2)
@given(turns=st.lists(st.integers(0, 1), max_size=30))
def test_two_runs_that_share_prompts_and_scores_in_any_order_end_with_the_tables_of_one(whole, tmp_path_factory, turns):
    folder = tmp_path_factory.mktemp("shared")
    runs = [stages(folder / name, folder / "data") for name in ("first", "second")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(folders, "SECONDS_BETWEEN_TRIES", 0)
        for turn in turns:
            next_of(runs[turn])
        while runs := [run for run in runs if next_of(run)]:
            pass
    for name in ("first", "second"):
        assert tables(folder / name) == tables(whole)
    assert not list(folder.rglob("*.partial"))


@settings(max_examples=3)
@given(step=st.integers(0, 12), name=st.sampled_from([".", "store", "scores", "tables", "run.json"]))
def test_what_is_removed_while_it_is_written_costs_a_sentence_at_most(whole, tmp_path_factory, step, name):
    out = tmp_path_factory.mktemp("removed") / "out"
    stage = stages(out)
    for _ in range(step):
        if not next_of(stage):
            break
    cleared(out / name)
    said_or_done(stage)
    finish(stages(out))
    assert tables(out) == tables(whole)
