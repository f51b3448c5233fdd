"""Weight files and LoRA adapters: the files that engines open, the tensors in these files, and their digests.

An adapter is a folder as PEFT saves it: adapter_config.json and adapter_model.safetensors. Whether it fits its base
model is read from the files of both. No weights are loaded here.
"""

import hashlib
import json
import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import filelock
from safetensors import SafetensorError, safe_open

from evaluator.config import cache_folder
from evaluator.errors import ModelError, StoreError, WriteError, shown
from evaluator.files.json_files import read_json, read_object, write_json
from evaluator.files.whole import file_digest, reason
from evaluator.hub import hub_snapshot

logger = logging.getLogger(__name__)

_STEMS = {".safetensors": "model", ".bin": "pytorch_model"}  # in the order in which both engines prefer them
_OF_TRAINING = ("training_args.bin", "optimizer.bin")  # no weights; vLLM ignores these files as well

_FLOATS = ("F16", "BF16", "F32", "F64")
_NUMBERS_AT_A_TIME = 2**22
_LARGE_BYTES = 2**26  # size of a file from which hashing takes long


class Tensor(NamedTuple):
    """A tensor as the header of a safetensors file describes it."""

    name: str
    dtype: str  # name of the dtype in safetensors: "BF16"
    shape: tuple[int, ...]


def weight_files(folder: Path) -> list[Path]:
    """Return the weight files that engines open, sorted; empty if there are none.

    transformers opens model.safetensors, else the files in model.safetensors.index.json, else pytorch_model.bin or the
    files in its index. vLLM opens the *.safetensors at the top of the folder that the index names; without an index all
    *.safetensors; if there are none, all *.bin.

    Raises ModelError if transformers and vLLM would open different files, and for an index that is damaged or names a
    file that is missing or outside the folder.
    """
    for suffix, stem in _STEMS.items():
        single, index = folder / f"{stem}{suffix}", folder / f"{stem}{suffix}.index.json"
        # is_file() excludes pipes: reading from a pipe could wait for ever.
        files = sorted(path for path in folder.glob(f"*{suffix}") if path.is_file() and path.name not in _OF_TRAINING)
        if index.is_file():
            indexed = _indexed_files(folder, index, suffix)
            # Files that an engine could open besides the indexed files: vLLM ignores the index of *.bin.
            others = {single} if suffix == ".safetensors" else {*files}
            if extra := sorted(others & {*files} - {*indexed}):
                raise _ambiguous(folder, index, extra)
            return indexed
        if single in files and len(files) > 1:
            raise _ambiguous(folder, single, [file for file in files if file != single])
        if files and suffix == ".safetensors" and single not in files:
            pickles = [path for name in ("pytorch_model.bin", "pytorch_model.bin.index.json")
                       if (path := folder / name).is_file()]  # fmt: skip
            if pickles:
                raise _ambiguous(folder, pickles[0], files)
        if files:
            return files
    return []


def _indexed_files(folder: Path, index: Path, suffix: str) -> list[Path]:
    names = read_object(index, ModelError).get("weight_map")
    if not isinstance(names, dict) or not names:
        raise ModelError(f"{index} must name the file of each tensor in weight_map, got {shown(names)}.")
    files = set()
    for tensor, name in names.items():
        path = PurePosixPath(name) if isinstance(name, str) else PurePosixPath("/")
        if path.is_absolute() or ".." in path.parts or path.suffix != suffix:
            raise ModelError(
                f"{index} names {shown(name)} for {shown(tensor)}, which is no {suffix} file in the model's folder. "
                "Copy the file there, and write its relative path into the index."
            )
        if not (folder / path).is_file():
            raise ModelError(f"{index} names {name}, which is missing. Download or save the model again.")
        files.add(folder / path)
    return sorted(files)


def _ambiguous(folder: Path, chosen: Path, others: list[Path]) -> ModelError:
    names = ", ".join(file.name for file in others)
    return ModelError(
        f"{folder} holds {chosen.name} and beside it {names}, so that transformers and vLLM would read different "
        "weights. Move those that are not the model's to another folder."
    )


def read_header(path: Path) -> list[Tensor]:
    """Return the tensors that a safetensors file declares, without reading their values.

    Raises ModelError, naming the file, if the safetensors library refuses it.
    """
    try:
        with safe_open(path, framework="np") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 - it is no mapping
            return [Tensor(name, part.get_dtype(), tuple(part.get_shape())) for name, part in slices.items()]
    except (SafetensorError, OSError, ValueError) as error:
        raise ModelError(
            f"{path} is damaged or no safetensors file: its header is refused ({error}). Download or save it again."
        ) from error


def has_plain_head(files: Iterable[Path], vocab_size: int) -> bool:
    """Return whether the LM head, or the embeddings that are tied to it, is in safetensors files and not quantised.

    A quantised matrix consists of integers or 8-bit floats, or has further tensors with scales and zero points.
    """
    tensors = [tensor for file in files if file.suffix == ".safetensors" for tensor in read_header(file)]
    of_head = [tensor for tensor in tensors if ".lm_head." in f".{tensor.name}"]
    of_vocabulary = [tensor for tensor in tensors if len(tensor.shape) == 2 and tensor.shape[0] >= vocab_size]
    head = of_head or of_vocabulary
    return bool(head) and all(tensor.dtype in _FLOATS and tensor.name.endswith((".weight", ".bias")) for tensor in head)


def first_not_finite(path: Path) -> str | None:
    """Return the name of the first tensor with a NaN or an infinity, or None. Reads all of a safetensors file."""
    with safe_open(path, framework="pt") as file:
        for tensor in read_header(path):
            if tensor.dtype in _FLOATS:
                pieces = file.get_tensor(tensor.name).flatten().split(_NUMBERS_AT_A_TIME)
                if not all(piece.isfinite().all() for piece in pieces):
                    return tensor.name
    return None


def combined_digest(parts: Mapping[str, str]) -> str:
    """Return the SHA-256 of named strings, in any order; all 64 hex digits, because models are compared by it."""
    return hashlib.sha256(json.dumps(dict(sorted(parts.items()))).encode()).hexdigest()


def file_digests(folder: Path, files: Iterable[Path]) -> dict[str, str]:
    """Return path within the folder -> SHA-256 of each file, reading several files at the same time."""
    files = list(files)
    with ThreadPoolExecutor() as pool:  # hashing releases the interpreter's lock
        names = (file.relative_to(folder).as_posix() for file in files)
        return dict(zip(names, pool.map(_cached_digest, files), strict=True))


def _cached_digest(file: Path) -> str:
    """Return the SHA-256 of a file; the cache folder keeps it, so that an unchanged file is read only once.

    Raises ModelError if the file cannot be read.
    """
    try:
        cached = _digest_file(file)
        if known := _read_digest(cached):
            return known
        with _hashing_alone(cached, file.stat().st_size):
            if known := _read_digest(cached):  # another process has read it meanwhile
                return known
            digest = file_digest(file)
            if _digest_file(file) != cached:  # it changed while it was read
                return _cached_digest(file)
            write_json(cached, {"file": digest})
    except WriteError as error:
        logger.warning("%s The weights are read again by the next run.", error)
    except OSError as error:
        raise ModelError(f"{file} cannot be read: {reason(error)}.") from error
    return digest


def are_hashed(files: Iterable[Path]) -> bool:
    """Return whether the cache folder has the SHA-256 of all these files as they are now."""
    return all(_read_digest(_digest_file(file)) for file in files)


def file_state(file: Path) -> str:
    """Return a digest of a file's path, inode, size and times, which differs after any change of the file."""
    status = file.stat()
    # Size and modification time can be set to their earlier values; the time of the last status change cannot.
    known_by = (str(file.resolve()), status.st_size, status.st_mtime_ns, status.st_dev, status.st_ino,
                status.st_ctime_ns)  # fmt: skip
    return combined_digest({"file": json.dumps(known_by)})


def _digest_file(file: Path) -> Path:
    """Return the path in the cache folder where the digest of a file in its present state is stored."""
    return cache_folder() / "digests" / f"{file_state(file)}.json"


def _read_digest(cached: Path) -> str | None:
    with suppress(StoreError):  # a damaged cache file is written again
        if known := read_json(cached):
            return str(known["file"])
    return None


@contextmanager
def _hashing_alone(cached: Path, size: int) -> Iterator[None]:
    """Hold a lock while a large file is hashed, so that replicas that start together on a host hash it only once."""
    lock = filelock.FileLock(cached.with_suffix(".lock"))
    if size >= _LARGE_BYTES:
        with suppress(OSError, NotImplementedError):  # without locks or a writable folder, every process reads the file
            cached.parent.mkdir(parents=True, exist_ok=True)
            lock.acquire()
    try:
        yield
    finally:
        lock.release()


CONFIG_FILE, WEIGHTS_FILE, PICKLED_FILE = "adapter_config.json", "adapter_model.safetensors", "adapter_model.bin"
MAX_RANK = 512
"""The largest rank that vLLM accepts."""

# Entries of adapter_config.json that choose kinds of adapter which vLLM does not compute.
_UNSUPPORTED = (
    "use_dora", "lora_bias", "modules_to_save", "alora_invocation_tokens", "layer_replication", "use_qalora",
    "use_bdlora", "trainable_token_indices", "target_parameters",
)  # fmt: skip
# Initialisations that change the base's weights when PEFT loads the adapter.
_CHANGES_THE_BASE = ("pissa", "olora", "corda", "loftq")
_MATRIX = re.compile(r"(?:base_model\.model\.)?(?P<module>.+)\.lora_(?P<side>[AB])\.weight")

_Shapes = Mapping[str, tuple[int, int, int]]
"""Module that an adapter changes -> (rank, number of inputs, number of outputs)."""


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """A LoRA adapter as its files describe it, not loaded."""

    name: str  # name as the user gave it
    folder: Path
    rank: int  # largest rank of any module
    modules: frozenset[str]  # last parts of the names of the changed modules: "q_proj"
    n_parameters: int

    @cached_property
    def fingerprint(self) -> str:
        """Digest of the configuration and the weights, independent of the folder."""
        return combined_digest(file_digests(self.folder, [self.folder / CONFIG_FILE, self.weights]))

    @property
    def weights(self) -> Path:
        return self.folder / WEIGHTS_FILE


def find_adapter(name: str, base: str, base_files: Iterable[Path]) -> Adapter:
    """Find an adapter in a local folder, the hub's cache or the hub, and check that it fits its base.

    Args:
        name: a folder or a hub name.
        base: name of the base model, for messages.
        base_files: weight files of the base model. Only shapes in safetensors files are compared.

    Raises ModelError if the adapter is missing, is of another kind than LoRA or was made for another base.
    """
    folder = _adapter_folder(name)
    settings = _adapter_settings(name, folder)
    shapes = _adapter_shapes(name, settings, read_header(folder / WEIGHTS_FILE))
    rank = _adapter_rank(name, settings, shapes)
    files = [file for file in base_files if file.suffix == ".safetensors"]
    tensors = [tensor for file in files for tensor in read_header(file)]
    _require_fit(name, base, shapes, tensors)
    _require_every_layer(name, settings, {*shapes}, tensors)
    stated = settings.get("base_model_name_or_path")
    if isinstance(stated, str) and last_part(stated) != last_part(base):
        logger.warning("%s says that it was trained on %s; its shapes fit %s as well.", name, stated, base)
    return Adapter(
        name=name,
        folder=folder,
        rank=rank,
        modules=frozenset(module.rsplit(".", 1)[-1] for module in shapes),
        n_parameters=sum(rows * (n_in + n_out) for rows, n_in, n_out in shapes.values()),
    )


def _adapter_folder(name: str) -> Path:
    folder = Path(os.path.expanduser(name))
    if not folder.is_dir():
        hint = f"There is no folder {name!r} either: give the path of an adapter's folder, or a hub name."
        folder = hub_snapshot(name, "model", [CONFIG_FILE, WEIGHTS_FILE], error=ModelError, hint=hint)
    folder = folder.resolve()
    if not (folder / CONFIG_FILE).is_file():
        raise ModelError(f"{name} is no LoRA adapter: it has no {CONFIG_FILE}. Give a folder that PEFT has saved.")
    if not (folder / WEIGHTS_FILE).is_file():
        if (folder / PICKLED_FILE).is_file():
            raise ModelError(
                f"{name} has its weights in {PICKLED_FILE}, a pickle, which can run code when it is read. Save it as "
                f"{WEIGHTS_FILE} (save_pretrained of PEFT does)."
            )
        raise ModelError(f"{name} has no weights: {WEIGHTS_FILE} is missing. Save or download the adapter again.")
    return folder


def _adapter_settings(name: str, folder: Path) -> Mapping[str, Any]:
    """Return an adapter's configuration. Raises ModelError for kinds of adapter that engines do not compute."""
    settings = read_object(folder / CONFIG_FILE, ModelError)
    if settings.get("peft_type") != "LORA":
        kind = shown(settings.get("peft_type"))
        raise ModelError(f"{name} is an adapter of kind {kind}, but only LORA is supported.")
    unsupported = [key for key in _UNSUPPORTED if settings.get(key)]
    if settings.get("bias") not in (None, "none"):
        unsupported.append("bias")
    if str(settings.get("init_lora_weights")).lower().startswith(_CHANGES_THE_BASE):
        unsupported.append("init_lora_weights")
    if unsupported:
        chosen = ", ".join(f"{key} = {shown(settings[key])}" for key in unsupported)
        raise ModelError(f"{name} is more than a plain LoRA adapter ({chosen}). Merge it into its base with PEFT.")
    return settings


def _adapter_shapes(name: str, settings: Mapping[str, Any], tensors: Iterable[Tensor]) -> _Shapes:
    sides: dict[str, dict[str, tuple[int, ...]]] = {}
    for tensor in tensors:
        match = _MATRIX.fullmatch(tensor.name)
        if match is None or len(tensor.shape) != 2:
            raise ModelError(f"{name} holds the tensor {tensor.name!r}, which is no matrix of a LoRA adapter.")
        sides.setdefault(match["module"], {})[match["side"]] = tensor.shape
    shapes = {}
    for module, of_side in sides.items():
        down, up = of_side.get("A"), of_side.get("B")
        if down is None or up is None or down[0] != up[1]:
            raise ModelError(f"{name} has no pair of matrices for {module}: lora_A is {down}, lora_B is {up}.")
        shapes[module] = (down[0], down[1], up[0])
    if other := next((module for module in shapes if not _is_chosen(settings, module)), None):
        raise ModelError(
            f"{name} has matrices for {other}, which its {CONFIG_FILE} does not choose (target_modules, "
            "exclude_modules, layers_to_transform): PEFT leaves them out and vLLM does not. Save it again."
        )
    if not shapes:
        raise ModelError(f"{name} changes nothing: {WEIGHTS_FILE} holds no matrix.")
    return shapes


def _adapter_rank(name: str, settings: Mapping[str, Any], shapes: _Shapes) -> int:
    rank = max(rows for rows, _, _ in shapes.values())
    pattern = settings.get("rank_pattern")
    stated = [settings.get("r"), *(pattern.values() if isinstance(pattern, dict) else ())]
    if rank not in stated:
        raise ModelError(f"{name} has matrices of rank {rank}, and its {CONFIG_FILE} says {shown(settings.get('r'))}.")
    if rank > MAX_RANK:
        raise ModelError(f"{name} has rank {rank}, and {MAX_RANK} is the largest that vLLM takes. Merge it with PEFT.")
    return rank


def _require_fit(name: str, base: str, shapes: _Shapes, tensors: Iterable[Tensor]) -> None:
    """Raise ModelError if a module of the adapter has another shape in the base model, or is missing from its layers.

    Modules that the base's files do not name in any layer, such as quantised or fused modules, are left to the engine.
    """
    # Module name from its layer on -> shapes in the base, sorted because some architectures store matrices transposed.
    of_base: dict[str, set[tuple[int, ...]]] = {}
    for tensor in tensors:
        if tensor.name.endswith(".weight") and len(tensor.shape) == 2:
            of_base.setdefault(_in_layers(tensor.name.removesuffix(".weight")), set()).add(tuple(sorted(tensor.shape)))
    if not of_base:
        return
    if embeddings := of_base.get("embed_tokens"):
        of_base.setdefault("lm_head", embeddings)  # a tied LM head has no tensor of its own
    kinds = {_any_layer(module) for module in of_base}
    is_foreign = kinds.isdisjoint(_any_layer(_in_layers(module)) for module in shapes)
    for module, (_, n_in, n_out) in shapes.items():
        there = of_base.get(_in_layers(module))
        # The base has none of the adapter's modules, or has this module in other layers only.
        if there is None and (is_foreign or _any_layer(_in_layers(module)) in kinds):
            raise ModelError(f"{name} was made for another base than {base}, which has no {module}.")
        if there is not None and tuple(sorted((n_in, n_out))) not in there:
            (one, other), *_ = there
            raise ModelError(
                f"{name} was made for another base than {base}: its {module} has {n_in} inputs and {n_out} outputs, "
                f"and the base's is {one} by {other}."
            )


def _require_every_layer(name: str, settings: Mapping[str, Any], modules: set[str], tensors: Iterable[Tensor]) -> None:
    """Raise ModelError if the adapter has matrices for a module in some layers, but not in all layers that it chooses.

    Args:
        name: name of the adapter.
        settings: content of adapter_config.json.
        modules: modules for which the adapter has matrices.
        tensors: tensors of the base model.
    """
    kinds = {*map(_any_layer, modules)}
    for tensor in tensors:
        module = tensor.name.removesuffix(".weight")
        if module not in modules and _any_layer(module) in kinds and _is_chosen(settings, module):
            raise ModelError(
                f"{name} has no matrices for {module}, which its {CONFIG_FILE} chooses as in other layers: "
                "this one would stay as in the base. Save or download the adapter again."
            )


def _is_chosen(settings: Mapping[str, Any], module: str) -> bool:
    """Return whether PEFT would change a module (peft.tuners.tuners_utils, check_target_module_exists)."""

    def is_among(names: object) -> bool:
        if isinstance(names, str):
            with suppress(re.error):
                return names == "all-linear" or re.fullmatch(names, module) is not None
        return isinstance(names, list) and any(f".{module}".endswith(f".{name}") for name in names)

    targets, layers = settings.get("target_modules"), settings.get("layers_to_transform")
    if is_among(settings.get("exclude_modules")) or not (targets is None or is_among(targets)):
        return False
    # Without layers_to_transform, or with a pattern as target_modules, the adapter changes all layers.
    layer = re.match(r".*?\.[^.]*\.(\d+)\.", module)
    layers = [layers] if isinstance(layers, int) else layers
    return not layers or isinstance(targets, str) or layer is None or int(layer[1]) in layers


def _in_layers(module: str) -> str:
    """Return a module's name from its layer on: "layers.0.mlp" of "model.layers.0.mlp".

    The part before the layer can differ between files and code.
    """
    match = re.search(r"[^.]+\.\d+\..*", module)
    return match[0] if match else module.rsplit(".", 1)[-1]


def _any_layer(module: str) -> str:
    """Return a module's name with "#" in place of numbers, so that it is the same for all layers."""
    return re.sub(r"\d+", "#", module)


def last_part(name: str) -> str:
    """Return the end of a path or of a hub name: "model" of "org/model"."""
    return name.rstrip("/").rsplit("/", 1)[-1]
