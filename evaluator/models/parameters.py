"""Count the parameters in weight files, quantised ones as the numbers they stand for."""

import math
from collections.abc import Iterable
from typing import Any

from evaluator.models.weights import Tensor

_BITS = {"I64": 64, "I32": 32, "I16": 16, "I8": 8, "U8": 8}  # of an integer; safetensors' names
_PACKED = ("qweight", "weight_packed", "_blocks", "weight")  # ends of names of quantised weights
_ABOUT_WEIGHTS = (
    "scales", "zeros", "qzeros", "g_idx", "scale", "scale_inv", "zero_point", "weight_shape", "absmax", "quant_map",
    "SCB", "weight_format",
)  # fmt: skip
"""Ends of names of tensors that say how to read quantised weights."""


def count_parameters(tensors: Iterable[Tensor], quantization: dict[str, Any] | None) -> int:
    """Return how many parameters the tensors hold.

    Args:
        tensors: of weight files.
        quantization: config.json's quantization_config. With one, tensors of scales, zero points and the like do not
            count, and integers that several weights are packed into count as these weights.
    """
    if quantization is None:
        return sum(math.prod(tensor.shape) for tensor in tensors)
    bits = _weight_bits(quantization)
    return sum(_n_weights(tensor, bits) for tensor in tensors)


def _n_weights(tensor: Tensor, bits: int) -> int:
    if tensor.name.endswith(_ABOUT_WEIGHTS) or ".quant_state." in tensor.name:
        return 0
    n_numbers = math.prod(tensor.shape)
    if tensor.dtype in _BITS and tensor.name.endswith(_PACKED):
        return n_numbers * _BITS[tensor.dtype] // bits
    return n_numbers


def _weight_bits(quantization: dict[str, Any]) -> int:
    """Return the bits of a quantised weight: 8, unless the configuration names another number."""
    groups = (quantization.get("config_groups") or {}).values()
    for stated in (quantization, *(group.get("weights") or {} for group in groups)):
        for key in ("bits", "w_bit", "num_bits"):
            if stated.get(key):
                return int(stated[key])
    in_four = quantization.get("quant_method") == "mxfp4" or quantization.get("load_in_4bit")
    return 4 if in_four else 8
