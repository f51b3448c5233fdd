"""Compute a model's last feed-forward network in vLLM only for tokens whose output is read.

Of a prompt, the output of the last token is read, or of the tokens of a label. After the last attention no token looks
at another one, but vLLM takes them all through the rest of the last layer. Of a model with n layers this saves 1 / n of
what feed-forward networks take: of all products 8% with 8 layers, 2% with 32.
"""

from collections.abc import Callable
from typing import Any

import torch
from vllm.distributed.kv_transfer import get_kv_transfer_group, has_kv_transfer_group
from vllm.forward_context import get_forward_context

from evaluator.engine.block_sharing import BlockSharing

_FEED_FORWARD = ("mlp", "feed_forward", "block_sparse_moe")
"""Names of the feed-forward network in the layers of vLLM's models."""

_MIN_ROWS = 16
"""Tokens computed at least. PyTorch's products of 1 to 11 rows in float32 differ in the last digits from those of more
(with two threads), so scores would depend on how many prompts are in a step."""


def compute_read_rows_only(model: Any) -> None:
    """Make a model compute its last feed-forward network for tokens that are read only.

    Called in the process that has the model. Does nothing if its last layer is not recognised.
    """
    if (network := _last_feed_forward(model)) is not None:
        network.forward = ReadRows(network.forward)


class ReadRows:
    """Takes the place of a network's `forward`."""

    def __init__(self, forward: Callable[..., Any]) -> None:
        self._forward = forward

    def __call__(self, tokens: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        """Return the network's output [tokens, hidden size], with zeros for tokens whose output nobody reads."""
        rows = _read_rows(tokens)
        if rows is None:
            return self._forward(tokens, *args, **kwargs)

        def spread(computed: torch.Tensor) -> torch.Tensor:
            output = computed.new_zeros(len(tokens), *computed.shape[1:])
            output[rows] = computed
            return output

        computed = self._forward(tokens[rows], *args, **kwargs)
        if isinstance(computed, tuple):  # with a bias to be added later
            return (spread(computed[0]), *computed[1:])
        return spread(computed)


def _last_feed_forward(model: Any) -> Any:
    """Return the feed-forward network of a model's last layer; None if there is none, or if other layers share it."""
    text_model = model.get_language_model() if hasattr(model, "get_language_model") else model
    config = getattr(text_model, "config", None)
    n_layers = getattr(config.get_text_config() if config else None, "num_hidden_layers", None)
    stacks = [module for module in text_model.modules() if isinstance(module, torch.nn.ModuleList)]
    layers = next((stack for stack in stacks if len(stack) == n_layers), None)
    if layers is None:
        return None
    network = next((getattr(layers[-1], name) for name in _FEED_FORWARD if hasattr(layers[-1], name)), None)
    places = sum(module is network for _, module in text_model.named_modules(remove_duplicate=False))
    return network if places == 1 else None


def _read_rows(tokens: torch.Tensor) -> torch.Tensor | None:
    """Return the tokens of this step to compute: of each prompt the last one. None: all."""
    connector = get_kv_transfer_group() if has_kv_transfer_group() else None
    if not isinstance(connector, BlockSharing) or not connector.reads_last_tokens_only():
        return None
    metadata = get_forward_context().attn_metadata
    step = next(iter(metadata.values()), None) if isinstance(metadata, dict) else None
    ends = getattr(step, "query_start_loc", None)
    if ends is None or ends[-1] != len(tokens) or len(tokens) <= _MIN_ROWS:
        return None
    read = ends[1:] - 1
    # Where few are read, the last tokens of the step are computed as well.
    return read if len(read) >= _MIN_ROWS else torch.cat([read, torch.arange(len(tokens) - _MIN_ROWS, len(tokens))])
