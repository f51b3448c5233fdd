"""A trained model as it ships: bf16, embeddings that are also the head kept once, a tokenizer without white space."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import LlamaForCausalLM


def save_model(model: LlamaForCausalLM, folder: Path) -> None:
    """Write config.json and model.safetensors.

    The config asks for fp32: half the bytes ship, but a first run gives the same numbers on every machine and engine.
    """
    model.config.dtype = torch.float32
    model.config.save_pretrained(folder)
    weights = {name: weight.to(torch.bfloat16).contiguous() for name, weight in model.state_dict().items()}
    del weights["lm_head.weight"]  # tied: engines look for the embeddings, under the embeddings' name
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def compact_tokenizer(folder: Path) -> None:
    """Write tokenizer.json without the line breaks and indents that are more than half of it."""
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()), ensure_ascii=False, separators=(",", ":")))
