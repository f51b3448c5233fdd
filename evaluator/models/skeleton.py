"""Build a model from config.json with transformers: the names and shapes of its tensors, without their values.

Such a skeleton tells what the files of a model alone do not tell: the number of parameters of quantised weights, the
number of operations for a token, the tensor that is the LM head, and whether the weight files are complete.
"""

import logging
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import safe_open

from evaluator.errors import ModelError
from evaluator.models.fake_source import FakeModelSource
from evaluator.models.source import ModelSource, reads_images_as_well
from evaluator.models.weights import read_header, weight_files

logger = logging.getLogger(__name__)

_BUFFER = re.compile(r"\.(inv_freq|masked_bias|attn\.bias|attention\.bias|position_ids)$")
"""Pattern for tensors of constants that older checkpoints contain, and that models compute themselves today."""

_IN_LAYER = re.compile(r"(.*?)\.(\d+)\.(.*)")
"""Pattern for the name of a tensor: its stack of layers, the number of the layer, and the name within the layer."""

_N_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")
_EXPERTS_PER_TOKEN = ("num_experts_per_tok", "num_experts_per_token")

_LOGIT_CHANGES = (
    "final_logit_softcapping", "logits_soft_cap", "output_logit_soft_cap", "logit_scale", "logits_scaling",
    "lm_head_multiplier", "logits_mup_width_multiplier",
)  # fmt: skip


class ModelSize(NamedTuple):
    """The size of a transformer."""

    n_parameters: int
    # Floating-point operations for one token of a prompt: two for each parameter in the matrices of the layers. The
    # products of attention and the LM head, which is applied to only one token of a request, are left out.
    flop_per_token: int


def auto_class(source: ModelSource) -> Any:
    """Return the auto class of transformers that builds models of this architecture."""
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


def skeleton(source: ModelSource) -> Any:
    """Build the unquantised model on PyTorch's device "meta", which stores no values.

    Raises any exception of transformers or of the model's own code, for damaged files and unknown architectures.
    """
    return _built(auto_class(source), _config(source.folder, source.trust_remote_code), source.trust_remote_code)


def model_size(folder: Path, *, trust_remote_code: bool = False) -> ModelSize | None:
    """Return the size of the model in a folder's config.json; None if transformers cannot build it.

    Of a multimodal model, only the text part is counted. Weights may be absent. `n_parameters` includes all experts;
    `flop_per_token` counts the experts that the router chooses for a token, and shared experts.
    """
    from transformers import AutoModelForCausalLM

    try:
        config = _config(folder, trust_remote_code).get_text_config()
        model = _built(AutoModelForCausalLM, config, trust_remote_code)
    except Exception:  # damaged files and code of models can raise anything
        return None
    n_experts, n_chosen = (
        next((n for key in keys if (n := getattr(config, key, None))), 1) for keys in (_N_EXPERTS, _EXPERTS_PER_TOKEN)
    )
    per_token = 0
    for name, parameter in model.named_parameters():
        if _layer(name) and parameter.ndim > 1:  # excludes embeddings, norms and biases
            n = parameter.numel()
            per_token += n * n_chosen // n_experts if ".experts." in name else n
    return ModelSize(model.num_parameters(), 2 * per_token)


def _config(folder: Path, trust_remote_code: bool) -> Any:
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(str(folder), trust_remote_code=trust_remote_code)
    for part in (config, config.get_text_config()):
        part.__dict__.pop("quantization_config", None)
    return config


def _built(kind: Any, config: Any, trust_remote_code: bool) -> Any:
    with without_progress(), torch.device("meta"):
        return kind.from_config(config, trust_remote_code=trust_remote_code)


def count_parameters(source: ModelSource) -> int | None:
    """Count a model's parameters, tied parameters once; return None if transformers cannot build the model."""
    try:
        return int(skeleton(source).num_parameters())
    except Exception:  # anything, as above
        return None


def require_whole(source: ModelSource) -> None:
    """Raise ModelError, naming a tensor, unless the weight files contain the model that config.json describes.

    Without this check, transformers fills missing tensors with random numbers, vLLM leaves a missing LM head of an
    untied model uninitialised, and both ignore layers beyond the number in config.json. Only the names, shapes and
    dtypes of tensors are read.

    Quantised files use other tensor names and shapes: only their LM head is looked for, and what one layer lacks
    (_absent_from_a_layer). A model that transformers cannot build is not checked, with a warning.
    """
    from transformers.modeling_utils import load_state_dict

    tensors: dict[str, torch.Tensor] = {}  # name in the files -> tensor without values
    try:
        with without_progress():
            for file in weight_files(source.folder):
                tensors |= load_state_dict(str(file), map_location="meta")
        model, info = _loaded_without_numbers(skeleton(source), tensors)
    except Exception as error:  # anything, as above; if the model cannot be loaded, the engine reports the reason
        logger.warning(
            "%s: whether all tensors are there could not be checked, because transformers cannot build the model (%s).",
            source.name,
            type(error).__name__,
        )
        return
    missing, mismatched = sorted(info["missing_keys"]), sorted(info["mismatched_keys"])
    if source.quantization:
        head = _name(model, model.get_output_embeddings())
        is_there = any(f".{head}." in f".{tensor}" for tensor in tensors)
        if f"{head}.weight" in missing and not is_there:
            raise _not_whole(source, f"{head}.weight", "is in none of the weight files")
        if absent := _absent_from_a_layer(tensors, missing):
            raise _not_whole(source, absent, "is in none of the weight files, and other layers have theirs")
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
    stacks = {_layer(name) for name, _ in model.named_parameters()} - {None}
    unexpected = [name for name in info["unexpected_keys"] if _layer(name) in stacks and not _BUFFER.search(name)]
    if unexpected:
        what = "is in the weight files, and has no place in the model of config.json"
        raise _not_whole(source, min(unexpected), what)


def load_lm_head(source: ModelSource, methods: str = "methods that compare next-token distributions") -> torch.Tensor:
    """Return the LM head on the CPU, in the saved dtype: it maps final-norm hidden states to logits.

    The matrix, of shape [vocabulary, hidden size], has all rows of the model's log-softmax, including rows that pad the
    vocabulary.

    Args:
        source: the model.
        methods: names of the methods that need the matrix, for error messages.

    Raises ModelError if the logits are not this matrix times the hidden state (because of a bias, scale, soft cap or
    adapter), and if no tensor in the weight files is this matrix.
    """
    if isinstance(source, FakeModelSource):
        return torch.from_numpy(source.lm_head)
    model = skeleton(source)
    text, head, embeddings = model.config.get_text_config(), model.get_output_embeddings(), model.get_input_embeddings()
    # Everything that changes the logits in addition to the matrix.
    changes = [f"{key} = {value}" for key in _LOGIT_CHANGES if (value := getattr(text, key, None)) not in (None, 0, 1)]
    if getattr(head, "bias", None) is not None:
        changes.append(f"{_name(model, head)}.bias")
    if source.adapter:
        matrices = {_name(model, matrix).rsplit(".", 1)[-1] for matrix in (head, embeddings)}
        changes += [f"{source.adapter.name} changes {name}" for name in matrices & source.adapter.modules]
    if changes:
        raise ModelError(
            f"The logits of {source.name} are more than its LM head times the hidden state ({', '.join(changes)}), and "
            f"{methods} need exactly that product. Leave these out (--methods)."
        )
    # Candidates are all tensors of the right shape; those named as the head come before the embeddings. Even if
    # config.json ties both, the files can contain a separate head, which transformers then uses.
    parameter = f"{_name(model, head)}.weight"
    shape = tuple(head.weight.shape)
    files = [path for path in weight_files(source.folder) if path.suffix == ".safetensors"]
    saved = [(path, tensor.name) for path in files for tensor in read_header(path) if tensor.shape == shape]
    saved.sort(key=lambda of: not of[1].endswith(parameter.rsplit(".", 2)[-2] + ".weight"))
    for path, name in saved:
        # Tensor names in files can differ from names in the model; loading one tensor shows whether it is the head.
        _, info = _loaded_without_numbers(model, {name: torch.empty(shape, device="meta")})
        if parameter not in info["missing_keys"]:
            with safe_open(path, framework="pt") as file:
                matrix: torch.Tensor = file.get_tensor(name)
            return matrix
    raise ModelError(
        f"The LM head of {source.name} was not found: no tensor for {parameter}, of shape {list(shape)}, is in the "
        f"*.safetensors files of {source.folder}. Save the model with save_pretrained, or leave out {methods} "
        "(--methods)."
    )


def _name(model: Any, module: Any) -> str:
    return next((name for name, other in model.named_modules() if other is module), "")


def _not_whole(source: ModelSource, tensor: str, what: str) -> ModelError:
    return ModelError(
        f"{source.name} is not whole: the tensor {tensor} {what}. Download or save the model again, config.json and "
        "weights together."
    )


def _loaded_without_numbers(model: Any, tensors: dict[str, torch.Tensor]) -> tuple[Any, dict[str, Any]]:
    """Load tensors without values; return the model, and the missing, mismatched and unexpected tensors."""
    with without_progress():
        loaded: tuple[Any, dict[str, Any]] = type(model).from_pretrained(
            None,
            config=model.config,
            state_dict=dict(tensors),
            device_map="meta",
            output_loading_info=True,
            ignore_mismatched_sizes=True,
        )
    return loaded


def _absent_from_a_layer(tensors: Mapping[str, torch.Tensor], missing: Sequence[str]) -> str | None:
    """Return a tensor that one layer of quantised files lacks; None if there is none.

    A layer lacks a parameter of the model if the files have tensors of its module in other layers, and none in this
    one. Of a module's own tensors, such as scales, layers can differ by design, as in mixed precision. So a layer lacks
    one only if all of its tensors are in most layers, which have more, and no other layer is like it.

    Args:
        tensors: tensors in the files.
        missing: parameters of the model that have no tensor of their name.
    """
    # Stack of layers -> number of a layer -> its tensors: their names within the layer, and their dtypes.
    stacks: dict[str, dict[str, set[tuple[str, torch.dtype]]]] = defaultdict(lambda: defaultdict(set))
    layers_with: dict[tuple[str, str], set[str]] = defaultdict(set)  # stack and module -> numbers of layers
    for name, tensor in tensors.items():
        if match := _IN_LAYER.match(name):
            stacks[match[1]][match[2]].add((match[3], tensor.dtype))
            layers_with[match[1], match[3].rpartition(".")[0]].add(match[2])
    for match in filter(None, map(_IN_LAYER.match, missing)):
        others = layers_with[match[1], match[3].rpartition(".")[0]]
        if others and match[2] not in others:
            return match.string
    for stack, layers in stacks.items():
        kinds = Counter(map(frozenset, layers.values()))
        (usual, n_usual), *_ = kinds.most_common(1)
        for number, parts in layers.items():
            if n_usual > 1 and parts < usual and kinds[frozenset(parts)] == 1:
                return f"{stack}.{number}.{min(part for part, _ in usual - parts)}"
    return None


def _layer(name: str) -> str | None:
    """Return the name of a tensor before its layer number: "model.layers" of "model.layers.0.mlp.up_proj.weight"."""
    match = _IN_LAYER.match(name)
    return match[1] if match else None
