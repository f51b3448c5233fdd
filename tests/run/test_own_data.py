"""Settings of a run of one's own data that no option states, and what such a run says of its answers."""

import csv
import random
import re
import shutil
from dataclasses import replace

import polars as pl
import pytest

from evaluator.config import ChatConfig, DataOptions, ModelConfig, RunConfig
from evaluator.models.embedded import EMBEDDED_MODELS
from evaluator.run.folder import BuiltFolder
from evaluator.run.folders import read_run
from evaluator.run.resolved_models import resolve_model
from tests.chat_models import ANY_ROLE
from tests.command_line import command, command_outputs

pytestmark = pytest.mark.usefixtures("without_pages")

FAKE = ("--model", "fake", "--engine", "fake")


def table(path, n_labels, n_rows):
    draw = random.Random(n_labels)
    rows = [(f"text {n} of {draw.random()}", f"label {n % n_labels}") for n in range(n_rows)]
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *rows])
    return path


def run(out, *words):
    command("run", *words, *FAKE, "--out", out)
    return read_run(out)


@pytest.mark.parametrize(("n_labels", "n_shots"), [(2, 2), (5, 5), (17, 16)])
def test_demonstrations_show_every_label_and_labels_are_merged_under_one_definition(tmp_path, n_labels, n_shots):
    path = table(tmp_path / "t.csv", n_labels, 20 * n_labels)
    record = run(tmp_path / "out", "classify", "--data", path)
    prompts = record.prompts
    assert (prompts.n_shots, prompts.definitions, record.scores.label_boundary) == (n_shots, ["paper"], "merged")
    assert prompts.requests == 2 * 12 * n_labels  # 8 rows of each label are demonstrations, none calibrates
    assert prompts.notes == {"t": [prompts.notes["t"][0]]}
    tables = tmp_path / "out" / "tables"
    gold = pl.read_parquet(tables / "predictions.parquet")
    assert gold["definition"].unique().to_list() == ["paper"]
    for prompt in BuiltFolder(tmp_path / "out").built.store.prompts().collect()["prompt"]:
        shown = re.findall(r"label: (label \d+)", prompt)
        assert len({*shown}) == len(shown) == n_shots


def test_staicc_and_named_datasets_stay_as_published(tmp_path):
    record = run(tmp_path / "out", "staicc-normal", "--datasets", "sst5", "--queries", 4)
    assert record.prompts.n_shots == 4
    assert record.prompts.definitions == ["paper", "released", "published"]
    assert record.scores.label_boundary == "separate"


def test_stated_settings_hold_and_a_finished_run_of_other_ones_stays(tmp_path):
    path, out = table(tmp_path / "t.csv", 3, 60), tmp_path / "out"
    words = ("--shots", 7, "--definition", "all", "--label-boundary", "separate")
    record = run(out, "classify", "--data", path, *words)
    assert record.prompts.n_shots == 7
    assert len(record.prompts.definitions) == 3
    assert record.scores.label_boundary == "separate"
    assert "3 shots instead of 7" in command(
        "run", "classify", "--data", path, *words[2:], *FAKE, "--out", out, exits=2
    )


@pytest.mark.usefixtures("pages")
def test_a_run_that_one_label_would_beat_says_so_first(tmp_path):
    rows = [(f"text {n}", "rare" if n % 10 == 0 else "often") for n in range(200)]
    pl.DataFrame(rows, schema=["text", "label"], orient="row").write_csv(tmp_path / "t.csv")
    out = tmp_path / "out"
    shown = command_outputs("run", "classify", "--data", tmp_path / "t.csv", *FAKE, "--out", out)
    metrics = (
        pl.read_parquet(out / "tables" / "metrics.parquet").filter(metric="accuracy", dataset="t").row(0, named=True)
    )
    # 8 of 20 and 18 of 180 rows are demonstrations: 162 of 174 queries have the same label.
    assert metrics["value"] < metrics["majority"] == pytest.approx(162 / 174)
    sentence = f"t: accuracy {metrics['value']:.3f} is not above 0.931, which always answering"
    assert sentence in shown.out
    assert sentence in (out / "report.html").read_text()
    assert "label mass" in shown.err  # beside the first accuracy


@pytest.mark.parametrize(
    ("name", "card", "template"),
    [
        ("SmolLM2-135M-Instruct", "", "auto"),
        ("gemma-3-270m-it", "", "auto"),
        ("zephyr-7b-chat-v0.1", "", "auto"),
        ("final", "---\nlanguage:\n- it\n---\n\n# Mistral-7B-Instruct-v0.3\n", "auto"),
        ("final", "---\nlanguage:\n- it\n---\n\n# gemma-3-270m\n\nAlso see the instruct variants.", None),
        ("items-2b", "", None),
    ],
)
def test_an_instruct_model_is_asked_about_ones_own_data_through_its_chat_template(
    tmp_path, name, card, template, caplog
):
    folder = tmp_path / name
    shutil.copytree(EMBEDDED_MODELS["embedded"](), folder)
    (folder / "chat_template.jinja").write_text(ANY_ROLE.replace("bos_token", "''"))
    (folder / "README.md").write_text(card)
    model = ModelConfig(model=str(folder), engine="transformers")
    own = RunConfig(suites=("staicc-normal",), data=DataOptions(paths=(tmp_path,)))
    form = resolve_model(own, model).form
    assert (form.chat and form.chat.source, form.boundary) == (template, "merged")
    assert ("is an instruct model" in caplog.text) == (template == "auto")
    assert resolve_model(own, replace(model, chat=ChatConfig())).form.chat is None
    assert resolve_model(replace(own, datasets=("sst5",)), model).form == ("separate", None)


def shown(out, n_shots):
    requests = BuiltFolder(out).built.store.requests().filter(pl.col("n_shots") == n_shots)
    return requests.sort("position").select("query_id", "demonstration_set", "demonstration_ids").collect()


def test_sets_seed_and_choice_of_demonstrations(tmp_path):
    path = table(tmp_path / "t.csv", 3, 90)
    default, stated = (tmp_path / name for name in ("default", "stated"))
    run(default, "classify", "--data", path)
    run(stated, "classify", "--data", path, "--sets", 2, "--seed", 42, "--demonstrations", "balanced")
    assert BuiltFolder(default).built.store.fingerprint == BuiltFolder(stated).built.store.fingerprint
    record = run(tmp_path / "more", "classify", "--data", path, "--sets", 3)
    more = shown(tmp_path / "more", 3)
    assert more.filter(pl.col("demonstration_set") < 2).equals(shown(default, 3))
    metrics = pl.read_parquet(tmp_path / "more" / "tables" / "metrics.parquet").filter(dataset="t", metric="accuracy")
    row = metrics.row(0, named=True)
    # Sets are drawn anew for each query, so that the interval over queries covers them.
    assert (row["n_queries"], row["n_requests"], row["ci_over"]) == (66, 198, "queries")
    assert record.prompts.requests == 3 * 66
    other = run(tmp_path / "seed", "classify", "--data", path, "--seed", 7)
    assert other.prompts.seeds == {"splits": 42, "demonstrations": 7}
    assert not shown(tmp_path / "seed", 3).equals(shown(default, 3))
    run(tmp_path / "first", "classify", "--data", path, "--demonstrations", "first", "--sets", 1, "--shots", 5)
    assert shown(tmp_path / "first", 5)["demonstration_ids"].unique().to_list() == [[0, 1, 2, 3, 4]]


def test_hundreds_of_demonstrations_and_a_learning_curve_with_one_set(tmp_path):
    path = table(tmp_path / "t.csv", 2, 500)
    words = ("--training-rows", 240, "--queries", 4, "--shots", 200)
    run(tmp_path / "many", "classify", "--data", path, *words, "--demonstrations", "cover")
    assert shown(tmp_path / "many", 200).height == 8
    words = ("--training-rows", 60, "--queries", 10, "--shots", 12, "--sets", 1)
    run(tmp_path / "curve", "staicc-learning-curve", "--data", path, *words, "--demonstrations", "cover")
    curve = pl.read_parquet(tmp_path / "curve" / "tables" / "learning_curve.parquet")
    points = curve.filter(dataset="t", metric="accuracy").sort("n_shots")
    assert points["n_shots"].to_list() == [*range(13)]
    assert points["n_requests"].to_list() == [10] * 13


def test_choices_of_demonstrations_where_there_are_none_are_refused(tmp_path):
    path = table(tmp_path / "t.csv", 2, 60)

    def refused(*words):
        return command("run", *words, *FAKE, "--out", tmp_path / "out", exits=2)

    assert "StaICC's datasets" in refused("staicc-normal", "--datasets", "sst5", "--sets", 3)
    assert "not for staicc-bias" in refused("staicc-normal", "staicc-bias", "--data", path, "--seed", 1)
    assert "has one set" in refused("classify", "--data", path, "--demonstrations", "first")
    assert "'published' is not one of 'balanced', 'cover', 'first'" in refused(
        "classify", "--data", path, "--demonstrations", "published"
    )
    assert "1 or more" in refused("classify", "--data", path, "--sets", 0)
