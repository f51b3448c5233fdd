"""The engine contract on vLLM's model runner V2, in a process of its own: which runner it is, is decided at import."""

import inspect
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from ray.cluster_utils import Cluster

from evaluator.engine import vllm_settings
from evaluator.engine.devices import this_processor
from evaluator.run.folder import read_scores
from evaluator.run.folders import read_run
from tests.command_line import command
from tests.end_to_end.processes import start
from tests.engine.cpu_only import cpu_only

ROOT = Path(__file__).parents[2]
COMMAND = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.engine.model_runner_v2"]


@cpu_only  # a GPU runs V2 by itself
@pytest.mark.slow
def test_the_engine_contract_holds_on_model_runner_v2() -> None:
    """The part marked `runner_v2`; `make test-runners` has all."""
    contract = str(Path(__file__).with_name("test_engine_contract.py").relative_to(ROOT))
    command = [sys.executable, *COMMAND, contract, "-m", "runner_v2", "-k", "vllm"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


@cpu_only
@pytest.mark.slow
@pytest.mark.skipif(this_processor().max_devices < 2, reason="one core")
def test_a_model_on_two_devices_of_a_cluster_has_the_numbers_of_transformers(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tensor parallel, in a replica on Ray; all Python processes that start are told to interpret Triton."""
    interpret = inspect.getsource(vllm_settings.interpret_triton)
    (tmp_path / "sitecustomize.py").write_text(
        f"import os\nfrom types import SimpleNamespace\n{interpret}\ninterpret_triton()\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    # Worker processes would compile a helper of the sampler, and ask Triton for a backend that is not there.
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "1")
    words = ("run", "staicc-normal", "--datasets", "sst5", "--queries", 1, "--model", tiny_model, "--dtype", "float32")
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    try:
        on_ray = ("--devices", 2, "--tensor-parallel", 2, "--ray-address", cluster.address)
        process = start(*words, "--engine", "vllm", "--kv-cache-gib", 0.01, *on_ray, "--out", tmp_path / "v2")
        outputs = process.communicate()
    finally:
        cluster.shutdown()
    assert process.returncode == 0, outputs
    command(*words, "--engine", "transformers", "--out", tmp_path / "reference")
    engine = read_run(tmp_path / "v2").engine
    assert engine is not None
    assert (engine.name, engine.model_runner, engine.tensor_parallel) == ("vllm", "V2", 2)
    assert "loaded the model" in (tmp_path / "v2" / "logs" / "replica-0.log").read_text()
    found, expected = (read_scores(tmp_path / out).collect().sort("dataset", "position") for out in ("v2", "reference"))
    assert found["prompt_id"].to_list() == expected["prompt_id"].to_list()
    log_probs = (scores["label_log_likelihoods"].explode().to_numpy() for scores in (found, expected))
    np.testing.assert_allclose(*log_probs, rtol=0, atol=1e-4)
