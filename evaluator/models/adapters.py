"""LoRA adapters: find the one that `--adapter` names, and check from its files that it fits its base model.

An adapter is a folder as PEFT saves it: adapter_config.json and adapter_model.safetensors. No weights are loaded here.
"""

import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from evaluator.errors import ModelError, shown
from evaluator.files.json_files import read_foreign_object
from evaluator.hub import hub_snapshot
from evaluator.models.weights import Tensor, combined_digest, file_digests, read_header

logger = logging.getLogger(__name__)

CONFIG_FILE, WEIGHTS_FILE, PICKLED_FILE = "adapter_config.json", "adapter_model.safetensors", "adapter_model.bin"
MAX_RANK = 512
"""The largest rank that vLLM takes."""

# Kinds of adapter that vLLM does not compute, and what adapter_config.json calls them.
_UNSUPPORTED = (
    "use_dora", "lora_bias", "modules_to_save", "alora_invocation_tokens", "layer_replication", "use_qalora",
    "use_bdlora", "trainable_token_indices", "target_parameters",
)  # fmt: skip
# Initialisations that change the base's weights when PEFT loads the adapter.
_CHANGES_THE_BASE = ("pissa", "olora", "corda", "loftq")
_MATRIX = re.compile(r"(?:base_model\.model\.)?(?P<module>.+)\.lora_(?P<side>[AB])\.weight")


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """A LoRA adapter as its files describe it, not loaded."""

    name: str  # as the user gave it
    folder: Path
    rank: int  # the largest of any module
    modules: frozenset[str]  # last parts of the names of the modules that it changes: "q_proj"
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
        base_files: its weight files. Where all are safetensors, the shapes of the modules must fit.

    Raises ModelError, in one sentence, if it is missing, of another kind than LoRA or for another base.
    """
    folder = _folder(name)
    settings = _settings(name, folder)
    tensors = read_header(folder / WEIGHTS_FILE)
    shapes = _shapes(name, tensors)
    rank = _rank(name, settings, shapes)
    files = [file for file in base_files if file.suffix == ".safetensors"]
    _require_fit(name, base, shapes, [tensor for file in files for tensor in read_header(file)])
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


def _folder(name: str) -> Path:
    folder = Path(name).expanduser()
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


def _settings(name: str, folder: Path) -> Mapping[str, Any]:
    """Return an adapter's configuration. Raises ModelError for kinds of adapter that engines do not compute."""
    settings = read_foreign_object(folder / CONFIG_FILE)
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


def _shapes(name: str, tensors: Iterable[Tensor]) -> dict[str, tuple[int, int, int]]:
    """Return (rank, inputs, outputs) of each module that the adapter changes."""
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
    if not shapes:
        raise ModelError(f"{name} changes nothing: {WEIGHTS_FILE} holds no matrix.")
    return shapes


def _rank(name: str, settings: Mapping[str, Any], shapes: Mapping[str, tuple[int, int, int]]) -> int:
    rank = max(rows for rows, _, _ in shapes.values())
    pattern = settings.get("rank_pattern")
    stated = [settings.get("r"), *(pattern.values() if isinstance(pattern, dict) else ())]
    if rank not in stated:
        raise ModelError(f"{name} has matrices of rank {rank}, and its {CONFIG_FILE} says {shown(settings.get('r'))}.")
    if rank > MAX_RANK:
        raise ModelError(f"{name} has rank {rank}, and {MAX_RANK} is the largest that vLLM takes. Merge it with PEFT.")
    return rank


def _require_fit(name: str, base: str, shapes: Mapping[str, tuple[int, int, int]], tensors: Iterable[Tensor]) -> None:
    """Raise ModelError if a module has another shape in the base, or is not among its layers.

    Modules that the base's files do not name, such as those of a quantised or fused layer, are left to the engine.
    """
    of_base: dict[str, set[tuple[int, ...]]] = {}
    for tensor in tensors:
        if tensor.name.endswith(".weight") and len(tensor.shape) == 2:
            of_base.setdefault(_in_layers(tensor.name.removesuffix(".weight")), set()).add(tuple(sorted(tensor.shape)))
    if not of_base:
        return
    kinds = {_any_layer(module) for module in of_base}
    if kinds.isdisjoint(_any_layer(_in_layers(module)) for module in shapes):
        raise ModelError(f"{name} was made for another base than {base}, which has no {next(iter(shapes))}.")
    for module, (_, n_in, n_out) in shapes.items():
        there = of_base.get(_in_layers(module))
        if there is None and _any_layer(_in_layers(module)) in kinds:
            raise ModelError(f"{name} was made for another base than {base}, which has no {module}.")
        if there is not None and tuple(sorted((n_in, n_out))) not in there:
            (one, other), *_ = there
            raise ModelError(
                f"{name} was made for another base than {base}: its {module} has {n_in} inputs and {n_out} outputs, "
                f"and the base's is {one} by {other}."
            )


def _in_layers(module: str) -> str:
    """Return a module's name from its layer on: files and code name what comes before differently."""
    match = re.search(r"[^.]+\.\d+\..*", module)
    return match[0] if match else module.rsplit(".", 1)[-1]


def _any_layer(module: str) -> str:
    return re.sub(r"\d+", "#", module)


def last_part(name: str) -> str:
    """Return the end of a path or of a hub name: "model" of "org/model"."""
    return name.rstrip("/").rsplit("/", 1)[-1]
