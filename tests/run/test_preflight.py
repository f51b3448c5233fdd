"""`evaluator preflight`, and what stops `evaluator run`: on the fake engine and with a tiny model's tokenizer."""

import json
import shutil

import polars as pl
import pytest

from evaluator.config import DataOptions, ModelConfig, RunConfig
from evaluator.preflight.devices import Assumptions
from evaluator.progress import finish
from evaluator.run.preflight import preflight
from tests.command_line import command, command_outputs

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
    found = record("classify", "--data", table(tmp_path), "--queries", 10, "--model", weightless)
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
    said = command_outputs("preflight", "classify", "--data", table(tmp_path), "--model", weightless).out
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


@pytest.mark.parametrize(
    "words", [("staicc", "--datasets", "sst5,trec", "--queries", 4), ("pvi", "--datasets", "sst5", "--queries", 6)]
)
def test_every_suite_can_be_checked(words):
    found = record(*words, *FAKE)
    assert found["datasets"]["sst5"]["labels"]
    assert all(one["level"] != "stop" for one in found["findings"])


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


def test_the_findings_of_a_run_are_at_the_head_of_its_page(tmp_path):
    out = tmp_path / "out"
    command("run", "classify", "--data", table(tmp_path), *FAKE, "--out", out)
    page = (out / "report.html").read_text()
    assert page.index("Checked before the run") < page.index('class="controls"')
    assert "prompts end in a space" in page


def test_a_prompt_over_the_context_is_found_among_many_prompts(tmp_path, weightless):
    path = tmp_path / "long.csv"
    texts = [f"text {row}" for row in range(400)]
    texts[123] = "word " * 2500
    pl.DataFrame({"text": texts, "label": ["no", "yes"] * 200}).write_csv(path)
    config = RunConfig(suites=("staicc-normal",), data=DataOptions(paths=(path,)))
    found = finish(preflight(config, ModelConfig(model=str(weightless)), Assumptions(), data=tmp_path))
    assert [one.name for one in found.findings if one.level == "stop"] == ["prompts-over-context"]
