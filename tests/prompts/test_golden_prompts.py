import hashlib
import json
from functools import cache
from pathlib import Path

import polars as pl
import pytest

from evaluator.config import RunConfig
from evaluator.datasets import SOURCES
from evaluator.datasets.staicc import load_staicc
from evaluator.prompts.rows import normal_requests
from evaluator.suites import SUITES

FOLDER = Path(__file__).parents[1] / "golden"
NORMAL, OTHERS = (
    # Both in the toolkit's order; it spells names otherwise.
    dict(zip(SOURCES, json.loads((FOLDER / file).read_text("utf-8")).values(), strict=True))
    for file in ("staicc_normal_prompts.json", "staicc_prompts.json")
)
SUITE_OF = {part: name for name, suite in SUITES.items() for part in suite.parts if part != "normal"}


@cache
def asked(suite: str, name: str, n_shots: int) -> pl.DataFrame:
    config = RunConfig(suites=(suite,), datasets=(name,), n_shots=n_shots, definitions=("released",))
    return pl.concat(SUITES[suite].requests(load_staicc(name), config).rows)


def digest(prompts: pl.Series) -> str:
    return hashlib.sha256("\0".join(prompts.to_list()).encode()).hexdigest()


@pytest.mark.parametrize("n_shots", [0, 1, 4])
@pytest.mark.parametrize("name", NORMAL)
def test_prompts_are_those_that_the_toolkit_once_wrote(name: str, n_shots: int):
    prompts = pl.concat(normal_requests(load_staicc(name), n_shots=n_shots, n_queries=None))["prompt"]
    assert digest(prompts) == NORMAL[name][f"k={n_shots}"]


@pytest.mark.parametrize("what", next(iter(OTHERS.values())))
@pytest.mark.parametrize("name", OTHERS)
def test_released_prompts_of_each_part_are_those_that_the_toolkit_once_sent(name: str, what: str):
    part, n_shots = what.split(" k=")
    rows = asked(SUITE_OF[part], name, int(n_shots)).filter(part=part).sort("position")
    assert digest(rows["prompt"]) == OTHERS[name][what]


def test_there_are_digests_of_every_part_that_the_toolkit_has_too():
    """The learning curve and the variables are ours: tests/suites/staicc compares their prompts with texts by hand."""
    parts = {what.split(" k=")[0] for what in OTHERS["trec"]}
    suites = {suite for suite in SUITES if suite.startswith("staicc-")} - {"staicc-learning-curve", "staicc-variables"}
    assert parts == {part for part, suite in SUITE_OF.items() if suite in suites}
