"""Estimate a model's parameters and arithmetic from its config.json, without its weights."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

# Feed-forward parts of two matrices; all other architectures are taken to have three (gate, up, down).
_TWO_MATRICES = (
    "bloom", "falcon", "gpt2", "gpt_bigcode", "gpt_neo", "gpt_neox", "gptj", "mpt", "opt", "phi", "starcoder2"
)  # fmt: skip


class ModelSize(NamedTuple):
    """Numbers of parameters, without norms and biases."""

    n_parameters: int
    per_token: int  # in the matrices that every token of a prompt is multiplied with

    @property
    def flop_per_token(self) -> int:
        """Floating-point operations of a prompt's token: two for each parameter that it meets.

        Attention itself and the LM head, which is applied to one token of a request, are left out.
        """
        return 2 * self.per_token


def model_size(folder: Path) -> ModelSize | None:
    """Estimate the size of the transformer that a config.json describes; None where it states no sizes.

    Attention has four matrices, or fewer heads of keys and values; of experts, a token meets those that the router
    chooses and those that are shared. Latent attention, state-space layers and convolutions are taken for attention.
    """
    path = folder / "config.json"
    if not path.is_file():
        return None
    description = json.loads(path.read_text("utf-8-sig"))
    entries = description.get("text_config") or description
    hidden = _first(entries, "hidden_size", "n_embd", "d_model")
    n_layers = _first(entries, "num_hidden_layers", "n_layer", "n_layers")
    vocabulary = _first(entries, "vocab_size")
    if not (hidden and n_layers and vocabulary):
        return None
    per_layer, met = _feed_forward(entries, hidden)
    attention = _attention(entries, hidden)
    is_tied = entries.get("tie_word_embeddings", description.get("tie_word_embeddings", False))
    embeddings = vocabulary * hidden * (1 if is_tied else 2)
    return ModelSize(n_layers * (attention + per_layer) + embeddings, n_layers * (attention + met))


def _attention(entries: Mapping[str, Any], hidden: int) -> int:
    n_heads = _first(entries, "num_attention_heads", "n_head", "n_heads") or 1
    head_size = _first(entries, "head_dim") or hidden // n_heads
    n_kv_heads = _first(entries, "num_key_value_heads") or n_heads
    return hidden * head_size * (2 * n_heads + 2 * n_kv_heads)


def _feed_forward(entries: Mapping[str, Any], hidden: int) -> tuple[int, int]:
    """Return the parameters of a layer's feed-forward part, and those that a token meets."""
    n_matrices = 2 if entries.get("model_type") in _TWO_MATRICES else 3
    width = _first(entries, "intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size") or 4 * hidden
    n_experts = _first(entries, "num_local_experts", "num_experts", "n_routed_experts")
    if not n_experts:
        return (n_matrices * hidden * width,) * 2
    width = _first(entries, "moe_intermediate_size") or width
    chosen = _first(entries, "num_experts_per_tok", "num_experts_per_token") or 1
    shared = _first(entries, "n_shared_experts", "num_shared_experts")
    one = n_matrices * hidden * width
    return (n_experts + shared) * one, (chosen + shared) * one


def _first(entries: Mapping[str, Any], *keys: str) -> int:
    values = (entries.get(key) for key in keys)
    return next((value for value in values if type(value) is int and value > 0), 0)
