"""Train a Llama on the sequences that tasks.py draws."""

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from transformers import LlamaForCausalLM

from benchmarks.embedded_model.initial_weights import initial_model
from benchmarks.embedded_model.settings import Recipe
from benchmarks.embedded_model.tasks import TaskSequences

logger = logging.getLogger(__name__)

REPORT_STEPS = 50
CHECKPOINT_STEPS = 300


def train(
    sequences: TaskSequences,
    token_embeddings: Tensor,
    recipe: Recipe,
    checkpoint: Path,
    *,
    report: Callable[[LlamaForCausalLM], None],
) -> LlamaForCausalLM:
    """Train and return the model, in fp32.

    Training resumes from `checkpoint` if it exists. Before the cooldown a step does not depend on the total number of
    steps, so training can also resume with another `n_steps`.

    Args:
        sequences: training sequences.
        token_embeddings: [vocabulary, width], for the initial model.
        recipe: hyperparameters.
        checkpoint: file that is written every CHECKPOINT_STEPS steps and at the end.
        report: called with the model after every checkpoint.
    """
    torch.manual_seed(recipe.seed)
    model = initial_model(token_embeddings, recipe)
    optimizers = _optimizers(model, recipe)
    done = _resume(checkpoint, model, optimizers)
    body = torch.compile(model.model)  # without the LM head, which is applied only to a sample of positions
    candidates = torch.from_numpy(sequences.label_token_ids())
    began, label_losses = time.monotonic(), list[float]()
    for step in range(done + 1, recipe.n_steps + 1):
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["initial_lr"] * _learning_rate(step, recipe)
        losses = _losses(model, body, sequences, candidates, recipe, step)
        (losses.label + recipe.vocabulary_weight * (losses.label_in_vocabulary + losses.text)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        label_losses.append(losses.label.item())
        if step % REPORT_STEPS == 0:
            tokens_per_s = (step - done) * recipe.sequences_per_step * recipe.length / (time.monotonic() - began)
            mean = sum(label_losses[-REPORT_STEPS:]) / REPORT_STEPS
            logger.info("step %d of %d: %.3f nats a label, %.0f tokens/s", step, recipe.n_steps, mean, tokens_per_s)
        if step % CHECKPOINT_STEPS == 0 or step == recipe.n_steps:
            _save_checkpoint(checkpoint, model, optimizers, step)
            report(model)
    return model


def _optimizers(model: LlamaForCausalLM, recipe: Recipe) -> list[torch.optim.Optimizer]:
    """Return Muon for the matrices within layers and AdamW for all other weights."""
    matrices = [weight for weight in model.model.layers.parameters() if weight.ndim == 2]
    others = [weight for weight in model.parameters() if all(weight is not matrix for matrix in matrices)]
    optimizers: list[torch.optim.Optimizer] = [
        torch.optim.Muon(matrices, lr=recipe.matrix_learning_rate, weight_decay=0.01, momentum=0.95),
        torch.optim.AdamW(others, lr=recipe.other_learning_rate, betas=(0.9, 0.98), weight_decay=0.01),
    ]
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["initial_lr"] = group["lr"]
    return optimizers


def _save_checkpoint(
    checkpoint: Path, model: LlamaForCausalLM, optimizers: list[torch.optim.Optimizer], step: int
) -> None:
    unfinished = checkpoint.with_suffix(".unfinished")
    states = [optimizer.state_dict() for optimizer in optimizers]
    torch.save({"step": step, "model": model.state_dict(), "optimizers": states}, unfinished)
    unfinished.rename(checkpoint)


def _resume(checkpoint: Path, model: LlamaForCausalLM, optimizers: list[torch.optim.Optimizer]) -> int:
    """Load the checkpoint if there is one, and return the number of steps done."""
    if not checkpoint.exists():
        return 0
    saved = torch.load(checkpoint, weights_only=True)
    model.load_state_dict(saved["model"])
    for optimizer, state in zip(optimizers, saved["optimizers"], strict=True):
        optimizer.load_state_dict(state)
    return int(saved["step"])


def _learning_rate(step: int, recipe: Recipe) -> float:
    """Return the learning rate as a share of its maximum: linear warm-up, constant, linear cooldown to zero."""
    left = (recipe.n_steps + 1 - step) / recipe.cooldown_steps
    return min(1.0, step / recipe.warm_up_steps, left)


class _Losses(NamedTuple):
    """Mean losses in nats per token."""

    label: Tensor  # loss of label tokens, normalised over all label words
    label_in_vocabulary: Tensor  # loss of label tokens, normalised over the vocabulary
    text: Tensor  # loss of other tokens, normalised over the vocabulary


def _losses(
    model: LlamaForCausalLM,
    body: Callable[..., Any],
    sequences: TaskSequences,
    candidates: Tensor,
    recipe: Recipe,
    step: int,
) -> _Losses:
    batch = sequences.batch(step, recipe.sequences_per_step)
    # Positions whose next token is learned: all label tokens, and a sample of other tokens.
    labels = np.flatnonzero(batch.is_label[:, 1:])
    random = np.random.default_rng([recipe.seed, step])
    texts = random.choice(np.flatnonzero(batch.is_text[:, 1:]), size=recipe.text_tokens_per_step, replace=False)
    places = torch.from_numpy(np.concatenate([labels, texts]))
    token_ids = torch.from_numpy(batch.token_ids)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        hidden = body(input_ids=token_ids, use_cache=False).last_hidden_state
        logits = model.lm_head(hidden[:, :-1].flatten(0, 1)[places]).float()
    targets = token_ids[:, 1:].flatten()[places]
    in_vocabulary = nn.functional.cross_entropy(logits, targets, reduction="none")
    # `candidates` is sorted, so searchsorted gives the position of a label, which is its class.
    among_labels = nn.functional.cross_entropy(
        logits[: len(labels), candidates], torch.searchsorted(candidates, targets[: len(labels)])
    )
    return _Losses(among_labels, in_vocabulary[: len(labels)].mean(), in_vocabulary[len(labels) :].mean())
