"""A training that was stopped goes on as if it had not been."""

import logging
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import LlamaForCausalLM

from benchmarks.embedded_model import token_embeddings, training
from benchmarks.embedded_model.rows import LabelledTexts
from benchmarks.embedded_model.settings import VOCABULARY, Recipe
from benchmarks.embedded_model.tasks import TaskSequences
from benchmarks.embedded_model.token_embeddings import train_token_embeddings
from benchmarks.embedded_model.tokenized import tokenized
from benchmarks.embedded_model.tokenizer import train_tokenizer
from benchmarks.embedded_model.training import train
from evaluator.datasets.staicc import load_staicc
from evaluator.models.embedded.llama import LlamaSize

SMALL = Recipe(
    n_steps=4,
    sequences_per_step=2,
    length=128,
    size=LlamaSize(hidden_size=96, intermediate_size=64, n_heads=3),
    warm_up_steps=1,
    cooldown_steps=1,
    text_tokens_per_step=16,
)


@pytest.fixture(scope="module")
def learned():
    dataset = load_staicc("trec")
    shown = dataset.demonstration.head(600)
    rows = [LabelledTexts(dataset=dataset, texts=shown["texts"].list.first().to_list(), gold=shown["gold"].to_list())]
    tokenizer = train_tokenizer(rows)
    return tokenized(rows, tokenizer), tokenizer


def go_on(_model: LlamaForCausalLM) -> None:
    """What `watch` does where nobody watches."""


def trained(learned, folder: Path, recipe: Recipe, report=go_on) -> dict[str, torch.Tensor]:
    rows, tokenizer = learned
    sequences = TaskSequences(rows, tokenizer, length=recipe.length, seed=0)
    random = torch.Generator().manual_seed(0)
    embeddings = torch.nn.functional.normalize(
        torch.randn(VOCABULARY, recipe.size.hidden_size, generator=random), dim=-1
    )
    model = train(sequences, embeddings, recipe, folder / "checkpoint.pt", report=report)
    return {name: weight.detach().clone() for name, weight in model.state_dict().items()}


@pytest.fixture(autouse=True)
def _uncompiled(monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda model: model)  # a minute, and another rounding
    monkeypatch.setattr(training, "CHECKPOINT_STEPS", 2)


def test_training_resumed_from_its_checkpoint_ends_with_the_same_weights(learned, tmp_path):
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    for folder in (whole, stopped):
        folder.mkdir()
    expected = trained(learned, whole, SMALL)

    def stop(_model: LlamaForCausalLM) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trained(learned, stopped, SMALL, report=stop)
    taken_up = trained(learned, stopped, SMALL)
    assert all(torch.equal(taken_up[name], weight) for name, weight in expected.items())


def test_training_lowers_the_loss(learned, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(training, "REPORT_STEPS", 10)
    recipe = replace(SMALL, n_steps=30, cooldown_steps=10, warm_up_steps=3)
    with caplog.at_level(logging.INFO, logger=training.__name__):
        trained(learned, tmp_path, recipe)
    first, *_, last = (record.args[2] for record in caplog.records)
    assert last < first - 0.3


def test_token_embeddings_tell_classes_apart_by_their_mean(learned, monkeypatch):
    monkeypatch.setattr(token_embeddings, "EPOCH_ROWS", 10_000)
    (rows,), _ = learned
    seen = replace(rows, token_ids=rows.token_ids[:500], gold=rows.gold[:500])
    embeddings = train_token_embeddings([seen], vocabulary=VOCABULARY, width=32, seed=0)
    torch.testing.assert_close(embeddings.norm(dim=1), torch.ones(VOCABULARY))
    means = torch.stack([embeddings[text].mean(0) for text in rows.token_ids[500:]])
    answers = (means @ embeddings[torch.from_numpy(rows.label_token_ids)].T).argmax(1).numpy()
    assert (answers == rows.gold[500:]).mean() > 0.45  # of 100 unseen questions; the largest class has a quarter
