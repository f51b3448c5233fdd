"""The training itself: sequences of tasks become a Llama."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

from evaluator.embedded.recipe.tasks import BOS_ID, EOS_ID, TaskSequences

logger = logging.getLogger(__name__)

REPORT_STEPS = 50
CHECKPOINT_STEPS = 250


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """All that decides the weights besides the rows."""

    n_steps: int = 2_400
    seed: int = 0
    sequences_per_step: int = 16
    length: int = 512  # tokens
    hidden_size: int = 192
    intermediate_size: int = 512
    n_layers: int = 5
    n_heads: int = 3
    context_length: int = 4096
    rope_theta: float = 500_000.0  # most of a head turns so slowly that it compares what places hold, near or far
    matrix_learning_rate: float = 0.01  # of Muon, for the matrices inside the layers
    other_learning_rate: float = 5e-4  # of AdamW, for embeddings and norms
    warm_up_steps: int = 100
    cooldown_steps: int = 800  # over which the learning rate falls to nothing
    vocabulary_weight: float = 0.1  # of finding texts and labels in the whole vocabulary, beside one label among all
    text_tokens_per_step: int = 512  # drawn out of all: the head over the vocabulary is half of the cost


def train(
    sequences: TaskSequences,
    token_embeddings: Tensor,
    recipe: Recipe,
    checkpoint: Path,
    *,
    watch: Callable[[LlamaForCausalLM], None],
) -> LlamaForCausalLM:
    """The trained model, in fp32; `watch` is called with it every CHECKPOINT_STEPS steps.

    What is left of it in `checkpoint` is taken up again. Before the cooldown a step does not depend on how many there
    will be, so a run can also be taken up with another `n_steps`.
    """
    torch.manual_seed(recipe.seed)
    model = new_model(token_embeddings, recipe)
    optimizers = _optimizers(model, recipe)
    done = _take_up(checkpoint, model, optimizers)
    body = torch.compile(model.model)
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
            _keep(checkpoint, model, optimizers, step)
            watch(model)
    return model


def _optimizers(model: LlamaForCausalLM, recipe: Recipe) -> list[torch.optim.Optimizer]:
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


def _keep(checkpoint: Path, model: LlamaForCausalLM, optimizers: list[torch.optim.Optimizer], step: int) -> None:
    unfinished = checkpoint.with_suffix(".unfinished")
    states = [optimizer.state_dict() for optimizer in optimizers]
    torch.save({"step": step, "model": model.state_dict(), "optimizers": states}, unfinished)
    unfinished.rename(checkpoint)


def _take_up(checkpoint: Path, model: LlamaForCausalLM, optimizers: list[torch.optim.Optimizer]) -> int:
    """Steps done before."""
    if not checkpoint.exists():
        return 0
    kept = torch.load(checkpoint, weights_only=True)
    model.load_state_dict(kept["model"])
    for optimizer, state in zip(optimizers, kept["optimizers"], strict=True):
        optimizer.load_state_dict(state)
    return int(kept["step"])


def new_model(token_embeddings: Tensor, recipe: Recipe) -> LlamaForCausalLM:
    """A Llama that begins with these embeddings, which are also its head's."""
    config = LlamaConfig(
        architectures=["LlamaForCausalLM"],
        vocab_size=len(token_embeddings),
        hidden_size=recipe.hidden_size,
        intermediate_size=recipe.intermediate_size,
        num_hidden_layers=recipe.n_layers,
        num_attention_heads=recipe.n_heads,
        num_key_value_heads=recipe.n_heads,
        max_position_embeddings=recipe.context_length,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": recipe.rope_theta},
        bos_token_id=BOS_ID,
        eos_token_id=EOS_ID,
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        model.model.embed_tokens.weight.copy_(token_embeddings)
        for number, layer in enumerate(model.model.layers):
            _begin_near_identity(layer.self_attn, compares=number > 0)
    return model


def _begin_near_identity(attention: nn.Module, *, compares: bool) -> None:
    """Begin with values and outputs, and where it `compares` queries and keys, near the identity.

    The first layer then averages what stands before a place, and the later ones take over what stands at places that
    are like it (Trockman & Kolter 2023, "Mimetic initialization of self-attention layers").
    """
    scales = {"v_proj": 0.7, "o_proj": 0.7} | ({"q_proj": 0.6, "k_proj": 0.6} if compares else {})
    for projection, scale in scales.items():
        weight = getattr(attention, projection).weight
        weight += scale * torch.eye(len(weight))


def _learning_rate(step: int, recipe: Recipe) -> float:
    """Of its highest value: up, level, and down to nothing."""
    left = (recipe.n_steps + 1 - step) / recipe.cooldown_steps
    return min(1.0, step / recipe.warm_up_steps, left)


class _Losses(NamedTuple):
    """Mean nats a token."""

    label: Tensor  # among all label words there are
    label_in_vocabulary: Tensor
    text: Tensor


def _losses(
    model: LlamaForCausalLM,
    body: Callable[..., Any],
    sequences: TaskSequences,
    candidates: Tensor,
    recipe: Recipe,
    step: int,
) -> _Losses:
    batch = sequences.batch(step, recipe.sequences_per_step)
    labels = np.flatnonzero(batch.is_label[:, 1:])
    random = np.random.default_rng([recipe.seed, step])
    texts = random.choice(np.flatnonzero(batch.is_text[:, 1:]), size=recipe.text_tokens_per_step, replace=False)
    places = torch.from_numpy(np.concatenate([labels, texts]))
    token_ids = torch.from_numpy(batch.token_ids)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        hidden = body(input_ids=token_ids, use_cache=False).last_hidden_state
        logits = model.lm_head(hidden[:, :-1].flatten(0, 1)[places]).float()
    asked = token_ids[:, 1:].flatten()[places]
    in_vocabulary = nn.functional.cross_entropy(logits, asked, reduction="none")
    among_labels = nn.functional.cross_entropy(
        logits[: len(labels), candidates], torch.searchsorted(candidates, asked[: len(labels)])
    )
    return _Losses(among_labels, in_vocabulary[: len(labels)].mean(), in_vocabulary[len(labels) :].mean())
