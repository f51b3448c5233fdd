"""A model that is not whole is refused by a sentence that names the tensor, before any engine loads it."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from evaluator.config import ModelConfig
from evaluator.engine import find_source, load_engine
from evaluator.errors import ModelError
from evaluator.models.skeleton import require_whole
from evaluator.models.source import find_model

TENSOR = "model.layers.0.mlp.down_proj.weight"


def renamed(weights, _config):
    weights["x." + TENSOR] = weights.pop(TENSOR)


def without_a_layer(weights, _config):
    for name in [name for name in weights if ".layers.1." in name]:
        del weights[name]


def without_a_head(_weights, config):
    config["tie_word_embeddings"] = False


def of_fewer_layers(_weights, config):
    config["num_hidden_layers"] = 1


def of_more_layers(_weights, config):
    config["num_hidden_layers"] = 3


def of_another_width(weights, _config):
    weights[TENSOR] = weights[TENSOR][:, :-8].clone()


def of_integers(weights, _config):
    weights[TENSOR] = weights[TENSOR].to(torch.int8)


def of_fp8(weights, _config):
    weights[TENSOR] = weights[TENSOR].to(torch.float8_e4m3fn)


def with_a_bias_too_many(weights, _config):
    weights[TENSOR.replace("weight", "bias")] = torch.zeros(64)


def quantised_without_a_head(_weights, config):
    config |= {"tie_word_embeddings": False, "quantization_config": {"quant_method": "fp8"}}


def quantised(weights, config):
    """Five layers: plain matrices in the first, packed ones with scales in the others."""
    config |= {"num_hidden_layers": 5, "quantization_config": {"quant_method": "compressed-tensors"}}
    for name in [name for name in weights if ".layers.1." in name]:
        tensor, parts = weights.pop(name), {name: torch.bfloat16}
        if "proj" in name:
            parts = {f"{name}_packed": torch.int32, f"{name}_scale": torch.bfloat16}
        for part, dtype in parts.items():
            weights |= {
                part.replace("layers.1", f"layers.{layer}"): tensor.to(dtype, copy=True) for layer in range(1, 5)
            }


def quantised_without_a_matrix(weights, config):
    quantised(weights, config)
    del weights["model.layers.3.mlp.up_proj.weight_packed"]


def quantised_without_a_norm(weights, config):
    quantised(weights, config)
    del weights["model.layers.3.input_layernorm.weight"]


def quantised_without_a_layer(weights, config):
    quantised(weights, config)
    for name in [name for name in weights if ".layers.4." in name]:
        del weights[name]


def quantised_of_two_layers_without_a_norm(weights, config):
    config["quantization_config"] = {"quant_method": "fp8"}
    del weights["model.layers.1.input_layernorm.weight"]


DAMAGES = {
    renamed: r"down_proj\.weight is in none of the weight files",
    without_a_layer: r"layers\.1\.\S+ is in none of the weight files, nor are \d+ others",
    without_a_head: r"the tensor lm_head\.weight is in none of the weight files",
    of_fewer_layers: r"layers\.1\.\S+ is in the weight files, and has no place",
    of_more_layers: r"layers\.2\.\S+ is in none of the weight files",
    of_another_width: r"down_proj\.weight has the shape \[64, 168\], and config\.json asks for \[64, 176\]",
    of_integers: r"down_proj\.weight holds int8, with no quantization_config",
    of_fp8: r"down_proj\.weight holds float8_e4m3fn, with no quantization_config",
    with_a_bias_too_many: r"down_proj\.bias is in the weight files, and has no place",
    quantised_without_a_head: r"the tensor lm_head\.weight is in none of the weight files",
    quantised_without_a_matrix: r"layers\.3\.mlp\.up_proj\.weight_packed is in none of the weight files",
    quantised_without_a_norm: r"layers\.3\.input_layernorm\.weight is in none of the weight files",
    quantised_without_a_layer: r"layers\.4\.input_layernorm\.weight is in none of the weight files",
    quantised_of_two_layers_without_a_norm: r"layers\.1\.input_layernorm\.weight is in none of the weight files",
}


def damaged(tiny_model: Path, folder: Path, damage) -> Path:
    shutil.copytree(tiny_model, folder)
    weights = load_file(folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    damage(weights, config)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_model_that_is_not_whole_is_refused_with_the_tensor(tiny_model, tmp_path, damage):
    folder = damaged(tiny_model, tmp_path / "model", damage)
    with pytest.raises(ModelError, match=f"{folder} is not whole: .*{DAMAGES[damage]}"):
        require_whole(find_model(ModelConfig(model=str(folder))))


@pytest.mark.parametrize("engine", ["transformers", "vllm"])
def test_both_engines_refuse_an_untied_model_without_a_head(tiny_model, tmp_path, engine):
    config = ModelConfig(model=str(damaged(tiny_model, tmp_path / "model", without_a_head)), engine=engine)
    with pytest.raises(ModelError, match=r"lm_head\.weight is in none of the weight files"):
        load_engine(find_source(config), config)


def test_a_whole_model_is_accepted(tiny_source, tiny_model, tmp_path):
    require_whole(tiny_source)
    require_whole(find_model(ModelConfig(model=str(damaged(tiny_model, tmp_path / "model", quantised)))))
