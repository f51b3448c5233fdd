"""The dtype of logits: float32 from the LM head on, where that is wanted or free."""

import copy
import random
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from evaluator.config import ModelConfig
from evaluator.engine import engine_identity, find_source, load_engine
from evaluator.engine.base import ContinuationRequest
from evaluator.engine.devices import head_dtype
from evaluator.engine.transformers_engine import _Float32Head
from evaluator.errors import ConfigError
from evaluator.models.source import ModelSource
from evaluator.models.weights import has_plain_head
from tests.engine.cpu_only import cpu_only
from tests.shared_engines import close_engines


@cpu_only
@pytest.mark.parametrize("engine_name", ["transformers", "vllm"])
@pytest.mark.parametrize(("head", "largest"), [("float32", 2e-5), ("model", None)])
def test_log_probabilities_are_those_of_the_hidden_states_times_the_head(
    engine_name: str, head, largest: float | None, tiny_model: Path
) -> None:
    """The product and the softmax are computed here, in fp64, from the engine's own hidden states in bfloat16."""
    close_engines("vllm")
    config = ModelConfig(
        model=str(tiny_model), engine=engine_name, dtype="bfloat16", head_dtype=head, kv_cache_gib=0.01
    )
    rng = random.Random(0)
    contexts = [rng.choices(range(2, 1000), k=rng.randint(3, 40)) for _ in range(12)]
    labels = [[token] for token in range(10, 60)]
    with closing(load_engine(find_source(config), config)) as engine:
        states = torch.tensor(engine.hidden_states(contexts)).double()
        answers = sorted(
            engine.log_likelihoods([ContinuationRequest(context, labels) for context in contexts]),
            key=lambda answer: answer.index,
        )
        assert engine.facts.head_dtype == ("float32" if head == "float32" else "bfloat16")
    matrix = load_file(tiny_model / "model.safetensors")["model.embed_tokens.weight"].bfloat16().double()
    expected = torch.log_softmax(states @ matrix.T, dim=-1)[:, 10:60].numpy()
    found = np.array([np.ravel(answer.token_log_probs) for answer in answers])
    drift = np.abs(found - expected).max()
    assert drift < largest if largest else drift > 1e-3, drift


def test_a_copy_of_the_head_computes_with_its_own_weights() -> None:
    """As that which PEFT makes for an adapter that saves the head."""
    head = torch.nn.Linear(4, 3, dtype=torch.bfloat16)
    head.__class__ = _Float32Head
    copied, states = copy.deepcopy(head), torch.randn(2, 5, 4, dtype=torch.bfloat16)
    with torch.no_grad():
        head.weight.zero_()
        logits = copied(states)
        expected = states.double() @ copied.weight.double().T + copied.bias.double()
    assert logits.dtype == torch.float32
    np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("dtype", "asked", "device", "invariant", "expected"),
    [
        ("bfloat16", "auto", "cuda", False, "float32"),
        ("bfloat16", "auto", "cuda", True, "bfloat16"),  # vLLM has no such kernel
        ("bfloat16", "auto", "cpu", False, "bfloat16"),
        ("bfloat16", "float32", "cpu", False, "float32"),
        ("float16", "float32", "cuda", True, "float32"),
        ("float16", "model", "cuda", False, "float16"),
        ("float32", "model", "cpu", False, "float32"),
    ],
)
def test_logits_are_in_float32_where_that_is_free_or_asked_for(
    dtype, asked, device, invariant, expected, tiny_source: ModelSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_BATCH_INVARIANT", str(int(invariant)))
    assert head_dtype(tiny_source, ModelConfig(model="m", dtype=dtype, head_dtype=asked), device) == expected


def test_scores_with_other_logits_have_another_identity(tiny_source: ModelSource) -> None:
    configs = [ModelConfig(model="m", dtype="bfloat16", head_dtype=head) for head in ("float32", "model")]
    first, second = (asdict(engine_identity(tiny_source, config)) for config in configs)
    assert {name for name in first if first[name] != second[name]} == {"head_dtype"}


PLAIN, INTEGERS, EIGHT_BITS = torch.bfloat16, torch.int32, torch.float8_e4m3fn


@pytest.mark.parametrize("head", ["lm_head", "language_model.lm_head", "model.embed_tokens"])
@pytest.mark.parametrize(
    ("parts", "plain"),
    [
        ({"weight": PLAIN}, True),
        ({"weight": PLAIN, "bias": PLAIN}, True),
        ({"weight": EIGHT_BITS}, False),
        ({"weight": EIGHT_BITS, "weight_scale": PLAIN}, False),
        ({"weight": torch.int8, "SCB": PLAIN}, False),
        ({"qweight": INTEGERS, "qzeros": INTEGERS, "scales": PLAIN, "g_idx": INTEGERS}, False),
        ({"weight_packed": INTEGERS, "weight_scale": PLAIN, "weight_shape": torch.int64}, False),
    ],
)
def test_a_quantised_head_is_told_by_its_tensors(parts, plain, head, tiny_source, tmp_path) -> None:
    """Whatever the layers are; a tied head is the embeddings."""
    tensors = {f"{head}.{name}": torch.zeros(40, 8).to(dtype) for name, dtype in parts.items()}
    if "lm_head" in head:
        tensors["model.embed_tokens.weight"] = torch.zeros(40, 8, dtype=PLAIN)
    tensors["model.layers.0.mlp.up_proj.qweight"] = torch.zeros(2, 8, dtype=INTEGERS)
    save_file(tensors, tmp_path / "model.safetensors")
    assert has_plain_head([tmp_path / "model.safetensors"], 40) is plain
    source = replace(
        tiny_source, folder=tmp_path, vocab_size=40, quantization={"quant_method": "some"}, dtype="bfloat16"
    )
    assert head_dtype(source, ModelConfig(model="m"), "cuda") == ("float32" if plain else "bfloat16")
    if not plain:
        with pytest.raises(ConfigError, match=r"is quantised: drop --head-dtype float32\."):
            head_dtype(source, ModelConfig(model="m", head_dtype="float32"), "cuda")
