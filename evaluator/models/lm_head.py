"""Read a model's LM head, the matrix that turns hidden states into logits, from its weight files.

The model itself is not built, so that this takes no more memory than the matrix.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from evaluator.errors import ModelError
from evaluator.models.fake_source import FakeModelSource
from evaluator.models.source import ModelSource
from evaluator.models.weights import read_header, weight_files

_HEADS = ("lm_head.weight", "embed_out.weight", "language_model.lm_head.weight")
_EMBEDDINGS = (
    "model.embed_tokens.weight",
    "transformer.wte.weight",
    "wte.weight",
    "gpt_neox.embed_in.weight",
    "model.decoder.embed_tokens.weight",
    "decoder.embed_tokens.weight",
    "transformer.word_embeddings.weight",
    "word_embeddings.weight",
    "model.language_model.embed_tokens.weight",
    "language_model.model.embed_tokens.weight",
)
_BIASES = ("lm_head.bias", "embed_out.bias", "language_model.lm_head.bias")
_ADAPTED = {
    "lm_head",
    "embed_out",
    "embed_tokens",
    "wte",
    "embed_in",
}  # modules of adapters that the head is, or is tied to
_LOGIT_CHANGES = ("final_logit_softcapping", "logit_scale", "logits_scaling", "lm_head_multiplier")


def load_lm_head(source: ModelSource, methods: str = "methods that compare next-token distributions") -> torch.Tensor:
    """Return the matrix [vocabulary, hidden size] that maps final-norm hidden states to logits, as saved, on the CPU.

    It has all rows that the model's log-softmax runs over, including those that pad the vocabulary.

    Args:
        source: of the model.
        methods: that need the matrix, for errors.

    Raises ModelError if the logits are not this matrix times the hidden state (a bias, scale or soft cap), and if the
    weight files have no tensor with one of the expected names.
    """
    if isinstance(source, FakeModelSource):
        return torch.from_numpy(source.lm_head)
    config = _text_config(source)
    files = _files_by_tensor(source)
    # Anything that the model applies to the logits besides the matrix.
    changes = [
        f"{key} = {value}" for key in _LOGIT_CHANGES if (value := getattr(config, key, None)) not in (None, 0, 1)
    ]
    changes += [name for name in _BIASES if name in files]
    if source.adapter:
        changes += [f"{source.adapter.name} changes {name}" for name in _ADAPTED & source.adapter.modules]
    if changes:
        raise ModelError(
            f"The logits of {source.name} are more than its LM head times the hidden state ({', '.join(changes)}), and "
            f"{methods} need exactly that product. Leave these out (--methods)."
        )
    # The files of a tied model can hold both tensors; the model then uses the embeddings.
    names = (*_EMBEDDINGS, *_HEADS) if config.tie_word_embeddings else _HEADS
    name = next((name for name in names if name in files), None)
    if name is None:
        raise ModelError(
            f"The LM head of {source.name} was not found: none of {', '.join(names)} is in the *.safetensors files of "
            f"{source.folder}. Save the model with save_pretrained, or leave out {methods} (--methods)."
        )
    with safe_open(files[name], framework="pt") as file:
        head: torch.Tensor = file.get_tensor(name)
    return head


def _files_by_tensor(source: ModelSource) -> Mapping[str, Path]:
    """Return the weight file of each tensor, by the tensor's name."""
    files = [path for path in weight_files(source.folder) if path.suffix == ".safetensors"]
    return {tensor.name: path for path in files for tensor in read_header(path)}


def _text_config(source: ModelSource) -> Any:
    """Return the text part of the model's configuration, with defaults for what config.json leaves out."""
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(str(source.folder), trust_remote_code=source.trust_remote_code)
    return config.get_text_config()
