"""In-context PVI through vLLM, labels of one token, against logits that transformers computes of every prompt."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, TemperatureLogitsWarper, TopKLogitsWarper

import evaluator
from evaluator.models.embedded.llama import make_random_llama
from tests.command_line import command
from tests.suites.in_context_pvi.pvi_folder import write_folder

pytestmark = pytest.mark.usefixtures("without_pages")

METHODS = "vanilla,pvi_released,hardest_demonstrations"
SHOWN_BY = {"input": ("random", "null"), "hardest_demonstrations": ("hardest", "hardest_demonstrations_null")}


class Finished(NamedTuple):
    out: Path
    model: Path


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    folder = tmp_path_factory.mktemp("pvi")
    data, out = folder / "data", folder / "out"
    data.mkdir()
    write_folder(data)
    # Digits with the space before them are often enough in these texts to become tokens.
    texts = [f"SENTENCE1: Dog {n} runs.\nQUESTION: Is it (0) or (1)?\nANSWER: {n % 3}\n\n" for n in range(60)]
    model = make_random_llama(folder / "model", texts=texts)
    words = ("--data", data, "--datasets", "snli", "--queries", 6, "--shots", 3, "--sets", 2)
    command("run", "pvi", *words, "--methods", METHODS, "--model", model, "--engine", "vllm", "--out", out)
    return Finished(out, model)


def scored(finished: Finished) -> Iterator[tuple[dict[str, Any], list[float], list[float]]]:
    """Every request with the log-likelihoods of its labels, and as the notebook takes them."""
    tokenizer = AutoTokenizer.from_pretrained(str(finished.model))
    model = AutoModelForCausalLM.from_pretrained(str(finished.model), dtype=torch.float32)
    for row in evaluator.read_requests(finished.out).collect().iter_rows(named=True):
        context = tokenizer(row["prompt"])["input_ids"]
        whole = [tokenizer(f"{row['prompt']} {label}")["input_ids"] for label in "012"]
        assert all(ids[:-1] == context for ids in whole), "one token a label"
        with torch.inference_mode():
            logits = model(torch.tensor([context])).logits[:, -1]
        kept = TopKLogitsWarper(20)(None, TemperatureLogitsWarper(0.8)(None, logits)).log_softmax(-1)[0]
        lowest = kept[kept.isfinite()].min()
        probs = logits.double().log_softmax(-1)[0]
        labels = [ids[-1] for ids in whole]
        yield row, probs[labels].tolist(), torch.where(kept.isfinite(), kept, lowest)[labels].tolist()


def test_pvi_of_every_definition_is_that_of_transformers_behind_random_and_chosen_demonstrations(
    finished: Finished,
) -> None:
    found = {
        (row["part"], row["demonstration_set"], row["query_id"]): (row["gold"], whole, notebook)
        for row, whole, notebook in scored(finished)
        if row["part"] != "pvi_training"
    }
    expected = {}
    for (part, number, query), (gold, whole, notebook) in found.items():
        if part in SHOWN_BY:
            source, null = SHOWN_BY[part]
            _, null_whole, null_notebook = found[null, number, None]
            key = (source, number, query)
            spaces = [np.logaddexp.reduce(scores) for scores in (whole, null_whole)]
            gain = whole[gold] - null_whole[gold]
            expected[("paper", *key)] = gain / math.log(2)
            expected[("label_space", *key)] = (gain - spaces[0] + spaces[1]) / math.log(2)
            if source == "random":
                expected[("released", *key)] = (notebook[gold] - null_notebook[gold]) / math.log(2)
    pvi = pl.read_parquet(finished.out / "tables" / "pvi.parquet")
    rows = pvi.select("definition", "demonstrations", "demonstration_set", "query_id", "pvi_bits").rows()
    measured = {tuple(key): bits for *key, bits in rows}
    assert measured.keys() == expected.keys()
    assert len(measured) == 5 * 2 * 6  # three definitions behind random sets, two behind chosen ones
    assert [measured[key] for key in expected] == pytest.approx(list(expected.values()), abs=1e-4)


def test_the_hardest_training_rows_by_transformers_are_those_that_were_shown(finished: Finished) -> None:
    requests = list(scored(finished))
    null = next(whole for row, whole, _ in requests if row["part"] == "null" and row["demonstration_set"] == 0)
    gains = [
        (row["gold"], whole[row["gold"]] - null[row["gold"]], row["prompt"])
        for row, whole, _ in requests
        if row["part"] == "pvi_training"
    ]
    hardest = {label: min((gain, prompt) for gold, gain, prompt in gains if gold == label)[1] for label in range(3)}
    shown = next(str(row["prompt"]) for row, _, _ in requests if row["part"] == "hardest_demonstrations")
    for label, prompt in hardest.items():
        asked = str(prompt).rsplit("\n\n", 1)[1]
        assert f"{asked} {label}\n\n" in shown
