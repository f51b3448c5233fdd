"""A vLLM whose experimental connector API has changed: what a GPU needs works, and a CPU shares whole blocks only.

In a process of its own, in which the connector was never imported.
"""

from pathlib import Path

import pytest

from evaluator.engine.devices import device_kind
from tests.engine import vllm_processes
from tests.engine.cpu_only import cpu_only

WITHOUT_CONNECTOR = """
import sys
from evaluator.engine.vllm_settings import import_vllm
from evaluator.process import tune_process

tune_process()
import_vllm()
from vllm.distributed.kv_transfer.kv_connector.v1 import base
del base.SupportsHMA
"""

REQUESTS = """
from evaluator.engine.prefixes import Question
from evaluator.engine.vllm_engine import VllmEngine
from evaluator.engine.vllm_requests import question_params, suffix_params
several = question_params(Question((5,), [[5, 8], [6]]), 9, no_reuse=None)
print([params.extra_args for params in (suffix_params(5, no_reuse=None), several)])
print(suffix_params(5, no_reuse=True).extra_args["kv_transfer_params"])
print("evaluator.engine.block_sharing" in sys.modules)
"""

SCORES = """
from evaluator.config import ModelConfig
from evaluator.engine import find_source, load_engine
from evaluator.engine.base import ContinuationRequest

config = ModelConfig(model=sys.argv[1], engine="vllm", dtype="float32", kv_cache_gib=0.01)
engine = load_engine(find_source(config), config)
context = list(range(5, 45))  # one whole block and part of another
requests = [ContinuationRequest([*context, last], [[7], [8, 9]]) for last in range(4)]
print(sorted(answer.index for answer in engine.log_likelihoods(requests)), engine.counts.cached_tokens)
engine.close()
"""


@pytest.fixture(scope="module")
def run(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> vllm_processes.Ended:
    """Requests, and on a CPU scores, of one process."""
    program = WITHOUT_CONNECTOR + REQUESTS + (SCORES if device_kind() == "cpu" else "")
    ended = vllm_processes.run(program, tiny_model, folder=tmp_path_factory.mktemp("run"))
    assert ended.returncode == 0, ended.stderr
    return ended


def test_the_engine_makes_its_requests(run: vllm_processes.Ended) -> None:
    requests = run.stdout.splitlines()[:3]
    assert requests == ["[None, None]", "{'no_reuse': True, 'max_shared_tokens': 4}", "False"]


@cpu_only
def test_a_cpu_shares_whole_blocks_only_and_says_so_once(run: vllm_processes.Ended) -> None:
    indices, cached = run.stdout.splitlines()[-1].rsplit(maxsplit=1)
    assert indices == "[0, 1, 2, 3]"
    assert int(cached) > 0
    assert int(cached) % 32 == 0  # tokens of a block
    assert run.stderr.count("Prompts share whole blocks of the cache only: cannot import name 'SupportsHMA'") == 1
