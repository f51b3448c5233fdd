"""A tiny random model of each architecture through transformers and vLLM: equal scores, or one sentence."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from evaluator.config import ModelConfig
from evaluator.engine import find_source, load_engine
from evaluator.engine.base import ContinuationRequest, Engine
from evaluator.engine.devices import device_kind
from evaluator.engine.vllm_engine import VllmEngine
from evaluator.errors import ModelError
from tests.engine.architectures import (
    ARCHITECTURES,
    DECODER,
    ENGINES,
    GATED,
    N_HEADS,
    VOCAB_SIZE,
    WIDTH,
    Architecture,
    measure,
    save_model,
)
from tests.shared_engines import close_engines

REFUSED = {"LFM2": {"vllm"}, "Mamba": {"vllm"}}
"""Model -> the engines that refuse it on a CPU."""

if not find_spec("torchvision"):
    REFUSED |= {"Gemma 3": {"vllm"}, "Qwen3.5, bf16": {"vllm"}}

IN_EVERY_RUN = {
    "Falcon, ALiBi",
    "Gemma 2",
    "Idefics3",
    "Mamba",
    "LFM2",
}
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
    outcome = measure(save_model(tmp_path / "model", ARCHITECTURES[name]), ARCHITECTURES[name].dtype)
    if device_kind() == "cpu":
        assert outcome.refusals.keys() == REFUSED.get(name, set()), outcome.refusals
    assert not any("\n" in message for message in outcome.refusals.values())
    assert outcome.difference is None or outcome.difference <= ARCHITECTURES[name].tolerance


RECURRENT = {
    "RecurrentGemma": Architecture(
        "RecurrentGemmaForCausalLM", "RecurrentGemmaConfig", GATED | {"num_hidden_layers": 3, "lru_width": WIDTH}
    ),
    "RWKV": Architecture(
        "RwkvForCausalLM", "RwkvConfig", {"vocab_size": VOCAB_SIZE, "hidden_size": WIDTH, "num_hidden_layers": 2}
    ),
    "BART's decoder": Architecture(
        "BartForCausalLM", "BartConfig", {"vocab_size": VOCAB_SIZE, "d_model": WIDTH, "decoder_layers": 2}
    ),
}
"""Models that give a text other scores after padding: states hold it, or positions count it."""


@pytest.mark.parametrize("name", [*RECURRENT, "Mistral, sliding window", "BLOOM"])
def test_a_text_has_the_same_scores_alone_and_beside_longer_ones(name: str, tmp_path: Path) -> None:
    engine = loaded(larger(save_model(tmp_path / "model", (RECURRENT | ARCHITECTURES)[name])))
    rng = random.Random(0)
    texts = [rng.choices(range(2, 258), k=n_tokens) for n_tokens in (3, 9, 9, 40)]
    labels = [[5], [6], [7, 8]]
    alone = [next(iter(engine.log_likelihoods([ContinuationRequest(text, labels)]))) for text in texts]
    together = {
        each.index: each.token_log_probs
        for each in engine.log_likelihoods([ContinuationRequest(text, labels) for text in texts])
    }
    for index, one in enumerate(alone):
        for given, expected in zip(together[index], one.token_log_probs, strict=True):
            assert given == pytest.approx(expected, abs=1e-4)
    states = np.concatenate([engine.hidden_states([text]) for text in texts])
    np.testing.assert_allclose(engine.hidden_states(texts), states, atol=1e-4, rtol=1e-4)


def larger(folder: Path) -> Path:
    """Multiply the matrices of a random model by five, so that its scores differ visibly from text to text."""
    weights = load_file(folder / "model.safetensors")
    save_file({key: w * 5 if w.ndim > 1 else w for key, w in weights.items()}, folder / "model.safetensors",
              metadata={"format": "pt"})  # fmt: skip
    return folder


def loaded(folder: Path, engine: str = "transformers") -> Engine:
    config = ModelConfig(model=str(folder), engine=engine, dtype="float32")
    return load_engine(find_source(config), config)


def first_scores(engine: Engine, texts: Sequence[list[int]]) -> list[list[float]]:
    """The scores of two labels of one token after each text."""
    answers = engine.log_likelihoods([ContinuationRequest(text, [[5], [6]]) for text in texts])
    return [[row[0] for row in one.token_log_probs] for one in sorted(answers, key=lambda one: one.index)]


def own_scores(folder: Path, texts: Sequence[list[int]]) -> list[list[float]]:
    """The same by the model alone, one text at a time, with positions as it counts them itself."""
    model = AutoModelForCausalLM.from_pretrained(str(folder), dtype=torch.float32)
    with torch.inference_mode():
        logits = [model(torch.tensor([text])).logits[0, -1].double() for text in texts]
    return [torch.log_softmax(row, -1)[[5, 6]].tolist() for row in logits]


def random_texts(*lengths: int) -> list[list[int]]:
    rng = random.Random(0)
    return [rng.choices(range(2, 258), k=length) for length in lengths]


def test_positions_that_a_model_counts_from_another_number_are_its_own(tmp_path: Path) -> None:
    options = DECODER | {"intermediate_size": 256, "is_decoder": True}
    folder = larger(save_model(tmp_path / "model", Architecture("RobertaForCausalLM", "RobertaConfig", options)))
    texts = random_texts(3, 9, 9, 40)
    np.testing.assert_allclose(first_scores(loaded(folder), texts), own_scores(folder, texts), rtol=0, atol=1e-4)


NOT_CAUSAL = {
    "XLNet": Architecture(
        "XLNetLMHeadModel", "XLNetConfig", {"vocab_size": VOCAB_SIZE, "d_model": WIDTH, "n_layer": 2, "n_head": 4}
    ),
    "RoBERTa": Architecture("RobertaForCausalLM", "RobertaConfig", DECODER | {"intermediate_size": 256}),
}


@pytest.mark.parametrize("name", NOT_CAUSAL)
def test_a_model_whose_tokens_change_the_scores_before_them_is_refused(name: str, tmp_path: Path) -> None:
    folder = larger(save_model(tmp_path / "model", NOT_CAUSAL[name]))
    with pytest.raises(ModelError, match="is no causal model: a token changes the scores of those before it"):
        loaded(folder)


def test_a_model_whose_weights_are_no_numbers_is_not_taken_for_one_that_is_not_causal(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "model", ARCHITECTURES["Llama"])
    weights = load_file(folder / "model.safetensors")
    weights["model.norm.weight"][0] = torch.nan
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    assert np.isnan(first_scores(loaded(folder), random_texts(3))).all()


def test_hidden_states_have_the_width_that_the_head_takes(tmp_path: Path) -> None:
    """OPT-350m projects them from 1,024 numbers to 512."""
    options = DECODER | {"ffn_dim": 256, "word_embed_proj_dim": 64, "do_layer_norm_before": False}
    folder = save_model(tmp_path / "model", Architecture("OPTForCausalLM", "OPTConfig", options))
    texts = random_texts(3, 9)
    model = AutoModelForCausalLM.from_pretrained(str(folder), dtype=torch.float32)
    with torch.inference_mode():
        expected = [model.model(torch.tensor([text])).last_hidden_state[0, -1].numpy() for text in texts]
    states = loaded(folder).hidden_states(texts)
    assert states.shape == (2, 64)
    np.testing.assert_allclose(states, np.stack(expected), rtol=0, atol=1e-4)


def test_texts_within_the_short_context_of_longrope_have_its_short_factors_beside_longer_ones(tmp_path: Path) -> None:
    n_factors = WIDTH // N_HEADS // 2
    rope = {"rope_type": "longrope", "rope_theta": 10_000.0, "short_factor": [1.0] * n_factors,
            "long_factor": [4.0] * n_factors}  # fmt: skip
    options = GATED | {"original_max_position_embeddings": 64, "rope_parameters": rope}
    folder = larger(save_model(tmp_path / "model", Architecture("Phi3ForCausalLM", "Phi3Config", options)))
    texts = random_texts(60, 64, 65, 70)
    expected = own_scores(folder, texts)
    np.testing.assert_allclose(first_scores(loaded(folder), texts), expected, rtol=0, atol=1e-4)
    engine = loaded(folder, "vllm")  # which has one kind of factors for all texts
    try:
        np.testing.assert_allclose(first_scores(engine, texts[:1]), expected[:1], rtol=0, atol=1e-4)
    finally:
        engine.close()
    limits = [find_source(ModelConfig(model=str(folder), engine=name)).context_length for name in ENGINES]
    assert limits == [512, 64]


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


def test_the_cache_of_a_model_with_a_sliding_window_holds_the_tokens_that_its_bytes_have_room_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token takes a block of every kind of layer, so that groups of prompts fill half of the cache, not all of it."""
    gemma = ARCHITECTURES["Gemma 3, text"]
    kinds = ["sliding_attention", "full_attention", "sliding_attention"]
    options = gemma.options | {"num_hidden_layers": 3, "layer_types": kinds}
    folder = save_model(tmp_path / "model", gemma._replace(options=options))
    config = ModelConfig(model=str(folder), engine="vllm", kv_cache_gib=2**-10)
    # 3 layers of keys and values, 2 heads of 32 numbers of 4 bytes: 1,536 bytes a token, of 2**20.
    n_tokens = 2**20 // 1536
    engine = load_engine(find_source(config), config)
    rng = random.Random(0)
    requests = [ContinuationRequest(rng.choices(range(2, 258), k=60), [[5, 6]]) for _ in range(8)]
    assert isinstance(engine, VllmEngine)
    sizes, score = list[int](), engine._score_group
    monkeypatch.setattr(engine, "_score_group", lambda every, some: sizes.append(len(some)) or score(every, some))
    try:
        assert engine.facts.cache_tokens is not None
        assert n_tokens // 2 < engine.facts.cache_tokens <= n_tokens
        assert len(list(engine.log_likelihoods(requests))) == 8
    finally:
        engine.close()
    assert max(sizes) * 60 <= n_tokens / 2


def test_prompts_share_the_recurrent_state_after_a_beginning_that_is_shorter_than_a_block(tmp_path: Path) -> None:
    hybrid = ARCHITECTURES["Qwen3-Next, bf16"]
    folder = save_model(tmp_path / "model", hybrid)
    rng = random.Random(0)
    shared = rng.choices(range(2, 258), k=100)
    contexts = sorted(shared[:n] + rng.choices(range(2, 258), k=20) for n in (50, 100) for _ in range(6))
    requests = [ContinuationRequest(context, [[5], [6]]) for context in contexts]
    config = ModelConfig(model=str(folder), engine="vllm", dtype=hybrid.dtype)
    engine = load_engine(find_source(config), config)
    try:
        together = sorted(engine.log_likelihoods(requests), key=lambda answer: answer.index)
        of_scores = engine.counts.computed_tokens
        states = engine.hidden_states(contexts)
        of_states = engine.counts.computed_tokens - of_scores
        states_alone = np.concatenate([engine.hidden_states([context]) for context in contexts])
    finally:
        engine.close()
    # Computed: two beginnings, and of each prompt at most 15 of the shared tokens and the 20 others.
    assert max(of_scores, of_states) <= 100 + 2 + 12 * 35
    np.testing.assert_allclose(states, states_alone, rtol=0, atol=hybrid.tolerance)
    assert sum(len(context) for context in contexts) == 1140
    reference = load_engine(find_source(config), replace(config, engine="transformers")).log_likelihoods(requests)
    for one, other in zip(together, sorted(reference, key=lambda answer: answer.index), strict=True):
        assert one.token_log_probs == [pytest.approx(row, abs=hybrid.tolerance) for row in other.token_log_probs]
