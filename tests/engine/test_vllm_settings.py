"""What vLLM is told about steps and blocks: little on a GPU, what was measured on a CPU."""

import logging
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from evaluator.config import ModelConfig
from evaluator.engine import vllm_loading, vllm_settings
from evaluator.engine.base import ContinuationRequest, Engine
from evaluator.engine.device import DeviceKind
from evaluator.engine.vllm_engine import VllmEngine
from evaluator.engine.vllm_loading import import_vllm, start_vllm
from evaluator.models.source import ModelSource
from tests.engine.cpu_only import cpu_only


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch, tiny_source: ModelSource) -> Callable[[DeviceKind], dict[str, Any]]:
    """Return what vLLM would be told on a kind of device; it is not started."""

    import_vllm()  # quietly; the patch below would import it with its warnings

    def told(device: DeviceKind) -> dict[str, Any]:
        for module in (vllm_loading, vllm_settings):
            monkeypatch.setattr(module, "device_kind", lambda: device)
        monkeypatch.setattr("torch.compiler.set_stance", lambda _stance: None)
        monkeypatch.setattr(
            "vllm.LLM", lambda **options: SimpleNamespace(options=options, apply_model=lambda _change: [])
        )
        llm = start_vllm(tiny_source, ModelConfig(model="tiny", engine="vllm", dtype="float32"))
        return dict(llm.options)

    return told


def test_on_a_gpu_vllm_chooses_its_step_its_blocks_and_its_cache_and_compiles(told) -> None:
    options = told("cuda")
    chosen_by_vllm = ("block_size", "max_num_batched_tokens", "max_num_seqs")
    assert [options[name] for name in chosen_by_vllm] == [None, None, None]
    assert options["enforce_eager"] is False
    assert "kv_cache_memory_bytes" not in options
    assert options["kv_transfer_config"] is None


def test_on_a_cpu_it_is_told_what_was_measured(told) -> None:
    options = told("cpu")
    assert (options["block_size"], options["max_num_seqs"], options["enforce_eager"]) == (32, 256, True)
    assert options["max_num_batched_tokens"] == 2048


@cpu_only
def test_facts_say_what_vllm_made_of_it(loaded_engine: Callable[[str], Engine]) -> None:
    facts = loaded_engine("vllm").facts
    assert (facts.tokens_per_step, facts.sequences_per_step, facts.compiled) == (256, 256, False)
    assert facts.prefix_block_tokens == 32


def test_a_model_whose_prefixes_are_longer_than_every_prompt_is_warned_about_once(
    loaded_engine: Callable[[str], Engine], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As with a recurrent state, whose unit is hundreds of tokens."""
    engine = loaded_engine("vllm")
    assert isinstance(engine, VllmEngine)
    request = ContinuationRequest([5, 6, 7], [[8]])
    list(engine.log_likelihoods([request]))
    assert not caplog.messages, "a prompt shorter than a plain block is nothing to warn about"
    monkeypatch.setattr(engine, "facts", replace(engine.facts, prefix_block_tokens=528))
    with caplog.at_level(logging.WARNING):
        list(engine.log_likelihoods([request]))
        list(engine.log_likelihoods([request]))
    (message,) = caplog.messages
    assert "shares prefixes in units of 528 tokens" in message
    assert "the longest prompt has 4" in message
    engine._warned.clear()


def test_log_probabilities_of_prompt_tokens_take_a_gibibyte_at_most(told, tiny_source: ModelSource) -> None:
    told("cpu")
    assert vllm_settings.tokens_per_step(replace(tiny_source, vocab_size=262_144)) == 1024
    assert vllm_settings.tokens_per_step(replace(tiny_source, vocab_size=2**22)) == 256, "the sequences of a step"
