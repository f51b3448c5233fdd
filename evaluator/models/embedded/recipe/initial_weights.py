"""The model before its first step: token embeddings that tell classes apart, in a Llama that already uses them.

What is set here by hand is what a transformer of this size otherwise takes most of its training to find: look at your
own text, take over what stands there, compare it with others.
"""

from dataclasses import replace

import torch
from torch import Tensor, nn
from transformers import LlamaForCausalLM

from evaluator.models.embedded.llama import LlamaSize, llama_config
from evaluator.models.embedded.recipe.settings import Recipe

ALWAYS, ALWAYS_VALUE = 0, 3.0
"""An entry that all token embeddings hold, and its value beside those that tell them apart."""
NEARBY_TOKENS = (30, 20, 12)
"""How far each head of the first layer looks back when training begins: about an example's length."""
NEARNESS = 7.0  # nats by which the nearest token is ahead of a far one
COPY, COPY_LATER = 0.5, 0.1
LIKENESS = 0.6


def initial_model(token_embeddings: Tensor, recipe: Recipe) -> LlamaForCausalLM:
    """A Llama that begins with these embeddings, which are also its head's."""
    size = replace(recipe.size, vocab_size=len(token_embeddings))
    model = LlamaForCausalLM(llama_config(size))
    with torch.no_grad():
        model.model.embed_tokens.weight.copy_(token_embeddings)
        model.model.embed_tokens.weight[:, ALWAYS] = ALWAYS_VALUE * size.hidden_size**-0.5
        model.model.norm.weight[ALWAYS] = 0.0
        first, *later = (layer.self_attn for layer in model.model.layers)
        _copy_values(first, COPY)
        _look_nearby(first, size)
        for attention in later:
            _copy_values(attention, COPY_LATER)
            _look_for_the_like(attention)
    return model


def _copy_values(attention: nn.Module, share: float) -> None:
    """A place takes over a share of what stands where it looks: values and outputs begin near the identity."""
    for projection in (attention.v_proj, attention.o_proj):
        projection.weight += share**0.5 * torch.eye(len(projection.weight))
    attention.v_proj.weight[:, ALWAYS] = 0.0


def _look_for_the_like(attention: nn.Module) -> None:
    """A place looks at those like it: queries and keys begin near the identity (Trockman & Kolter 2023, "Mimetic
    initialization of self-attention layers")."""
    for projection in (attention.q_proj, attention.k_proj):
        projection.weight += LIKENESS * torch.eye(len(projection.weight))
        projection.weight[:, ALWAYS] = 0.0


def _look_nearby(attention: nn.Module, size: LlamaSize) -> None:
    """A place looks at the last tokens before it, each head as far as one of NEARBY_TOKENS.

    Every token has the same entry ALWAYS. Turned by rotary position, what queries and keys take of it multiplies to a
    sum of cosines of the distance, one a frequency; weighted as here it is a bell, high nearby and nothing far away.
    """
    half = size.hidden_size // size.n_heads // 2
    frequencies = size.rope_theta ** -(torch.arange(half) / half)
    for projection in (attention.q_proj, attention.k_proj):
        projection.weight[:, ALWAYS] = 0.0
    for head, reach in enumerate(NEARBY_TOKENS):
        bell = frequencies * torch.exp(-((frequencies * reach) ** 2) / 2)
        # A score is the product of query and key over the root of the head's size; both hold ALWAYS_VALUE.
        amplitudes = (NEARNESS * (2 * half) ** 0.5 * bell / bell.sum()).sqrt() / ALWAYS_VALUE
        rows = slice(2 * half * head, 2 * half * head + half)
        for projection in (attention.q_proj, attention.k_proj):
            projection.weight[rows, ALWAYS] = amplitudes
