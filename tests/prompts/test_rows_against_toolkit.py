"""The StaICC package itself says what the ten datasets' splits and prompts are; ours are the same, byte for byte."""

from copy import copy
from typing import Any

import polars as pl
import pytest

from evaluator.datasets import SOURCES
from evaluator.datasets.base import ClassificationDataset
from evaluator.prompts.rows import normal_requests
from tests.toolkit import our_dataset, toolkit_experiment, toolkit_sampler


@pytest.fixture(scope="module", params=list(SOURCES))
def pair(request: pytest.FixtureRequest) -> tuple[ClassificationDataset, Any]:
    """A dataset of ours and the toolkit's experiment on it, which keeps the splits and writes the prompts."""
    return our_dataset(request.param), toolkit_experiment(request.param)


@pytest.mark.parametrize("split", ["calibration", "demonstration", "test"])
def test_splits_are_those_of_the_toolkit(pair: tuple[ClassificationDataset, Any], split: str):
    dataset, experiment = pair
    rows: pl.DataFrame = getattr(dataset, split)
    expected = getattr(experiment.triplet_dataset, split)
    label_names = dataset.verbalizer.label_names
    assert rows["texts"].to_list() == [expected.get_input_text(row) for row in range(len(expected))]
    assert [label_names[gold] for gold in rows["gold"]] == [expected.get_label(row) for row in range(len(expected))]


def test_label_spaces_are_those_of_the_toolkit(pair: tuple[ClassificationDataset, Any]):
    dataset, experiment = pair
    assert list(dataset.verbalizer.label_names) == experiment.get_label_space()


@pytest.mark.parametrize("n_shots", [0, 1, 4, 16])
def test_prompts_are_those_of_the_toolkit_byte_for_byte(pair: tuple[ClassificationDataset, Any], n_shots: int):
    dataset, experiment = pair
    sampler = toolkit_sampler(n_shots, len(experiment.triplet_dataset.demonstration))
    experiment = copy(experiment)
    experiment.demonstration_sampler, experiment._k = sampler, n_shots
    rows = pl.concat(normal_requests(dataset, n_shots=n_shots, n_queries=None))

    assert rows["prompt"].to_list() == experiment.prompt_set()
    assert rows["demonstration_ids"].to_list() == [sampler[place] for place in range(1024)]
    gold_of = experiment.triplet_dataset.get_default_ground_truth_label_index
    assert rows["gold"].to_list() == 2 * [gold_of(query) for query in range(512)]
