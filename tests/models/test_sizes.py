"""Sizes of models from their configurations, against numbers that their makers publish."""

import json

import pytest

from evaluator.models.sizes import model_size
from evaluator.models.source import ModelSource

LLAMA_3_8B = {
    "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "intermediate_size": 14336, "vocab_size": 128256, "tie_word_embeddings": False, "model_type": "llama",
}  # fmt: skip
MIXTRAL = LLAMA_3_8B | {
    "num_local_experts": 8, "num_experts_per_tok": 2, "vocab_size": 32000, "model_type": "mixtral",
}  # fmt: skip
GPT2 = {
    "n_embd": 768,
    "n_layer": 12,
    "n_head": 12,
    "vocab_size": 50257,
    "tie_word_embeddings": True,
    "model_type": "gpt2",
}


def size(folder, description):
    (folder / "config.json").write_text(json.dumps(description))
    return model_size(folder)


def test_llama_3_of_8_billion_parameters(tmp_path):
    found = size(tmp_path, LLAMA_3_8B)
    # 8,030,261,248 in all, of which 65 norms of 4,096 are not counted.
    assert found.n_parameters == 8_030_261_248 - 65 * 4096
    # Each layer: queries and outputs 2 x 4096^2, keys and values 2 x 4096 x 1024, feed-forward 3 x 4096 x 14336.
    assert found.flop_per_token == 2 * 32 * (2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14336)


def test_a_token_meets_the_experts_that_are_chosen(tmp_path):
    found = size(tmp_path, MIXTRAL)
    assert found.n_parameters == pytest.approx(
        46.7e9, rel=0.01
    )  # "46.7B total parameters but only uses 12.9B per token"
    assert found.per_token + 2 * 32000 * 4096 == pytest.approx(12.9e9, rel=0.01)


def test_feed_forward_of_two_matrices_and_tied_embeddings(tmp_path):
    assert size(tmp_path, GPT2).n_parameters == pytest.approx(124e6, rel=0.01)


def test_a_model_that_reads_images_has_the_size_of_its_text_part(tmp_path):
    assert size(tmp_path, {"text_config": LLAMA_3_8B}) == size(tmp_path, LLAMA_3_8B)


def test_a_configuration_without_sizes_has_none(tmp_path):
    assert size(tmp_path, {"model_type": "llama"}) is None
    assert model_size(tmp_path / "missing") is None


def test_the_estimate_of_a_model_here_is_near_the_count_of_its_weights(tiny_source: ModelSource):
    assert model_size(tiny_source.folder).n_parameters == pytest.approx(tiny_source.n_parameters, rel=0.02)
