from pathlib import Path

import polars as pl
import pytest

from evaluator.config import RunConfig
from evaluator.errors import ConfigError, DatasetError
from evaluator.progress import finish
from evaluator.run.build import build_prompts, check_config, read_datasets
from evaluator.schemas import REQUESTS
from evaluator.suites import SUITES, default_label_boundary
from evaluator.suites.in_context_pvi.prompts import PviOptions
from evaluator.suites.in_context_pvi.schema import PVI_QUERIES
from tests.suites.in_context_pvi.pvi_config import pvi_config
from tests.suites.in_context_pvi.pvi_folder import write_folder


@pytest.fixture
def folder(tmp_path):
    return write_folder(tmp_path)


def build(config, out):
    return finish(build_prompts(config, out / "out"))


def test_a_store_holds_every_query_behind_every_set_and_a_null_prompt_a_set(folder):
    built = build(pvi_config(folder), folder)
    store, datasets = built.store, built.datasets
    requests = store.requests().collect()
    assert requests.schema == REQUESTS
    assert requests["part"].value_counts().sort("part").rows() == [("input", 2 * 3 * 15), ("null", 2 * 3)]
    assert store.table("pvi_queries", PVI_QUERIES).collect().height == 15
    assert {name for name, dataset in datasets.items() if dataset.notes} == {"snli"}


def test_without_options_there_are_three_random_sets_and_500_training_rows():
    assert PviOptions() == PviOptions(source="random", sets=3, seed=42, training_queries=500, shots=None, prompts=None)


def test_only_queries_are_predicted_and_labels_are_merged_with_the_space_before_them():
    suite = SUITES["pvi"]
    assert {name: part.kind for name, part in suite.parts.items()} == {"input": "classification", "null": "null"}
    assert default_label_boundary(["pvi"]) == "merged"


def test_datasets_of_staicc_and_files_go_together(folder):
    store = build(pvi_config(folder, datasets=("trec", "cola"), n_queries=4), folder).store
    counts = store.requests().filter(part="input").group_by("dataset").len().collect()
    assert sorted(counts.rows()) == [("cola", 2 * 3 * 4), ("trec", 2 * 3 * 4)]
    # Six labels, so 6 and 12 shots; CoLA's 4 and 8.
    shots = store.requests().select("dataset", "n_shots").unique().sort("dataset", "n_shots").collect()
    assert shots.rows() == [("cola", 4), ("cola", 8), ("trec", 6), ("trec", 12)]


def test_two_datasets_of_one_name_are_refused(folder):
    (folder / "trec.csv").write_text("text,label\na,x\nb,y\nc,x\nd,y\n")
    with pytest.raises(DatasetError, match=r"Two datasets are called 'trec', one from StaICC and one from .*trec\.csv"):
        finish(read_datasets(pvi_config(folder / "trec.csv", datasets=("trec",))))


def test_names_that_neither_the_datasets_nor_the_tables_have_are_refused(folder):
    check_config(pvi_config(folder, datasets=("trec", "snli")))
    with pytest.raises(ConfigError, match=r"There is no dataset 'sst6'.*multinli"):
        check_config(pvi_config(folder, datasets=("sst6",)))
    with pytest.raises(DatasetError, match="snli"):
        finish(read_datasets(pvi_config()))


@pytest.mark.parametrize(
    "change", [{"seed": 1}, {"sets": 2}, {"shots": (3,)}, {"training_queries": 9}, {"source": "published", "sets": 2}]
)
def test_changed_options_give_another_store(folder, change):
    before, after = pvi_config(folder), pvi_config(folder, **change)
    assert build(before, folder).store.fingerprint != build(after, folder).store.fingerprint


def test_changed_published_texts_give_another_store_and_moved_ones_the_same(folder):
    published = {"source": "published", "sets": 2}
    before = build(pvi_config(folder, **published), folder).store.fingerprint
    (folder / "prompts.parquet").rename(folder / "texts.parquet")
    moved = pvi_config(folder, **published, prompts=folder / "texts.parquet")
    assert build(moved, folder).store.fingerprint == before
    texts = pl.read_parquet(folder / "texts.parquet")
    texts.with_columns("!" + pl.col("text")).write_parquet(folder / "texts.parquet")
    assert build(moved, folder).store.fingerprint != before


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
        PviOptions(**options)


def test_the_suite_goes_alone():
    with pytest.raises(ConfigError, match="pvi must be the only suite of a run"):
        check_config(RunConfig(suites=("pvi", "staicc-normal"), datasets=("trec",)))


def test_the_suite_needs_datasets():
    with pytest.raises(ConfigError, match=r"No dataset was named.* or files with --data"):
        RunConfig(suites=("pvi",))
