"""What vLLM makes of our options on GPUs: all combinations are valid, and its choices are those that a run counts on.

In a process of its own, whose vLLM believes in GPUs (tests/engine/cuda_platform.py).
"""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engine.cpu_only import cpu_only

PROGRAM = """
import json, sys
from contextlib import suppress
from dataclasses import replace
from itertools import product
from pathlib import Path

from tests.engine.cuda_platform import DEVICES, pretend

pretend(next(iter(DEVICES)))
from evaluator.config import DevicesConfig, ModelConfig
from evaluator.engine.vllm_loading import _options
from evaluator.engine.vllm_settings import import_vllm
from evaluator.models.weights import Adapter
from evaluator.models.source import find_model

import_vllm()
from vllm import EngineArgs
from vllm.usage.usage_lib import UsageContext

model = sys.argv[1]
source = find_model(ModelConfig(model=model))
adapter = Adapter(name="a", folder=Path(model), rank=12, modules=frozenset({"q_proj"}), n_parameters=1)
layouts = {"1": {}, "tp 2": {"tensor_parallel": 2}, "pp 2": {"pipeline_parallel": 2},
           "tp 2, pp 2": {"tensor_parallel": 2, "pipeline_parallel": 2}, "4 engines": {"engines_per_device": 4}}
rest = product(
    ["bfloat16", "float16", "float32"], ["auto", "model", "float32"], [None, 2.0], [(), (adapter,)], [None, 512]
)
for number, (device, (layout, devices), (dtype, head, cache, adapters, longest)) in enumerate(
    product(DEVICES, layouts.items(), rest)
):
    if number % int(sys.argv[2]):
        continue
    pretend(device)
    config = ModelConfig(model=model, engine="vllm", dtype=dtype, head_dtype=head, kv_cache_gib=cache,
                         max_prompt_tokens=longest, devices=DevicesConfig(n=8, **devices))
    made = {"device": device, "layout": layout, "dtype": dtype, "head": head, "cache": cache, "longest": longest,
            "adapters": len(adapters)}
    try:
        options = _options(replace(source, adapters=adapters), config, "cuda")
        vllm = EngineArgs(**options).create_engine_config(UsageContext.LLM_CLASS)
        made |= {
            "tokens": vllm.scheduler_config.max_num_batched_tokens,
            "sequences": vllm.scheduler_config.max_num_seqs,
            "asynchronous": vllm.scheduler_config.async_scheduling,
            "v2": vllm.use_v2_model_runner,
            "graphs": vllm.compilation_config.cudagraph_mode.name,
            "compiled": vllm.compilation_config.mode.name,
            "logits": str(vllm.model_config.head_dtype).removeprefix("torch."),
            "room": vllm.model_config.max_model_len,
            "share": round(vllm.cache_config.gpu_memory_utilization, 3),
            "cache_bytes": vllm.cache_config.kv_cache_memory_bytes,
            "block": vllm.cache_config.block_size,
            "world": vllm.parallel_config.world_size,
            "processes": vllm.parallel_config.distributed_executor_backend,
            "rank": vllm.lora_config and vllm.lora_config.max_lora_rank,
        }
    except Exception as error:
        made["error"] = f"{type(error).__name__}: {error}"
    print("made", json.dumps(made))
"""


PRODUCT = """
import sys
from contextlib import suppress

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from evaluator.engine.vllm_settings import import_vllm
from evaluator.errors import ModelError

@triton.jit
def product(a, b, c, N: tl.constexpr):
    at = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(c + at, tl.dot(tl.load(a + at), tl.load(b + at)))

def rounds_to_tf32():
    pointers = {"a": "*fp32", "b": "*fp32", "c": "*fp32", "N": "constexpr"}
    source = ASTSource(fn=product, signature=pointers, constexprs={"N": 32})
    return ".tf32" in triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["ptx"]

before = rounds_to_tf32()
sys.modules["vllm"] = None  # what it is told beforehand counts; importing it takes ten seconds
with suppress(ModelError):
    import_vllm()
print(before, rounds_to_tf32())
"""


@cpu_only
def test_triton_multiplies_float32_on_a_gpu_without_rounding_to_tf32(tmp_path: Path) -> None:
    (tmp_path / "product.py").write_text(PRODUCT)  # Triton reads the source of what it compiles
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TRITON")}
    environment |= {"TRITON_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(tmp_path / "product.py")]
    run = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert run.stdout.split() == ["True", "False"], run.stderr


@cpu_only
@pytest.mark.slow
@pytest.mark.parametrize("every", [57, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_combinations_are_valid_and_choose_what_a_run_counts_on(tiny_model: Path, every: int) -> None:
    """All 1,440, or every 57th: these 26 hold every pair of values of two options."""
    command = [sys.executable, "-c", PROGRAM, str(tiny_model), str(every)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    made = [json.loads(line.removeprefix("made ")) for line in run.stdout.splitlines() if line.startswith("made ")]
    assert len(made) == math.ceil(1440 / every), run.stderr
    assert not {one["error"] for one in made if "error" in one}
    n_devices = {"1": 1, "tp 2": 2, "pp 2": 2, "tp 2, pp 2": 4, "4 engines": 1}
    large = ("NVIDIA H100 80GB HBM3", "NVIDIA B200")
    assert {one["layout"] for one in made} == set(n_devices)
    for one in made:
        assert (one["v2"], one["compiled"], one["graphs"]) == (True, "VLLM_COMPILE", "NONE"), one
        assert (one["asynchronous"], one["block"]) == (True, 16), one
        assert one["tokens"] == (16_384 if one["device"] in large else 8_192), one
        assert one["sequences"] == 1024, one
        assert one["logits"] == (one["dtype"] if one["head"] == "model" else "float32"), one
        assert one["room"] == (one["longest"] or 2048), one
        assert one["share"] == (0.01 if one["cache"] else 0.23 if one["layout"] == "4 engines" else 0.92), one
        assert one["cache_bytes"] == (one["cache"] and 2 * 2**30), one
        assert one["world"] == n_devices[one["layout"]], one
        assert one["processes"] == ("uni" if one["world"] == 1 else "mp"), one  # not Ray's in a replica
        assert one["rank"] == (16 if one["adapters"] else None), one
