"""Save a Llama and a tokenizer as files that every engine can load."""

from pathlib import Path
from typing import TYPE_CHECKING

from tokenizers import Tokenizer

from evaluator.models.embedded.byte_level import BOS, EOS

if TYPE_CHECKING:
    import torch
    from transformers import LlamaForCausalLM


def save_llama(folder: Path, model: "LlamaForCausalLM", dtype: "torch.dtype") -> None:
    """Write config.json and model.safetensors; the tied embeddings are saved once.

    The config states fp32 whatever dtype the weights are saved in, so that a run gives the same numbers on every
    machine and engine.
    """
    import torch
    from safetensors.torch import save_file

    model.config.dtype = torch.float32
    model.config.save_pretrained(folder)
    weights = {name: weight.to(dtype).contiguous() for name, weight in model.state_dict().items()}
    del weights["lm_head.weight"]  # tied: engines read it under the name of the embeddings
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def save_tokenizer(folder: Path, tokenizer: Tokenizer, context_length: int) -> None:
    """Write tokenizer.json and tokenizer_config.json."""
    from transformers import PreTrainedTokenizerFast

    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=BOS, eos_token=EOS, model_max_length=context_length
    ).save_pretrained(folder)
