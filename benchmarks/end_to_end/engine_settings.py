"""Try other vLLM settings than those of evaluator/engine/vllm_settings.py on this device, one change at a time.

Every setting has an engine in a separate process. After a comparison of scores, all engines score the same prompts in
turns. The first setting is the one of a run. A setting that is faster by more than the spread is a reason to change the
table in vllm_settings.py.

    python -m benchmarks.end_to_end.engine_settings [MODEL] [dtype] [prompts] [runs]

MODEL is a folder or a hub name, or `28m`: a random Llama of 28 million parameters. Every engine needs its weights and
two GiB of cache on the device.
"""

import sys
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import cast

import numpy as np

from benchmarks.engine_work import Answers, engine_process, random_llama, sst5_requests
from benchmarks.harness import Work, race
from evaluator.config import Dtype, ModelConfig
from evaluator.engine.devices import device_kind, this_machine
from evaluator.engine.vllm_settings import SETTINGS, StepSettings
from evaluator.models.source import find_model

TOLERANCE_NATS = {"float32": 1e-4, "bfloat16": 0.5, "float16": 0.1}


def alternatives() -> dict[str, StepSettings]:
    """Return name -> settings: the settings of a run, and settings that differ from them in one value."""
    chosen = SETTINGS[device_kind()]
    if device_kind() == "cpu":
        others = {
            "blocks of 64": chosen._replace(block_tokens=64),
            "steps of 512 tokens": chosen._replace(max_tokens=512),
            "steps of 1,024 tokens": chosen._replace(max_tokens=1024),
            "64 sequences a step": chosen._replace(max_sequences=64),
        }
    else:
        others = {
            "eager": chosen._replace(compiled=False),
            "blocks of 32": chosen._replace(block_tokens=32),
            "steps of 4,096 tokens": chosen._replace(max_tokens=4096),
            "steps of 8,192 tokens": chosen._replace(max_tokens=8192),
            "steps of 32,768 tokens": chosen._replace(max_tokens=32768),
            "256 sequences a step": chosen._replace(max_sequences=256),
        }
    return {"as in a run": chosen} | others


def main(name: str = "28m", dtype: str = "float32", n_prompts: str = "256", runs: str = "5") -> None:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        model = str(random_llama(Path(folder))) if name == "28m" else name
        config = ModelConfig(model=model, engine="vllm", dtype=cast(Dtype, dtype), kv_cache_gib=2.0)
        requests = sst5_requests(find_model(config), int(n_prompts))
        contestants = {
            title: stack.enter_context(engine_process(config, requests, settings))
            for title, settings in alternatives().items()
        }
        work = Work(
            benchmark="engine_settings",
            case=f"{name}, {dtype}, {len(requests)} prompts of SST-5, {this_machine().name}",
            items=len(requests),
            unit="prompts",
            packages=("torch", "transformers"),
        )
        race(work, contestants, runs=int(runs), same=partial(same, tolerance=TOLERANCE_NATS[dtype]))


def same(expected: Answers, found: Answers, *, tolerance: float) -> None:
    np.testing.assert_allclose(found.log_probs, expected.log_probs, rtol=0, atol=tolerance)


if __name__ == "__main__":
    main(*sys.argv[1:])
