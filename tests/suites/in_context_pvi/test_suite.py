from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from evaluator.config import PviConfig, SearchConfig, StoreConfig
from evaluator.errors import ConfigError, DatasetError
from evaluator.progress import finish
from evaluator.run.build import build_store, check_names
from evaluator.schemas import REQUESTS
from evaluator.suites import SUITES, default_label_boundary
from evaluator.suites.in_context_pvi.query_schema import PVI_QUERIES
from evaluator.suites.in_context_pvi.suite import pvi_datasets
from tests.suites.in_context_pvi.pvi_folder import write_folder


@pytest.fixture
def folder(tmp_path):
    return write_folder(tmp_path)


def config(folder, **changes):
    return StoreConfig(suites=("pvi",), **({"datasets": (), "pvi": PviConfig(data=(folder,))} | changes))


def build(config, out):
    return finish(build_store(config, out / "out"))


def test_a_store_holds_every_query_behind_every_set_and_a_null_prompt_a_set(folder):
    store = build(config(folder, datasets=("snli",)), folder)
    requests = store.requests().collect()
    assert requests.schema == REQUESTS
    assert requests["part"].value_counts().sort("part").rows() == [("input", 2 * 3 * 15), ("null", 2 * 3)]
    assert store.table("pvi_queries", PVI_QUERIES).collect().height == 15
    assert store.manifest["notes"].keys() == {"snli"}
    assert store.manifest["pvi"] == {
        "source": "random",
        "sets": 3,
        "seed": 42,
        "training_queries": 500,
        "shots": None,
    }


def test_only_queries_are_predicted_and_labels_are_merged_with_the_space_before_them():
    suite = SUITES["pvi"]
    assert suite.parts == ("input",)
    assert default_label_boundary(["pvi"]) == "merged"


def test_datasets_of_staicc_and_files_go_together(folder):
    store = build(config(folder, datasets=("trec", "cola"), n_queries=4), folder)
    counts = store.requests().filter(part="input").group_by("dataset").len().collect()
    assert sorted(counts.rows()) == [("cola", 2 * 3 * 4), ("trec", 2 * 3 * 4)]
    # Six labels, so 6 and 12 shots; CoLA's 4 and 8.
    shots = store.requests().select("dataset", "n_shots").unique().sort("dataset", "n_shots").collect()
    assert shots.rows() == [("cola", 4), ("cola", 8), ("trec", 6), ("trec", 12)]


def test_two_datasets_of_one_name_are_refused(folder):
    (folder / "trec.csv").write_text("text,label\na,x\nb,y\nc,x\nd,y\n")
    with pytest.raises(DatasetError, match=r"Two datasets are called 'trec', of StaICC and of .*trec\.csv"):
        pvi_datasets(["trec"], PviConfig(data=(folder / "trec.csv",)))


def test_names_that_neither_the_datasets_nor_the_tables_have_are_refused(folder):
    check_names(config(folder, datasets=("trec", "snli")))
    with pytest.raises(ConfigError, match=r"There is no dataset 'sst6'.*multinli"):
        check_names(config(folder, datasets=("sst6",)))
    with pytest.raises(ConfigError, match="There is no dataset 'snli'"):
        check_names(StoreConfig(suites=("staicc-normal",), datasets=("snli",)))


@pytest.mark.parametrize(
    "change", [{"seed": 1}, {"sets": 2}, {"shots": (3,)}, {"training_queries": 9}, {"source": "published", "sets": 2}]
)
def test_changed_options_give_another_store(folder, change):
    before = config(folder, datasets=("snli",))
    after = replace(before, pvi=replace(before.pvi, **change))
    assert build(before, folder).fingerprint != build(after, folder).fingerprint


def test_changed_published_texts_give_another_store_and_moved_ones_the_same(folder):
    published = PviConfig(data=(folder,), source="published", sets=2)
    before = build(config(folder, datasets=("snli",), pvi=published), folder).fingerprint
    (folder / "prompts.parquet").rename(folder / "texts.parquet")
    moved = replace(published, prompts=folder / "texts.parquet")
    assert build(config(folder, datasets=("snli",), pvi=moved), folder).fingerprint == before
    texts = pl.read_parquet(folder / "texts.parquet")
    texts.with_columns("!" + pl.col("text")).write_parquet(folder / "texts.parquet")
    assert build(config(folder, datasets=("snli",), pvi=moved), folder).fingerprint != before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shots": ()}, "--shots must be"),
        ({"shots": (3, 3)}, "--shots must be"),
        ({"shots": (0,)}, "--shots must be"),
        ({"sets": 0}, "--sets must be 1 or more"),
        ({"training_queries": 0}, "--training-queries must be 1 or more"),
        ({"prompts": Path("texts.parquet")}, "add --demonstrations published"),
    ],
)
def test_options_that_do_not_fit_each_other_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        PviConfig(**options)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"suites": ("pvi", "staicc-normal"), "datasets": ("trec",)}, "pvi has prompts and options of its own"),
        ({"suites": ("staicc-normal",), "datasets": ("trec",), "pvi": PviConfig()}, "pvi has prompts and options"),
        (
            {"suites": ("pvi",), "datasets": ("trec",), "search": SearchConfig()},
            "prompt-search has prompts and options",
        ),
        ({"suites": ("pvi",), "datasets": ()}, "No dataset was named.* pvi takes files as well, with --data"),
    ],
)
def test_the_suite_goes_alone_and_needs_datasets(changes, message):
    with pytest.raises(ConfigError, match=message):
        StoreConfig(**changes)
