"""A finished run is never replaced without --force; what extends it is no replacement."""

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace

import polars as pl
import pytest

import evaluator
from evaluator.config import ChatConfig, ModelConfig, RunConfig
from evaluator.engine import find_source
from evaluator.errors import ConfigError
from evaluator.progress import finish
from evaluator.record import no_scores
from evaluator.run import pipeline
from evaluator.run.folders import read_run
from evaluator.run.resolved_models import model_folders, resolve_model, resolve_models
from evaluator.runs.state import run_state
from evaluator.runs.verify import verify
from evaluator.suites.staicc import suite
from tests.chat_models import ANY_ROLE
from tests.command_line import command, command_outputs
from tests.end_to_end.processes import INTERRUPTED

pytestmark = pytest.mark.usefixtures("without_pages")

CONFIG = RunConfig(suites=("staicc-normal",), datasets=("sst5",), n_queries=3)
FAKE = ModelConfig(model="fake", engine="fake")
EMBEDDED = ModelConfig(model="embedded", engine="transformers")
RANDOM = ModelConfig(model="random", engine="transformers")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("finished")
    finish(pipeline.run(CONFIG, FAKE, out))
    return out


@pytest.fixture
def copied(finished, tmp_path):
    """A finished run that a test may change."""
    return shutil.copytree(finished, tmp_path / "copied")


def files(out):
    kept = [out / "run.json", out / "report.html", *(out / "tables").glob("*.parquet")]
    return {path.name: path.read_bytes() for path in kept}


@pytest.mark.parametrize(
    ("config", "model", "change"),
    [
        (replace(CONFIG, datasets=("trec",)), FAKE, "datasets trec without sst5"),
        (replace(CONFIG, suites=("staicc-bias",)), FAKE, "suites staicc-bias without staicc-normal"),
        (replace(CONFIG, n_shots=2), FAKE, "2 shots instead of 4"),
        (replace(CONFIG, n_queries=2), FAKE, "2 queries instead of 3"),
        (replace(CONFIG, methods=("batch_calibration",)), FAKE, "methods batch_calibration without vanilla"),
        (replace(CONFIG, definitions=("paper",)), FAKE, "definitions paper without released, published"),
        (replace(CONFIG, parts=("normal",)), FAKE, "parts normal instead of all"),
        (CONFIG, EMBEDDED, "model embedded instead of fake"),
        (CONFIG, replace(FAKE, model="fake:2"), "model fake:2 instead of fake"),
        (CONFIG, replace(FAKE, label_boundary="merged"), "label boundary merged instead of"),
    ],
)
def test_a_run_that_would_replace_a_finished_one_stops_before_it_changes_a_file(finished, config, model, change):
    before = files(finished)
    with pytest.raises(ConfigError, match=change) as error:
        finish(pipeline.run(config, model, finished))
    assert "holds a finished run (staicc-normal on sst5 with fake)" in str(error.value)
    assert "--force" in str(error.value)
    assert files(finished) == before


def test_the_same_run_again_and_more_of_it_extend_a_finished_run(copied):
    finish(pipeline.run(CONFIG, FAKE, copied))
    more = replace(CONFIG, datasets=("sst5", "trec"), n_queries=4, methods=("vanilla", "batch_calibration"))
    run = finish(pipeline.run(more, FAKE, copied)).run
    assert {*run.table("metrics")["dataset"]} >= {"sst5", "trec"}


def test_a_search_with_several_numbers_of_shots_can_be_run_again(tmp_path):
    words = ("run", "prompt-search", "--datasets", "trec", "--queries", 4, "--tries", 3, "--shots", "1,2")
    words += ("--model", "fake", "--engine", "fake", "--out", tmp_path)
    for _ in range(2):
        command(*words)
    # An option of the suite has no other value in the same folder.
    assert "this command would replace it: seed 1 instead of 42" in command(*words, "--seed", 1, exits=2)


def test_force_replaces_a_finished_run(copied):
    finish(pipeline.run(replace(CONFIG, n_shots=2), FAKE, copied, force=True))
    assert run_state(copied).state == "finished"


def test_tables_that_a_forced_run_does_not_write_go_with_the_run_that_it_replaces(copied):
    words = ("prompt-search", "--datasets", "trec", "--queries", 4, "--tries", 3, "--shots", 1)
    command("run", *words, "--model", "fake", "--engine", "fake", "--out", copied, "--force")
    assert (copied / "tables" / "search_results.parquet").is_file()
    assert not (copied / "tables" / "confusion.parquet").exists()


def test_a_run_that_is_not_finished_may_change(tmp_path):
    finish(pipeline.build(CONFIG, tmp_path))
    finish(pipeline.build(replace(CONFIG, n_shots=2), tmp_path))


def test_an_interrupted_extension_still_keeps_the_results_that_were_there(copied):
    stage = pipeline.run(replace(CONFIG, n_queries=5), FAKE, copied)
    next(now for now in stage if now.stage == "Tokenising")
    stage.close()
    assert run_state(copied).state == "unfinished"
    with pytest.raises(ConfigError, match="model embedded instead of fake"):
        finish(pipeline.run(replace(CONFIG, n_queries=5), EMBEDDED, copied))
    with pytest.raises(ConfigError, match="2 shots instead of 4"):
        finish(pipeline.run(replace(CONFIG, n_queries=5, n_shots=2), FAKE, copied))
    finish(pipeline.run(replace(CONFIG, n_queries=5), FAKE, copied))


def test_build_score_and_import_replace_no_finished_run_either(finished, tmp_path):
    assert "2 shots instead of 4" in command(
        "build", "staicc-normal", "--datasets", "sst5", "--queries", 3, "--shots", 2, "--out", finished, exits=2
    )
    score = command("score", finished, "--model", "embedded", "--engine", "transformers", exits=2)
    assert "model embedded instead of fake" in score
    answers = tmp_path / "answers.csv"
    answers.write_text("gold,pred\na,a\nb,a\na,b\nb,b\n")
    assert "suites imported without" in command("import", answers, "--labels", "a,b", "--out", finished, exits=2)


def test_a_table_with_other_rows_under_the_same_name_is_another_dataset(tmp_path):
    def run(texts, **options):
        rows = pl.DataFrame({"text": texts, "label": ["yes", "no"] * 20})
        columns = {"input_column": "text", "gold_column": "label", "queries": 4, "progress": False}
        return evaluator.evaluate(
            "classify", model="fake", engine="fake", data=rows, out=tmp_path, **columns, **options
        )

    first = [f"text {i}" for i in range(40)]
    run(first)
    run(first)
    other = [f"another {i}" for i in range(40)]
    with pytest.raises(ConfigError, match="other rows"):
        run(other)
    with pytest.raises(ConfigError, match="or other demonstrations"):  # half of the training rows calibrate
        run(first, methods="vanilla,contextual_calibration")
    run(other, force=True)


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    out = tmp_path_factory.mktemp("two")
    finish(pipeline.run(CONFIG, [EMBEDDED, RANDOM], out))
    return out


def test_a_comparison_keeps_its_models(two):
    with pytest.raises(ConfigError, match="finished comparison of embedded, random"):
        finish(pipeline.run(CONFIG, [EMBEDDED, replace(EMBEDDED, dtype="bfloat16")], two))
    with pytest.raises(ConfigError, match="for a single model"):
        finish(pipeline.run(CONFIG, FAKE, two))


def test_list_show_report_and_export_know_the_models_of_a_comparison(two):
    assert "embedded, random" in command_outputs("show", two).out
    assert "staicc-normal, embedded, random" in command_outputs("list", two).out
    assert command_outputs("report", two).out.strip().endswith("compare.html")
    written = command_outputs("export", two, "--format", "csv").out
    assert len([line for line in written.splitlines() if "/exports/" in line]) == 2


def test_an_interrupted_model_is_named_and_has_no_score_of_another(tmp_path):
    finish(pipeline.run(CONFIG, FAKE, tmp_path / "a", data=tmp_path / "shared"))
    stage = pipeline.run(CONFIG, EMBEDDED, tmp_path / "b", data=tmp_path / "shared")
    for now in stage:
        if now.stage == "Loading the model":
            stage.close()
            break
    state = run_state(tmp_path / "b")
    assert (state.state, state.model, sum(one.done for one in state.scoring)) == ("unfinished", "embedded", 0)
    assert "100% scored" not in command_outputs("list", tmp_path / "b").out


def test_an_interrupted_comparison_counts_the_prompts_of_all_models_and_names_its_command(tmp_path):
    stage = pipeline.run(CONFIG, [EMBEDDED, RANDOM], tmp_path)
    for now in stage:
        if now.stage == "Loading the model" and (tmp_path / "models/embedded/tables").is_dir():
            stage.close()
            break
    state = run_state(tmp_path)
    assert [(one.model, one.done == one.planned > 0) for one in state.scoring] == [
        ("embedded", True),
        ("random", False),
    ]
    assert "50% scored" in command_outputs("list", tmp_path).out.splitlines()[0]
    record = read_run(tmp_path / "models" / "random")
    assert no_scores(replace(record, commands={"build": "evaluator run x"}), "a") == (
        "a has no scores yet. Run `evaluator run x` first."
    )
    assert "evaluator score a --model MODEL" in no_scores(replace(record, commands={}), "a")


@pytest.mark.parametrize("in_background", [False, True])
def test_sigterm_is_told_on_the_terminal_and_in_the_log(tmp_path, in_background):
    words = ["run", "staicc-normal", "--datasets", "sst5", "--queries", "2", "--model", "fake", "--engine", "fake"]
    # As a shell script does with a command that it does not wait for.
    ignored = ["sh", "-c", 'trap "" INT; exec "$@"', "sh"] if in_background else []
    command = [*ignored, sys.executable, str(INTERRUPTED), "SIGSTOP", "1", *words, "--out", str(tmp_path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert os.WIFSTOPPED(os.waitpid(process.pid, os.WUNTRACED)[1])  # when it scores
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGCONT)
        _, said = process.communicate()
    assert process.returncode == 143
    assert "Stopped by SIGTERM. What was scored is kept; this goes on from there:" in said
    assert "stopped by SIGTERM: the same command goes on from here" in (tmp_path / "evaluator.log").read_text()


def test_the_dtype_and_logits_of_a_finished_run_stay_where_the_options_are_left_out(tmp_path):
    given = replace(EMBEDDED, dtype="bfloat16", head_dtype="float32")
    finish(pipeline.run(CONFIG, given, tmp_path))
    with pytest.raises(ConfigError, match="dtype float32 instead of bfloat16"):
        finish(pipeline.run(CONFIG, EMBEDDED, tmp_path))
    with pytest.raises(ConfigError, match="logits in bfloat16 instead of float32"):
        finish(pipeline.run(CONFIG, replace(given, head_dtype="auto"), tmp_path))
    stage = pipeline.run(replace(CONFIG, n_queries=4), given, tmp_path)
    next(now for now in stage if now.stage == "Tokenising")
    stage.close()
    with pytest.raises(ConfigError, match="dtype float32 instead of bfloat16"):
        finish(pipeline.run(replace(CONFIG, n_queries=4), EMBEDDED, tmp_path))
    finish(pipeline.run(replace(CONFIG, n_queries=4), given, tmp_path))


def test_a_definition_that_changes_prompts_is_no_extension(tmp_path):
    released = replace(CONFIG, suites=("staicc-bias",), definitions=("released",))
    finish(pipeline.run(released, FAKE, tmp_path))
    with pytest.raises(ConfigError, match="domain with the prompts of paper instead of released"):
        finish(pipeline.run(replace(released, definitions=("paper", "released")), FAKE, tmp_path))


def test_other_candidates_in_the_same_file_are_no_extension(tmp_path):
    candidates = tmp_path / "candidates.json"
    words = ("run", "prompt-search", "--datasets", "trec", "--queries", 2, "--candidates", candidates)
    words = (*words, "--model", "fake", "--engine", "fake", "--out", tmp_path / "out")
    candidates.write_text('{"instructions": ["Say what it is.", "Choose."]}')
    command(*words)
    command(*words)
    candidates.write_text('{"instructions": ["Another one."]}')
    assert "trec with other rows, labels or texts" in command(*words, exits=2)


def test_a_comparison_that_replaces_a_run_leaves_nothing_of_it_and_the_other_way_round(copied):
    several = [FAKE, replace(FAKE, model="fake:2")]
    finish(pipeline.run(CONFIG, several, copied, force=True))
    assert not (copied / "report.html").exists()
    assert not (copied / "tables" / "metrics.parquet").exists()
    assert finish(verify(copied)) == []
    finish(pipeline.run(CONFIG, several, copied))
    finish(pipeline.run(CONFIG, FAKE, copied, force=True))
    assert not [*copied.glob("compare.*"), *(copied / "tables").glob("comparison.parquet")]
    finish(pipeline.run(CONFIG, FAKE, copied))


@pytest.mark.usefixtures("pages")
def test_a_page_of_earlier_numbers_does_not_stay_beside_new_tables(tmp_path):
    finish(pipeline.run(CONFIG, FAKE, tmp_path))
    finish(pipeline.score(tmp_path, replace(FAKE, model="fake:2"), force=True))
    finish(pipeline.measure(tmp_path))
    assert evaluator.open_run(tmp_path)._repr_html_() is None
    assert [fault.damaged for fault in finish(verify(tmp_path))] == ["page"]
    finish(pipeline.report(tmp_path))
    finish(pipeline.measure(tmp_path))
    assert finish(verify(tmp_path)) == []


def test_queries_of_a_table_of_ones_own_can_become_more_than_without_the_option_and_not_fewer(tmp_path, monkeypatch):
    """Without --queries, a table has at most so many."""
    monkeypatch.setattr(suite, "MAX_OWN_QUERIES", 10)
    pl.DataFrame({"text": [f"text {n}" for n in range(60)], "label": ["no", "yes"] * 30}).write_csv(tmp_path / "t.csv")
    words = ("run", "classify", "--data", tmp_path / "t.csv", "--model", "fake", "--engine", "fake")
    words = (*words, "--out", tmp_path / "out")
    command(*words)
    command(*words, "--queries", 14)
    assert "20 requests of t instead of 28" in command(*words, exits=2)
    assert "10 queries instead of 14" in command(*words, "--queries", 10, exits=2)
    metrics = pl.read_parquet(tmp_path / "out" / "tables" / "metrics.parquet")
    assert metrics.filter(metric="accuracy", dataset="t")["n_queries"].to_list() == [14]


def test_an_interrupted_extension_keeps_the_form_of_prompts(copied):
    more = replace(CONFIG, n_queries=5)
    finish(pipeline.build(more, copied))
    finish(pipeline.build(more, copied))
    with pytest.raises(ConfigError, match="label boundary merged instead of plain prompts, label boundary separate"):
        finish(pipeline.run(more, replace(FAKE, label_boundary="merged"), copied))
    with pytest.raises(ConfigError, match="label boundary merged instead of"):
        finish(pipeline.score(copied, replace(FAKE, label_boundary="merged")))
    finish(pipeline.run(more, FAKE, copied))


def test_an_interrupted_extension_keeps_the_tokens_in_front_of_prompts(tmp_path):
    folder = shutil.copytree(find_source(EMBEDDED).folder, tmp_path / "without BOS")
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer | {"post_processor": None}))
    plain, out = replace(EMBEDDED, model=str(folder)), tmp_path / "run"
    finish(pipeline.run(CONFIG, plain, out))
    more = replace(CONFIG, n_queries=5)
    finish(pipeline.build(more, out))
    with pytest.raises(ConfigError, match="1 token in front of a prompt \\(--add-bos\\) instead of 0"):
        finish(pipeline.run(more, replace(plain, add_bos=True), out))
    with pytest.raises(ConfigError, match="1 token in front of a prompt"):
        finish(pipeline.score(out, replace(plain, add_bos=True)))


def test_a_comparison_of_fewer_models_is_made_again_of_these_alone_and_in_their_order(tmp_path):
    first, second, third = (replace(FAKE, model=f"fake:{number}") for number in (1, 2, 3))
    finish(pipeline.run(CONFIG, [first, second], tmp_path))
    finish(pipeline.run(CONFIG, [third, first], tmp_path, force=True))
    finish(pipeline.run(CONFIG, [third, first], tmp_path))
    before = {path: path.read_bytes() for path in [*tmp_path.glob("compare.*"), *tmp_path.glob("tables/*")]}
    finish(pipeline.report(tmp_path))
    assert {path: path.read_bytes() for path in before} == before
    written = command_outputs("export", tmp_path, "--format", "csv").out
    assert [line.split("/models/")[1].split("/")[0] for line in written.splitlines()] == ["fake--3", "fake--1"]


def test_score_replaces_no_comparison_and_names_no_models_for_a_single_run(two):
    before = {path: path.read_bytes() for path in [*two.glob("compare.*"), two / "run.json"]}
    with pytest.raises(ConfigError, match="finished comparison of embedded, random, and this command is for a single"):
        finish(pipeline.score(two, FAKE))
    for name in ("receipt", "threshold", "measure"):
        said = command(name, two, exits=2)
        assert f"{two} holds the runs of several models. Name one of them: {two / 'models/embedded'}, " in said
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.parametrize("name", ["csv", "markdown", "latex"])
def test_runs_of_several_models_are_exported_beside_the_named_file(two, tmp_path, name):
    written = command_outputs("export", two, "--format", name, "--out", tmp_path / "table.txt").out.split()
    of_all = ["table.txt"] * (name != "csv")
    assert [path.removeprefix(f"{tmp_path}/") for path in written] == [
        "table-embedded.txt", "table-random.txt", *of_all
    ]  # fmt: skip


def test_two_templates_of_one_name_have_a_folder_each(tmp_path):
    chats = []
    for place, end in (("a", "."), ("b", "!")):
        (tmp_path / place).mkdir()
        (tmp_path / place / "t.jinja").write_text(f"{ANY_ROLE}{end}")
        chats.append(replace(FAKE, chat=ChatConfig(template=str(tmp_path / place / "t.jinja"))))
    folders = model_folders(resolve_models(CONFIG, chats))
    assert len({*folders}) == 2
    assert all(name.startswith("fake-chat-t-") for name in folders)


def test_a_model_in_the_working_folder_or_above_it_has_a_folder_among_the_others():
    names = model_folders([resolve_model(CONFIG, replace(FAKE, model=name)) for name in (".", "..", "a.b")])
    assert names[2] == "a.b"
    assert all(name.startswith("---") for name in names[:2])
