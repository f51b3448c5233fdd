"""What the processes of tests/engine/vllm_processes.py begin with: vLLM, and the modules of its server and workers."""

import importlib

from evaluator.engine import vllm_settings

# Not the stance that a process with eager models has: whoever begins here chooses for itself.
_chosen = dict(vllm_settings.SETTINGS)
vllm_settings.SETTINGS |= {kind: settings._replace(compiled=True) for kind, settings in _chosen.items()}
vllm_settings.import_vllm()
vllm_settings.SETTINGS |= _chosen

for name in (
    "vllm.entrypoints.launchers.api_server.entry",
    "vllm.v1.engine.async_llm",
    "vllm.v1.engine.core",
    "vllm.v1.worker.cpu_worker",
    "vllm.model_executor.models.llama",
):
    importlib.import_module(name)
