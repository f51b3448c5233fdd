"""Models whose weights were saved in four bits, in the formats of compressed-tensors, GPTQ and AWQ.

The reference is the same weights as plain numbers: scales are powers of two, so that bfloat16 holds them exactly.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from evaluator.config import ModelConfig
from evaluator.engine import find_source
from evaluator.errors import ModelError
from evaluator.models.embedded.llama import LlamaSize, make_random_llama
from tests.engine.architectures import scores
from tests.shared_engines import close_engines

BITS, GROUP = 4, 32
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]  # the columns that a word holds, from its lowest bits


class Rounded(NamedTuple):
    """A weight [out, in] as (number - zero) * scale."""

    numbers: torch.Tensor  # int64 of [out, in], 0 to 15
    zeros: torch.Tensor  # int64 of [out, groups]
    scales: torch.Tensor  # float32 of [out, groups]

    @property
    def weight(self) -> torch.Tensor:
        zeros, scales = (each.repeat_interleave(GROUP, dim=1) for each in (self.zeros, self.scales))
        return (self.numbers - zeros) * scales


def rounded(weight: torch.Tensor, *, symmetric: bool) -> Rounded:
    grouped = weight.float().view(len(weight), -1, GROUP)
    low, high = grouped.amin(2), grouped.amax(2)
    if symmetric:
        low, high = -torch.maximum(-low, high), torch.maximum(-low, high)
    scales = torch.exp2(torch.ceil(torch.log2((high - low) / (2**BITS - 2))))
    zeros = torch.full_like(low, 8) if symmetric else torch.round(-low / scales).clamp(0, 15)
    numbers = (torch.round(grouped / scales[..., None]) + zeros[..., None]).clamp(0, 15)
    return Rounded(numbers.view(weight.shape).long(), zeros.long(), scales)


def packed(numbers: torch.Tensor) -> torch.Tensor:
    """Pack numbers of four bits along the last axis into int32, eight each, the first in the lowest bits."""
    words = numbers.numpy().astype(np.uint32).reshape(*numbers.shape[:-1], -1, 32 // BITS)
    return torch.from_numpy(
        (words << np.arange(0, 32, BITS, dtype=np.uint32)).sum(axis=-1, dtype=np.uint32).view(np.int32)
    )


def compressed_tensors(name: str, weight: Rounded) -> dict[str, torch.Tensor]:
    return {
        f"{name}.weight_packed": packed(weight.numbers),
        f"{name}.weight_scale": weight.scales,
        f"{name}.weight_shape": torch.tensor(weight.numbers.shape),
    }


def gptq(name: str, weight: Rounded) -> dict[str, torch.Tensor]:
    """Packed along the inputs; zeros are stored less one."""
    return {
        f"{name}.qweight": packed(weight.numbers).T.contiguous(),
        f"{name}.qzeros": packed((weight.zeros.T - 1).contiguous()).contiguous(),
        f"{name}.scales": weight.scales.T.contiguous(),
        f"{name}.g_idx": torch.arange(weight.numbers.shape[1], dtype=torch.int32) // GROUP,
    }


def awq(name: str, weight: Rounded) -> dict[str, torch.Tensor]:
    """Packed along the outputs, eight in the order of AWQ_ORDER."""

    def in_order(numbers: torch.Tensor) -> torch.Tensor:
        return packed(numbers.reshape(len(numbers), -1, 8)[:, :, AWQ_ORDER].reshape(numbers.shape))

    return {
        f"{name}.qweight": in_order(weight.numbers.T),
        f"{name}.qzeros": in_order(weight.zeros.T),
        f"{name}.scales": weight.scales.T.contiguous(),
    }


class Format(NamedTuple):
    """A way of saving weights."""

    tensors: Callable[[str, Rounded], dict[str, torch.Tensor]]
    symmetric: bool
    config: dict[str, Any]  # quantization_config


FORMATS = {
    "compressed-tensors": Format(
        compressed_tensors,
        True,
        {
            "format": "pack-quantized",
            "quantization_status": "compressed",
            "ignore": ["lm_head"],
            "config_groups": {
                "group_0": {
                    "targets": ["Linear"],
                    "weights": {
                        "num_bits": BITS, "type": "int", "symmetric": True, "strategy": "group", "group_size": GROUP,
                        "dynamic": False,
                    },
                }
            },
        },
    ),
    "gptq": Format(gptq, True, {"bits": BITS, "group_size": GROUP, "desc_act": False, "sym": True, "lm_head": False}),
    "awq": Format(awq, False, {"bits": BITS, "group_size": GROUP, "zero_point": True, "version": "gemm"}),
}  # fmt: skip


def save_quantised(plain: Path, folder: Path, name: str) -> tuple[Path, Path]:
    """Write a model again with the weights of its layers rounded: in a format, and as plain numbers."""
    quantised, reference, form = folder / name, folder / f"{name}, plain", FORMATS[name]
    saved: dict[str, torch.Tensor] = {}
    numbers: dict[str, torch.Tensor] = {}
    for key, weight in load_file(plain / "model.safetensors").items():
        if "proj" not in key:
            saved[key] = numbers[key] = weight
            continue
        small = rounded(weight, symmetric=form.symmetric)
        numbers[key] = small.weight
        saved |= form.tensors(key.removesuffix(".weight"), small)
    for path, tensors in ((quantised, saved), (reference, numbers)):
        shutil.copytree(plain, path)
        save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((plain / "config.json").read_text())
    config |= {"quantization_config": {"quant_method": name, **form.config}}
    (quantised / "config.json").write_text(json.dumps(config))
    return quantised, reference


def has_four_bit_products() -> bool:
    """Whether vLLM multiplies weights of four bits on this CPU: its kernels for AVX2 alone cannot."""
    import vllm._custom_ops  # noqa: F401 (loads the kernels)

    return hasattr(torch.ops._C, "cpu_gemm_wna16")


def test_parameters_are_counted_as_the_numbers_that_packed_words_hold(tmp_path: Path) -> None:
    size = LlamaSize(vocab_size=1024, intermediate_size=192)
    plain = make_random_llama(tmp_path / "plain", texts=["a few words"], size=size)
    folders = [plain, *(save_quantised(plain, tmp_path, name)[0] for name in FORMATS)]
    assert len({find_source(ModelConfig(model=str(folder))).n_parameters for folder in folders}) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["compressed-tensors", *(pytest.param(name, marks=pytest.mark.exhaustive) for name in ("gptq", "awq"))]
)
def test_vllm_scores_weights_of_four_bits_as_the_numbers_that_they_stand_for(tmp_path: Path, name: str) -> None:
    close_engines("vllm")  # vLLM holds one cache a process
    size = LlamaSize(vocab_size=1024, intermediate_size=192)
    plain = make_random_llama(tmp_path / "plain", texts=["a few words"], size=size)
    quantised, same_numbers = save_quantised(plain, tmp_path, name)
    if not has_four_bit_products():
        with pytest.raises(ModelError, match="Try --engine transformers"):
            scores(quantised, "vllm", "bfloat16")
        return
    by_vllm, reference, before = (
        np.array(scores(folder, engine, "bfloat16"))
        for folder, engine in ((quantised, "vllm"), (same_numbers, "transformers"), (plain, "transformers"))
    )
    rounding = np.abs(by_vllm - reference).max()
    assert rounding < 2**-3  # of bfloat16, whose steps are 2^-4 near 11
    assert np.abs(reference - before).max() > 3 * rounding


@pytest.mark.slow
def test_transformers_reads_weights_of_four_bits_as_compressed_tensors_packs_them(tmp_path: Path) -> None:
    size = LlamaSize(vocab_size=1024, intermediate_size=192)
    plain = make_random_llama(tmp_path / "plain", texts=["a few words"], size=size)
    quantised, same_numbers = save_quantised(plain, tmp_path, "compressed-tensors")
    given, reference = (np.array(scores(folder, "transformers", "bfloat16")) for folder in (quantised, same_numbers))
    assert np.abs(given - reference).max() < 2**-3
