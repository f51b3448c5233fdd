"""Start vLLM in this process: quietly, with small cache blocks, and only if its memory is free. Empty and stop it."""

import contextlib
import gc
import inspect
import logging
import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from evaluator.config import ModelConfig
from evaluator.engine import vllm_settings
from evaluator.engine.base import first_sentence, way_out
from evaluator.engine.devices import DeviceKind, cores, device_kind, head_dtype, return_freed_memory, split
from evaluator.engine.prefixes import MAX_IDS
from evaluator.errors import ModelError
from evaluator.models.skeleton import require_whole
from evaluator.models.source import ModelSource, scoring_dtype

_log = logging.getLogger(__name__)

_LORA_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)  # that vLLM makes room for
_WRONG_ON_A_CPU = ("Lfm2ForCausalLM", "Lfm2MoeForCausalLM")
"""vLLM 0.32 is off by 0.2 to 2.5 nats for LFM2 there (docs/models.md); LFM2-MoE has the same attention."""
_TEXT_ONLY = {"image": 0, "video": 0, "audio": 0}
_NO_VISION = " (for a model that reads images as well, vLLM needs torchvision, which is not installed)"
_STATE_UNIT = 16  # tokens between places where a recurrent state can be shared; must divide all block sizes
_LONGEST_WITHOUT_LIMIT = 16_384  # tokens of a prompt, for models whose configuration states no context length


def start_vllm(source: ModelSource, config: ModelConfig, log: Path) -> Any:
    """Return a `vllm.LLM` with the model.

    Args:
        source, config: the model, and how to load it.
        log: file for what vLLM and its worker processes write.

    Raises ModelError on failure.
    """
    gc.collect()  # garbage can hold a device's memory, such as an earlier model's
    vllm_settings.import_vllm()
    vllm_settings.check_memory(source, config)
    require_whole(source)
    from vllm import LLM

    device = device_kind()
    if device == "cpu" and source.architecture in _WRONG_ON_A_CPU:
        raise ModelError(f"vLLM computes {source.architecture} wrongly on a CPU. Use --engine transformers.")
    sharing = _block_sharing() if device == "cpu" else None  # never tried on a GPU
    try:
        with vllm_settings.quiet(log), _without_llvmlite_module():
            return LLM(**_options(source, config, device), kv_transfer_config=sharing)
    except Exception as error:  # damaged files and code of models can raise anything
        lacks_vision = source.architecture.endswith("ForConditionalGeneration") and not find_spec("torchvision")
        raise ModelError(
            f"vLLM cannot load {source.folder}: {first_sentence(error)}{vllm_settings.last_error(log)}"
            f"{_NO_VISION if lacks_vision else ''}. {way_out(error, scoring_dtype(source, config))}"
        ) from error


def _options(source: ModelSource, config: ModelConfig, device: DeviceKind) -> dict[str, Any]:
    """Return the options of `vllm.LLM`."""
    settings = vllm_settings.step_settings(config.steps)
    return {
        "model": str(source.folder),
        # Not Mistral's own files, which can lie beside those that source.fingerprint covers.
        "config_format": "hf",
        "load_format": "hf",
        "skip_tokenizer_init": True,
        "trust_remote_code": source.trust_remote_code,
        "dtype": scoring_dtype(source, config),
        "quantization": config.quantization,
        "hf_overrides": {"head_dtype": head_dtype(source, config, device)},
        "max_model_len": _max_length(source, config, device),
        "limit_mm_per_prompt": _TEXT_ONLY,
        "block_size": settings.block_tokens,
        "enable_prefix_caching": True,
        "enable_chunked_prefill": True,
        "max_num_seqs": settings.max_sequences,
        "max_num_batched_tokens": vllm_settings.tokens_per_step(source, settings),
        "max_logprobs": MAX_IDS,
        "enforce_eager": not settings.compiled,
        # A step holds thousands of prompt tokens: the graphs of small steps, and of steps that generate, never run.
        "compilation_config": {"cudagraph_mode": "NONE"},
        **_parallel(config, device),
        **_lora(source),
        **_states(source),
        "disable_log_stats": True,
        "use_tqdm_on_load": False,
        "kv_cache_memory_bytes": vllm_settings.kv_cache_bytes(source, config),
        "gpu_memory_utilization": vllm_settings.device_share(config),
    }


def _max_length(source: ModelSource, config: ModelConfig, device: DeviceKind) -> int:
    """Return the tokens of the longest prompt for vLLM; -1: the model's context length, or as many as the cache holds.

    On a GPU vLLM pins memory of the host for so many tokens of each sequence of a step: 4 GiB for a million.
    """
    if source.context_length is None:
        return max(_LONGEST_WITHOUT_LIMIT, config.max_prompt_tokens or 0)
    longest = config.max_prompt_tokens or source.context_length
    if device == "cuda" and longest < source.context_length:
        return longest
    return source.context_length if source.short_context else -1  # vLLM may not find where the long factors begin


def _parallel(config: ModelConfig, device: DeviceKind) -> dict[str, Any]:
    """Return the options of vLLM for the devices of one replica. On a CPU these are equal parts of the cores."""
    devices = config.devices
    if devices.per_replica == 1:
        return {}
    if device == "cpu":
        parts = split(cores(), devices.per_replica)
        os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "|".join(",".join(map(str, part)) for part in parts)
    return {
        "tensor_parallel_size": devices.tensor_parallel or 1,
        "pipeline_parallel_size": devices.pipeline_parallel,
        "distributed_executor_backend": "mp",  # in a Ray actor vLLM would ask Ray for processes
    }


def _states(source: ModelSource) -> dict[str, Any]:
    """Return the options of vLLM for models with recurrent states in addition to attention.

    Their blocks hold hundreds of tokens, and without this nothing shorter than a block is shared.
    """
    from vllm import EngineArgs, ModelRegistry

    model = ModelRegistry.models.get(source.architecture)
    if model is None or not hasattr(EngineArgs, "prefix_match_unit") or not model.inspect_model_cls().is_hybrid:
        return {}
    return {"prefix_match_unit": _STATE_UNIT}


def _lora(source: ModelSource) -> dict[str, Any]:
    """Return the options of vLLM for adapters. A call uses one, so that one at a time lies on the device."""
    if not source.adapters:
        return {}
    rank = max(adapter.rank for adapter in source.adapters)
    return {
        "enable_lora": True,
        "max_loras": 1,
        "max_cpu_loras": len(source.adapters),
        "max_lora_rank": next(allowed for allowed in _LORA_RANKS if rank <= allowed),
    }


def add_adapters(llm: Any, source: ModelSource) -> dict[str, Any]:
    """Load the adapters of a model, and return their handles for requests: fingerprint -> LoRARequest.

    Raises ModelError, after stopping vLLM, if it cannot load one.
    """
    if not source.adapters:
        return {}
    from vllm.lora.request import LoRARequest

    if device_kind() == "cpu":
        _keep_heads_apart()
    requests = {}
    for number, adapter in enumerate(source.adapters, start=1):
        request = LoRARequest(adapter.fingerprint, number, str(adapter.folder))
        try:
            with vllm_settings.quiet():
                llm.llm_engine.add_lora(request)
        except Exception as error:  # of any kind: what the model's layers say of an adapter
            with stopping_vllm(llm):
                raise ModelError(f"vLLM cannot load the adapter {adapter.name}: {first_sentence(error)}.") from error
        requests[adapter.fingerprint] = request
    return requests


def _keep_heads_apart() -> None:
    """Have vLLM leave logits as they are where a call names no adapter: on a CPU 0.32 adds the last one's LM head."""
    from vllm.lora.punica_wrapper.punica_cpu import PunicaWrapperCPU as Wrapper

    add = Wrapper.add_lora_logits
    Wrapper.add_lora_logits = lambda wrapper, *given, **options: wrapper.no_lora or add(wrapper, *given, **options)


def _undo_compile_decorators() -> None:
    """Give transformers' classes back their constructors, so that transformers can make such models again.

    Where vLLM runs a model by transformers' own code, it changes the class of the model in place
    (vllm/compilation/decorators.py), and a model of that class cannot be made without vLLM's configuration any more.
    """
    from vllm.compilation.wrapper import TorchCompileWithNoGuardsWrapper as Wrapper

    for changed in Wrapper.__subclasses__():
        if changed.__module__.startswith("transformers.") and "__init__" in vars(changed):
            original = inspect.getclosurevars(changed.__init__).nonlocals.get("old_init")
            if original is not None:
                changed.__init__ = original
                changed.__bases__ = tuple(base for base in changed.__bases__ if base is not Wrapper)
                if "__call__" in vars(changed):
                    del changed.__call__


def _forget_compiled(model: Any) -> None:
    """Take away the hooks through which PyTorch's compiler holds a model, and with it the model's weights."""
    from vllm.compilation.wrapper import TorchCompileWithNoGuardsWrapper

    for module in model.modules():
        if isinstance(module, TorchCompileWithNoGuardsWrapper):
            module.cleanup()


def _block_sharing() -> Any:
    """Return the option of vLLM for our connector; None, with a warning, if this vLLM lacks a name that it needs."""
    from vllm.config import KVTransferConfig

    try:
        from evaluator.engine.block_sharing import BlockSharing
    except ImportError as error:
        note = vllm_settings.version_note()
        _log.warning("Prompts share whole blocks of the cache only: %s. %s", first_sentence(error), note)
        return None
    name, module = BlockSharing.__name__, BlockSharing.__module__
    # With kv_consumer, vLLM also accepts image embeddings computed by other processes, and that needs a tokenizer.
    return KVTransferConfig(kv_connector=name, kv_connector_module_path=module, kv_role="kv_producer")


@contextlib.contextmanager
def _without_llvmlite_module() -> Iterator[None]:
    """Hide the module of llvmlite that breaks the start of vLLM 0.32 once Numba has been used.

    vLLM inspects every attribute of every loaded module and assumes that `__dict__` is a dictionary. llvmlite's library
    handle returns a C function for any attribute name, `__dict__` included.
    """
    name = "llvmlite.binding.ffi"
    module = sys.modules.pop(name, None)
    try:
        yield
    finally:
        if module is not None:
            sys.modules[name] = module


@contextlib.contextmanager
def stopping_vllm(llm: Any) -> Iterator[None]:
    """Stop an LLM, so that another one can be started. Its memory is free when the context ends.

    That is where the caller drops its reference: the memory of a compiled model goes with the LLM itself.
    """
    import torch
    from vllm.distributed.parallel_state import cleanup_dist_env_and_memory

    try:
        if llm.llm_engine.vllm_config.parallel_config.world_size == 1:  # else the model ends with its processes
            llm.apply_model(_forget_compiled)
        llm.llm_engine.engine_core.shutdown()
        cleanup_dist_env_and_memory()
    finally:
        _undo_compile_decorators()
    del llm
    try:
        yield
    finally:
        gc.collect()
    if device_kind() == "cuda":
        torch.cuda.empty_cache()
    return_freed_memory()


def empty_cache(llm: Any) -> None:
    """Check the prefix cache and empty it, so that the next call does not depend on earlier ones."""
    connector = llm.llm_engine.engine_core.engine_core.scheduler.connector
    if connector is not None:
        connector.check_idle()
        connector.forget()
    emptied = llm.llm_engine.reset_prefix_cache()
    assert emptied, "an earlier call left requests behind"


def shared_block_tokens(llm: Any) -> int | None:
    """Return the unit in which vLLM shares prefixes, in tokens; None where it shares nothing.

    That is a block of the cache, or where kinds of layers have blocks of different sizes the least common multiple: for
    models with a recurrent state hundreds of tokens.
    """
    coordinator = llm.llm_engine.engine_core.engine_core.scheduler.kv_cache_manager.coordinator
    for name in ("_cache_hit_alignment_tokens", "block_size"):
        if unit := getattr(coordinator, name, None):
            return int(unit)
    return None
