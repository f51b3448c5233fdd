"""What only a CUDA device can show; the engine contract runs there unchanged, because engines choose the device."""

from pathlib import Path

import numpy as np
import pytest
import torch

from evaluator.config import Dtype, ModelConfig
from evaluator.engine import load_engine
from evaluator.engine.base import ContinuationRequest
from evaluator.models.source import ModelSource

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is here")]


def scores(source: ModelSource, model: Path, engine_name: str, dtype: Dtype) -> np.ndarray:
    engine = load_engine(source, ModelConfig(model=str(model), engine=engine_name, dtype=dtype))
    shared = list(range(2, 102))
    requests = [ContinuationRequest([*shared, token], [[5], [6], [7, 8, 9]]) for token in range(2, 66)]
    try:
        assert engine.facts.device == torch.cuda.get_device_name()
        ordered = sorted(engine.log_likelihoods(requests), key=lambda answer: answer.index)
    finally:
        engine.close()
    return np.array([[value for label in answer.token_log_probs for value in label] for answer in ordered])


def test_vllm_in_bfloat16_errs_no_more_than_transformers_in_bfloat16(
    tiny_source: ModelSource, tiny_model: Path
) -> None:
    truth = scores(tiny_source, tiny_model, "transformers", "float32")
    plain_error = np.abs(scores(tiny_source, tiny_model, "transformers", "bfloat16") - truth).max()
    error = np.abs(scores(tiny_source, tiny_model, "vllm", "bfloat16") - truth).max()
    assert error <= plain_error + 2**-6  # half a step of a bfloat16 logit near 8
