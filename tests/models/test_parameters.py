"""How many parameters weight files hold, against layers counted by hand."""

import pytest
import torch
from safetensors.torch import save_file

from evaluator.models.parameters import count_parameters
from evaluator.models.weights import read_header

IN, OUT = 64, 32
INT32, UINT8, FP8 = torch.int32, torch.uint8, torch.float8_e4m3fn
PLAIN = {"norm.weight": (torch.bfloat16, (IN,))}

# One layer of IN x OUT weights beside a norm of IN, as each method saves it.
LAYERS = {
    "fp8": (
        {"quant_method": "fp8"},
        {
            "up.weight": (FP8, (OUT, IN)),
            "up.weight_scale_inv": (torch.float32, (1, 1)),
            "up.input_scale": (INT32, (1,)),
        },
    ),
    "awq, 4 bits": (
        {"quant_method": "awq", "bits": 4},
        {
            "up.qweight": (INT32, (IN, OUT // 8)),
            "up.qzeros": (INT32, (1, OUT // 8)),
            "up.scales": (torch.float16, (1, OUT)),
        },
    ),
    "gptq, 8 bits": (
        {"quant_method": "gptq", "bits": 8},
        {
            "up.qweight": (INT32, (IN // 4, OUT)),
            "up.qzeros": (INT32, (1, OUT // 4)),
            "up.scales": (torch.float16, (1, OUT)),
            "up.g_idx": (INT32, (IN,)),
        },
    ),
    "compressed-tensors, 4 bits": (
        {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 4}}}},
        {
            "up.weight_packed": (INT32, (OUT, IN // 8)),
            "up.weight_scale": (torch.bfloat16, (OUT, 1)),
            "up.weight_shape": (torch.int64, (2,)),
        },
    ),
    "compressed-tensors, 8 bits": (
        {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 8}}}},
        {"up.weight": (torch.int8, (OUT, IN)), "up.weight_scale": (torch.bfloat16, (OUT, 1))},
    ),
    "mxfp4": (
        {"quant_method": "mxfp4"},
        {"experts.up_blocks": (UINT8, (OUT, IN // 32, 16)), "experts.up_scales": (UINT8, (OUT, IN // 32))},
    ),
    "bitsandbytes, 4 bits": (
        {"quant_method": "bitsandbytes", "load_in_4bit": True},
        {
            "up.weight": (UINT8, (IN * OUT // 2, 1)),
            "up.weight.absmax": (UINT8, (IN * OUT // 64,)),
            "up.weight.quant_map": (torch.float32, (16,)),
            "up.weight.quant_state.bitsandbytes__nf4": (UINT8, (90,)),
        },
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_quantised_weights_count_as_the_numbers_they_stand_for(tmp_path, name):
    quantization, layer = LAYERS[name]
    tensors = {key: torch.zeros(shape, dtype=dtype) for key, (dtype, shape) in (layer | PLAIN).items()}
    save_file(tensors, tmp_path / "model.safetensors")
    headers = read_header(tmp_path / "model.safetensors")
    assert count_parameters(headers, quantization) == IN * OUT + IN


def test_without_quantisation_every_number_is_a_parameter(tmp_path):
    tensors = {"scales": torch.zeros(3, 5), "qweight": torch.zeros(7, dtype=INT32)}
    save_file(tensors, tmp_path / "model.safetensors")
    assert count_parameters(read_header(tmp_path / "model.safetensors"), None) == 3 * 5 + 7
