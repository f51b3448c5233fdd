"""Evaluate a model during training, on rows that are neither training rows nor in a calibration or test split."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import LlamaForCausalLM

from benchmarks.embedded_model.tokenized import TokenizedRows
from evaluator.models.embedded.llama import BOS_ID, EOS_ID

N_SHOTS = 4
BATCH = 32


class DevelopmentScores(NamedTuple):
    """Accuracies on one dataset, and mean probabilities of the gold label, normalised over the label space."""

    dataset: str
    zero_shot_accuracy: float
    accuracy: float
    falsified_accuracy: float  # accuracy with demonstrations whose labels are all wrong
    zero_shot_probability: float
    probability: float


def development_scores(
    model: LlamaForCausalLM,
    tokenizer: Tokenizer,
    training: Sequence[TokenizedRows],
    development: Sequence[TokenizedRows],
    *,
    seed: int,
) -> list[DevelopmentScores]:
    """Return the scores of every dataset, with N_SHOTS random demonstrations from its training rows.

    Args:
        model, tokenizer: the model and its tokenizer.
        training, development: rows for demonstrations and rows for queries, one entry per dataset, in the same order.
        seed: seed of the demonstrations.
    """
    return [
        _scores(model, tokenizer, demonstrations, queries, np.random.default_rng(seed))
        for demonstrations, queries in zip(training, development, strict=True)
    ]


def _scores(
    model: LlamaForCausalLM,
    tokenizer: Tokenizer,
    shown: TokenizedRows,
    queries: TokenizedRows,
    random: np.random.Generator,
) -> DevelopmentScores:
    def encoded(text: str) -> list[int]:
        return tokenizer.encode(text, add_special_tokens=False).ids

    template = shown.dataset.template
    prefix, label_prefix = encoded(template.input_prefixes[0]), encoded(template.label_prefix)
    label_affix = encoded(template.label_affix)
    words = [encoded(name) for name in shown.dataset.verbalizer.label_names]
    first_tokens = [word[0] for word in words]

    def prompt(query: np.ndarray, demonstrations: np.ndarray, labels: np.ndarray) -> list[int]:
        ids = [BOS_ID]
        for row, label in zip(demonstrations, labels, strict=True):
            ids += [*prefix, *shown.token_ids[row], *label_prefix, *words[label], *label_affix]
        return [*ids, *prefix, *query, *label_prefix]

    zero_shot, few_shot, falsified = [], [], []
    for query in queries.token_ids:
        demonstrations = random.integers(len(shown.gold), size=N_SHOTS)
        labels = shown.gold[demonstrations]
        # Adding a random number from 1 to n_labels - 1, modulo n_labels, gives every wrong label the same chance.
        wrong = (labels + random.integers(1, shown.n_labels, size=N_SHOTS)) % shown.n_labels
        zero_shot.append(prompt(query, demonstrations[:0], labels[:0]))
        few_shot.append(prompt(query, demonstrations, labels))
        falsified.append(prompt(query, demonstrations, wrong))
    zero_shot_probs, few_shot_probs, falsified_probs = (
        _label_probabilities(model, prompts, first_tokens) for prompts in (zero_shot, few_shot, falsified)
    )
    rows = np.arange(len(queries.gold))
    return DevelopmentScores(
        dataset=shown.dataset.name,
        zero_shot_accuracy=float((zero_shot_probs.argmax(1) == queries.gold).mean()),
        accuracy=float((few_shot_probs.argmax(1) == queries.gold).mean()),
        falsified_accuracy=float((falsified_probs.argmax(1) == queries.gold).mean()),
        zero_shot_probability=float(zero_shot_probs[rows, queries.gold].mean()),
        probability=float(few_shot_probs[rows, queries.gold].mean()),
    )


def _label_probabilities(model: LlamaForCausalLM, prompts: list[list[int]], label_ids: list[int]) -> np.ndarray:
    """Return label probabilities after the prompts, [prompts, labels], from the first token of every label."""
    by_length = np.argsort([len(prompt) for prompt in prompts])
    probabilities = np.zeros((len(prompts), len(label_ids)))
    for batch in np.array_split(by_length, -(-len(prompts) // BATCH)):
        lengths = torch.tensor([len(prompts[place]) for place in batch])
        token_ids = torch.full((len(batch), int(lengths.max())), EOS_ID)
        for row, place in enumerate(batch):
            token_ids[row, : len(prompts[place])] = torch.tensor(prompts[place])
        with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
            hidden = model.model(input_ids=token_ids, use_cache=False).last_hidden_state
            last = hidden[torch.arange(len(batch)), lengths - 1].float()
            logits = last @ model.lm_head.weight[label_ids].T
        probabilities[batch] = logits.softmax(-1).numpy()
    return probabilities
