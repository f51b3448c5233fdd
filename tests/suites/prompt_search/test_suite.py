from pathlib import Path
from typing import Any

import polars as pl
import pytest

from evaluator.config import DataOptions, RunConfig
from evaluator.errors import ConfigError, DatasetError
from evaluator.progress import finish
from evaluator.run.build import check_config, read_datasets
from evaluator.suites import SUITES, default_label_boundary
from evaluator.suites.prompt_search.prompts import SearchOptions
from tests.datasets.test_multiple_choice_table import write


def config(*data: Path, **changes: Any) -> RunConfig:
    search = {"prompt-search": SearchOptions(shots=(1,), tries=2)}
    given = {"suites": ("prompt-search",), "datasets": ("trec",), "suite_options": search} | changes
    return RunConfig(data=DataOptions(paths=data), **given)


def test_a_search_takes_known_datasets_and_files_alike(tmp_path):
    both, suite = config(write(tmp_path, "jsonl", ROWS)), SUITES["prompt-search"]
    datasets, _ = finish(read_datasets(both))
    assert list(datasets) == ["trec", "sums"]
    rows = pl.concat(
        pl.concat(suite.requests(suite.take(dataset, both), both).rows).select("dataset", "label_names")
        for dataset in datasets.values()
    )
    assert rows.group_by("dataset").len().sort("dataset").rows() == [("sums", 2 * 6), ("trec", 2 * 200)]
    assert sorted(rows["label_names"].list.len().unique()) == [2, 3, 6]


ROWS = [
    {"input": f"{n} + {n}?", "choices": [str(2 * n), str(2 * n + 1), "none"][: 2 + n % 2], "gold": 0} for n in range(8)
]


def test_two_datasets_of_one_name_are_refused(tmp_path):
    path = write(tmp_path, "jsonl", ROWS)
    with pytest.raises(
        DatasetError, match=r"datasets are called 'sums', one from .*sums\.jsonl and one from .*sums\.jsonl"
    ):
        finish(read_datasets(config(path, path, datasets=())))


def test_each_suite_has_its_own_label_boundary_and_mixing_them_must_be_decided():
    assert default_label_boundary(["staicc-normal"]) == "separate"
    assert default_label_boundary(["prompt-search"]) == "merged"
    with pytest.raises(ConfigError, match=r"staicc-normal: separate, prompt-search: merged.*--label-boundary"):
        default_label_boundary(["staicc-normal", "prompt-search"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"suites": ("staicc-normal", "prompt-search")}, "must be the only suite of a run"),
        (
            {"suite_options": {"prompt-search": SearchOptions(halving=True)}, "methods": ("vanilla", "per_token")},
            "--halving stops prompts by",
        ),
        ({"datasets": ()}, "No dataset was named"),
    ],
)
def test_options_that_do_not_fit_each_other_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        check_config(config(**changes))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shots": ()}, "--shots must be"),
        ({"shots": (1, 1)}, "--shots must be"),
        ({"shots": (-1,)}, "--shots must be"),
        ({"shots": (0,)}, "leaves no demonstrations to search"),
        ({"tries": 0}, "--tries must be 1 or more"),
    ],
)
def test_a_search_over_nothing_is_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        SearchOptions(**options)


def test_a_search_without_options_has_those_of_the_paper():
    search = RunConfig(suites=("prompt-search",), datasets=("trec",)).options_of(SearchOptions)
    assert (search.shots, search.tries) == ((1, 2, 4), 200)
