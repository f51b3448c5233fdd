"""Start vLLM in this process if enough memory is free, load adapters, empty its prefix cache, and stop it."""

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
from evaluator.process import leave_out_imports

_log = logging.getLogger(__name__)

_LORA_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)  # values that vLLM accepts as largest rank
_WRONG_ON_A_CPU = ("Lfm2ForCausalLM", "Lfm2MoeForCausalLM")
"""Architectures with wrong scores in vLLM 0.32 on a CPU.

Scores of LFM2 are off by 0.2 to 2.5 nats (docs/models.md); LFM2-MoE has the same attention.
"""
_TEXT_ONLY = {"image": 0, "video": 0, "audio": 0}
_NO_VISION = " (for a model that reads images as well, vLLM needs torchvision, which is not installed)"
_STATE_UNIT = 16  # tokens between places where a recurrent state can be shared; must divide all block sizes
_LONGEST_WITHOUT_LIMIT = 16_384  # tokens of a prompt, for models whose configuration states no context length


def start_vllm(source: ModelSource, config: ModelConfig, log: Path) -> Any:
    """Load the model and return the `vllm.LLM`.

    Args:
        source, config: the model, and how to load it.
        log: file for the output of vLLM and its worker processes.

    Raises ModelError if vLLM is missing, memory is short, the weight files are incomplete, or vLLM cannot load them.
    """
    gc.collect()  # garbage, such as an earlier model, can hold a device's memory
    vllm_settings.import_vllm()
    leave_out_imports()
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
        # Read the files that source.fingerprint covers, not Mistral's own format, which can be in the same folder.
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
        # A step holds thousands of prompt tokens, so graphs, which vLLM captures for small and generating steps, would
        # never run.
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
    """Return vLLM's limit on the tokens of a prompt; -1: the model's context length, or fewer if the cache is smaller.

    On a GPU, vLLM pins host memory in proportion to this limit for each sequence of a step: 4 GiB for a million tokens.
    """
    if source.context_length is None:
        return max(_LONGEST_WITHOUT_LIMIT, config.max_prompt_tokens or 0)
    longest = config.max_prompt_tokens or source.context_length
    if device == "cuda" and longest < source.context_length:
        return longest
    return source.context_length if source.short_context else -1  # LongRoPE: vLLM may not find the limit itself


def _parallel(config: ModelConfig, device: DeviceKind) -> dict[str, Any]:
    """Return vLLM's options for the devices of one replica. On a CPU, devices are equal parts of the cores."""
    devices = config.devices
    if devices.per_replica == 1:
        return {}
    if device == "cpu":
        parts = split(cores(), devices.per_replica)
        os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "|".join(",".join(map(str, part)) for part in parts)
    return {
        "tensor_parallel_size": devices.tensor_parallel or 1,
        "pipeline_parallel_size": devices.pipeline_parallel,
        "distributed_executor_backend": "mp",  # in a Ray actor, vLLM would start its processes with Ray
    }


def _states(source: ModelSource) -> dict[str, Any]:
    """Return vLLM's options for models with recurrent states in addition to attention.

    Cache blocks of such models hold hundreds of tokens, and by default only whole blocks are shared.
    """
    from vllm import EngineArgs, ModelRegistry

    model = ModelRegistry.models.get(source.architecture)
    if model is None or not hasattr(EngineArgs, "prefix_match_unit") or not model.inspect_model_cls().is_hybrid:
        return {}
    return {"prefix_match_unit": _STATE_UNIT}


def _lora(source: ModelSource) -> dict[str, Any]:
    """Return vLLM's options for adapters. A call uses one adapter, so only one at a time is on the device."""
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

    Raises ModelError, after stopping vLLM, if an adapter cannot be loaded.
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
        except Exception as error:  # the model's layers can raise anything for an adapter
            with stopping_vllm(llm):
                raise ModelError(f"vLLM cannot load the adapter {adapter.name}: {first_sentence(error)}.") from error
        requests[adapter.fingerprint] = request
    return requests


def _keep_heads_apart() -> None:
    """Patch vLLM so that logits of the base model stay unchanged: on a CPU, 0.32 adds the last adapter's LM head."""
    from vllm.lora.punica_wrapper.punica_cpu import PunicaWrapperCPU as Wrapper

    add = Wrapper.add_lora_logits
    Wrapper.add_lora_logits = lambda wrapper, *given, **options: wrapper.no_lora or add(wrapper, *given, **options)


def _undo_compile_decorators() -> None:
    """Restore the classes of transformers that vLLM has changed, so that transformers can build such models again.

    If vLLM runs a model with transformers' own code, it changes the class of the model in place
    (vllm/compilation/decorators.py), and a model of this class can no longer be built without vLLM's configuration.
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
    """Remove the hooks by which PyTorch's compiler keeps a model and its weights in memory."""
    from vllm.compilation.wrapper import TorchCompileWithNoGuardsWrapper

    for module in model.modules():
        if isinstance(module, TorchCompileWithNoGuardsWrapper):
            module.cleanup()


def _block_sharing() -> Any:
    """Return vLLM's option for the connector BlockSharing; None, with a warning, if this vLLM lacks a name it needs."""
    from vllm.config import KVTransferConfig

    try:
        from evaluator.engine.block_sharing import BlockSharing
    except ImportError as error:
        note = vllm_settings.version_note()
        _log.warning("Prompts share whole blocks of the cache only: %s. %s", first_sentence(error), note)
        return None
    name, module = BlockSharing.__name__, BlockSharing.__module__
    # Not kv_consumer: vLLM would then accept image embeddings from other processes, which needs a tokenizer.
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
    """Stop an LLM, so that another LLM can be started; its memory is free when the context ends.

    Within the context, the caller must drop its reference: the memory of a compiled model is freed with the LLM itself.
    """
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
    return_freed_memory()


def empty_cache(llm: Any) -> None:
    """Check the prefix cache and empty it, so that the next call does not depend on earlier calls."""
    connector = llm.llm_engine.engine_core.engine_core.scheduler.connector
    if connector is not None:
        connector.check_idle()
        connector.forget()
    emptied = llm.llm_engine.reset_prefix_cache()
    assert emptied, "an earlier call left requests behind"


def shared_block_tokens(llm: Any) -> int | None:
    """Return the unit, in tokens, in which vLLM shares prefixes; None if it shares nothing.

    The unit is a cache block. If kinds of layers have blocks of different sizes it is their least common multiple, or
    the smaller `prefix_match_unit` where vLLM has it (see _states).
    """
    coordinator = llm.llm_engine.engine_core.engine_core.scheduler.kv_cache_manager.coordinator
    for name in ("_cache_hit_alignment_tokens", "block_size"):
        if unit := getattr(coordinator, name, None):
            return int(unit)
    return None
