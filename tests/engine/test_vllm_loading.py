"""What is left of vLLM once it has stopped, or could not load a model."""

import gc
import weakref

import pytest

from evaluator.config import ModelConfig
from evaluator.engine import find_source, load_engine
from evaluator.engine.vllm_loading import start_vllm
from tests.engine.architectures import ARCHITECTURES, save_model
from tests.shared_engines import LOADED, close_engines


def test_a_closed_engine_leaves_nothing_behind(loaded_engine):
    """Neither the model, whose memory the next one may need, nor a heap that is not collected."""
    loaded_engine("vllm")
    engine = LOADED.pop("vllm")
    llm = weakref.ref(engine._llm.llm_engine)
    engine.close()
    assert llm() is None
    assert gc.get_freeze_count() == 0


def test_a_model_that_cannot_be_loaded_leaves_no_heap_that_is_not_collected(tiny_source, monkeypatch):
    close_engines("vllm")
    import vllm

    def interrupted(**_options):
        raise KeyboardInterrupt

    monkeypatch.setattr(vllm, "LLM", interrupted)
    with pytest.raises(KeyboardInterrupt):
        start_vllm(tiny_source, ModelConfig(model=str(tiny_source.folder), engine="vllm"))
    assert gc.get_freeze_count() == 0


@pytest.mark.exhaustive
def test_transformers_makes_a_model_after_vllm_ran_its_code(tmp_path):
    """vLLM 0.32 runs GPT-NeoX by the code of transformers, whose class it changes."""
    close_engines("vllm")
    folder = save_model(tmp_path / "model", ARCHITECTURES["GPT-NeoX"])
    for _ in range(2):  # it is changed again when the next one is loaded
        source = find_source(ModelConfig(model=str(folder), engine="vllm"))
        load_engine(source, ModelConfig(model=str(folder), engine="vllm")).close()
        load_engine(source, ModelConfig(model=str(folder), engine="transformers")).close()
