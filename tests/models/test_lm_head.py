"""The head by itself, times transformers' own hidden states, is what transformers says the logits are."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

from evaluator.engine.base import FakeEngine
from evaluator.errors import ModelError
from evaluator.models.fake_source import fake_model_source
from evaluator.models.skeleton import load_lm_head
from evaluator.models.source import ModelSource

SMALL = {
    "vocab_size": 96,
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 2,
}


def source_of(folder: Path) -> ModelSource:
    return ModelSource(
        name="small",
        folder=folder,
        revision=None,
        architecture="any",
        context_length=64,
        vocab_size=96,
        kv_values_per_token=1,
        dtype="float32",
        trust_remote_code=False,
    )


def small_model(folder: Path, kind: str, **options):
    torch.manual_seed(0)
    sizes = {"n_embd": 32, "n_layer": 1, "n_head": 2, "vocab_size": 96} if kind == "gpt2" else SMALL
    if kind == "opt":
        sizes = SMALL | {"ffn_dim": 48, "word_embed_proj_dim": 32}
    if kind == "gemma2":
        sizes = SMALL | {"head_dim": 16}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **sizes, **options))
    model.save_pretrained(folder)
    return model.eval()


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("llama", {"tie_word_embeddings": False}),
        ("llama", {"tie_word_embeddings": True}),
        ("gpt2", {}),
        ("gpt_neox", {}),
        ("opt", {}),
        ("falcon", {}),
        ("granite", {"logits_scaling": 1.0}),
    ],
)
def test_head_times_hidden_state_are_the_logits(tmp_path, kind, options):
    model = small_model(tmp_path, kind, **options)
    ids = torch.arange(3, 20)[None]
    with torch.inference_mode():
        answered = model(ids, output_hidden_states=True)
    head = load_lm_head(source_of(tmp_path))
    assert head.shape == (96, 32)
    torch.testing.assert_close(answered.hidden_states[-1] @ head.T, answered.logits, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_the_head_of_a_tied_model_is_the_one_in_its_files_as_transformers_loads_it(tmp_path, kind):
    """config.json says tied, and the files hold other numbers: transformers unties them."""
    saved = small_model(tmp_path, kind, tie_word_embeddings=True)
    weights = load_file(tmp_path / "model.safetensors")
    weights["lm_head.weight"] = torch.randn(96, 32)
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    model = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert not torch.equal(model.lm_head.weight, saved.lm_head.weight)
    assert torch.equal(load_lm_head(source_of(tmp_path)), model.lm_head.weight)


def test_the_random_model_has_a_head(tiny_source, tiny_model):
    model = AutoModelForCausalLM.from_pretrained(tiny_model)
    assert torch.equal(load_lm_head(tiny_source), model.lm_head.weight)


@pytest.mark.parametrize(
    ("kind", "options", "named"),
    [
        ("gemma2", {}, "final_logit_softcapping = 30.0"),
        ("cohere", {}, "logit_scale = 0.0625"),
        ("granite", {"logits_scaling": 8.0}, "logits_scaling = 8.0"),
        ("phi", {}, "lm_head.bias"),
        ("recurrent_gemma", {}, "logits_soft_cap = 30.0"),
        ("xlstm", {"num_heads": 2}, "output_logit_soft_cap = 30.0"),
    ],
)
def test_logits_that_are_more_than_a_product_are_refused_by_name(tmp_path, kind, options, named):
    small_model(tmp_path, kind, **options)
    with pytest.raises(ModelError, match=rf"The logits of small are more than its LM head .*{named}"):
        load_lm_head(source_of(tmp_path))


def test_a_head_under_an_unexpected_name_is_refused_with_the_expected_names(tmp_path):
    small_model(tmp_path, "llama", tie_word_embeddings=False)
    save_file({"decoder.output.weight": torch.zeros(96, 32)}, tmp_path / "model.safetensors")
    with pytest.raises(ModelError, match=r"LM head of small was not found: no tensor for lm_head.weight, of shape"):
        load_lm_head(source_of(tmp_path))


def test_the_fake_model_has_a_head_as_wide_as_its_hidden_states_and_always_the_same():
    head = load_lm_head(fake_model_source())
    assert head.shape[1] == FakeEngine().hidden_states([[1, 2]]).shape[1]
    assert torch.equal(head, load_lm_head(fake_model_source()))
    assert head.unique().numel() > 1000
