"""What is said about the installed vLLM before it loads anything."""

import pytest

from evaluator.engine import vllm_settings
from evaluator.engine.base import vllm_version
from evaluator.engine.vllm_settings import TESTED_VERSIONS, import_vllm, is_tested
from evaluator.errors import ModelError


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
    assert message.startswith("This is vLLM 0.99.0; 0.24.0 to ")
    assert TESTED_VERSIONS[1] in message


def test_a_version_without_what_the_engine_asks_for_is_refused(monkeypatch):
    monkeypatch.setattr(vllm_settings, "_REQUIRED_PARAMETERS", ("logprob_token_ids", "no_such_parameter"))
    with pytest.raises(ModelError, match=r"have no no_such_parameter\. This is vLLM .*--engine transformers"):
        import_vllm()
