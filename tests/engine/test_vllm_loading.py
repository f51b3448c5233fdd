"""What is left of vLLM once it has stopped, or could not load a model."""

import gc
import os
import re
import shutil
import subprocess
import sys
import tempfile
import weakref
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from evaluator.config import ModelConfig
from evaluator.engine import find_source, load_engine
from evaluator.engine.devices import this_processor
from evaluator.engine.vllm_loading import start_vllm
from evaluator.engine.vllm_settings import quiet
from tests.engine.architectures import ARCHITECTURES, save_model
from tests.engine.cpu_only import cpu_only
from tests.shared_engines import LOADED, close_engines


def test_a_closed_engine_leaves_nothing_behind(loaded_engine):
    """Neither the model, whose memory the next one may need, nor a heap that is not collected."""
    loaded_engine("vllm")
    engine = LOADED.pop("vllm")
    llm = weakref.ref(engine._llm.llm_engine)
    engine.close()
    assert llm() is None
    assert gc.get_freeze_count() == 0


def test_a_model_that_cannot_be_loaded_leaves_no_heap_that_is_not_collected(tiny_source, monkeypatch, tmp_path):
    close_engines("vllm")
    with quiet():
        from vllm import LLM

    class Interrupted(LLM):
        def __init__(self, **_options):
            raise KeyboardInterrupt

    monkeypatch.setattr("vllm.LLM", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        start_vllm(tiny_source, ModelConfig(model=str(tiny_source.folder), engine="vllm"), tmp_path / "log")
    assert gc.get_freeze_count() == 0


COMPILED = """
import gc, sys, weakref
from evaluator.config import ModelConfig
from evaluator.engine import find_source, load_engine, vllm_settings
from evaluator.engine.base import ContinuationRequest

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
@pytest.mark.slow
def test_the_weights_of_a_compiled_model_are_gone_when_its_engine_is_closed(tiny_model):
    """In a process of its own, because a process that has computed eagerly stays so."""
    run = subprocess.run([sys.executable, "-c", COMPILED, str(tiny_model)], capture_output=True, text=True, check=False)
    assert run.stdout.splitlines()[-1:] == ["0 alive"], run.stderr


WORKERS = """
import os, sys
from dataclasses import replace
from pathlib import Path
from evaluator.config import DevicesConfig, ModelConfig
from evaluator.engine import find_source, load_engine, vllm_loading
from evaluator.engine.base import ContinuationRequest
from evaluator.errors import ModelError

vllm_loading.require_whole = lambda source: None
if __name__ == "__main__":
    whole, damaged = sys.argv[1:]
    devices = DevicesConfig(n=2, tensor_parallel=2)
    config = ModelConfig(model=whole, engine="vllm", dtype="float32", kv_cache_gib=0.01, devices=devices)
    source = find_source(config)
    try:
        load_engine(replace(source, folder=Path(damaged)), config)
    except ModelError as error:
        print(error)
    engine = load_engine(source, config)
    print("log", engine._log.is_file())
    asked = [ContinuationRequest([*range(5, 45), last], [[7], [8, 9]]) for last in range(200)]
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


@cpu_only
@pytest.mark.slow
@pytest.mark.skipif(this_processor().max_devices < 2, reason="one core")
def test_a_worker_process_that_fails_or_dies_is_named_with_the_cause(tiny_model, tmp_path):
    program, damaged = tmp_path / "workers.py", tmp_path / "model"
    program.write_text(WORKERS)
    shutil.copytree(tiny_model, damaged)
    tensors = load_file(damaged / "model.safetensors")
    del tensors["model.norm.weight"]
    save_file(tensors, damaged / "model.safetensors", metadata={"format": "pt"})
    short = tempfile.mkdtemp(prefix="vllm-")  # paths of sockets have 107 characters at most
    environment = os.environ | {"TMPDIR": short}
    command = [sys.executable, program, tiny_model, damaged]
    run = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    told = [line for line in run.stdout.splitlines() if line.startswith(("vLLM cannot", "log"))]
    assert len(told) == 4, run.stdout + run.stderr
    log = re.search(r"not initialized from checkpoint: \{'model\.norm\.weight'\}; more is in (\S+)\)\. Try", told[0])
    assert "Traceback" in Path(log[1]).read_text()
    assert "one of its 2 worker processes ended by SIGKILL, as when memory runs out" in told[2]
    assert (told[1], told[3]) == ("log True", "log False")


@pytest.mark.exhaustive
def test_transformers_makes_a_model_after_vllm_ran_its_code(tmp_path):
    """vLLM 0.32 runs GPT-NeoX by the code of transformers, whose class it changes."""
    close_engines("vllm")
    folder = save_model(tmp_path / "model", ARCHITECTURES["GPT-NeoX"])
    for _ in range(2):  # it is changed again when the next one is loaded
        source = find_source(ModelConfig(model=str(folder), engine="vllm"))
        load_engine(source, ModelConfig(model=str(folder), engine="vllm")).close()
        load_engine(source, ModelConfig(model=str(folder), engine="transformers")).close()
