"""What is said about the installed vLLM before it loads anything."""

from operator import attrgetter
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from evaluator.engine import vllm_settings
from evaluator.engine.base import vllm_version
from evaluator.engine.vllm_requests import scores_several_rows
from evaluator.engine.vllm_settings import TESTED_VERSIONS, import_vllm, is_tested
from evaluator.errors import ModelError


@pytest.fixture(scope="module", autouse=True)
def _imported() -> None:
    import_vllm()  # quietly, and not when tests are collected


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Messages of ours; vLLM logs as well when it is imported."""
    return [record.getMessage() for record in caplog.records if record.name == vllm_settings.__name__]


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
    monkeypatch.setattr(vllm_settings, "TESTED_VERSIONS", ("0.31.0", "0.32.0"))
    assert is_tested(version) == tested


def test_the_installed_version_is_a_tried_one_and_nothing_is_said_of_it(caplog):
    assert is_tested(vllm_version())
    import_vllm()
    assert not said(caplog)


def test_an_untried_version_is_named_beside_the_tried_ones(monkeypatch, caplog):
    monkeypatch.setattr(vllm_settings, "vllm_version", lambda: "0.99.0")
    import_vllm()
    (message,) = said(caplog)
    assert message.startswith(f"This is vLLM 0.99.0; {TESTED_VERSIONS[0]} to ")
    assert TESTED_VERSIONS[1] in message


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("vllm", "SamplingParams.no_such_parameter"),
        ("vllm.v1.engine.llm_engine", "LLMEngine.no_such_method"),
        ("vllm.no_such_module", "function"),
    ],
)
def test_a_version_without_what_the_engine_builds_on_is_refused(monkeypatch, module, name):
    monkeypatch.setitem(vllm_settings._NAMES, module, (name,))
    sentence = (
        rf"^This vLLM has no {module}\.{name}, on which the engine builds\. This is vLLM .*--engine transformers\.$"
    )
    with pytest.raises(ModelError, match=sentence):
        import_vllm()


def test_a_function_that_lost_a_parameter_is_refused(monkeypatch):
    monkeypatch.setattr("vllm.v1.engine.llm_engine.LLMEngine.add_request", lambda _self, _id, _prompt, _params: None)
    with pytest.raises(ModelError, match=r"LLMEngine\.add_request\(request_id, prompt, params, lora_request\)"):
        import_vllm()


@pytest.mark.parametrize("gone", vllm_settings._OF_A_LOADED_MODEL)
def test_a_loaded_model_without_an_attribute_is_told(gone):
    """Without this, `use_v2_model_runner` and others would be taken for false: right numbers, the slow way."""
    engine: Any = MagicMock()
    assert not vllm_settings.missing_attributes(engine)
    owner, _, last = gone.rpartition(".")
    delattr(attrgetter(owner)(engine), last)
    assert vllm_settings.missing_attributes(engine) == [gone]


def test_the_vllm_of_another_meaning_of_tokens_at_several_positions_is_found_out(monkeypatch):
    """In 0.31 a parameter of the same name takes one list of tokens for all positions."""
    import vllm

    llm: Any = SimpleNamespace(llm_engine=SimpleNamespace(vllm_config=SimpleNamespace(use_v2_model_runner=True)))
    assert scores_several_rows(llm)
    monkeypatch.setitem(vllm.SamplingParams.__annotations__, "prompt_logprob_token_ids", list[int] | None)
    assert not scores_several_rows(llm)
    monkeypatch.delitem(vllm.SamplingParams.__annotations__, "prompt_logprob_token_ids")
    assert not scores_several_rows(llm)
