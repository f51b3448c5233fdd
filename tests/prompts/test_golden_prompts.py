import hashlib
import json
from pathlib import Path

import pytest

from evaluator.datasets import DATASETS
from evaluator.prompts.build import normal_requests

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "staicc_normal_prompts.json").read_text("utf-8"))
BY_NAME = dict(zip(DATASETS, GOLDEN.values(), strict=True))  # both in the toolkit's order; it spells names otherwise


@pytest.mark.parametrize("n_shots", [0, 1, 4])
@pytest.mark.parametrize("name", BY_NAME)
def test_prompts_are_those_that_the_toolkit_once_wrote(name, n_shots):
    prompts = normal_requests(DATASETS[name](), n_shots=n_shots, n_queries=None)["prompt"].to_list()
    assert hashlib.sha256("\0".join(prompts).encode()).hexdigest() == BY_NAME[name][f"k={n_shots}"]
