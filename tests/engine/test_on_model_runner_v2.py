"""The engine contract on vLLM's model runner V2, in a process of its own: which runner it is, is decided at import."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.engine.cpu_only import cpu_only

ROOT = Path(__file__).parents[2]
COMMAND = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.engine.model_runner_v2"]
CHOSEN = "vllm and not (real_prompts and prompt_logprobs)"


@cpu_only  # a GPU runs V2 by itself
@pytest.mark.slow
def test_the_engine_contract_holds_on_model_runner_v2() -> None:
    """The part marked `runner_v2`, of real prompts without the slower way; `make test-runners` runs all of it."""
    contract = str(Path(__file__).with_name("test_engine_contract.py").relative_to(ROOT))
    command = [sys.executable, *COMMAND, contract, "-m", "runner_v2", "-k", CHOSEN]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
