"""What is said about the installed vLLM before it loads anything, and what is left once it has stopped."""

import gc
import weakref

import pytest

from evaluator.config import ModelConfig
from evaluator.engine import find_source, load_engine, vllm_loading
from evaluator.engine.versions import vllm_version
from evaluator.engine.vllm_loading import TESTED_VERSIONS, import_vllm, is_tested
from evaluator.errors import ModelError
from tests.engine.architectures import ARCHITECTURES, save_model
from tests.shared_engines import LOADED, close_engines


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Messages of ours; vLLM logs as well when it is imported."""
    return [record.getMessage() for record in caplog.records if record.name == vllm_loading.__name__]


@pytest.mark.parametrize(
    ("version", "tested"),
    [
        ("0.30.9", False),
        ("0.31.0", True),
        ("0.31.5", True),
        ("0.32.0+cpu", True),
        ("0.32.1", False),
        ("0.100.0", False),
        ("unknown", False),
    ],
)
def test_a_version_is_tested_between_the_oldest_and_the_newest_one(monkeypatch, version, tested):
    monkeypatch.setattr(vllm_loading, "TESTED_VERSIONS", ("0.31.0", "0.32.0"))
    assert is_tested(version) == tested


def test_the_installed_version_is_a_tried_one_and_nothing_is_said_of_it(caplog):
    assert is_tested(vllm_version())
    import_vllm()
    assert not said(caplog)


def test_an_untried_version_is_named_beside_the_tried_ones(monkeypatch, caplog):
    monkeypatch.setattr(vllm_loading, "vllm_version", lambda: "0.99.0")
    import_vllm()
    (message,) = said(caplog)
    assert message.startswith("This is vLLM 0.99.0; 0.24.0 to ")
    assert TESTED_VERSIONS[1] in message


def test_a_version_without_what_the_engine_asks_for_is_refused(monkeypatch):
    monkeypatch.setattr(vllm_loading, "_REQUIRED_PARAMETERS", ("logprob_token_ids", "no_such_parameter"))
    with pytest.raises(ModelError, match=r"have no no_such_parameter\. This is vLLM .*--engine transformers"):
        import_vllm()


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
        vllm_loading.start_vllm(tiny_source, ModelConfig(model=str(tiny_source.folder), engine="vllm"))
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
