"""A model whose weights were saved in four bits, as compressed-tensors packs them, through both engines."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from evaluator.config import ModelConfig
from evaluator.engine import find_source
from evaluator.models.embedded.llama import LlamaSize
from evaluator.models.embedded.random_llama import make_random_llama
from tests.engine.architectures import scores
from tests.shared_engines import close_engines

BITS, GROUP = 4, 32
QUANTIZATION = {
    "quant_method": "compressed-tensors",
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
}  # fmt: skip


def packed(numbers: torch.Tensor) -> torch.Tensor:
    """Pack signed numbers of four bits into int32, eight each, the first in the lowest bits."""
    unsigned = (numbers.numpy() + 2 ** (BITS - 1)).astype(np.uint32).reshape(len(numbers), -1, 32 // BITS)
    words = (unsigned << np.arange(0, 32, BITS, dtype=np.uint32)).sum(axis=2, dtype=np.uint32)
    return torch.from_numpy(words.view(np.int32))


def save_quantised(plain: Path, folder: Path) -> Path:
    """Write a model again with the weights of its layers rounded to whole multiples of a scale for each group."""
    shutil.copytree(plain, folder)
    tensors = {}
    for name, weight in load_file(plain / "model.safetensors").items():
        if "proj" not in name:
            tensors[name] = weight
            continue
        largest = 2 ** (BITS - 1) - 1
        grouped = weight.view(weight.shape[0], -1, GROUP)
        scale = grouped.abs().amax(dim=2, keepdim=True) / largest
        rounded = torch.round(grouped / scale).clamp(-largest - 1, largest).to(torch.int8)
        tensors[f"{name}_packed"] = packed(rounded.view(weight.shape))
        tensors[f"{name}_scale"] = scale.squeeze(2).contiguous()
        tensors[f"{name}_shape"] = torch.tensor(weight.shape)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": QUANTIZATION}))
    return folder


@pytest.mark.slow
def test_engines_agree_on_weights_of_four_bits_and_count_their_parameters(tmp_path: Path) -> None:
    close_engines("vllm")  # vLLM holds one cache a process
    size = LlamaSize(vocab_size=1024, intermediate_size=192)
    plain = make_random_llama(tmp_path / "plain", texts=["a few words"], size=size)
    quantised = save_quantised(plain, tmp_path / "quantised")
    by_vllm, reference, unquantised = (
        np.array(scores(folder, engine, "bfloat16"))
        for folder, engine in ((quantised, "vllm"), (quantised, "transformers"), (plain, "transformers"))
    )
    rounding = np.abs(by_vllm - reference).max()
    assert rounding < 2**-3  # of bfloat16, whose steps are 2^-4 near 11
    assert np.abs(reference - unquantised).max() > 3 * rounding
    counts = {find_source(ModelConfig(model=str(folder))).n_parameters for folder in (plain, quantised)}
    assert len(counts) == 1
