"""What vLLM is told about steps and blocks: little on a GPU, what was measured on a CPU."""

import logging
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from evaluator.config import DevicesConfig, ModelConfig, StepsConfig
from evaluator.engine import vllm_loading, vllm_settings
from evaluator.engine.base import ContinuationRequest, Engine
from evaluator.engine.devices import DeviceKind
from evaluator.engine.vllm_engine import VllmEngine
from evaluator.engine.vllm_loading import start_vllm
from evaluator.engine.vllm_settings import import_vllm
from evaluator.errors import ModelError
from evaluator.models.source import ModelSource
from tests.engine.cpu_only import cpu_only


@pytest.fixture
def told(
    monkeypatch: pytest.MonkeyPatch, tiny_source: ModelSource, tmp_path: Path
) -> Callable[[DeviceKind], dict[str, Any]]:
    """Return what vLLM would be told on a kind of device; it is not started."""

    import_vllm()  # quietly; the patch below would import it with its warnings

    def told(device: DeviceKind, **options: Any) -> dict[str, Any]:
        for module in (vllm_loading, vllm_settings):
            monkeypatch.setattr(module, "device_kind", lambda: device)
        monkeypatch.setattr("torch.compiler.set_stance", lambda _stance: None)

        class Told:
            def __init__(self, **options: Any) -> None:
                self.options = options

            def apply_model(self, _change: object) -> list[object]:
                return []

        monkeypatch.setattr("vllm.LLM", Told)
        llm = start_vllm(
            tiny_source, ModelConfig(model="tiny", engine="vllm", dtype="float32", **options), tmp_path / "log"
        )
        return dict(llm.options)

    return told


def test_on_a_gpu_vllm_chooses_its_step_its_blocks_and_its_cache_and_compiles_without_graphs(told) -> None:
    options = told("cuda")
    chosen_by_vllm = ("block_size", "max_num_batched_tokens")
    assert [options[name] for name in chosen_by_vllm] == [None, None]
    assert options["max_num_seqs"] == 1024
    assert options["enforce_eager"] is False
    assert options["compilation_config"] == {"cudagraph_mode": "NONE"}
    assert options["kv_cache_memory_bytes"] is None
    assert options["kv_transfer_config"] is None


@pytest.mark.parametrize(
    ("device", "context", "longest", "expected"),
    [
        ("cuda", 10_485_760, None, -1),
        ("cuda", 10_485_760, 8_192, 8_192),
        ("cuda", 1_048_576, 60_000, 60_000),
        ("cuda", 4_096, 8_192, -1),  # what the cache can hold of it
        ("cpu", 1_048_576, 8_192, -1),  # where nothing is pinned
        ("cuda", None, 8_192, 16_384),
        ("cpu", None, 60_000, 60_000),
    ],
)
def test_room_is_made_for_the_longest_prompt_and_not_for_the_context(
    device, context, longest, expected, tiny_source
) -> None:
    source = replace(tiny_source, context_length=context)
    config = ModelConfig(model="m", max_prompt_tokens=longest)
    assert vllm_loading._max_length(source, config, device) == expected


def test_engines_that_share_a_gpu_take_equal_parts_of_what_vllm_takes_of_one(told) -> None:
    assert told("cuda")["gpu_memory_utilization"] == pytest.approx(0.92)  # vLLM 0.32
    shared = told("cuda", devices=DevicesConfig(engines_per_device=4))
    assert shared["gpu_memory_utilization"] == pytest.approx(0.92 / 4)


def test_a_gpu_that_others_use_is_refused_unless_the_cache_has_a_size(told, monkeypatch, tiny_source, tmp_path) -> None:
    """By vLLM's own check, of 30 GiB that are free on a GPU of 80."""
    told("cuda")  # the kind of device from now on
    gib = 2**30
    monkeypatch.setattr(vllm_settings, "free_bytes", lambda: 30 * gib)

    class Started:
        apply_model = None

        def __init__(self, *, gpu_memory_utilization: float = 0.92, **_options: Any) -> None:
            from vllm.v1.worker.utils import request_memory

            gpu = SimpleNamespace(device_="cuda:0", total_memory=80 * gib, free_memory=30 * gib)
            request_memory(gpu, SimpleNamespace(gpu_memory_utilization=gpu_memory_utilization))

    monkeypatch.setattr("vllm.LLM", Started)
    without, given = (ModelConfig(model="tiny", engine="vllm", kv_cache_gib=size) for size in (None, 2))
    refused = r"Free memory on device cuda:0 \(30.0/80.0 GiB\).*give a size with --kv-cache-gib"
    with pytest.raises(ModelError, match=refused):
        start_vllm(tiny_source, without, tmp_path / "log")
    assert isinstance(start_vllm(tiny_source, given, tmp_path / "log"), Started)


@pytest.mark.parametrize(
    ("device", "free_gib", "refused"),
    [
        ("cuda", 26, False),  # a quarter of 64 GiB, and 10 of cache
        ("cuda", 25, True),
        ("cpu", 105, False),  # all parts of a processor have one memory: 64 and four times 10
        ("cpu", 103, True),
    ],
)
def test_memory_is_checked_where_it_is_taken(device, free_gib, refused, monkeypatch, tiny_source) -> None:
    monkeypatch.setattr(vllm_settings, "device_kind", lambda: device)
    monkeypatch.setattr(vllm_settings, "free_bytes", lambda: free_gib * 2**30)
    monkeypatch.setattr(vllm_settings, "loaded_bytes", lambda _source, _config: 64 * 2**30)
    config = ModelConfig(model="m", kv_cache_gib=10, devices=DevicesConfig(tensor_parallel=4))
    with pytest.raises(ModelError, match=r"needs .* for its weights") if refused else nullcontext():
        vllm_settings.check_memory(tiny_source, config)


def test_on_a_cpu_it_is_told_what_was_measured(told) -> None:
    options = told("cpu")
    assert (options["block_size"], options["max_num_seqs"], options["enforce_eager"]) == (32, 256, True)
    assert options["max_num_batched_tokens"] == 2048


@cpu_only
def test_facts_say_what_vllm_made_of_it(loaded_engine: Callable[[str], Engine]) -> None:
    facts = loaded_engine("vllm").facts
    assert (facts.tokens_per_step, facts.sequences_per_step, facts.compiled) == (256, 256, False)
    assert facts.prefix_block_tokens == 32


@cpu_only
def test_four_steps_of_prompts_wait_in_vllm_however_many_a_step_holds(
    loaded_engine: Callable[[str], Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of them are computed and prepared at a time; with 1,024 waiting, a step of 1,024 prompts had no next one."""
    engine = loaded_engine("vllm")
    assert isinstance(engine, VllmEngine)
    vllm, waiting = engine._llm.llm_engine, list[int]()
    step = vllm.step
    monkeypatch.setattr(vllm, "step", lambda: waiting.append(vllm.get_num_unfinished_requests()) or step())
    requests = [ContinuationRequest([2 + number % 250, 2 + number // 250], [[8]]) for number in range(1300)]
    for sequences in (300, 8):
        monkeypatch.setattr(engine, "facts", replace(engine.facts, sequences_per_step=sequences))
        waiting.clear()
        assert len(list(engine.log_likelihoods(requests[: 5 * sequences]))) == min(5 * sequences, 1300)
        assert max(waiting) == 4 * sequences


@cpu_only
def test_a_gpu_begins_while_later_prompts_are_queued(
    loaded_engine: Callable[[str], Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice as many come before each step: no step waits for all prompts of a shard, and few steps are small."""
    engine = loaded_engine("vllm")
    assert isinstance(engine, VllmEngine)
    requests = [ContinuationRequest([2 + number % 250, 2 + number // 250], [[8]]) for number in range(900)]
    whole = {answer.index: answer.token_log_probs for answer in engine.log_likelihoods(requests)}
    vllm, sent = engine._llm.llm_engine, list[int]()
    step, add = vllm.step, vllm.add_request
    monkeypatch.setattr(vllm, "step", lambda: sent.append(0) or step())
    monkeypatch.setattr(
        vllm, "add_request", lambda *args, **options: sent.append(sent.pop() + 1) or add(*args, **options)
    )
    monkeypatch.setattr("evaluator.engine.vllm_engine.device_kind", lambda: "cuda")
    sent.append(0)
    answers = {answer.index: answer.token_log_probs for answer in engine.log_likelihoods(requests)}
    # A step of 256 tokens computes 128 prompts, and 1,024 may wait.
    assert sent[:4] == [128, 256, 512, 4]
    np.testing.assert_allclose(
        *([answers_of[index][0][0] for index in range(900)] for answers_of in (answers, whole)), atol=1e-5
    )


def test_a_model_that_shares_nothing_of_these_prompts_is_warned_about_once(
    loaded_engine: Callable[[str], Engine], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As with a recurrent state, whose unit is hundreds of tokens."""
    engine = loaded_engine("vllm")
    assert isinstance(engine, VllmEngine)
    start = [token % 250 for token in range(140)]
    requests = [ContinuationRequest([*start, 5, 6], [[8]]), ContinuationRequest([*start, 7, 7, 7], [[8]])]
    with caplog.at_level(logging.WARNING):
        list(engine.log_likelihoods(requests))
        monkeypatch.setattr(engine, "facts", replace(engine.facts, prefix_block_tokens=140))
        list(engine.log_likelihoods(requests))
        assert not caplog.messages, "the prompts share as much as a block"
        monkeypatch.setattr(engine, "facts", replace(engine.facts, prefix_block_tokens=141))
        list(engine.log_likelihoods(requests))
        list(engine.log_likelihoods(requests))
    (message,) = caplog.messages
    assert "shares prefixes in units of 141 tokens" in message
    assert "these prompts have at most 140 tokens in common" in message
    engine._has_warned = False


def test_log_probabilities_of_prompt_tokens_take_a_gibibyte_at_most(told, tiny_source: ModelSource) -> None:
    told("cpu")
    settings = vllm_settings.step_settings()
    assert vllm_settings.tokens_per_step(replace(tiny_source, vocab_size=262_144), settings) == 1024
    assert vllm_settings.tokens_per_step(replace(tiny_source, vocab_size=2**22), settings) == 256, "those of a step"


def test_a_step_of_a_gpu_has_the_tokens_that_the_user_gives_whatever_the_vocabulary(told) -> None:
    options = told("cuda", steps=StepsConfig(max_tokens=16_384))
    assert options["max_num_batched_tokens"] == 16_384
    settings = vllm_settings.step_settings(StepsConfig(max_tokens=16_384))
    large = SimpleNamespace(vocab_size=128_256)
    assert vllm_settings.tokens_per_step(large, settings) == 16_384
