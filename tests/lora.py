"""LoRA adapters of a model folder, made on the spot, and the model that each makes of its base."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

EVERY_MODULE = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
SCALE = 2.0


def save_adapter(folder: Path, base: Path, modules: Sequence[str], *, rank: int, seed: int) -> Path:
    """Write a random adapter of some modules of every layer, in the form in which PEFT saves one."""
    random = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, weight in load_file(base / "model.safetensors").items():
        module = name.removesuffix(".weight")
        if module.rsplit(".", 1)[-1] in modules:
            n_out, n_in = weight.shape
            key = f"base_model.model.{module}.lora"
            tensors[f"{key}_A.weight"] = torch.randn(rank, n_in, generator=random) / n_in**0.5
            tensors[f"{key}_B.weight"] = torch.randn(n_out, rank, generator=random) / n_out**0.5
    folder.mkdir(parents=True)
    save_file(tensors, folder / "adapter_model.safetensors")
    settings = {"peft_type": "LORA", "r": rank, "lora_alpha": SCALE * rank, "target_modules": list(modules)}
    settings |= {"base_model_name_or_path": base.name, "task_type": "CAUSAL_LM", "bias": "none"}
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    return folder


def merged(base: Path, adapter: Path, folder: Path) -> Path:
    """Write the model with an adapter added to its weights: W + scale B A (Hu et al. 2021, equation 3)."""
    shutil.copytree(base, folder)
    weights, matrices = load_file(base / "model.safetensors"), load_file(adapter / "adapter_model.safetensors")
    for name, down in matrices.items():
        if name.endswith("lora_A.weight"):
            module = name.removeprefix("base_model.model.").removesuffix(".lora_A.weight")
            weights[f"{module}.weight"] += SCALE * matrices[name.replace("lora_A", "lora_B")] @ down
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder
