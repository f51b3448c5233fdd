"""Models for which the engines compute something else are named before a run."""

import json
import shutil

import pytest

from evaluator.config import ModelConfig
from evaluator.models.source import find_model
from evaluator.preflight.findings import engine_findings


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, None),
        ({"architectures": ["BloomForCausalLM"], "model_type": "bloom"}, "GELU"),
        ({"architectures": ["FalconForCausalLM"], "model_type": "falcon", "alibi": True}, "ALiBi"),
        ({"architectures": ["FalconForCausalLM"], "model_type": "falcon", "alibi": False}, None),
        ({"architectures": ["FalconForCausalLM"], "model_type": "falcon"}, None),
    ],
)
def test_bloom_and_falcon_with_alibi_get_a_warning(tmp_path, tiny_model, changes, said):
    folder = shutil.copytree(tiny_model, tmp_path / "model")
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    found = list(engine_findings(find_model(ModelConfig(model=str(folder)))))
    assert [(one.name, one.level) for one in found] == ([("engines-differ", "warning")] if said else [])
    assert all(said in one.text for one in found)
