"""Log-likelihoods of two pretrained models, against transformers' own tokenizer and softmax in float32."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import evaluator
from tests.command_line import command
from tests.shared_data import real_model

ROWS = [
    ("Where is my parcel? It should have come on Monday.", "delivery"),
    ("The screen of the phone has a crack.", "damage"),
    ("Please send me the invoice again.", "billing"),
    ("The box was wet and everything in it was broken.", "damage"),
    ("I was charged twice for one order.", "billing"),
    ("The courier left it with a neighbour I do not know.", "delivery"),
] * 4


@pytest.mark.slow
@pytest.mark.usefixtures("without_pages")
@pytest.mark.parametrize(
    ("name", "boundary"),
    [
        ("smollm2-135m-instruct", "merged"),
        ("gemma-3-270m", "separate"),
        pytest.param("smollm2-135m-instruct", "separate", marks=pytest.mark.exhaustive),
        pytest.param("gemma-3-270m", "merged", marks=pytest.mark.exhaustive),
    ],
)
def test_labels_have_the_likelihoods_of_the_text_that_a_request_shows(tmp_path: Path, name: str, boundary: str) -> None:
    folder = real_model(name)
    table = pl.DataFrame(ROWS, schema=["text", "topic"], orient="row").with_columns(
        pl.format("{} ({})", "text", pl.int_range(pl.len())).alias("text")
    )
    table.write_csv(tmp_path / "tickets.csv")
    model_options = ("--model", folder, "--engine", "transformers", "--dtype", "float32", "--label-boundary", boundary)
    plain = ("--chat-template", "none")  # the labels of a conversation are in tests/models/test_chat.py
    data = ("--data", tmp_path / "tickets.csv", "--input-column", "text", "--gold-column", "topic")
    size = ("--queries", 2, "--shots", 1)
    command("run", "classify", *data, *size, *model_options, *plain, "--out", tmp_path / "out")
    scores = evaluator.read_scores(tmp_path / "out").filter(pl.col("ask") == "labels").collect()
    assert scores.height >= 2

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    expected = [
        [log_likelihood(model, tokenizer, prompt, label, boundary) for label in labels]
        for prompt, labels in scores.select("prompt", "continuations").iter_rows()
    ]
    np.testing.assert_allclose(np.array(scores["label_log_likelihoods"].to_list()), expected, atol=1e-3)


def log_likelihood(model, tokenizer, prompt: str, label: str, boundary: str) -> float:
    """Return the log-likelihood of a label's tokens after a prompt, in nats."""
    context = tokenizer(prompt)["input_ids"]
    if boundary == "merged":
        ids = tokenizer(prompt + label)["input_ids"]
        start = next(place for place, (a, b) in enumerate(zip([*context, -1], ids, strict=False)) if a != b)
    else:
        ids = context + tokenizer(label, add_special_tokens=False)["input_ids"]
        start = len(context)
    with torch.inference_mode():  # a large vocabulary: logits of the label's tokens only
        logits = model(torch.tensor([ids]), logits_to_keep=len(ids) - start + 1).logits[0]
    log_probs = logits.double().log_softmax(-1)
    return sum(float(row[token]) for row, token in zip(log_probs, ids[start:], strict=False))
