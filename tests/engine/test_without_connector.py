"""A vLLM whose experimental connector API has changed: what a GPU needs works, and a CPU shares whole blocks only.

In a process of its own, in which the connector was never imported.
"""

import subprocess
import sys

PROGRAM = """
from evaluator.engine.vllm_settings import import_vllm
import_vllm()
from vllm.distributed.kv_transfer.kv_connector.v1 import base
del base.SupportsHMA

from evaluator.engine.vllm_engine import VllmEngine
from evaluator.engine.vllm_requests import suffix_params
print(suffix_params(5).extra_args["kv_transfer_params"])

from evaluator.engine.vllm_loading import _block_sharing
print(_block_sharing())
"""


def test_the_engine_makes_its_requests_and_a_cpu_says_that_it_shares_whole_blocks_only():
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == ["{'no_reuse': True, 'max_shared_tokens': 4}", "None"]
    assert "Prompts share whole blocks of the cache only: cannot import name 'SupportsHMA'" in run.stderr
