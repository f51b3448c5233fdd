"""`evaluator preflight`, and what stops `evaluator run`: on the fake engine and with a tiny model's tokenizer."""

import json
import re
import shutil
import unicodedata

import polars as pl
import pytest
from tokenizers import normalizers, pre_tokenizers, processors
from transformers import AutoTokenizer

from evaluator.config import DataOptions, ModelConfig, RunConfig
from evaluator.preflight.devices import Assumptions
from evaluator.progress import finish
from evaluator.run.preflight import preflight
from tests.chat_models import ANY_ROLE, chat_tokenizer
from tests.command_line import command, command_outputs

pytestmark = pytest.mark.usefixtures("without_pages")

FAKE = ("--model", "fake", "--engine", "fake")


def table(folder, name="mine", labels=("no", "yes"), text="text"):
    path = folder / f"{name}.csv"
    rows = {"text": [f"{text} {row}" for row in range(60)], "label": [labels[row % len(labels)] for row in range(60)]}
    pl.DataFrame(rows).write_csv(path)
    return path


def record(*words):
    (found,) = json.loads(command_outputs("preflight", *words, "--json").out)["models"]
    return found


def names(found):
    return {one["name"]: one for one in found["findings"]}


@pytest.fixture(scope="module")
def weightless(tiny_model, tmp_path_factory):
    """A model's folder as it is without weights, with a chat template."""
    folder = tmp_path_factory.mktemp("weightless") / "model"
    shutil.copytree(tiny_model, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"chat_template": "{{ messages }}"}))
    return folder


def test_a_model_without_weights_is_described(tmp_path, weightless):
    words = ("classify", "--data", table(tmp_path), "--queries", 10, "--model", weightless)
    found = record(*words, "--label-boundary", "separate")
    assert found["n_parameters"] > 0
    assert found["devices"]["H200"]["fits"]
    assert found["has_chat_template"]
    assert found["tokens"] >= found["floor_tokens"] > 0
    (dataset,) = found["datasets"].values()
    assert dataset["queries"] == 10
    assert [label["text"] for label in dataset["labels"]] == ["no", "yes"]
    assert all("".join(label["pieces"]) == label["text"] for label in dataset["labels"])
    assert {"chat-template-unused", "trailing-space"} <= names(found).keys()


@pytest.mark.parametrize(
    ("option", "refused"),
    [
        (("--quantization", "fp8", "--engine", "transformers"), "--quantization fp8 needs --engine vllm"),
        (
            ("--adapter", "nowhere/at-all", "--engine", "fake"),
            "--adapter nowhere/at-all needs --engine vllm or",
        ),
    ],
)
def test_what_a_run_would_refuse_is_refused(tmp_path, weightless, option, refused):
    assert refused in command(
        "preflight", "classify", "--data", table(tmp_path), "--model", weightless, *option, exits=2
    )


def test_the_text_names_labels_classes_devices_and_findings(tmp_path, weightless):
    words = ("classify", "--data", table(tmp_path), "--model", weightless, "--label-boundary", "separate")
    said = command_outputs("preflight", *words).out
    for part in (
        "classes: no 2",
        "label tokens: 'no' = ",
        "demonstration sets: ",
        "A100 80GB",
        "Note     trailing-space",
    ):
        assert part in said


def test_nothing_is_left_behind_unless_a_folder_is_named(tmp_path):
    out = tmp_path / "out"
    words = ("classify", "--data", table(tmp_path), *FAKE)
    command("preflight", *words)
    assert not out.exists()
    command("preflight", *words, "--out", out)
    built = [path.name for path in (out / "store").iterdir() if path.is_dir()]
    command("run", *words, "--out", out)
    assert [path.name for path in (out / "store").iterdir() if path.is_dir()] == built


@pytest.mark.parametrize(("suite", "n_queries"), [("staicc-learning-curve", 36), ("staicc-variables", 60)])
def test_demonstration_sets_are_those_before_queries_and_a_row_is_one_query(tmp_path, suite, n_queries):
    # Labels in turn: each set shows the three of them, also where rows are dealt anew. 8 of 20 rows are demonstrations.
    (dataset,) = record(suite, "--data", table(tmp_path, labels=("no", "yes", "so")), *FAKE)["datasets"].values()
    assert dataset["demonstration_sets"] > 0
    assert dataset["sets_without_a_class"] == 0
    assert dataset["queries"] == n_queries


@pytest.mark.parametrize(
    "words", [("staicc", "--datasets", "sst5,trec", "--queries", 4), ("pvi", "--datasets", "sst5", "--queries", 6)]
)
def test_every_suite_can_be_checked(words):
    found = record(*words, *FAKE)
    assert found["datasets"]["sst5"]["labels"]
    assert all(one["level"] != "stop" for one in found["findings"])


@pytest.mark.usefixtures("pages")
def test_labels_that_end_alike_stop_a_run_until_they_are_accepted(tmp_path):
    words = (
        "classify",
        "--data",
        table(tmp_path, labels=("one end", "other end")),
        "--datasets",
        "sst5",
        "--queries",
        4,
    )
    assert names(record(*words, *FAKE))["unscorable-labels"]["dataset"] == "mine"
    out = tmp_path / "out"
    refused = command_outputs("run", *words, "--out", out, *FAKE, exits=2).err.splitlines()[-1]
    assert refused.endswith("Nothing was scored; --accept unscorable-labels leaves the dataset out.")
    assert not (out / "scores").exists()
    command("run", *words, "--out", out, *FAKE, "--accept", "unscorable-labels")
    assert "Accepted with --accept unscorable-labels: mine: " in (out / "report.html").read_text()


def test_prompts_over_the_context_stop_a_run(tmp_path, weightless, tiny_model):
    words = ("classify", "--data", table(tmp_path, text="word " * 700), "--queries", 4)
    found = names(record(*words, "--model", weightless))
    assert "longer than the model's context of 2048 tokens" in found["prompts-over-context"]["text"]
    refused = command(
        "run", *words, "--model", tiny_model, "--engine", "transformers", "--out", tmp_path / "out", exits=2
    )
    assert "--accept prompts-over-context" in refused


def test_a_label_without_queries_stops_a_run_and_is_measured_once_accepted(tmp_path):
    words = (
        "classify",
        "--data",
        table(tmp_path),
        "--labels",
        "no=no,yes=yes,maybe=maybe",
        *FAKE,
        "--out",
        tmp_path / "out",
    )
    assert "has the label 'maybe'" in command("run", *words, exits=2)
    command("run", *words, "--accept", "class-without-queries")
    metrics = pl.read_parquet(tmp_path / "out" / "tables" / "metrics.parquet")
    assert metrics.filter(metric="accuracy").height


def test_several_models_are_all_checked_before_the_first_is_scored(tmp_path, tiny_model):
    copy = tmp_path / "other"
    shutil.copytree(tiny_model, copy)
    description = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(description | {"max_position_embeddings": 16}))
    words = (
        "classify",
        "--data",
        table(tmp_path),
        "--queries",
        2,
        "--engine",
        "transformers",
        "--out",
        tmp_path / "out",
    )
    refused = command("run", *words, "--model", tiny_model, "--model", copy, exits=2)
    assert "context of 16 tokens" in refused
    assert not list(tmp_path.rglob("scores"))


def test_a_finding_that_does_not_exist_is_refused(tmp_path):
    words = ("classify", "--data", table(tmp_path), *FAKE, "--out", tmp_path / "out", "--accept", "typos")
    assert "there is no finding 'typos'" in command("run", *words, exits=2)


@pytest.mark.usefixtures("pages")
def test_the_findings_of_a_run_are_folded_below_its_results(tmp_path):
    out = tmp_path / "out"
    command("run", "classify", "--data", table(tmp_path), *FAKE, "--label-boundary", "separate", "--out", out)
    page = (out / "report.html").read_text()
    assert page.index('class="results"') < page.index('id="run" class="folded"') < page.index("Checked before the run")
    assert "prompts end in a space" in page


def test_a_prompt_over_the_context_is_found_among_many_prompts(tmp_path, weightless):
    path = tmp_path / "long.csv"
    texts = [f"text {row}" for row in range(400)]
    texts[123] = "word " * 2500
    pl.DataFrame({"text": texts, "label": ["no", "yes"] * 200}).write_csv(path)
    config = RunConfig(suites=("staicc-normal",), data=DataOptions(paths=(path,)))
    (found,) = finish(preflight(config, [ModelConfig(model=str(weightless))], Assumptions(), data=tmp_path))
    assert [one.name for one in found.findings if one.level == "stop"] == ["prompts-over-context"]


def chat_folder(folder, tiny_model, template=None, *, extra=(), front=True, **parts):
    """The tiny model with the tokenizer of tests.chat_models."""
    shutil.copytree(tiny_model, folder)
    tokenizer = chat_tokenizer(template)
    if not front:
        tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(single="$A", special_tokens=[])
    for part, value in parts.items():
        setattr(tokenizer.backend_tokenizer, part, value)
    tokenizer.add_tokens(list(extra))
    tokenizer.save_pretrained(folder)
    return folder


NO_BOS = ANY_ROLE.replace("{{ bos_token }}", "")
"""Begins a conversation without BOS, as Qwen's."""


@pytest.mark.parametrize(
    ("template", "front", "expected"), [(None, True, 0), (None, False, 12), (NO_BOS, True, 12), (ANY_ROLE, False, 0)]
)
def test_prompts_without_the_bos_that_a_model_expects_are_counted_from_the_ids(
    tmp_path, tiny_model, template, front, expected
):
    model = chat_folder(tmp_path / "model", tiny_model, template, front=front)
    words = ["classify", "--data", table(tmp_path), "--queries", 6, "--model", model]
    words += ["--chat-template", "auto"] if template else []
    found = names(record(*words)).get("missing-bos")
    assert (found is not None) == bool(expected)
    if found:
        assert re.match(r"12 of 12 prompts, the first 'text: .*'<s>' \(token 0\).*--add-bos", found["text"])
    assert "missing-bos" not in names(record(*words, "--add-bos"))


@pytest.mark.parametrize(
    ("part", "value", "name", "written", "pieces"),
    [
        (
            "pre_tokenizer",
            pre_tokenizers.ByteLevel(add_prefix_space=True),
            "changed-labels",
            "label: no",
            ("label: ", "no"),
        ),
        ("normalizer", normalizers.Lowercase(), "changed-prompts", "text: He Said", ("text: He Said",)),
    ],
)
def test_texts_that_are_not_what_their_tokens_say_are_shown_as_transformers_reads_them(
    tmp_path, tiny_model, part, value, name, written, pieces
):
    model = chat_folder(tmp_path / "model", tiny_model, **{part: value})
    tokenizer = AutoTokenizer.from_pretrained(model)
    ids = [token for piece in pieces for token in tokenizer(piece, add_special_tokens=False)["input_ids"]]
    read = tokenizer.decode(ids).strip()  # a label's second space, or lower case
    assert read != written
    words = ("classify", "--data", table(tmp_path, text="He Said"), "--queries", 4, "--model", model)
    text = names(record(*words, "--label-boundary", "separate"))[name]["text"]
    assert written in text.partition(" becomes ")[0]
    assert read in text.partition(" becomes ")[2]


def test_a_run_warns_of_what_changes_its_measurement_before_it_scores(tmp_path, tiny_model):
    model = chat_folder(tmp_path / "model", tiny_model, front=False)
    data = table(tmp_path, labels=("yes", "Yes"), text="he said</s>")
    words = ("classify", "--data", data, "--queries", 4, "--model", model, "--engine", "transformers")
    lines = command_outputs("run", *words, "--definition", "paper", "--out", tmp_path / "out").err.splitlines()
    warned = [line.split(":")[1].strip() for line in lines if line.startswith("Note: ")]
    assert {"missing-bos", "control-tokens", "similar-labels"} <= {*warned}


@pytest.mark.parametrize(
    "labels",
    [("yes", "Yes"), ("yes", " yes"), ("ﬁne", "fine"), ("yes", "yes\u00a0"), ("ye\u200bs", "yes"), ("ß", "ss")],
)
def test_labels_that_are_equal_but_for_case_blanks_and_forms_of_characters_are_named(tmp_path, labels):
    folded = {unicodedata.normalize("NFKC", label).replace("\u200b", "").strip().casefold() for label in labels}
    assert len(folded) == 1
    found = names(record("classify", "--data", table(tmp_path, labels=labels), *FAKE))["similar-labels"]
    assert found["dataset"] == "mine"
    assert all(ascii(label) in found["text"] for label in labels)


def test_labels_that_are_fractions_are_found_and_named_as_the_finding_says(tmp_path):
    words = ("classify", "--data", table(tmp_path, labels=("0.0", "1.0")), *FAKE)
    assert "--labels 0.0=NAME,1.0=NAME" in names(record(*words))["numeric-labels"]["text"]
    assert "numeric-labels" not in names(record(*words, "--labels", "0.0=bad,1.0=good"))


@pytest.mark.parametrize("place", ["text", "label"])
def test_a_token_without_an_embedding_stops_a_run_and_is_named(tmp_path, tiny_model, place):
    extra = [f"WORD{number}" for number in range(1024)]  # as many as the embedding has rows
    model = chat_folder(tmp_path / "model", tiny_model, extra=extra)
    tokenizer = AutoTokenizer.from_pretrained(model)
    first = next(text for text in extra if tokenizer.convert_tokens_to_ids(text) == 1024)
    data = (
        table(tmp_path, text=f"a {first} text") if place == "text" else table(tmp_path, labels=("yes", f"no {first}"))
    )
    words = ("classify", "--data", data, "--queries", 4, "--model", model, "--definition", "paper")
    found = names(record(*words))["tokens-past-embedding"]
    assert found["level"] == "stop"
    assert f"{first!r} is token 1,024, and the embedding has 1,024 rows" in found["text"]
    refused = command("run", *words, "--engine", "transformers", "--out", tmp_path / "out", exits=2)
    assert "--accept tokens-past-embedding leaves the dataset out" in refused


def test_a_thought_that_labels_do_not_follow_is_named(tmp_path, tiny_model):
    thinking = ANY_ROLE.replace("assistant\n{% endif %}", "assistant\n<think>\n{% endif %}")
    model = chat_folder(tmp_path / "model", tiny_model, thinking)
    words = ("classify", "--data", table(tmp_path), "--queries", 4, "--model", model, "--chat-template", "auto")
    assert "opens an answer with '<think>'" in names(record(*words))["unwritten-thought"]["text"]


def test_a_template_that_drops_demonstrations_at_the_number_of_a_run_is_refused(tmp_path, tiny_model):
    last = ANY_ROLE.replace("in messages %}", "in messages[-4:] %}")
    model = chat_folder(tmp_path / "model", tiny_model, last)
    words = ("classify", "--data", table(tmp_path), "--queries", 4, "--model", model, "--chat-template", "auto")
    assert "unwritten-thought" not in names(record(*words, "--shots", 1))
    refused = command("preflight", *words, "--shots", 2, exits=2)
    assert "leaves out a message of the user" in refused
    assert "message 1 of 5" in refused
    assert "--chat-demonstrations message" in refused
