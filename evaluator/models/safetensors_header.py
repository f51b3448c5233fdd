"""Check the header of a safetensors file before any loader sees the file.

A file is 8 bytes with the length of a JSON object, the object (name -> dtype, shape, data_offsets), and the numbers,
one tensor after the other without gaps. Source: the format's description, github.com/huggingface/safetensors.
"""

import math
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeGuard

import numpy as np

from evaluator.errors import ModelError, shown
from evaluator.files.json_files import parse_json
from evaluator.files.whole import reason

MAX_HEADER_BYTES = 100_000_000
"""The library's limit."""

BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "I64": 64, "U64": 64, "F64": 64,
    "C64": 64, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}  # fmt: skip


_EXPONENTS = {"F16": ("<u2", 0x7C00), "BF16": ("<u2", 0x7F80), "F32": ("<u4", 0x7F800000), "F64": ("<u8", 0x7FF << 52)}
"""Dtype -> unsigned integer of its size, and the bits that are all set in NaN and infinities alone."""

_NUMBERS_AT_A_TIME = 2**22


class Tensor(NamedTuple):
    """A tensor as the header describes it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int  # of its bytes, after the header
    end: int


def read_header(path: Path) -> list[Tensor]:
    """Return the tensors of a safetensors file, in the order of their bytes; no number is read.

    Raises ModelError, naming the file and what is wrong, unless every tensor lies within the file, has as many bytes as
    its shape takes, and none overlaps another.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > min(size - 8, MAX_HEADER_BYTES):
                _refuse(path, f"it has {size:,} bytes, and its header is said to have {length:,}")
            header = parse_json(file.read(length))
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {reason(error)}.") from error
    except ValueError as error:
        _refuse(path, f"its header is no JSON: {error}")
    if not isinstance(header, dict):
        _refuse(path, f"its header is a JSON {type(header).__name__}, not an object")
    tensors = [_tensor(path, name, entry) for name, entry in header.items() if name != "__metadata__"]
    tensors.sort(key=lambda tensor: (tensor.start, tensor.end))
    end = 0
    for tensor in tensors:
        if tensor.start != end:
            _refuse(path, f"tensor {tensor.name!r} begins at byte {tensor.start:,} of the numbers, not at {end:,}")
        end = tensor.end
    if 8 + length + end != size:
        _refuse(path, f"its tensors need {8 + length + end:,} bytes, and it has {size:,}")
    return tensors


def first_not_finite(path: Path) -> str | None:
    """Return the name of the first tensor with a NaN or an infinity, or None. Reads all of the file, a piece at a time.

    Raises ModelError as read_header does.
    """
    tensors = read_header(path)
    numbers_start = path.stat().st_size - max((tensor.end for tensor in tensors), default=0)
    for tensor in tensors:
        if tensor.dtype not in _EXPONENTS or tensor.start == tensor.end:
            continue
        kind, exponent = _EXPONENTS[tensor.dtype]
        count = math.prod(tensor.shape)
        bits = np.memmap(path, dtype=kind, mode="r", offset=numbers_start + tensor.start, shape=(count,))
        pieces = (bits[start : start + _NUMBERS_AT_A_TIME] for start in range(0, count, _NUMBERS_AT_A_TIME))
        if any(((piece & exponent) == exponent).any() for piece in pieces):
            return tensor.name
    return None


def _tensor(path: Path, name: str, entry: Any) -> Tensor:
    if not isinstance(entry, dict):
        _refuse(path, f"tensor {name!r} is described by {shown(entry)}")
    dtype, shape, offsets = (entry.get(key) for key in ("dtype", "shape", "data_offsets"))
    if not isinstance(dtype, str) or dtype not in BITS:
        _refuse(path, f"tensor {name!r} has the dtype {shown(dtype)}; there are {', '.join(BITS)}")
    if not _are_sizes(shape):
        _refuse(path, f"tensor {name!r} has the shape {shown(shape)}")
    if not _are_sizes(offsets) or len(offsets) != 2:
        _refuse(path, f"tensor {name!r} has the data_offsets {shown(offsets)}")
    start, end = offsets
    if (end - start) * 8 != math.prod(shape) * BITS[dtype]:
        _refuse(path, f"tensor {name!r}, {dtype} of {shown(shape)}, has {end - start:,} bytes")
    return Tensor(name, dtype, tuple(shape), start, end)


def _are_sizes(values: Any) -> TypeGuard[list[int]]:
    return isinstance(values, list) and all(type(value) is int and 0 <= value < 2**63 for value in values)


def _refuse(path: Path, what: str) -> NoReturn:
    raise ModelError(f"{path} is damaged or no safetensors file: {what}. Download or save the model again.")
