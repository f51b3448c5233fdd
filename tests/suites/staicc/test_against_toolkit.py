"""The StaICC package itself says what each part of its diagnoses asks; under `released` ours is the same."""

import contextlib
import io
import warnings
from collections.abc import Iterable, Iterator
from copy import copy, deepcopy
from dataclasses import replace
from functools import cache
from typing import Any

import polars as pl
import pytest
from StaICC.util.experimentor import (
    GLER_experimentor,
    demonstration_sensitivity_experimentor,
    prior_bias_experimentor,
    template_sensitivity_experimentor,
)

from evaluator.config import RunConfig
from evaluator.datasets import SOURCES
from evaluator.prompts.rows import normal_requests
from evaluator.suites import SUITE_GROUPS, SUITES
from tests.toolkit import our_dataset, toolkit_experiment, toolkit_sampler

EXPERIMENTS = {
    "contextual": (prior_bias_experimentor, {"bias_type": "contextual"}),
    "domain": (prior_bias_experimentor, {"bias_type": "domain"}),
    "gler": (GLER_experimentor, {}),
    "template": (template_sensitivity_experimentor, {}),
    "sampling": (demonstration_sensitivity_experimentor, {}),
}
SOME = ["financial_phrasebank", "trec"]
CASES = [(name, 4) for name in SOME] + [(SOME[0], n_shots) for n_shots in (0, 1, 16)]
MORE = [(name, 4) for name in SOURCES if name not in SOME] + [(SOME[1], n_shots) for n_shots in (0, 1, 16)]
"""Datasets differ in nothing that code tells apart; tests/prompts has prompts of each from the toolkit."""


def exhaustive(cases: Iterable[tuple[Any, ...]]) -> list[Any]:
    return [pytest.param(*case, marks=pytest.mark.exhaustive) for case in cases]


@pytest.fixture(autouse=True)
def _as_silent_as_a_test() -> Iterator[None]:
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="You are editing the standard settings")
        warnings.filterwarnings("ignore", message="The number of wrong labels is not an integer")
        yield


@cache
def asked(suite: str, name: str, n_shots: int) -> pl.DataFrame:
    config = RunConfig(suites=SUITE_GROUPS["staicc"], datasets=(name,), n_shots=n_shots, definitions=("released",))
    return pl.concat(SUITES[suite].requests(our_dataset(name), config).rows)


def toolkit_prompts(part: str, name: str, n_shots: int) -> list[str]:
    """What the toolkit's own run of a part sends to a model, in its order."""
    kind, options = EXPERIMENTS[part]
    data = toolkit_experiment(name).triplet_dataset
    if part in ("template", "sampling"):  # these cut their test split, in place or by the sizes it is drawn with
        data = copy(data)
        data.test = deepcopy(data.test)
    if part == "template":
        data.test.cut_by_index(100)
    experiment = kind(triplet_dataset=data, k=0, metrics={}, **options)
    experiment.demonstration_sampler = toolkit_sampler(n_shots, len(data.demonstration))
    experiment._k = n_shots
    sent: list[str] = []

    def answer(prompt: list[str], label_space: list[str]) -> list[list[float]]:
        sent.extend(prompt)
        return [[1.0] + [0.0] * (len(label_space) - 1)] * len(prompt)

    experiment(forward_inference=answer, batched_inference=True)
    return sent


@pytest.mark.parametrize("part", EXPERIMENTS)
@pytest.mark.parametrize(("name", "n_shots"), [*CASES, *exhaustive(MORE)])
def test_prompts_are_those_of_the_toolkit_in_its_order(name: str, n_shots: int, part: str):
    suite = "staicc-bias" if part in SUITES["staicc-bias"].parts else "staicc-robustness"
    ours = asked(suite, name, n_shots).filter(part=part).sort("position")
    expected = toolkit_prompts(part, name, n_shots)
    assert ours["prompt"].to_list() == expected
    assert ours["position"].to_list() == list(range(len(expected)))


@pytest.mark.parametrize("name", SOURCES)
def test_the_nine_templates_are_those_of_the_toolkit(name: str):
    experiment = template_sensitivity_experimentor(triplet_dataset=toolkit_experiment(name).triplet_dataset, k=0)
    for row, ours in enumerate(our_dataset(name).alternative_templates):
        experiment._set_template(row)
        theirs = experiment.prompt_former.get_config_dict()
        assert ours.instruction == theirs["instruction"]
        assert list(ours.input_prefixes) == theirs["input_text_prefixes"]
        assert (ours.label_prefix, ours.label_affix) == (theirs["label_prefix"], theirs["label_affix"])
    assert len(our_dataset(name).alternative_templates) == 9


@pytest.mark.parametrize("mode", ["in_domain", "out_of_domain"])
@pytest.mark.parametrize(
    ("name", "n_shots", "n_test"),
    [
        *((name, 4, 64) for name in SOME),
        ("sst5", 16, 32),
        # Where labels are few or uneven, out-of-domain sets take the toolkit thousands of draws each.
        *exhaustive((name, 4, 4 if name == "hate_speech_18" else 64) for name in SOURCES if name not in SOME),
        *exhaustive(("financial_phrasebank", n_shots, 512) for n_shots in (1, 4)),
    ],
)
def test_demonstrations_of_a_domain_are_those_of_the_toolkit(name: str, n_shots: int, n_test: int, mode: str):
    experiment = copy(toolkit_experiment(name))
    experiment.triplet_dataset = copy(experiment.triplet_dataset)
    experiment.triplet_dataset.test = deepcopy(experiment.triplet_dataset.test).cut_by_index(n_test)
    experiment.prompt_former = copy(experiment.prompt_former)
    experiment.prompt_former._triplet_dataset = experiment.triplet_dataset
    experiment.set_k(n_shots)
    getattr(experiment, f"set_{mode}_mode")()

    dataset = our_dataset(name)
    dataset = replace(dataset, test=dataset.test.head(n_test))
    config = RunConfig(suites=("staicc-demonstrations",), datasets=(name,), n_shots=n_shots, definitions=("released",))
    rows = pl.concat(SUITES["staicc-demonstrations"].requests(dataset, config).rows).filter(part=mode)
    assert rows["prompt"].to_list() == experiment.prompt_set()


def test_each_dataset_makes_as_many_requests_as_the_toolkit_has_calls():
    # A dataset: 1,024 queries (normal), twice that of pseudo-queries, five times at noise rates, 9 templates of 100
    # queries, 8 sets of 128 queries: 1024 * (1 + 2 + 5 + 1) + 900 = 10,116.
    rows = pl.concat(
        asked(suite, name, 4).select("part", "position") for suite in SUITE_GROUPS["staicc"] for name in SOME
    )
    per_dataset = {part: n // len(SOME) for part, n in rows["part"].value_counts().iter_rows()}
    assert per_dataset == {
        "normal": 1024,
        "contextual": 1024,
        "domain": 1024,
        "gler": 5120,
        "template": 900,
        "sampling": 1024,
    }
    assert rows.height == len(SOME) * 10_116


def test_without_noise_a_released_run_asks_what_staicc_normal_asks():
    ours = asked("staicc-robustness", "agnews", 4).filter(pl.col("part") == "gler", pl.col("noise_rate") == 0)
    normal = pl.concat(normal_requests(our_dataset("agnews"), n_shots=4, n_queries=None))
    assert ours.select(normal.columns).equals(normal)
