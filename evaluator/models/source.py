"""Find the model that `--model` names, and read its facts, fingerprints and tokenizer from its files.

No weights are loaded, so that a wrong name, a model of the wrong kind or a missing tokenizer is reported at once.
"""

import math
import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evaluator.config import ModelConfig
from evaluator.errors import ModelError, did_you_mean, is_panic, shown
from evaluator.files.json_files import parse_json, read_object
from evaluator.files.whole import read_bytes
from evaluator.hub import hub_snapshot
from evaluator.models.embedded import EMBEDDED_MODELS
from evaluator.models.weights import CONFIG_FILE as ADAPTER_CONFIG
from evaluator.models.weights import (
    Adapter,
    are_hashed,
    combined_digest,
    file_digests,
    file_state,
    first_not_finite,
    read_header,
    weight_files,
)
from evaluator.tokens.boundary import tokens_around
from evaluator.tokens.tokenizer import FastTokenizer, SlowTokenizer, TextTokenizer, TokenizerWithBos

if TYPE_CHECKING:
    from evaluator.models.skeleton import ModelSize

_TOKENIZER_FILES = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "vocab.json", "vocab.txt", "merges.txt", "tokenizer.model", "spiece.model",
)  # fmt: skip
# Suffixes of other tokenizer files: tokenizer_config.json can name files, and some tokenizer classes define names.
_TOKENIZER_SUFFIXES = (".json", ".txt", ".model", ".tiktoken", ".spm", ".vocab", ".codes")
_WITHOUT_EFFECT = ("generation_config.json", "preprocessor_config.json", "processor_config.json", "chat_template.json")
_DTYPES = ("float32", "bfloat16", "float16")


@dataclass(frozen=True, kw_only=True)
class ModelSource:
    """A causal language model as its files describe it, not loaded."""

    name: str  # name as the user gave it
    folder: Path
    revision: str | None  # commit of a hub model; None for a local folder
    architecture: str  # "LlamaForCausalLM"
    context_length: int | None  # maximum number of tokens; None: no limit
    vocab_size: int
    kv_values_per_token: int  # numbers in the KV cache for one token, over all layers
    hidden_size: int = 0  # length of a hidden state; 0: not known
    n_heads: int | None = None  # number of attention heads of a layer; None: not in the configuration
    n_kv_heads: int | None = None  # number of key-value heads of a layer; None: not in the configuration
    has_alibi: bool = False  # whether positions are encoded by ALiBi, which the configuration of a Falcon can choose
    short_context: int | None = None  # maximum length, in tokens, for LongRoPE's short factors; None: no LongRoPE
    dtype: str  # dtype of the saved weights
    quantization: dict[str, Any] | None = None  # "quantization_config" of config.json
    trust_remote_code: bool
    add_bos: bool = False  # whether BOS begins every prompt, even if the tokenizer does not add it (--add-bos)
    adapter: Adapter | None = None  # LoRA adapter to score with; None: the base model alone
    adapters: tuple[Adapter, ...] = ()  # adapters to load, so that models of the same base share one engine

    @property
    def title(self) -> str:
        """The name of the model and, if it has one, of its adapter."""
        return f"{self.name} + {self.adapter.name}" if self.adapter else self.name

    @cached_property
    def weight_bytes(self) -> int:
        """Size of the weight files in bytes."""
        return sum(file.stat().st_size for file in weight_files(self.folder))

    @cached_property
    def n_parameters(self) -> int | None:
        """Number of parameters in the weight files and the adapter, tied parameters counted once.

        None unless all files are safetensors, and for quantised weights if transformers cannot build the architecture.
        """
        files = weight_files(self.folder)
        if not all(file.suffix == ".safetensors" for file in files):
            return None
        if self.quantization:  # files then pack several parameters into a number, and add scales
            from evaluator.models.skeleton import count_parameters

            n_parameters = count_parameters(self)
        else:
            n_parameters = sum(math.prod(tensor.shape) for file in files for tensor in read_header(file))
        return n_parameters and n_parameters + (self.adapter.n_parameters if self.adapter else 0)

    @cached_property
    def size(self) -> "ModelSize | None":
        """The size of the transformer that config.json describes; None if transformers cannot build it."""
        from evaluator.models.skeleton import model_size  # here, because it imports torch

        return model_size(self.folder, trust_remote_code=self.trust_remote_code)

    def not_finite(self) -> str | None:
        """Return a phrase that names the first tensor with a NaN or an infinity, and its file; None if there is none.

        Only safetensors files are checked.
        """
        of_adapter = [self.adapter.weights] if self.adapter else []
        files = (file for file in [*weight_files(self.folder), *of_adapter] if file.suffix == ".safetensors")
        return next((f"{name!r} in {file}" for file in files if (name := first_not_finite(file))), None)

    @cached_property
    def fingerprint(self) -> str:
        """Digest of the files that engines read of the model and its adapter, independent of the folder.

        These files are the weights and the JSON files at the top of the folder, except files of the tokenizer and of
        _WITHOUT_EFFECT; with `trust_remote_code` all files that are not hidden.
        """
        base = combined_digest(file_digests(self.folder, self._files_that_count))
        return combined_digest({"base": base, "adapter": self.adapter.fingerprint}) if self.adapter else base

    @property
    def state(self) -> str:
        """Digest of paths, sizes and times of the base model's files in `fingerprint`; changes if a file changes."""
        return combined_digest({str(file): file_state(file) for file in self._files_that_count})

    @property
    def _files_that_count(self) -> list[Path]:
        described = [path for path in self._top_files((".json",)) if path.name not in _TOKENIZER_FILES]
        return [*described, *weight_files(self.folder), *self._files_of_code]

    @property
    def is_hashed(self) -> bool:
        """Whether the fingerprint is known without reading the weights."""
        return "fingerprint" in self.__dict__ or are_hashed(weight_files(self.folder))

    def hash(self) -> None:
        """Compute the fingerprints of the model and its adapters, which are then cached in these objects."""
        _ = self.fingerprint, *(adapter.fingerprint for adapter in self.adapters)

    def to_send(self) -> "ModelSource":
        """Return a copy for another process: without the tokenizer, with the fingerprints that are cached here."""
        _ = [adapter.fingerprint for adapter in self.adapters]  # with which a host compares its own adapters
        copy = replace(self)
        if "fingerprint" in self.__dict__:
            copy.__dict__["fingerprint"] = self.fingerprint
        return copy

    def require_unchanged(self, before: str) -> None:
        """Raise ModelError if files of the model or an adapter have changed since `before` or since their fingerprint.

        Args:
            before: `state` before the model was loaded.
        """
        # Copies have no cached fingerprints, so these are computed from the files as they are now.
        now = replace(self, adapter=self.adapter and replace(self.adapter))
        changed = [self.title] if now.state != before or now.fingerprint != self.fingerprint else []
        changed += [each.name for each in self.adapters if replace(each).fingerprint != each.fingerprint]
        if changed:
            raise ModelError(
                f"The files of {changed[0]} changed while they were loaded. Start again with the new ones."
            )

    @cached_property
    def tokenizer_fingerprint(self) -> str:
        """Digest of the files that can affect tokens, config.json among them, and of the libraries that read them."""
        files = [path for path in self._top_files(_TOKENIZER_SUFFIXES) if not path.name.endswith(".index.json")]
        digests = file_digests(self.folder, [*files, *self._files_of_code])
        bos = {"bos": "added"} if self.add_bos else {}
        return combined_digest(digests | bos | {name: version(name) for name in ("tokenizers", "transformers")})

    def _top_files(self, suffixes: Sequence[str]) -> list[Path]:
        files = (path for path in self.folder.iterdir() if path.suffix in suffixes and path.is_file())
        return [path for path in files if path.name not in _WITHOUT_EFFECT]

    @property
    def _files_of_code(self) -> list[Path]:
        """Files that the model's own code may read: all except weights and hidden files. Empty unless the code runs."""
        if not self.trust_remote_code:
            return []
        weights = weight_files(self.folder)
        return [
            path
            for path in self.folder.rglob("*")
            if path.is_file()
            and path not in weights
            and not any(part.startswith((".", "__pycache__")) for part in path.relative_to(self.folder).parts)
        ]

    @property
    def has_chat_template(self) -> bool:
        """Whether the model's files hold a chat template."""
        if any((self.folder / name).is_file() for name in ("chat_template.jinja", "chat_template.json")):
            return True
        try:
            settings = parse_json(read_bytes(self.folder / "tokenizer_config.json"))
        except (OSError, ValueError):
            return False  # loading the tokenizer reports the fault where it matters
        return isinstance(settings, dict) and bool(settings.get("chat_template"))

    @property
    def instruct_word(self) -> str | None:
        """The word that marks an instruct model in its name or in the heading of its model card, such as "chat".

        None if there is no such word.
        """
        card = ""
        with suppress(OSError):
            card = read_bytes(self.folder / "README.md").decode(errors="replace")
        heading = re.search(r"^# .*", card, re.MULTILINE)
        found = re.search(r"instruct|chat|[-_]it\b", f"{Path(self.name).name}\n{heading and heading[0]}", re.IGNORECASE)
        return found and found[0]

    @cached_property
    def tokenizer(self) -> TextTokenizer:
        """The model's tokenizer. Raises ModelError if it cannot be loaded, or has no BOS to add."""
        if not self.add_bos:
            return self._tokenizer
        if self.transformers_tokenizer.bos_token_id is None:
            raise ModelError(f"The tokenizer in {self.folder} has no BOS. Leave out --add-bos.")
        return TokenizerWithBos(self._tokenizer, self.transformers_tokenizer.bos_token_id)

    @cached_property
    def _tokenizer(self) -> TextTokenizer:
        tokenizer = self.transformers_tokenizer
        return FastTokenizer(tokenizer.backend_tokenizer) if tokenizer.is_fast else SlowTokenizer(tokenizer)

    @cached_property
    def bos(self) -> int | None:
        """Id of the token that the model expects first: the first token that its tokenizer adds to a text, else BOS.

        None if there is no such token, if BOS is also EOS or the unknown token, or if the chat template contains BOS
        more than once, to open every turn: texts of the model's training then need not begin with BOS.
        """
        if n_front := tokens_around(self._tokenizer)[0]:
            return self._tokenizer.token_ids(["a"], special_tokens=True)[0][:n_front][0]
        tokenizer = self.transformers_tokenizer
        text, token = tokenizer.bos_token, tokenizer.bos_token_id
        if token is None or token in (tokenizer.eos_token_id, tokenizer.unk_token_id):
            return None
        opens_turns = str(tokenizer.chat_template or "").count(text) > 1
        return None if opens_turns else int(token)

    @property
    def own_chat_template(self) -> str:
        """The chat template of the tokenizer, else of chat_template.json, a file that processors of transformers write.

        Raises ModelError if there are several templates and none is the default.
        """
        tokenizer, file = self.transformers_tokenizer, self.folder / "chat_template.json"
        if tokenizer.chat_template is None and file.is_file():
            return str(read_object(file, ModelError).get("chat_template"))
        try:
            template: str = tokenizer.get_chat_template()
        except ValueError as error:
            raise ModelError(
                f"{self.name} has chat templates, and transformers finds no default among them. Save the right one to "
                "a file, and name it with --chat-template."
            ) from error
        return template

    @cached_property
    def transformers_tokenizer(self) -> Any:
        """The model's tokenizer as transformers loads it. Raises ModelError if it cannot be loaded."""
        from transformers import AutoTokenizer

        try:
            return AutoTokenizer.from_pretrained(str(self.folder), trust_remote_code=self.trust_remote_code)
        except BaseException as error:  # damaged files can make the libraries raise anything
            if not isinstance(error, Exception) and not is_panic(error):
                raise
            raise ModelError(
                f"The tokenizer in {self.folder} cannot be loaded ({type(error).__name__}: {error}). Download or save "
                "the model again."
            ) from error


def reads_images_as_well(architecture: str) -> bool:
    """Return whether transformers lists an architecture for text from images and text, and not as a causal model."""
    from transformers.models.auto import modeling_auto

    with_images = modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES.values()
    return architecture in with_images and architecture not in modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values()


def find_model(
    config: ModelConfig,
    generates_text: Callable[[str], bool] = reads_images_as_well,
    *,
    needs_weights: bool = True,
) -> ModelSource:
    """Find the configured model in a local folder, the local hub cache or the hub, and check its kind.

    Args:
        config: names the model.
        generates_text: returns whether the engine accepts an architecture that transformers does not list as a causal
            model.
        needs_weights: False: configuration and tokenizer are enough, and weights are not downloaded.

    Raises ModelError if the model is not found, is damaged, is not a causal language model or has no tokenizer.
    """
    folder, revision = _folder_and_revision(config, needs_weights)
    description = _read_config(config.model, folder)
    text_part = description.get("text_config") or description  # multimodal models describe their text part separately
    if not isinstance(text_part, dict):
        raise ModelError(f"{folder / 'config.json'}: text_config must be an object, got {shown(text_part)}.")
    quantization = description.get("quantization_config") or text_part.get("quantization_config")
    if not isinstance(quantization, dict | None):
        raise ModelError(f"{folder}/config.json: quantization_config must be an object, got {shown(quantization)}.")
    architecture = _text_architecture(config, description, generates_text)
    sizes = _read_sizes(folder / "config.json", text_part)
    files = weight_files(folder)
    if needs_weights and not files:
        raise ModelError(f"{folder} has a config.json but no weights (*.safetensors or *.bin).")
    for file in files:
        if file.suffix == ".safetensors":
            read_header(file)
    if not any((folder / name).is_file() for name in _TOKENIZER_FILES):
        raise ModelError(f"{config.model} has no tokenizer: none of {', '.join(_TOKENIZER_FILES)} is in {folder}.")
    stated = (part.get(key) for part in (text_part, description) for key in ("dtype", "torch_dtype"))
    dtype = str(next(filter(None, stated), "float32"))
    return ModelSource(
        name=config.model,
        folder=folder,
        revision=revision,
        architecture=architecture,
        **sizes,
        has_alibi=bool(text_part.get("alibi")),
        short_context=_short_context(text_part),
        dtype=dtype if dtype in _DTYPES else "float32",
        quantization=quantization,
        trust_remote_code=config.trust_remote_code,
        add_bos=config.add_bos,
    )


def _folder_and_revision(config: ModelConfig, needs_weights: bool) -> tuple[Path, str | None]:
    """Return the folder of a model and its commit; None as the commit of a local folder.

    A snapshot of the hub is in a folder that is named after the commit.
    """
    path = Path(os.path.expanduser(config.model))
    if not config.model.strip():
        raise ModelError("The name of the model is blank. Give the path of a model folder, or a hub name.")
    if path.is_dir():
        if config.revision is not None:
            raise ModelError(
                f"--revision {config.revision} names a commit of a hub model, and {config.model} is a folder here: "
                "drop the option, or give the hub name."
            )
        return path.resolve(), None
    if path.is_file():
        raise ModelError(_instead_of_model(config.model, path))
    folder = _hub_folder(config, needs_weights)
    return folder, folder.name


def scoring_dtype(source: ModelSource, config: ModelConfig) -> str:
    """Return the dtype that engines compute in: the configured dtype, or with "auto" the dtype of the saved weights."""
    return source.dtype if config.dtype == "auto" else config.dtype


def loaded_bytes(source: ModelSource, config: ModelConfig) -> int:
    """Return the size of the weights in memory, in bytes and in the dtype that engines compute in.

    Quantised weights are counted as in the files.
    """
    if source.quantization:
        return source.weight_bytes
    # Weights without a safetensors header: estimate from the file sizes and the dtype in config.json.
    n_parameters = source.n_parameters or source.weight_bytes // dtype_bytes(source.dtype)
    return parameter_bytes(n_parameters, source, config)


def parameter_bytes(n_parameters: int, source: ModelSource, config: ModelConfig) -> int:
    """Return the size of a number of parameters in memory, in bytes and in the dtype that engines compute in.

    With --quantization fp8, parameters of linear layers take one byte; vLLM leaves embeddings and LM head unquantised.
    """
    number_bytes = dtype_bytes(scoring_dtype(source, config))
    if config.quantization != "fp8":
        return n_parameters * number_bytes
    kept = min(n_parameters, 2 * source.vocab_size * source.hidden_size)
    return kept * number_bytes + n_parameters - kept


def dtype_bytes(dtype: str) -> int:
    """Return the size of a number of this dtype in bytes."""
    return 4 if dtype == "float32" else 2


def _read_config(name: str, folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    if not path.is_file():
        raise ModelError(_instead_of_model(name, folder))
    description = read_object(path, ModelError)
    if not isinstance(description.get("model_type"), str):
        raise ModelError(f"{path} does not describe a model: it has no model_type.")
    _require_one_model(name, folder, description)
    return description


def _instead_of_model(name: str, path: Path) -> str:
    """Return the error message for a `--model` that is a file, or a folder without config.json."""
    files = [path] if path.is_file() else sorted(path.glob("*.gguf"))
    if files and files[0].suffix.lower() == ".gguf":
        made, source = files[0].stem, f"{str(files[0].parent)!r}, gguf_file={files[0].name!r}"
        return (
            f"{name} is a model in GGUF, which is not read. Make a model folder of it, after `pip install gguf`: "
            f'python -c "from transformers import AutoModelForCausalLM as M, AutoTokenizer as T; '
            f"m = M.from_pretrained({source}); m.hf_quantizer = None; del m.config.quantization_config; "
            f'm.save_pretrained({made!r}); T.from_pretrained({source}).save_pretrained({made!r})". '
            f"Then give --model {made}."
        )
    if path.is_file():
        folder = path.parent if (path.parent / "config.json").is_file() else "the folder that holds it with config.json"
        return f"{name} is a file, and a model is a folder of weights, config.json and tokenizer. Give {folder}."
    if (path / ADAPTER_CONFIG).is_file():
        base = read_object(path / ADAPTER_CONFIG, ModelError).get("base_model_name_or_path")
        return f"{name} is an adapter. Name its base, and the adapter: --model {base or 'BASE'} --adapter {name}."
    inside = [str(each.parent) for each in sorted([*path.glob("*/config.json"), *path.glob("snapshots/*/config.json")])]
    return f"{name} is not a model folder: it has no config.json." + (
        f" There is one in {', '.join(inside[:3])}: name that folder." if inside else ""
    )


def _require_one_model(name: str, folder: Path, description: dict[str, Any]) -> None:
    """Raise ModelError if a folder leaves open which weights or which code belong to the model.

    That is: an adapter in the same folder, weight files of other names, or code from another repository.
    """
    if (folder / ADAPTER_CONFIG).is_file():
        raise ModelError(
            f"{name} holds a model and an adapter ({ADAPTER_CONFIG}), which transformers would apply and vLLM would "
            "not. Move the adapter's files to a folder of their own, and name it with --adapter."
        )
    stated = description.get("transformers_weights")
    if stated is not None and (
        stated not in ("model.safetensors", "model.safetensors.index.json") or not (folder / stated).is_file()
    ):
        raise ModelError(
            f"{folder / 'config.json'} names {shown(stated)} as transformers_weights, which vLLM does not read. Rename "
            "the file to model.safetensors, and remove the entry."
        )
    code = description.get("auto_map")
    elsewhere = [entry for entry in code.values() if "--" in str(entry)] if isinstance(code, dict) else []
    if elsewhere:
        raise ModelError(
            f"{folder / 'config.json'} takes code from another repository ({shown(elsewhere[0])}), which can change "
            "without notice. Copy the code into the model's folder, and name it there in auto_map."
        )


MAX_SIZE = 2**31 - 1
"""Largest value that is accepted for a size in config.json; MAX_LAYERS for the number of layers."""
MAX_LAYERS = 10_000

_SIZES = {
    "vocab_size": ("vocab_size",),
    "context_length": (
        "max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "max_sequence_length", "seq_length"
    ),
    "hidden_size": ("hidden_size", "n_embd", "d_model"),
    "n_layers": ("num_hidden_layers", "n_layer", "n_layers"),
    "n_heads": ("num_attention_heads", "n_head"),
    "n_kv_heads": ("num_key_value_heads",),
    "head_size": ("head_dim",),
}  # fmt: skip
"""Size of a model -> entries of config.json by which architectures state it, in order of preference."""


def _read_sizes(path: Path, entries: dict[str, Any]) -> dict[str, Any]:
    """Return the sizes of a model as fields of ModelSource, each from the first entry of _SIZES that is not 0.

    Raises ModelError for an entry that is not a whole number within its limits, and if there is no vocab_size.
    """
    sizes = dict.fromkeys(_SIZES, 0)
    for size, keys in _SIZES.items():
        largest = MAX_LAYERS if size == "n_layers" else MAX_SIZE
        for key in keys:
            value = entries.get(key)
            if value is not None and (type(value) is not int or not 0 <= value <= largest):
                raise ModelError(f"{path}: {key} must be a whole number from 0 to {largest:,}, got {shown(value)}.")
            if value:
                sizes[size] = value
                break
    if not sizes["vocab_size"]:
        raise ModelError(f"{path} has no vocab_size, so that its size is not known. Add it to a local copy.")
    n_heads, n_layers = sizes["n_heads"] or 1, sizes.pop("n_layers")
    head_size = sizes.pop("head_size") or sizes["hidden_size"] // n_heads
    # Numbers in the KV cache for one token: a key and a value for each layer and key-value head.
    kv_values = 2 * n_layers * (sizes["n_kv_heads"] or n_heads) * head_size
    unknown = {name: sizes[name] or None for name in ("context_length", "n_heads", "n_kv_heads")}
    return sizes | unknown | {"kv_values_per_token": kv_values}


def _short_context(entries: dict[str, Any]) -> int | None:
    rope = entries.get("rope_parameters") or entries.get("rope_scaling")
    if not isinstance(rope, dict) or rope.get("rope_type", rope.get("type")) not in ("longrope", "su"):
        return None
    stated = (part.get("original_max_position_embeddings") for part in (entries, rope))
    return next((n for n in stated if type(n) is int and n > 0), None)


def _text_architecture(config: ModelConfig, description: dict[str, Any], generates_text: Callable[[str], bool]) -> str:
    architectures = description.get("architectures") or []
    if not isinstance(architectures, list) or not all(isinstance(name, str) for name in architectures):
        raise ModelError(
            f"{config.model}: architectures in its config.json must be a list of names, got {shown(architectures)}."
        )
    for name in architectures:
        if name.endswith("ForCausalLM"):
            return str(name)
    # Some causal models have other names (GPT2LMHeadModel); transformers lists them all, but is slow to import.
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    causal = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(description["model_type"])
    if causal is not None and (not architectures or causal in architectures):
        return str(causal)
    for name in architectures:
        if not description.get("is_encoder_decoder") and generates_text(name):
            return str(name)
    raise ModelError(
        f"{config.model} is not a causal language model: its config.json says "
        f"{', '.join(architectures) or description['model_type']}. Choose one that generates text from text alone."
    )


_HOSTED = re.compile(r"(?i)(^|/)(gpt-\d|chatgpt|o\d(-|$)|claude|gemini|grok|mistral-(large|medium)|command-[ar])")
"""Pattern for names of models that are only available as hosted services, without published weights."""


_NOT_READ = ["consolidated*", "*LICENSE*", "*NOTICE*", "README*", "requirements*"]
"""Patterns of files of a hub model that nothing reads, such as Mistral's own copy of the weights.

They and those of _READ_BY_CODE are not downloaded, nor missed where another program has filled the hub's cache.
"""

_READ_BY_CODE = ["*.py", *(f"*/*{end}" for end in (".json", ".model", ".txt", ".safetensors", ".bin"))]
"""Patterns of files that nothing but a model's own code reads: the code itself, and files below the top."""


def _hub_folder(config: ModelConfig, needs_weights: bool) -> Path:
    """Return the folder of a hub model's files, downloaded unless cached; *.bin files only if none is safetensors."""
    patterns = ["*.json", "*.jinja", "*.model", "*.txt", "*.py", *(["*.safetensors"] if needs_weights else [])]
    folders = [str(path.parent) for path in Path(os.path.expanduser(config.model)).parent.glob("*/config.json")]
    near = did_you_mean(config.model, [*EMBEDDED_MODELS, *folders])
    hint = f"There is no folder {config.model!r} either.{near} Give the path of a model folder, or a hub name."
    if _HOSTED.search(config.model):
        hint += " `evaluator ask` asks models of hosted services (docs/decisions.md)."
    ignored = _NOT_READ if config.trust_remote_code else [*_NOT_READ, *_READ_BY_CODE]
    options: dict[str, Any] = {"ignored": ignored, "revision": config.revision, "error": ModelError, "hint": hint}
    folder = hub_snapshot(config.model, "model", patterns, **options)
    is_enough = not needs_weights or weight_files(folder)
    return folder if is_enough else hub_snapshot(config.model, "model", ["*.bin"], **options)
