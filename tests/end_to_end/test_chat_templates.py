"""Runs through a chat template as a user types them, and plain runs beside them."""

import json
from html import escape
from pathlib import Path

import polars as pl
import pytest

import evaluator
from evaluator.errors import ConfigError
from tests.chat_models import ANY_ROLE, NO_SYSTEM
from tests.command_line import command
from tests.end_to_end.processes import table_bytes
from tests.engine.label_server import LabelServer

pytestmark = pytest.mark.usefixtures("without_pages")

FAKE = ("--model", "fake", "--engine", "fake")
SMALL = ("--datasets", "sst5", "--queries", 4)
ONE = ("--datasets", "financial_phrasebank", "--queries", 2)  # the fewest demonstrations, for methods that score them


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("templates") / "any role.jinja"
    file.write_text(ANY_ROLE)
    return file


def recorded(out: Path) -> dict:
    scores: dict = json.loads((out / "run.json").read_text())["scores"]
    return scores


def scored(out: Path, template: Path, *words: object) -> None:
    command("build", *words, "--out", out)
    command("score", out, *FAKE, "--chat-template", template)


@pytest.mark.usefixtures("pages")
@pytest.mark.parametrize(
    ("demonstrations", "suites", "methods"),
    [
        ("turns", ("staicc",), "all"),
        ("turns", ("staicc-demonstrations", "staicc-learning-curve"), "vanilla"),
        ("message", ("staicc-normal",), "all"),
    ],
)
def test_all_suites_and_methods_go_through_a_template(tmp_path, template, demonstrations, suites, methods):
    chat = ("--chat-template", template, "--chat-demonstrations", demonstrations, "--system-instruction", "Be brief.")
    command("run", *suites, *ONE, "--methods", methods, *FAKE, *chat, "--out", tmp_path)
    scores = recorded(tmp_path)
    assert scores["label_boundary"] == "merged"
    assert scores["chat"]["template"] == str(template)
    assert scores["chat"]["demonstrations"] == demonstrations
    example = scores["chat"]["example"]
    assert example.startswith("<|start|>system\nBe brief.<|end|>\n<|start|>user\n")
    assert example.count("<|start|>assistant\n") == (5 if demonstrations == "turns" else 1)
    shown = (tmp_path / "report.html").read_text()
    assert "demonstrations as" in shown
    assert escape(example, quote=True) in shown.replace("&#39;", "&#x27;").replace("&#34;", "&quot;")


def test_prompt_search_goes_through_a_template(tmp_path, template):
    options = ("--tries", 2, "--methods", "all")
    scored(tmp_path, template, "prompt-search", *SMALL, *options)
    example = recorded(tmp_path)["chat"]["example"]
    *_, question, answer = example.split("<|start|>")
    assert question.endswith("sentiment:<|end|>\n")
    assert answer.startswith("assistant\n")


def test_pvi_goes_through_a_template(tmp_path, template):
    methods = "vanilla,hardest_demonstrations,easiest_demonstrations,middle_demonstrations"
    options = ("--sets", 1, "--methods", methods)
    scored(tmp_path, template, "pvi", *ONE, *options)
    # The suite's two parts, the training rows' one, and two of each method that chooses demonstrations.
    assert evaluator.read_scores(tmp_path).select("part").unique().collect().height == 2 + 1 + 2 * 3


def test_plain_scores_stay_what_they_are_when_a_template_is_tried_on_the_same_prompts(tmp_path, template):
    store = ("--store", tmp_path / "store")
    plain = ("run", "staicc-normal", *SMALL, *FAKE)
    command(*plain, *store, "--out", tmp_path / "first")
    command(*plain, "--chat-template", template, *store, "--out", tmp_path / "chat")
    command(*plain, "--chat-template", "none", *store, "--out", tmp_path / "again")
    assert recorded(tmp_path / "again")["files"] == recorded(tmp_path / "first")["files"]
    assert table_bytes(tmp_path / "again") == table_bytes(tmp_path / "first")
    first, chat = recorded(tmp_path / "first"), recorded(tmp_path / "chat")
    assert first["chat"] is None
    assert first["stores"] == chat["stores"]
    assert first["tokens"] != chat["tokens"]
    assert not {*first["files"]} & {*chat["files"]}
    scores = [evaluator.read_scores(tmp_path / name).collect() for name in ("first", "chat")]
    assert scores[0]["prompt_id"].equals(scores[1]["prompt_id"])
    assert not scores[0]["label_log_likelihoods"].equals(scores[1]["label_log_likelihoods"])


def test_both_forms_of_one_model_are_compared_by_one_command(tmp_path, template):
    forms = f"none,{template}"
    command("run", "staicc-normal", *SMALL, *FAKE, "--chat-template", forms, "--out", tmp_path)
    assert {path.name for path in (tmp_path / "models").iterdir()} == {"fake", "fake-chat-any--role"}
    compared = pl.read_parquet(tmp_path / "tables" / "comparison.parquet")
    models = compared["model"].unique().sort().to_list()
    assert models == ["fake, plain prompts", f"fake, the chat template {template}, demonstrations as turns"]
    page = (tmp_path / "compare.html").read_text()
    assert "have the same weights" in page
    assert "The runs differ in their prompt form" in page


@pytest.mark.parametrize("name", ["run", "preflight"])
def test_a_model_without_a_template_has_one_form(tmp_path, name):
    said = command(name, "staicc-normal", *SMALL, *FAKE, "--chat-template", "none,auto", "--out", tmp_path, exits=2)
    assert "fake has no chat template, so it can only be evaluated with plain prompts" in said


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--system-instruction", "Be brief."), "are about conversations. Add --chat-template auto"),
        (("--chat-template", "none", "--chat-demonstrations", "message"), "are about conversations."),
        (("--chat-template", "none,none"), "takes auto, none, a file, or different ones of these, got 'none,none'"),
        (("--chat-template", "nowhere.jinja"), "--chat-template nowhere.jinja: the file cannot be read"),
    ],
)
def test_options_that_do_not_fit_are_refused_before_anything_is_built(tmp_path, words, sentence):
    said = command("run", "staicc-normal", *SMALL, *FAKE, *words, "--out", tmp_path / "out", exits=2)
    assert sentence in " ".join(said.split())
    assert not list(tmp_path.rglob("*.arrow"))


def test_a_template_that_refuses_the_conversation_is_one_sentence(tmp_path):
    (tmp_path / "template").write_text(NO_SYSTEM)
    words = ("--chat-template", tmp_path / "template", "--system-instruction", "Be brief.")
    said = command("run", "staicc-normal", *SMALL, *FAKE, *words, "--out", tmp_path / "out", exits=2)
    sentence = f"The chat template {tmp_path / 'template'} refuses a conversation: System role not supported. Leave out"
    assert sentence in said
    assert "Traceback" not in said


def test_one_stage_scores_one_form(tmp_path, template):
    command("build", "staicc-normal", *SMALL, "--out", tmp_path)
    said = command("score", tmp_path, *FAKE, "--chat-template", f"none,{template}", exits=2)
    assert "--chat-template takes one form here" in said
    command("score", tmp_path, *FAKE, "--chat-template", template)
    assert recorded(tmp_path)["chat"]["demonstrations"] == "turns"


def test_published_demonstrations_cannot_be_turns(tmp_path, template):
    # A table of the published kind, and demonstrations as text without the places of their parts.
    rows = {"sentence": [f"one {n}" for n in range(8)], "label": [0, 1] * 4}
    pl.DataFrame(rows).write_parquet(tmp_path / "cola_in_domain_dev.parquet")
    texts = {
        "prompt_set": [0, 0],
        "dataset": ["cola"] * 2,
        "kind": ["g", "g_prime"],
        "shots": [4] * 2,
        "text": ["A: 1\n", "x A: 1\n"],
    }
    pl.DataFrame(texts).write_parquet(tmp_path / "prompts.parquet")
    words = (
        "run",
        "pvi",
        "--data",
        tmp_path,
        "--datasets",
        "cola",
        "--demonstrations",
        "published",
        "--sets",
        1,
        *FAKE,
    )
    chat = ("--chat-template", template)
    said = command(*words, *chat, "--out", tmp_path / "out", exits=2)
    assert "The demonstrations of cola are a published text that does not say where each begins" in said
    command(*words, *chat, "--chat-demonstrations", "message", "--out", tmp_path / "out")


def test_a_served_model_is_asked_through_its_template(tmp_path, tiny_model):
    folder = tmp_path / "model"
    folder.mkdir()
    for file in tiny_model.iterdir():
        (folder / file.name).symlink_to(file)
    (folder / "chat_template.jinja").write_text(ANY_ROLE)
    server = LabelServer()
    try:
        words = ("--model", folder, "--engine", "server", "--server-url", server.url, "--served-name", "small")
        command("run", "staicc-normal", *SMALL, *words, "--chat-template", "auto", "--out", tmp_path / "out")
    finally:
        server.stop()
    example = recorded(tmp_path / "out")["chat"]["example"]
    assert example.startswith("<s><|start|>user\n")


def test_python_takes_the_same_options(template):
    run = evaluator.evaluate(
        "staicc-normal",
        model="fake",
        engine="fake",
        datasets=["trec"],
        queries=4,
        chat_template=template,
        progress=False,
    )
    assert run.record.scores.chat is not None
    with pytest.raises(ConfigError, match="one model in one form"):
        evaluator.evaluate(
            "staicc-normal", model="fake", engine="fake", datasets=["trec"], chat_template=["none", template]
        )
    texts, labels = ["rain", "sun", "fog", "heat"], ["wet", "dry"] * 2
    plain, chat = (
        evaluator.InContextClassifier("fake", engine="fake", chat_template=each).fit(texts, labels)
        for each in ("none", str(template))
    )
    assert (plain.predict_proba(texts) != chat.predict_proba(texts)).any()
