"""The parts of vLLM that engines build on and that its documentation does not promise, all in one list.

They are looked up once vLLM is imported, and once a model is loaded, so that a version without one is refused in one
sentence instead of a traceback in the middle of a run, or numbers that are computed the slow way without a word.
"""

from importlib import import_module
from operator import attrgetter
from typing import Any

_NAMES = {
    "vllm": (
        "LLM.apply_model", "ModelRegistry.models", "EngineArgs.gpu_memory_utilization",
        *(f"SamplingParams.{name}" for name in (
            "logprob_token_ids", "skip_reading_prefix_cache", "flat_logprobs", "skip_clone", "extra_args",
            "prompt_logprobs", "ignore_eos", "detokenize")),
        *(f"EngineArgs.{name}" for name in (
            "compilation_config", "hf_overrides", "kv_cache_memory_bytes", "limit_mm_per_prompt", "kv_transfer_config",
            "max_cpu_loras", "skip_tokenizer_init", "config_format", "load_format", "use_tqdm_on_load")),
    ),
    "vllm.compilation.wrapper": ("TorchCompileWithNoGuardsWrapper.cleanup",),
    "vllm.distributed.parallel_state": ("cleanup_dist_env_and_memory",),
    "vllm.v1.engine.llm_engine": tuple(f"LLMEngine.{name}" for name in (
        "step", "abort_request", "reset_prefix_cache", "add_lora")),
    "vllm.lora.request": ("LoRARequest",),
}  # fmt: skip
"""Names by module. Those that block sharing builds on are its own affair: a CPU goes without it where they are gone."""

_PARAMETERS = {
    ("vllm.v1.engine.llm_engine", "LLMEngine.add_request"): ("request_id", "prompt", "params", "lora_request"),
}
"""Functions and the parameters that are passed."""

_OF_A_LOADED_MODEL = (
    "vllm_config.use_v2_model_runner",
    "vllm_config.parallel_config.world_size",
    "model_config.max_model_len",
    "engine_core.engine_core.model_executor",
    "engine_core.engine_core.scheduler.connector",
    "engine_core.engine_core.scheduler.has_mamba_layers",
    "engine_core.engine_core.scheduler.kv_cache_config.kv_cache_groups",
    "engine_core.engine_core.scheduler.kv_cache_manager.coordinator",
)
"""Attributes of an LLMEngine in this process."""


def missing_names() -> list[str]:
    """Return the names that the imported vLLM lacks; empty in a version that was tried. Takes a millisecond."""
    found = (_missing(module, name) for module, names in _NAMES.items() for name in names)
    functions = (_missing(module, name, wanted) for (module, name), wanted in _PARAMETERS.items())
    return [name for name in (*found, *functions) if name]


def missing_attributes(llm_engine: Any) -> list[str]:
    """Return the attributes that a loaded LLMEngine lacks."""
    return [name for name in _OF_A_LOADED_MODEL if not _has(llm_engine, name)]


def _missing(module: str, name: str, parameters: tuple[str, ...] = ()) -> str | None:
    owner, _, last = name.rpartition(".")
    try:
        part: Any = import_module(module)
        part = attrgetter(owner)(part) if owner else part
    except (ImportError, AttributeError):
        return f"{module}.{name}"
    if not hasattr(part, last) and last not in getattr(part, "__annotations__", {}):  # a field without a default
        return f"{module}.{name}"
    code = getattr(getattr(part, last, None), "__code__", None)
    lacks = [each for each in parameters if code and each not in code.co_varnames]
    return f"{module}.{name}({', '.join(lacks)})" if lacks else None


def _has(part: Any, name: str) -> bool:
    try:
        attrgetter(name)(part)
    except AttributeError:
        return False
    return True
