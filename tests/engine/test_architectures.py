"""A tiny random model of each architecture through transformers and vLLM: equal scores, or one sentence."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.architectures import ARCHITECTURES, WIDTH, measure, save_model
from tests.shared_engines import close_engines

REFUSED = {"Gemma 3": {"vllm"}, "Mamba": {"vllm"}, "Qwen3.5": {"vllm"}}
"""Model -> the engines that refuse it on a CPU, and where torchvision is not installed."""

IN_EVERY_RUN = {"GPT-2", "Qwen3-MoE", "Mistral, sliding window", "Falcon, ALiBi", "Gemma 2", "BLOOM", "Mamba"}
"""Kinds of positions, attention and layers that differ; `make test-runners` tries every architecture."""


@pytest.fixture(scope="module", autouse=True)
def _inspect_models_in_this_process() -> Iterator[None]:
    """vLLM inspects each new architecture in a process of its own, for the sake of CUDA, which takes seconds each."""
    close_engines("vllm")  # vLLM holds one cache a process
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vllm.model_executor.models.registry._run_in_subprocess", lambda inspect: inspect())
        yield


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in IN_EVERY_RUN else pytest.mark.exhaustive) for name in ARCHITECTURES],
)
def test_engines_agree_or_refuse_in_one_sentence(name: str, tmp_path: Path) -> None:
    outcome = measure(save_model(tmp_path / "model", ARCHITECTURES[name]))
    assert outcome.refusals.keys() == REFUSED.get(name, set()), outcome.refusals
    assert not any("\n" in message for message in outcome.refusals.values())
    assert outcome.difference is None or outcome.difference <= ARCHITECTURES[name].tolerance


@pytest.mark.exhaustive
def test_bloom_differs_by_the_approximation_of_its_gelu_alone(tmp_path: Path) -> None:
    from torch.nn.functional import gelu
    from transformers.models.bloom.modeling_bloom import BloomGelu

    bloom = ARCHITECTURES["BLOOM"]
    larger = bloom._replace(options=bloom.options | {"initializer_range": WIDTH**-0.5})
    folder = save_model(tmp_path / "model", larger)
    with_tanh = measure(folder).difference
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BloomGelu, "forward", lambda _self, given: gelu(given))
        with_erf = measure(folder).difference
    assert with_tanh is not None
    assert with_erf is not None
    assert with_erf < 1e-5 < 1e-4 < with_tanh
