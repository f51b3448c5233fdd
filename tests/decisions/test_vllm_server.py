"""Typed questions answered by vLLM's own server, by our form `vllm` in this process, and by transformers."""

import json
import shutil

import numpy as np
import polars as pl
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import evaluator
from tests.command_line import command
from tests.engine.architectures import GATED, HEAD, Architecture, save_model
from tests.engine.vllm_server import vllm_server
from tests.runs.test_ask import QUESTIONS, ROWS, N
from tests.shared_data import real_model

pytestmark = pytest.mark.slow

ASKED = {
    "queue": "Question: Which team?\nA: billing - payments\nB: technical\nC: spam - advertising\n"
    "Answer with the letter of one option only.",
    "refund": "Question: A refund?\nyes: money back\nno\nAnswer with yes or no only.",
    "anger": "Question: How angry?\n0: calm\n1: cross\n2: furious\nAnswer with the number of one level only.",
}
LABELS = {"queue": ["A", "B", "C"], "refund": ["no", "yes"], "anger": ["0", "1", "2"]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a random Qwen3 that has a real tokenizer, its answers as a server, and those of this process."""
    real, folder = real_model("smollm2-135m-instruct"), tmp_path_factory.mktemp("decisions")
    sizes = {"vocab_size": 49_152, "max_position_embeddings": 1024}
    model = save_model(folder / "model", Architecture("Qwen3ForCausalLM", "Qwen3Config", GATED | HEAD | sizes))
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(real / name, model / name)
    (folder / "q.toml").write_text(QUESTIONS)
    pl.DataFrame(ROWS).write_csv(folder / "t.csv")
    table = ("--data", folder / "t.csv", "--input-column", "body", "--questions", folder / "q.toml")
    with vllm_server(model, folder / "log", fork=True) as url:
        asked = ("--url", url, "--protocol", "systemone", "--model", "served")
        command("ask", *table, *asked, "--out", folder / "asked")
    ours = ("--form", "vllm", "--chat-template", "auto", "--engine", "vllm", "--dtype", "float32", "--model", model)
    command("run", "decide", *table, *ours, "--parts", "vllm,order", "--out", folder / "run")
    return folder


@pytest.fixture(scope="module")
def expected(folder):
    """Question -> [row, option], log-softmax of transformers over the vocabulary after the chat template's prompt."""
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    model = AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32)

    def of_prompt(text, labels):
        turn = [{"role": "user", "content": text}]
        prompt = tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True)
        tokens = tokenizer(prompt, add_special_tokens=False, return_tensors="pt").input_ids
        with torch.inference_mode():
            last = model(tokens).logits[0, -1].double().log_softmax(dim=0)
        return last[[tokenizer.encode(label, add_special_tokens=False)[0] for label in labels]].numpy()

    return {
        name: np.array([of_prompt(f"{row['body']}\n\n{text}", LABELS[name]) for row in ROWS])
        for name, text in ASKED.items()
    }


@pytest.mark.parametrize("question", ASKED)
def test_the_server_reports_the_probabilities_and_label_masses_of_transformers(folder, expected, question):
    log_probs = expected[question]
    answers = [json.loads(line) for line in (folder / "asked/answers.jsonl").read_text().splitlines()]
    replies = [row["response"] for row in sorted(answers, key=lambda row: row["id"])]
    masses = [reply["diagnostics"][question]["label_mass"] for reply in replies]
    np.testing.assert_allclose(masses, np.exp(log_probs).sum(axis=1), rtol=1e-5)
    names = {"queue": ["billing", "technical", "spam"]}.get(question, LABELS[question])
    probs = [[reply["answers"][question]["probabilities"][name] for name in names] for reply in replies]
    np.testing.assert_allclose(probs, softmaxed(log_probs), rtol=0, atol=1e-5)


@pytest.mark.parametrize("question", ASKED)
@pytest.mark.parametrize("run", ["asked", "run"])
def test_answers_that_were_asked_and_our_own_have_the_log_likelihoods_of_transformers(folder, expected, run, question):
    rows = evaluator.read_scores(folder / run).collect().filter(dataset=question)
    rows = rows.filter(pl.col("part").is_in(["vllm", "imported"])).sort(pl.col("query_id").cast(pl.Int64))
    assert rows.height == N
    scores = np.array(rows["label_log_likelihoods"].to_list())
    np.testing.assert_allclose(scores, expected[question], rtol=0, atol=1e-5)
    table = pl.read_parquet(folder / run / "tables/predictions.parquet")
    table = table.filter(pl.col("part").is_in(["vllm", "imported"]), dataset=question, definition="paper")
    probs = np.array(table.sort(pl.col("query_id").cast(pl.Int64))["label_probs"].to_list())
    np.testing.assert_allclose(probs, softmaxed(expected[question]), rtol=0, atol=1e-5)


def test_a_random_model_names_places_and_the_order_part_finds_it(folder):
    rows = pl.read_parquet(folder / "run/tables/predictions.parquet").filter(part="order", dataset="queue")
    # In order n option n is first. A random model answers the same letter whatever it stands for: the option moves on.
    assert rows.select((pl.col("pred") - pl.col("template")) % 3).to_series().n_unique() == 1
    metrics = pl.read_parquet(folder / "run/tables/metrics.parquet").filter(part="order", dataset="queue")
    assert metrics.filter(metric="order_flips")["value"].item() == 1


def softmaxed(log_probs):
    weights = np.exp(log_probs)
    return weights / weights.sum(axis=1, keepdims=True)
