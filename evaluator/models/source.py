"""What `--model` names: a folder or a hub name enters; its files' facts, fingerprints and tokenizer leave.

Nothing here loads weights, so that a wrong name, a model of the wrong kind or one without a tokenizer is known at once.
"""

import json
import math
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

from evaluator.config import ModelConfig
from evaluator.errors import ModelError
from evaluator.hub import hub_snapshot
from evaluator.models.digests import combined_digest, file_digests
from evaluator.tokens.tokenizer import FastTokenizer, SlowTokenizer, TextTokenizer

# A file that changes neither scores nor tokens (a README) leaves a fingerprint as it is.
_TOKENIZER_FILES = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "vocab.json", "vocab.txt", "merges.txt", "tokenizer.model", "spiece.model",
)  # fmt: skip
_CONTEXT_LENGTH_KEYS = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "seq_length")
_DTYPES = ("float32", "bfloat16", "float16")


@dataclass(frozen=True, kw_only=True)
class ModelSource:
    """A causal language model that is there to be loaded, as its files describe it."""

    name: str  # as it was asked for
    folder: Path
    revision: str | None  # commit of a hub model; None for a local folder
    architecture: str  # "LlamaForCausalLM"
    context_length: int  # tokens
    vocab_size: int
    kv_values_per_token: int  # numbers that the KV cache keeps of one token, all layers together
    feed_forward_size: int  # width of a layer's feed-forward part
    dtype: str  # of the weights as they were saved
    trust_remote_code: bool

    @cached_property
    def weight_bytes(self) -> int:
        return sum(file.stat().st_size for file in weight_files(self.folder))

    @cached_property
    def n_parameters(self) -> int | None:
        """Numbers in the weight files, tied ones once; None where only loading them would tell."""
        files = weight_files(self.folder)
        if not all(file.suffix == ".safetensors" for file in files):
            return None
        return sum(math.prod(shape) for file in files for shape in _tensor_shapes(file))

    @cached_property
    def fingerprint(self) -> str:
        """Digest of the configuration and all weights: equal models have equal ones wherever they lie."""
        return combined_digest(file_digests([self.folder / "config.json", *weight_files(self.folder)]))

    @cached_property
    def tokenizer_fingerprint(self) -> str:
        """Digest of the tokenizer's files and of the libraries that read them."""
        files = [file for name in _TOKENIZER_FILES if (file := self.folder / name).is_file()]
        return combined_digest(file_digests(files) | {name: version(name) for name in ("tokenizers", "transformers")})

    @cached_property
    def tokenizer(self) -> TextTokenizer:
        """The model's own tokenizer. Raises ModelError where there is none."""
        from transformers import AutoTokenizer

        try:
            tokenizer = AutoTokenizer.from_pretrained(str(self.folder), trust_remote_code=self.trust_remote_code)
        except (OSError, ValueError, ImportError) as error:
            raise ModelError(f"The tokenizer of {self.name} cannot be loaded: {error}") from error
        return FastTokenizer(tokenizer.backend_tokenizer) if tokenizer.is_fast else SlowTokenizer(tokenizer)


def find_model(config: ModelConfig) -> ModelSource:
    """Find the model that a run names, in a local folder, the local hub cache or the hub, and check its kind.

    Raises ModelError when it is not found, is not a causal language model or has no tokenizer.
    """
    if Path(config.model).expanduser().is_dir():
        folder, revision = Path(config.model).expanduser().resolve(), None
    else:
        folder = _hub_folder(config)
        revision = folder.name  # the hub's cache names a snapshot by its commit
    described = _read_config(config.model, folder)
    text_part = described.get("text_config") or described  # a model that also sees pictures keeps its text part apart
    architecture = _causal_architecture(config, described)
    if not weight_files(folder):
        raise ModelError(f"{folder} has a config.json but no weights (*.safetensors or *.bin).")
    if not any((folder / name).is_file() for name in _TOKENIZER_FILES):
        raise ModelError(f"{config.model} has no tokenizer: none of {', '.join(_TOKENIZER_FILES)} is in {folder}.")
    dtype = str(text_part.get("dtype") or text_part.get("torch_dtype") or described.get("torch_dtype") or "float32")
    return ModelSource(
        name=config.model,
        folder=folder,
        revision=revision,
        architecture=architecture,
        context_length=_context_length(config.model, text_part),
        vocab_size=int(text_part["vocab_size"]),
        kv_values_per_token=_kv_values_per_token(text_part),
        feed_forward_size=_first_of(text_part, "intermediate_size", "n_inner", "ffn_dim")
        or 4 * _hidden_size(text_part),
        dtype=dtype if dtype in _DTYPES else "float32",
        trust_remote_code=config.trust_remote_code,
    )


def scoring_dtype(source: ModelSource, config: ModelConfig) -> str:
    """What the engines compute in: as asked, else ("auto") as the weights were saved, on every engine and device."""
    return source.dtype if config.dtype == "auto" else config.dtype


def weight_files(folder: Path) -> list[Path]:
    """The files that hold a model's weights: safetensors where there are any, as the engines prefer them too."""
    return sorted(folder.glob("*.safetensors")) or sorted(folder.glob("*.bin"))


def _tensor_shapes(file: Path) -> list[list[int]]:
    with file.open("rb") as opened:
        header = json.loads(opened.read(int.from_bytes(opened.read(8), "little")))
    return [tensor["shape"] for name, tensor in header.items() if name != "__metadata__"]


def _read_config(name: str, folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    if not path.is_file():
        raise ModelError(f"{name} is not a model folder: it has no config.json.")
    try:
        described = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelError(f"{path} is not JSON: {error}") from error
    if not isinstance(described, dict) or "model_type" not in described:
        raise ModelError(f"{path} does not describe a model: it names no model_type.")
    return described


def _causal_architecture(config: ModelConfig, described: dict[str, Any]) -> str:
    architectures = [str(name) for name in described.get("architectures") or []]
    for name in architectures:
        if name.endswith("ForCausalLM"):
            return name
    # Some causal models are called otherwise (GPT2LMHeadModel); transformers knows them all, but is slow to import.
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    known = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(described["model_type"])
    if known is not None and (not architectures or known in architectures):
        return str(known)
    raise ModelError(
        f"{config.model} is not a causal language model: its config.json says "
        f"{', '.join(architectures) or described['model_type']}. Choose one whose architecture ends in ForCausalLM."
    )


def _context_length(name: str, text_part: dict[str, Any]) -> int:
    for key in _CONTEXT_LENGTH_KEYS:
        if isinstance(text_part.get(key), int):
            return int(text_part[key])
    raise ModelError(
        f"The context length of {name} is unknown: its config.json has none of {', '.join(_CONTEXT_LENGTH_KEYS)}. "
        "Add one of them to a local copy."
    )


def _first_of(text_part: dict[str, Any], *keys: str) -> int:
    return next((int(text_part[key]) for key in keys if text_part.get(key)), 0)


def _hidden_size(text_part: dict[str, Any]) -> int:
    return _first_of(text_part, "hidden_size", "n_embd", "d_model")


def _kv_values_per_token(text_part: dict[str, Any]) -> int:
    n_heads = _first_of(text_part, "num_attention_heads", "n_head") or 1
    head_size = _first_of(text_part, "head_dim") or _hidden_size(text_part) // n_heads
    n_layers = _first_of(text_part, "num_hidden_layers", "n_layer", "n_layers")
    return 2 * n_layers * (_first_of(text_part, "num_key_value_heads") or n_heads) * head_size


def _hub_folder(config: ModelConfig) -> Path:
    """Folder of a hub model's files, downloaded where they are not in the local cache yet."""
    patterns = ["*.json", "*.safetensors", "*.model", "*.txt", "*.py"]
    hint = f"Nor is {config.model!r} a folder here: give the path of a model folder, or a hub name."
    wanted: dict[str, Any] = {"revision": config.revision, "error": ModelError, "hint": hint}
    folder = hub_snapshot(config.model, "model", patterns, **wanted)
    return folder if weight_files(folder) else hub_snapshot(config.model, "model", ["*.bin"], **wanted)
