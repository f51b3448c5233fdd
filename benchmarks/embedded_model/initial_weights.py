"""Initialise a Llama with token embeddings that separate the labels, and with attention that already uses them.

Otherwise a transformer of this size spends most of its training on learning what is set here by hand: to attend to the
text of the current example, copy its content, and compare it with other texts.
"""

from dataclasses import replace

import torch
from torch import Tensor, nn
from transformers import LlamaForCausalLM

from benchmarks.embedded_model.settings import Recipe
from evaluator.models.embedded.llama import LlamaSize, llama_config

ALWAYS, ALWAYS_VALUE = 0, 3.0
"""Index of an entry that is the same in all token embeddings, and its value (times hidden_size**-0.5)."""
NEARBY_TOKENS = (30, 20, 12)
"""Number of tokens that the heads of the first layer look back at initialisation, about the length of an example."""
NEARNESS = 7.0  # attention score of the nearest token minus that of a far token, in nats
COPY, COPY_LATER = 0.5, 0.1  # share of its input that attention copies, in the first layer and in later layers
LIKENESS = 0.6  # weight of the identity matrix in the query and key projections


def initial_model(token_embeddings: Tensor, recipe: Recipe) -> LlamaForCausalLM:
    """Return a Llama initialised with these embeddings, which are also its LM head."""
    size = replace(recipe.size, vocab_size=len(token_embeddings))
    model = LlamaForCausalLM(llama_config(size))
    with torch.no_grad():
        model.model.embed_tokens.weight.copy_(token_embeddings)
        model.model.embed_tokens.weight[:, ALWAYS] = ALWAYS_VALUE * size.hidden_size**-0.5
        model.model.norm.weight[ALWAYS] = 0.0
        first, *later = (layer.self_attn for layer in model.model.layers)
        _copy_values(first, COPY)
        _attend_nearby(first, size)
        for attention in later:
            _copy_values(attention, COPY_LATER)
            _attend_to_similar(attention)
    return model


def _copy_values(attention: nn.Module, share: float) -> None:
    """Make attention copy a share of its input: initialise value and output projections near the identity."""
    for projection in (attention.v_proj, attention.o_proj):
        projection.weight += share**0.5 * torch.eye(len(projection.weight))
    attention.v_proj.weight[:, ALWAYS] = 0.0


def _attend_to_similar(attention: nn.Module) -> None:
    """Make tokens attend to similar tokens: initialise query and key projections near the identity.

    Source: Trockman & Kolter 2023, "Mimetic initialization of self-attention layers".
    """
    for projection in (attention.q_proj, attention.k_proj):
        projection.weight += LIKENESS * torch.eye(len(projection.weight))
        projection.weight[:, ALWAYS] = 0.0


def _attend_nearby(attention: nn.Module, size: LlamaSize) -> None:
    """Make tokens attend to the tokens shortly before them; every head looks back as far as NEARBY_TOKENS states.

    The entry ALWAYS is the same in all tokens. After rotary position encoding, its contribution to the product of query
    and key is a sum of cosines of the distance, one per frequency. With these weights the sum is bell-shaped: high for
    near tokens, zero for far tokens.
    """
    half = size.hidden_size // size.n_heads // 2
    frequencies = size.rope_theta ** -(torch.arange(half) / half)
    for projection in (attention.q_proj, attention.k_proj):
        projection.weight[:, ALWAYS] = 0.0
    for head, reach in enumerate(NEARBY_TOKENS):
        bell = frequencies * torch.exp(-((frequencies * reach) ** 2) / 2)
        # An attention score is query times key, divided by the root of the head size; both contain ALWAYS_VALUE.
        amplitudes = (NEARNESS * (2 * half) ** 0.5 * bell / bell.sum()).sqrt() / ALWAYS_VALUE
        rows = slice(2 * half * head, 2 * half * head + half)
        for projection in (attention.q_proj, attention.k_proj):
            projection.weight[rows, ALWAYS] = amplitudes
