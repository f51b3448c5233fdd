"""Sizes of models from their configurations, against numbers that their makers publish."""

import json
import shutil

import pytest

from evaluator.config import ModelConfig
from evaluator.models.skeleton import model_size
from evaluator.models.source import ModelSource, find_model

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
    assert found.n_parameters == 8_030_261_248
    # Each layer: queries and outputs 2 x 4096^2, keys and values 2 x 4096 x 1024, feed-forward 3 x 4096 x 14336.
    assert found.flop_per_token == 2 * 32 * (2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14336)


def test_a_token_meets_the_experts_that_are_chosen(tmp_path):
    found = size(tmp_path, MIXTRAL)
    assert found.n_parameters == pytest.approx(
        46.7e9, rel=0.01
    )  # "46.7B total parameters but only uses 12.9B per token"
    assert found.flop_per_token / 2 + 2 * 32000 * 4096 == pytest.approx(12.9e9, rel=0.01)


def test_feed_forward_of_two_matrices_and_tied_embeddings(tmp_path):
    assert size(tmp_path, GPT2).n_parameters == 124_439_808  # "gpt2" of the hub


def test_a_model_that_reads_images_has_the_size_of_its_text_part(tmp_path):
    assert size(tmp_path, {"model_type": "llava", "text_config": LLAMA_3_8B}) == size(tmp_path, LLAMA_3_8B)


def test_a_configuration_of_an_unknown_architecture_has_none(tmp_path):
    assert size(tmp_path, LLAMA_3_8B | {"model_type": "new"}) is None
    assert model_size(tmp_path / "missing") is None


def test_the_size_of_a_model_here_is_the_count_of_its_weights(tiny_source: ModelSource):
    assert model_size(tiny_source.folder).n_parameters == tiny_source.n_parameters


QUANTISED = [
    {"quant_method": "fp8"},
    {"quant_method": "awq", "bits": 4},
    {"quant_method": "gptq", "bits": 8},
    {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 4}}}},
    {"quant_method": "mxfp4"},
    {"quant_method": "bitsandbytes", "load_in_4bit": True},
]


@pytest.mark.parametrize("quantization", QUANTISED, ids=lambda quantization: quantization["quant_method"])
def test_quantised_weights_count_as_the_numbers_they_stand_for(tiny_source: ModelSource, tmp_path, quantization):
    folder = shutil.copytree(tiny_source.folder, tmp_path / "quantised")
    description = json.loads((folder / "config.json").read_text()) | {"quantization_config": quantization}
    (folder / "config.json").write_text(json.dumps(description))
    assert find_model(ModelConfig(model=str(folder))).n_parameters == tiny_source.n_parameters
