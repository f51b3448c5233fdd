"""Models for which the engines compute something else are named before a run, and findings are shown in few lines."""

import json
import shutil

import pytest

from evaluator.config import ModelConfig
from evaluator.models.source import find_model
from evaluator.preflight.findings import duration, engine_findings, finding, finding_lines, listed


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


def test_each_warning_has_a_line_and_notes_of_one_name_share_theirs():
    datasets = ["a", "b", "c"]
    noted = [finding("trailing-space", "It ends in a space.", name) for name in datasets]
    warned = [finding("missing-bos", "It has no BOS.", name) for name in datasets[:2]]
    assert [*finding_lines([*warned, *noted])] == [
        "Warning  missing-bos: a: It has no BOS.",
        "Warning  missing-bos: b: It has no BOS.",
        "Note     trailing-space: a: It ends in a space.",
        "                         also found in 2 other datasets: b, c",
    ]
    assert [*finding_lines(noted[:2])][1].strip() == "also found in 1 other dataset: b"
    assert len([*finding_lines(noted[:1])]) == 1
    assert [*finding_lines([])] == ["No problem was found."]


@pytest.mark.parametrize(("n", "text"), [(2, "0, 1"), (3, "0, 1 and 1 other"), (4, "0, 1 and 2 others")])
def test_a_long_list_ends_with_the_number_of_others(n, text):
    assert listed([*map(str, range(n))], 2) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(89, "89 s"), (90, "2 min"), (150, "2 min"), (5399, "90 min"), (5400, "1.5 h")]
)
def test_a_time_is_in_minutes_from_a_minute_and_a_half_and_in_hours_from_an_hour_and_a_half(seconds, text):
    assert duration(seconds) == text
