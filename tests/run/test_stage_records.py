"""The arithmetic rate of a run, worked by hand."""

from dataclasses import replace

import pytest

from evaluator.preflight.devices import peak_of_replicas
from evaluator.record import EngineRecord, ModelRecord, ThroughputRecord
from evaluator.report.notes import throughput_line
from evaluator.run.stage_records import _with_arithmetic
from tests.report.made_record import made_record

MODEL = ModelRecord(
    name="m",
    kind="folder",
    revision=None,
    weights_fingerprint="",
    n_parameters=1,
    context_tokens=1,
    flop_per_token=14 * 10**9,
)
FACTS = EngineRecord(
    name="vllm",
    versions={},
    device="NVIDIA H200",
    dtype="bfloat16",
    prefix_block_tokens=16,
    tokens_per_step=16384,
    tensor_parallel=2,
)
# Two replicas, of two devices each.
RATES = ThroughputRecord(
    elapsed_s=10, computed_tokens_per_s=56_514.2857, replica_computed_tokens_per_s=[28_257.14, 28_257.14]
)


def test_the_arithmetic_rate_and_its_share_of_the_peak_of_all_devices():
    # 56,514 tokens/s x 14 GFLOP = 791.2 TFLOP/s; four H200 have 4 x 989 = 3,956, of which that is a fifth.
    rates = _with_arithmetic(RATES, MODEL, FACTS, 2)
    assert rates.flop_per_s == pytest.approx(791.2e12, rel=1e-6)
    assert rates.peak_share == pytest.approx(0.2, rel=1e-6)


@pytest.mark.parametrize("device", ["NVIDIA H100 PCIe", "AMD EPYC, 2 cores", "served at http://host"])
def test_a_device_of_unknown_peak_has_no_share(device):
    rates = _with_arithmetic(RATES, MODEL, replace(FACTS, device=device), 2)
    assert rates.peak_share is None
    scores = made_record().scores
    assert scores is not None
    line = throughput_line(replace(scores, throughput=rates))
    assert line is not None
    assert "791 TFLOP/s; 2 replicas" in line


def test_a_model_of_unknown_size_has_no_rate():
    rates = _with_arithmetic(RATES, replace(MODEL, flop_per_token=None), FACTS, 2)
    assert (rates.flop_per_s, rates.peak_share) == (0, None)


@pytest.mark.parametrize(
    ("changes", "n_replicas", "saved", "expected"),
    [
        ({"dtype": "float32"}, 1, None, 2 * 67e12),
        ({"quantization": "fp8"}, 1, None, 2 * 1979e12),
        ({}, 1, "fp8", 2 * 1979e12),  # weights that were saved so
        ({}, 1, "awq", 2 * 989e12),  # multiplied in bfloat16
        ({}, 1, "compressed-tensors", None),  # of many kinds
        ({"quantization": "fp8", "device": "NVIDIA A100 80GB PCIe"}, 1, None, None),  # it has no such products
        ({}, 8, None, 16 * 989e12),  # replicas that had nothing to do count as well
        ({"tensor_parallel": 1, "engines_per_device": 4}, 8, None, 2 * 989e12),
        ({"pipeline_parallel": 3}, 1, None, 6 * 989e12),
    ],
)
def test_the_peak_is_that_of_all_devices_in_the_form_that_weights_are_multiplied_in(
    changes, n_replicas, saved, expected
):
    assert peak_of_replicas(replace(FACTS, **changes), n_replicas, saved) == expected


def test_the_terminal_says_the_share_where_it_is_known():
    scores = made_record().scores
    assert scores is not None
    line = throughput_line(replace(scores, throughput=_with_arithmetic(RATES, MODEL, FACTS, 2)))
    assert line is not None
    assert "791 TFLOP/s, 20% of the devices' peak (MFU); 2 replicas" in line
