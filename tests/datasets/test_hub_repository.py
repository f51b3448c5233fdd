"""A labelled dataset of the hub as own data: the real client asks a hub of this machine's own."""

import io
import json

import polars as pl
import pyarrow.parquet as pq
import pytest

from evaluator.cli.options import data_options
from evaluator.config import DataOptions, TableColumns
from evaluator.datasets.hub_repository import hub_name
from evaluator.datasets.sources import load_datasets
from evaluator.errors import ConfigError, DatasetError
from evaluator.files.json_files import read_json
from tests.command_line import command
from tests.datasets.hub_server import Hub
from tests.datasets.test_lu_2023_hub import ask, forget_files, hub

pytestmark = pytest.mark.usefixtures("without_pages")

__all__ = ["ask", "hub"]

FAKE = ("--model", "fake", "--engine", "fake")
NAMES = ["bad", "great"]


def rows(n: int, first: int = 0, labels: int = 2) -> pl.DataFrame:
    numbers = range(first, first + n)
    return pl.DataFrame({"text": [f"Film {i} was shown." for i in numbers], "label": [i % labels for i in numbers]})


def add(hub: Hub, path: str, table: pl.DataFrame, names: list[str] | None = NAMES, label: str = "label") -> None:
    """Add a file with the features that the package `datasets` writes."""
    features = {label: {"names": names, "_type": "ClassLabel"} if names else {"dtype": "int64", "_type": "Value"}}
    content = io.BytesIO()
    arrow = table.to_arrow()
    metadata = {b"huggingface": json.dumps({"info": {"features": features}}).encode()}
    pq.write_table(arrow.replace_schema_metadata(metadata), content)
    hub.repositories.setdefault("someone/reviews", {})[path] = content.getvalue()


def add_reviews(hub: Hub, **options) -> None:
    add(hub, "default/train/0000.parquet", rows(40), **options)
    add(hub, "default/test/0000.parquet", rows(12, first=100), **options)


def load(word: str = "someone/reviews", **options):
    (dataset,) = load_datasets([], DataOptions(repositories=(word,), **options))
    return dataset


def test_queries_are_of_the_test_split_demonstrations_of_the_training_split_and_names_of_the_features(hub):
    add_reviews(hub)
    dataset = load()
    assert dataset.name == "reviews"
    assert (dataset.test.height, dataset.demonstration.height) == (12, 40)
    assert dataset.verbalizer.label_names == ("bad", "great")
    assert dataset.test["texts"].to_list()[0] == ["Film 100 was shown."]
    assert dataset.test["gold"].to_list()[:3] == [0, 1, 0]
    assert dataset.notes == (
        f"from someone/reviews (default, test) on the hub, commit {hub.commit('someone/reviews')} of "
        "refs/convert/parquet",
    )


def test_label_names_of_the_user_count_more_than_those_of_the_features(hub):
    add_reviews(hub)
    assert load(labels={"1": "good", "0": "poor"}).verbalizer.label_names == ("good", "poor")


def test_labels_without_names_are_their_cells(hub):
    add_reviews(hub, names=None)
    assert load().verbalizer.label_names == ("0", "1")


def test_several_text_columns_and_another_label(hub):
    table = rows(30).rename({"text": "premise", "label": "verdict"}).with_columns(claim=pl.lit("So it was."))
    add(hub, "default/train/0000.parquet", table, label="verdict")
    dataset = load(columns=TableColumns(inputs=("premise", "claim"), gold="verdict"))
    assert dataset.text_fields == ("premise", "claim")
    assert dataset.verbalizer.label_names == ("bad", "great")


def test_a_test_split_without_labels_is_passed_over_and_rows_without_one_are_left_out(hub):
    add_reviews(hub)
    add(hub, "default/test/0000.parquet", rows(12).with_columns(label=pl.lit(-1, pl.Int64)))
    validation = rows(10, first=50).with_columns(label=pl.when(pl.int_range(pl.len()) < 2).then(-1).otherwise("label"))
    add(hub, "default/validation/0000.parquet", validation)
    dataset = load()
    assert dataset.test.height == 8
    assert "no row of test has a label" in dataset.notes[1]
    assert dataset.notes[2] == "2 of 10 rows of validation are left out: no label, or no text"


def test_a_split_of_several_files_is_read_whole(hub):
    add_reviews(hub)
    add(hub, "default/test/0001.parquet", rows(6, first=200))
    assert load().test.height == 18


def test_without_a_training_split_rows_are_set_aside(hub):
    add(hub, "default/test/0000.parquet", rows(40))
    dataset = load()
    assert dataset.test.height + dataset.demonstration.height == 40
    assert "no training rows" in dataset.notes[1]


def test_configs_and_splits_are_named_after_the_repository(hub):
    add(hub, "de/train/0000.parquet", rows(30))
    add(hub, "en/train/0000.parquet", rows(30))
    add(hub, "en/held_out/0000.parquet", rows(14, first=60))
    with pytest.raises(DatasetError, match=r"has the configs de, en\. Name one: --data hub:someone/reviews/CONFIG"):
        load()
    dataset = load("someone/reviews/en/held_out")
    assert (dataset.name, dataset.test.height, dataset.demonstration.height) == ("reviews-en-held_out", 14, 30)
    with pytest.raises(DatasetError, match=r"has the splits held_out, train\."):
        load("someone/reviews/en/nothing")
    assert not any(path.startswith("someone/reviews/de") for path in hub.asked)


def test_a_pinned_commit_is_the_one_that_is_read(hub):
    add_reviews(hub)
    commit = hub.commit("someone/reviews")
    assert load(f"someone/reviews@{commit}").notes[0].endswith(f"commit {commit} of refs/convert/parquet")
    with pytest.raises(DatasetError, match="not found in revision '0000000'"):
        load("someone/reviews@0000000")


def test_without_a_network_what_was_downloaded_is_read_again(hub, monkeypatch):
    add_reviews(hub)
    add(hub, "default/validation/0000.parquet", rows(6, first=300))  # not read: the test split has labels
    first = load()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    asked = len(hub.asked)
    assert load().fingerprint == first.fingerprint
    assert len(hub.asked) == asked


def test_without_a_network_a_split_is_refused_if_some_of_its_files_may_be_missing(hub, monkeypatch, tmp_path):
    add_reviews(hub)
    add(hub, "default/test/0001.parquet", rows(6, first=200))
    whole = load()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    last = next((tmp_path / "hf").rglob("snapshots/*/default/test/0001.parquet"))
    target = last.readlink()
    last.unlink()  # as a download that was interrupted leaves the cache
    with pytest.raises(DatasetError, match=r"hub cannot be reached\. Run once with a network"):
        load()
    last.symlink_to(target)
    assert load().fingerprint == whole.fingerprint
    forget_files(tmp_path, monkeypatch)
    with pytest.raises(DatasetError, match=r"hub cannot be reached\. Run once with a network"):
        load()


def test_what_is_not_there_is_said_in_a_sentence(hub, monkeypatch):
    with pytest.raises(DatasetError, match="no dataset on the hub has this name"):
        load("someone/nothing")
    add_reviews(hub)
    with pytest.raises(DatasetError, match=r"has no column 'body'\. It has: text, label\..*--input-column"):
        load(columns=TableColumns(inputs=("body",)))
    hub.gated.add("someone/reviews")
    with pytest.raises(DatasetError, match="requires a login"):
        load("someone/reviews@main")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(DatasetError, match=r"hub cannot be reached.*without HF_HUB_OFFLINE.*--data"):
        load("someone/other")


@pytest.mark.parametrize("word", ["reviews", "", "a/b/c/d/e", "a b/c", "../x/../y/.."])
def test_what_is_no_name_of_the_hub_is_refused(word):
    with pytest.raises(ConfigError, match="hub:OWNER/NAME"):
        hub_name(word)


def test_a_run_records_the_commit_and_is_built_again_to_the_same_bytes(hub, tmp_path):
    add_reviews(hub)
    out = tmp_path / "out"
    command("run", "classify", "--data", "hub:someone/reviews", *FAKE, "--out", out)
    record = read_json(out / "run.json")
    assert record["prompts"]["datasets"] == ["reviews"]
    assert hub.commit("someone/reviews") in record["prompts"]["notes"]["reviews"][0]
    for path in (out / "store").glob("*/requests*.arrow"):
        path.unlink()
    assert "every file is as it was written" in command("verify", out, "--repair")


def test_every_suite_takes_it(hub, tmp_path):
    add_reviews(hub)
    data = ("--data", "hub:someone/reviews", "--queries", 4)
    command("run", "staicc-bias", *data, *FAKE, "--out", tmp_path / "bias")
    command("run", "pvi", *data, *FAKE, "--out", tmp_path / "pvi")


def test_the_word_hub_alone_still_means_the_named_datasets():
    keys = ("input_column", "choices_column", "gold_column", "id_column", "labels", "instruction", "template")
    given = {**dict.fromkeys([*keys, "training_data", "training_rows"]), "data": ("hub", "hub:a/b", "./hub:x")}
    options = data_options(given)
    assert options.hub
    assert options.repositories == ("a/b",)
    assert [str(path) for path in options.paths] == ["hub:x"]
