"""Find the model that `--model` names and read its facts, fingerprints and tokenizer from its files.

No weights are loaded, so that a wrong name, a model of the wrong kind or a missing tokenizer is reported at once.
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

# Files that affect tokens; others (a README) do not change the fingerprint.
_TOKENIZER_FILES = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "vocab.json", "vocab.txt", "merges.txt", "tokenizer.model", "spiece.model",
)  # fmt: skip
_CONTEXT_LENGTH_KEYS = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "seq_length")
_DTYPES = ("float32", "bfloat16", "float16")


@dataclass(frozen=True, kw_only=True)
class ModelSource:
    """A causal language model as its files describe it, not loaded."""

    name: str  # as the user gave it
    folder: Path
    revision: str | None  # commit of a hub model; None for a local folder
    architecture: str  # "LlamaForCausalLM"
    context_length: int  # tokens
    vocab_size: int
    kv_values_per_token: int  # numbers in the KV cache for one token, over all layers
    feed_forward_size: int  # width of a layer's feed-forward part
    dtype: str  # of the saved weights
    trust_remote_code: bool

    @cached_property
    def weight_bytes(self) -> int:
        """Size of the weight files in bytes."""
        return sum(file.stat().st_size for file in weight_files(self.folder))

    @cached_property
    def n_parameters(self) -> int | None:
        """Number of parameters in the weight files, tied ones counted once; None unless all files are safetensors."""
        files = weight_files(self.folder)
        if not all(file.suffix == ".safetensors" for file in files):
            return None
        return sum(math.prod(shape) for file in files for shape in _tensor_shapes(file))

    @cached_property
    def fingerprint(self) -> str:
        """Digest of the configuration and all weights, independent of the folder."""
        return combined_digest(file_digests([self.folder / "config.json", *weight_files(self.folder)]))

    @cached_property
    def tokenizer_fingerprint(self) -> str:
        """Digest of the tokenizer's files and of the libraries that read them."""
        files = [file for name in _TOKENIZER_FILES if (file := self.folder / name).is_file()]
        return combined_digest(file_digests(files) | {name: version(name) for name in ("tokenizers", "transformers")})

    @cached_property
    def tokenizer(self) -> TextTokenizer:
        """The model's tokenizer. Raises ModelError if it cannot be loaded."""
        from transformers import AutoTokenizer

        try:
            tokenizer = AutoTokenizer.from_pretrained(str(self.folder), trust_remote_code=self.trust_remote_code)
        except (OSError, ValueError, ImportError) as error:
            raise ModelError(f"The tokenizer of {self.name} cannot be loaded: {error}") from error
        return FastTokenizer(tokenizer.backend_tokenizer) if tokenizer.is_fast else SlowTokenizer(tokenizer)


def find_model(config: ModelConfig) -> ModelSource:
    """Find the configured model in a local folder, the local hub cache or the hub, and check its kind.

    Raises ModelError if it is not found, is not a causal language model or has no tokenizer.
    """
    if Path(config.model).expanduser().is_dir():
        folder, revision = Path(config.model).expanduser().resolve(), None
    else:
        folder = _hub_folder(config)
        revision = folder.name  # the hub's cache names a snapshot by its commit
    description = _read_config(config.model, folder)
    text_part = description.get("text_config") or description  # multimodal models describe their text part separately
    architecture = _causal_architecture(config, description)
    if not weight_files(folder):
        raise ModelError(f"{folder} has a config.json but no weights (*.safetensors or *.bin).")
    if not any((folder / name).is_file() for name in _TOKENIZER_FILES):
        raise ModelError(f"{config.model} has no tokenizer: none of {', '.join(_TOKENIZER_FILES)} is in {folder}.")
    dtype = str(text_part.get("dtype") or text_part.get("torch_dtype") or description.get("torch_dtype") or "float32")
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
    """Return the dtype that engines compute in: the configured one, or with "auto" that of the saved weights."""
    return source.dtype if config.dtype == "auto" else config.dtype


def weight_files(folder: Path) -> list[Path]:
    """Return a model's weight files: safetensors if there are any, which the engines prefer too, else *.bin."""
    return sorted(folder.glob("*.safetensors")) or sorted(folder.glob("*.bin"))


def _tensor_shapes(file: Path) -> list[list[int]]:
    """Read the shapes from a safetensors header: its length in 8 bytes, then JSON."""
    with file.open("rb") as opened:
        header = json.loads(opened.read(int.from_bytes(opened.read(8), "little")))
    return [tensor["shape"] for name, tensor in header.items() if name != "__metadata__"]


def _read_config(name: str, folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    if not path.is_file():
        raise ModelError(f"{name} is not a model folder: it has no config.json.")
    try:
        description = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelError(f"{path} is not JSON: {error}") from error
    if not isinstance(description, dict) or "model_type" not in description:
        raise ModelError(f"{path} does not describe a model: it has no model_type.")
    return description


def _causal_architecture(config: ModelConfig, description: dict[str, Any]) -> str:
    architectures = [str(name) for name in description.get("architectures") or []]
    for name in architectures:
        if name.endswith("ForCausalLM"):
            return name
    # Some causal models have other names (GPT2LMHeadModel); transformers lists them all, but is slow to import.
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    name = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(description["model_type"])
    if name is not None and (not architectures or name in architectures):
        return str(name)
    raise ModelError(
        f"{config.model} is not a causal language model: its config.json says "
        f"{', '.join(architectures) or description['model_type']}. Choose one whose architecture ends in ForCausalLM."
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
    """Return the numbers of one token in the KV cache: a key and a value for each layer and key-value head."""
    n_heads = _first_of(text_part, "num_attention_heads", "n_head") or 1
    head_size = _first_of(text_part, "head_dim") or _hidden_size(text_part) // n_heads
    n_layers = _first_of(text_part, "num_hidden_layers", "n_layer", "n_layers")
    return 2 * n_layers * (_first_of(text_part, "num_key_value_heads") or n_heads) * head_size


def _hub_folder(config: ModelConfig) -> Path:
    """Return the folder of a hub model's files, downloaded unless they are cached; *.bin only without safetensors."""
    patterns = ["*.json", "*.safetensors", "*.model", "*.txt", "*.py"]
    hint = f"There is no folder {config.model!r} either: give the path of a model folder, or a hub name."
    options: dict[str, Any] = {"revision": config.revision, "error": ModelError, "hint": hint}
    folder = hub_snapshot(config.model, "model", patterns, **options)
    return folder if weight_files(folder) else hub_snapshot(config.model, "model", ["*.bin"], **options)
