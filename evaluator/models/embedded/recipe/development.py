"""What a model under training has learned so far, on rows that are neither trained on nor in any benchmark split."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import LlamaForCausalLM

from evaluator.models.embedded.byte_level import BOS_ID, EOS_ID
from evaluator.models.embedded.recipe.tokenized import TokenizedRows

N_SHOTS = 4
BATCH = 32


class DevelopmentScores(NamedTuple):
    """Of one dataset: shares of right answers, and mean probability of the right label among all labels."""

    dataset: str
    zero_shot_accuracy: float
    accuracy: float
    falsified_accuracy: float  # every demonstration's label wrong
    zero_shot_probability: float
    probability: float


def watch(
    model: LlamaForCausalLM,
    tokenizer: Tokenizer,
    training: Sequence[TokenizedRows],
    development: Sequence[TokenizedRows],
    *,
    seed: int,
) -> list[DevelopmentScores]:
    """Scores with N_SHOTS random demonstrations out of the training rows, a dataset after the other."""
    return [
        _scores(model, tokenizer, shown, asked, np.random.default_rng(seed))
        for shown, asked in zip(training, development, strict=True)
    ]


def _scores(
    model: LlamaForCausalLM,
    tokenizer: Tokenizer,
    shown: TokenizedRows,
    asked: TokenizedRows,
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

    zero_shot, right, falsified = [], [], []
    for query in asked.token_ids:
        demonstrations = random.integers(len(shown.gold), size=N_SHOTS)
        labels = shown.gold[demonstrations]
        wrong = (labels + random.integers(1, shown.n_labels, size=N_SHOTS)) % shown.n_labels
        zero_shot.append(prompt(query, demonstrations[:0], labels[:0]))
        right.append(prompt(query, demonstrations, labels))
        falsified.append(prompt(query, demonstrations, wrong))
    of_zero_shot, of_right, of_falsified = (
        _label_probabilities(model, prompts, first_tokens) for prompts in (zero_shot, right, falsified)
    )
    queries = np.arange(len(asked.gold))
    return DevelopmentScores(
        dataset=shown.dataset.name,
        zero_shot_accuracy=float((of_zero_shot.argmax(1) == asked.gold).mean()),
        accuracy=float((of_right.argmax(1) == asked.gold).mean()),
        falsified_accuracy=float((of_falsified.argmax(1) == asked.gold).mean()),
        zero_shot_probability=float(of_zero_shot[queries, asked.gold].mean()),
        probability=float(of_right[queries, asked.gold].mean()),
    )


def _label_probabilities(model: LlamaForCausalLM, prompts: list[list[int]], label_ids: list[int]) -> np.ndarray:
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
