"""Whether a model's weight files hold the whole model, tensor by tensor, before an engine loads it."""

import logging
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from evaluator.errors import ModelError
from evaluator.models.source import ModelSource, reads_images_as_well
from evaluator.models.weights import weight_files

logger = logging.getLogger(__name__)

_BUFFER = re.compile(r"\.(inv_freq|masked_bias|attn\.bias|attention\.bias|position_ids)$")
"""Constants that older checkpoints hold, and models compute."""


def auto_class(source: ModelSource) -> Any:
    """Return the class of transformers that makes models of an architecture."""
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

    return AutoModelForImageTextToText if reads_images_as_well(source.architecture) else AutoModelForCausalLM


@contextmanager
def without_progress() -> Iterator[None]:
    """Keep transformers' progress bars and reports out of the terminal."""
    from transformers.utils import logging

    was_shown, verbosity = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if was_shown:
            logging.enable_progress_bar()


def require_whole(source: ModelSource) -> None:
    """Raise ModelError, naming a tensor, unless the weight files hold the model that config.json describes.

    Without this, transformers puts random numbers in the place of what is missing, vLLM leaves the head of an untied
    model as memory happens to be, and both ignore layers beyond those that config.json counts. Only the names, shapes
    and dtypes of tensors are read.

    Quantised tensors have other names and shapes than transformers' own, so that of these only the head is looked for.
    Architectures that transformers does not know are left to the engine.
    """
    try:
        with without_progress():
            tensors = _tensors(source)
            model, info = _loaded_without_numbers(source, tensors)
    except Exception as error:  # of any kind, from damaged files and code of models: the engine refuses it in words
        logger.warning(
            "%s: whether all tensors are there could not be checked, because transformers cannot build the model (%s).",
            source.name,
            type(error).__name__,
        )
        return
    missing, mismatched = sorted(info["missing_keys"]), sorted(info["mismatched_keys"])
    if source.quantization:
        heads = [name for name, module in model.named_modules() if module is model.get_output_embeddings()]
        head = heads[0] if heads else None
        is_there = any(f".{head}." in f".{tensor}" for tensor in tensors)
        if f"{head}.weight" in missing and not is_there:
            raise _not_whole(source, f"{head}.weight", "is in none of the weight files")
        return
    for name, tensor in tensors.items():
        if name.endswith("weight") and (not tensor.is_floating_point() or tensor.itemsize == 1):
            what = f"holds {str(tensor.dtype).removeprefix('torch.')}, with no quantization_config to read it by"
            raise _not_whole(source, name, what)
    if mismatched:
        name, saved, expected = mismatched[0]
        raise _not_whole(source, name, f"has the shape {list(saved)}, and config.json asks for {list(expected)}")
    if missing:
        more = f", nor are {len(missing) - 1} others" if len(missing) > 1 else ""
        raise _not_whole(source, missing[0], f"is in none of the weight files{more}")
    if unexpected := _unexpected(info["unexpected_keys"], model):
        raise _not_whole(source, unexpected, "is in the weight files, and has no place in the model of config.json")


def _not_whole(source: ModelSource, tensor: str, what: str) -> ModelError:
    return ModelError(
        f"{source.name} is not whole: the tensor {tensor} {what}. Download or save the model again, config.json and "
        "weights together."
    )


def _tensors(source: ModelSource) -> dict[str, torch.Tensor]:
    """Return a tensor without numbers for each one in the weight files, by its name there."""
    from transformers.modeling_utils import load_state_dict

    tensors: dict[str, torch.Tensor] = {}
    for file in weight_files(source.folder):
        tensors |= load_state_dict(str(file), map_location="meta")
    return tensors


def _loaded_without_numbers(source: ModelSource, tensors: dict[str, torch.Tensor]) -> tuple[Any, dict[str, Any]]:
    """Return the model, and which of its tensors transformers would find missing, mismatched and unexpected."""
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(str(source.folder), trust_remote_code=source.trust_remote_code)
    for part in (config, config.get_text_config()):
        part.__dict__.pop("quantization_config", None)
    with torch.device("meta"):
        model = auto_class(source).from_config(config, trust_remote_code=source.trust_remote_code)
    loaded: tuple[Any, dict[str, Any]] = type(model).from_pretrained(
        None,
        config=config,
        state_dict=dict(tensors),
        device_map="meta",
        output_loading_info=True,
        ignore_mismatched_sizes=True,
    )
    return loaded


def _unexpected(names: Iterable[str], model: Any) -> str | None:
    """Return the first tensor that belongs to a layer like those of the model; None if there is none."""
    layers = {_layer(name) for name, _ in model.named_parameters()} - {None}
    return min((name for name in names if _layer(name) in layers and not _BUFFER.search(name)), default=None)


def _layer(name: str) -> str | None:
    """Return the prefix of a layer's number: "model.layers" of "model.layers.0.mlp.up_proj.weight"."""
    match = re.match(r"(.*?)\.\d+\.", name)
    return match[1] if match else None
