"""How large a step and a cache vLLM is given on each kind of device.

vLLM's own choice stands wherever nothing better was measured; `python -m benchmarks.end_to_end.engine_settings` tries
others on the device at hand. What vLLM made of it is in run.json (EngineRecord).
"""

from typing import NamedTuple

from evaluator.config import ModelConfig
from evaluator.engine.device import DeviceKind, device_kind
from evaluator.errors import ModelError
from evaluator.models.source import ModelSource, dtype_bytes, loaded_bytes, scoring_dtype


class StepSettings(NamedTuple):
    """Settings passed to vLLM; None: its default."""

    block_tokens: int | None  # of a block of the prefix cache, which shares whole blocks
    max_tokens: int | None  # of a step
    max_sequences: int | None  # of a step
    compiled: bool  # torch.compile and CUDA graphs


SETTINGS: dict[DeviceKind, StepSettings] = {
    # Blocks of 32 are the smallest that vLLM's CPU attention works well with: it would take 128, which cached 64% of
    # StaICC's tokens instead of 88%. Blocks of 64, steps of 512 and 1,024 tokens and 64 sequences a step took 1.02 to
    # 1.19 times as long (benchmarks/results/engine_settings.csv). A compiler may be missing, and there are no launches
    # to save.
    "cpu": StepSettings(block_tokens=32, max_tokens=2048, max_sequences=256, compiled=False),
    # Nothing was measured yet. vLLM 0.32 takes 16 tokens a block, 16,384 tokens and 1,024 sequences a step on an H100
    # or H200, 8,192 and 256 on others, and compiles.
    "cuda": StepSettings(block_tokens=None, max_tokens=None, max_sequences=None, compiled=True),
}

# On a CPU, log-probabilities of prompt tokens take tokens x vocabulary x 4 bytes, which vLLM's own memory profile does
# not see.
_PROMPT_LOG_PROB_BYTES = 2**30
_CACHED_TOKENS_ON_CPU = 32_768  # in prefix order a cache of 20,000 tokens recomputes hardly anything


def step_settings() -> StepSettings:
    """Return the settings for this machine's devices."""
    return SETTINGS[device_kind()]


def tokens_per_step(source: ModelSource) -> int | None:
    """Return how many tokens one forward pass may hold; None: vLLM chooses."""
    settings = step_settings()
    if settings.max_tokens is None:
        return None
    limit = min(settings.max_tokens, _PROMPT_LOG_PROB_BYTES // (4 * source.vocab_size))
    return max(settings.max_sequences or 1, limit)


def kv_cache_bytes(source: ModelSource, config: ModelConfig) -> int | None:
    """Return the size of the KV cache of one device in bytes; None on a GPU: vLLM takes the memory that is left."""
    if config.kv_cache_gib is not None:
        return int(config.kv_cache_gib * 2**30)
    if device_kind() == "cuda":
        return None
    return _CACHED_TOKENS_ON_CPU * source.kv_values_per_token * dtype_bytes(scoring_dtype(source, config))


def device_share(config: ModelConfig) -> float | None:
    """Return the share of a GPU's memory that this engine takes; None: vLLM's own choice, the GPU is not shared."""
    n_engines = config.devices.engines_per_device
    if n_engines == 1:
        return None
    from vllm import EngineArgs

    return float(EngineArgs.gpu_memory_utilization) / n_engines


def check_memory(source: ModelSource, config: ModelConfig) -> None:
    """Raise ModelError if weights and KV cache together need more memory than is free.

    Both are those of one GPU, or of all parts of a processor, which share its memory.
    """
    cache = kv_cache_bytes(source, config)
    if cache is None:
        return
    weights, n_devices = loaded_bytes(source, config), config.devices.per_replica
    if device_kind() == "cuda":
        weights //= n_devices
    else:
        cache *= n_devices
    free = _free_bytes()
    if weights + cache > free:
        raise ModelError(
            f"{source.name} needs {_gib(weights)} for its weights and {_gib(cache)} for the KV cache, but only "
            f"{_gib(free)} are free. Choose a smaller cache (--kv-cache-gib), a smaller model, or --dtype bfloat16."
        )


def _free_bytes() -> int:
    import psutil
    import torch

    return int(torch.cuda.mem_get_info()[0]) if device_kind() == "cuda" else int(psutil.virtual_memory().available)


def _gib(n_bytes: int) -> str:
    return f"{n_bytes / 2**30:.2f} GiB"
