"""What is left of vLLM once it has stopped, or could not load a model."""

import gc
import inspect
import io
import itertools
import json
import logging
import re
import shutil
import sys
import tempfile
import weakref
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from evaluator.config import ModelConfig
from evaluator.engine import find_source, load_engine, vllm_settings
from evaluator.engine.base import ContinuationRequest, adapted
from evaluator.engine.devices import this_processor
from evaluator.engine.vllm_loading import start_vllm
from evaluator.engine.vllm_settings import quiet
from evaluator.errors import ModelError
from evaluator.process import leave_out_imports
from tests.engine import vllm_processes
from tests.engine.architectures import ARCHITECTURES, save_model
from tests.engine.cpu_only import cpu_only
from tests.engine.test_adapters import REQUESTS, expected
from tests.engine.test_engine_contract import answers, flat
from tests.lora import save_adapter
from tests.shared_engines import LOADED, close_engines


@pytest.mark.parametrize("is_command", [True, False])
def test_a_closed_engine_leaves_nothing_behind(loaded_engine, monkeypatch, is_command):
    """Neither the model, whose memory the next one may need, nor a heap that is not collected."""
    from vllm.compilation.wrapper import TorchCompileWithNoGuardsWrapper as Compiled

    loaded_engine("vllm")
    engine = LOADED.pop("vllm")
    llm = weakref.ref(engine._llm.llm_engine)
    frozen = gc.get_freeze_count()
    if not is_command:
        for name in ("freeze", "unfreeze"):  # which tune_process replaced
            monkeypatch.setattr(gc, name, inspect.unwrap(getattr(gc, name)))
        gc.freeze()  # as vLLM does with every model
    with patch.object(Compiled, "cleanup", autospec=True) as cleanup:  # what the compiler holds of a model
        engine.close()
    assert cleanup.called
    assert llm() is None
    assert gc.get_freeze_count() <= (frozen if is_command else 0)


def test_a_notebook_whose_stderr_is_no_file_sees_nothing_of_what_libraries_print_meanwhile(monkeypatch):
    shown = io.StringIO()
    monkeypatch.setattr(sys, "stderr", shown)
    with quiet():
        handler = logging.StreamHandler()  # as Ray's and vLLM's, it keeps the stream of this moment
        print("Missing packages: ['ipywidgets']", file=sys.stderr)
    handler.emit(logging.LogRecord("name", logging.ERROR, "", 0, "later", (), None))
    assert sys.stderr is shown
    assert shown.getvalue() == ""


def test_a_model_that_cannot_be_loaded_leaves_no_heap_that_is_not_collected(tiny_source, monkeypatch, tmp_path):
    close_engines("vllm")
    vllm_settings.import_vllm()
    leave_out_imports()
    from vllm import LLM

    class Interrupted(LLM):
        def __init__(self, **_options):
            raise KeyboardInterrupt

    monkeypatch.setattr("vllm.LLM", Interrupted)
    frozen = gc.get_freeze_count()
    with pytest.raises(KeyboardInterrupt):
        start_vllm(tiny_source, ModelConfig(model=str(tiny_source.folder), engine="vllm"), tmp_path / "log")
    assert gc.get_freeze_count() <= frozen


COMPILED = """
import gc, os, sys, weakref
from inspect import unwrap
from evaluator.config import ModelConfig
from evaluator.engine import find_source, load_engine, vllm_settings
from evaluator.engine.base import ContinuationRequest
from vllm.v1.sample import sampler

if os.environ["VLLM_CPU_CI_ENV"] == "1":  # C++ of a helper that holds no weights
    sampler.batched_count_greater_than = unwrap(sampler.batched_count_greater_than)
vllm_settings.SETTINGS["cpu"] = vllm_settings.SETTINGS["cpu"]._replace(compiled=True)
config = ModelConfig(model=sys.argv[1], engine="vllm", dtype="float32", kv_cache_gib=0.01)
engine = load_engine(find_source(config), config)
list(engine.log_likelihoods([ContinuationRequest([*range(5, 45)], [[7], [8, 9]])]))
(weights,) = engine._llm.apply_model(lambda model: [weakref.ref(each) for each in model.parameters()])
assert engine.facts.compiled and len(weights) > 10
engine.close()
del engine
gc.collect()
print(sum(weight() is not None for weight in weights), "alive")
"""


@cpu_only  # a GPU compiles in every test
@pytest.mark.parametrize("only_traced", ["1", pytest.param("0", marks=pytest.mark.exhaustive)])
def test_the_weights_of_a_compiled_model_are_gone_when_its_engine_is_closed(tiny_model, tmp_path, only_traced):
    """In a process of its own, because a process that has computed eagerly stays so.

    PyTorch's compiler traces the model and holds it by its hooks; the C++ that it makes takes half a minute.
    """
    run = vllm_processes.run(COMPILED, tiny_model, folder=tmp_path, VLLM_CPU_CI_ENV=only_traced)
    assert run.stdout.splitlines()[-1:] == ["0 alive"], run.stderr


WORKERS = """
import json, os, sys
from dataclasses import replace
from pathlib import Path
from evaluator.config import DevicesConfig, ModelConfig
from evaluator.engine import find_source, load_engine, vllm_loading
from evaluator.engine.base import ContinuationRequest
from evaluator.errors import ModelError
from tests.engine.vllm_processes import fork_workers

vllm_loading.require_whole = lambda source: None
fork_workers()
if __name__ == "__main__":
    whole, *damaged = sys.argv[1:]
    devices = DevicesConfig(n=2, tensor_parallel=2)
    config = ModelConfig(model=whole, engine="vllm", dtype="float32", kv_cache_gib=0.01, devices=devices)
    source = find_source(config)
    for folder in damaged:
        try:
            load_engine(replace(source, folder=Path(folder)), config)
        except ModelError as error:
            sys.exit(print(error))
    engine = load_engine(source, config)
    print("log", engine._log.is_file())
    asked = [ContinuationRequest([*range(5, 45), last], [[7], [8, 9]]) for last in range(200)]
    states = engine.hidden_states([request.context for request in asked[:9]]).tolist()
    few = sorted(engine.log_likelihoods(asked[:9]), key=lambda answer: answer.index)
    print("numbers", json.dumps([states, [row for answer in few for row in answer.token_log_probs]]))
    answers = engine.log_likelihoods(asked)
    next(answers)
    os.kill(engine._workers[1].pid, 9)
    try:
        list(answers)
    except ModelError as error:
        print(error)
    engine.close()
    print("log", engine._log.is_file())
"""


def on_two_workers(tmp_path: Path, *models: Path) -> vllm_processes.Ended:
    short = tempfile.mkdtemp(prefix="vllm-")  # paths of sockets have 107 characters at most
    # A worker that waits for one that died never ends by itself, for which vLLM waits 5 seconds.
    impatient = {"TMPDIR": short, "VLLM_WORKER_SHUTDOWN_TIMEOUT_SECONDS": "0"}
    return vllm_processes.run(WORKERS, *models, folder=tmp_path, **impatient)


NOT_INITIALIZED = r"not initialized from checkpoint: \{'model\.norm\.weight'\}; more is in (\S+)\)\. Try"


@pytest.mark.exhaustive  # two processes that import vLLM; the next test reads what such a process writes
@cpu_only
@pytest.mark.skipif(this_processor().max_devices < 2, reason="one core")
def test_a_worker_process_that_fails_while_it_loads_is_named_with_the_cause(tiny_model, tmp_path):
    damaged = Path(shutil.copytree(tiny_model, tmp_path / "model"))
    tensors = load_file(damaged / "model.safetensors")
    del tensors["model.norm.weight"]
    save_file(tensors, damaged / "model.safetensors", metadata={"format": "pt"})
    run = on_two_workers(tmp_path, tiny_model, damaged)
    log = re.search(NOT_INITIALIZED, run.stdout)
    assert log, run.stdout + run.stderr
    assert "Traceback" in Path(log[1]).read_text()


FAILED_WORKER = """\
(Worker_TP0 pid=71) ERROR [multiproc_executor.py:934] WorkerProc failed to start.
(Worker_TP0 pid=71) ERROR [multiproc_executor.py:934] Traceback (most recent call last):
(Worker_TP0 pid=71) ERROR [multiproc_executor.py:934] ValueError: Following weights were \
not initialized from checkpoint: {'model.norm.weight'}
(EngineCore pid=70) ERROR [core.py:1108] RuntimeError: Engine core initialization failed.
"""


def test_the_error_of_a_worker_process_is_told_from_its_log(tiny_source, monkeypatch, tmp_path):
    close_engines("vllm")
    with quiet():
        from vllm import LLM

    class Failing(LLM):
        def __init__(self, **_options):
            (tmp_path / "log").write_text(FAILED_WORKER)
            raise RuntimeError("Engine core initialization failed. See root cause above.")

    monkeypatch.setattr("vllm.LLM", Failing)
    with pytest.raises(ModelError, match=NOT_INITIALIZED) as caught:
        start_vllm(tiny_source, ModelConfig(model=str(tiny_source.folder), engine="vllm"), tmp_path / "log")
    assert str(caught.value).startswith(f"vLLM cannot load {tiny_source.folder}: Engine core initialization failed (")


@cpu_only
@pytest.mark.slow
@pytest.mark.skipif(this_processor().max_devices < 2, reason="one core")
def test_a_split_model_has_the_numbers_of_transformers_and_a_worker_that_dies_is_named(
    tiny_model, loaded_engine, tmp_path
):
    run = on_two_workers(tmp_path, tiny_model)
    told = [line for line in run.stdout.splitlines() if line.startswith(("vLLM cannot", "log"))]
    assert len(told) == 3, run.stdout + run.stderr
    assert "one of its 2 worker processes ended by SIGKILL, as when memory runs out" in told[1]
    assert (told[0], told[2]) == ("log True", "log False")
    (numbers,) = [line.partition(" ")[2] for line in run.stdout.splitlines() if line.startswith("numbers")]
    states, log_probs = json.loads(numbers)
    contexts = [[*range(5, 45), last] for last in range(9)]
    reference = loaded_engine("transformers")
    np.testing.assert_allclose(states, reference.hidden_states(contexts), rtol=0, atol=1e-4)
    asked = [ContinuationRequest(context, [[7], [8, 9]]) for context in contexts]
    answers = sorted(reference.log_likelihoods(asked), key=lambda answer: answer.index)
    expected = [row for answer in answers for row in answer.token_log_probs]
    np.testing.assert_allclose([*itertools.chain(*log_probs)], [*itertools.chain(*expected)], rtol=0, atol=1e-5)


@pytest.mark.exhaustive
def test_transformers_makes_a_model_after_vllm_ran_its_code(tmp_path):
    """vLLM 0.32 runs GPT-NeoX by the code of transformers, whose class it changes."""
    close_engines("vllm")
    folder = save_model(tmp_path / "model", ARCHITECTURES["GPT-NeoX"])
    for _ in range(2):  # it is changed again when the next one is loaded
        source = find_source(ModelConfig(model=str(folder), engine="vllm"))
        load_engine(source, ModelConfig(model=str(folder), engine="vllm")).close()
        load_engine(source, ModelConfig(model=str(folder), engine="transformers")).close()


def test_the_base_keeps_its_head_beside_an_adapter_of_the_head(tmp_path: Path, tiny_model: Path) -> None:
    close_engines("vllm")
    folder = save_adapter(tmp_path / "adapter", tiny_model, ["q_proj"], rank=4, seed=1)
    path, random = folder / "adapter_model.safetensors", torch.Generator().manual_seed(3)
    matrices = {"A": torch.randn(4, 64, generator=random) / 8, "B": torch.randn(1024, 4, generator=random)}
    of_head = {f"base_model.model.lm_head.lora_{side}.weight": matrix for side, matrix in matrices.items()}
    save_file(load_file(path) | of_head, path)
    path = folder / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"target_modules": ["q_proj", "lm_head"]}))
    config = ModelConfig(model=str(tiny_model), engine="vllm", dtype="float32", adapter=str(folder), kv_cache_gib=0.01)
    source = find_source(config)
    engine = load_engine(source, config)
    try:
        of_base, of_adapter = flat(answers(engine, REQUESTS)), flat(answers(adapted(engine, source.adapter), REQUESTS))
        again = flat(answers(engine, REQUESTS))
    finally:
        engine.close()
    np.testing.assert_allclose([of_base, again], [expected(tiny_model, REQUESTS)] * 2, rtol=0, atol=2e-5)
    assert np.abs(np.subtract(of_base, of_adapter)).max() > 1
