import shutil
from collections import defaultdict
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from evaluator.cli.options import data_options
from evaluator.config import DataOptions, RunConfig
from evaluator.datasets.sources import load_datasets
from evaluator.errors import ConfigError, DatasetError
from tests.command_line import command
from tests.datasets.hub_server import Hub, serving
from tests.shared_data import shared_data

pytestmark = pytest.mark.usefixtures("without_pages")

# What the hub calls the columns of each config and how it numbers labels, by the hub's dataset cards.
NLI = ("entailment", "neutral", "contradiction")
COLUMNS = {
    "boolq": ({"question": "question", "passage": "passage", "label": "label"}, ("false", "true")),
    "cola": ({"sentence": "sentence", "label": "label"}, ("0", "1")),
    "default": ({"sentence1": "premise", "sentence2": "hypothesis", "gold_label": "label"}, NLI),
    "rte": ({"premise": "sentence1", "hypothesis": "sentence2", "label": "label"}, ("entailment", "not_entailment")),
    "plain_text": ({"sentence1": "premise", "sentence2": "hypothesis", "gold_label": "label"}, NLI),
}
PLACES = {
    "boolq": ("aps/super_glue", "boolq", "validation"),
    "cola": ("nyu-mll/glue", "cola", "validation"),
    "multinli": ("nyu-mll/multi_nli", "default", "validation_matched"),
    "rte": ("nyu-mll/glue", "rte", "validation"),
    "snli": ("stanfordnlp/snli", "plain_text", "test"),
    "cola_out_of_domain": ("nyu-mll/glue", "cola", "validation"),
    "snli_dev": ("stanfordnlp/snli", "plain_text", "validation"),
}
FILES = {
    "boolq": ["boolq_dev"],
    "cola": ["cola_in_domain_dev", "cola_out_of_domain_dev"],
    "multinli": ["multinli_dev_matched"],
    "rte": ["rte_dev"],
    "snli": ["snli_test"],
    "cola_out_of_domain": ["cola_in_domain_dev", "cola_out_of_domain_dev"],
    "snli_dev": ["snli_dev"],
}


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A hub that is asked instead of the real one, by a user whose caches are empty."""
    hub = Hub()
    with serving(hub):
        ask(hub, tmp_path, monkeypatch)
        yield hub


def ask(hub, folder, monkeypatch):
    """In this process, where the library may have been imported, and so have read its environment, before."""
    monkeypatch.setenv("EVALUATOR_CACHE", str(folder / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    file_url = f"{hub.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", hub.url)
    monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", file_url)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(folder / "hf" / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)


def forget_files(folder, monkeypatch):
    """Move the cache, and make it that of a version of the library that keeps no list of the files of a repository."""
    moved = (folder / "hf" / "hub").rename(folder / "hf" / "moved")
    for lists in [*moved.rglob("trees")]:
        shutil.rmtree(lists)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(moved))


def load(*names, data=(), query_every_row=False):
    datasets = load_datasets(names, DataOptions(paths=data, hub=True), query_every_row=query_every_row)
    return {dataset.name: dataset for dataset in datasets}


def pairs(n, columns=("sentence1", "sentence2"), labels=(0, 1), first=0):
    numbers = range(first, first + n)
    return pl.DataFrame(
        {
            columns[0]: [f"Dog {number} runs." for number in numbers],
            columns[1]: [f"Animal {number} moves." for number in numbers],
            "label": [labels[number % len(labels)] for number in numbers],
            "idx": list(numbers),
        }
    )


def add_rte(hub, validation=None, train=None):
    hub.add("nyu-mll/glue", "rte/validation/0000.parquet", pairs(6) if validation is None else validation)
    hub.add("nyu-mll/glue", "rte/train/0000.parquet", pairs(20, first=100) if train is None else train)


def add_real(hub, name):
    """The published table as the hub has it: its columns and numbers, rows without a gold label among the others."""
    repository, config, split = PLACES[name]
    columns, labels = COLUMNS[config]
    folder = shared_data("pvi")
    table = pl.concat([pl.read_parquet(folder / f"{file}.parquet") for file in FILES[name]]).select(
        *(pl.col(own).alias(theirs) for own, theirs in columns.items())
    )
    numbers = {label: number for number, label in enumerate(labels)}
    table = table.with_columns(
        pl.col("label").cast(pl.String).replace_strict(numbers, return_dtype=pl.Int64), genre=pl.lit("?")
    )
    if config == "plain_text":
        n_unlabelled = 10_000 - table.height
        unlabelled = table.head(n_unlabelled).with_columns(label=pl.lit(-1, pl.Int64))
        table = pl.concat([table.head(5), unlabelled, table.slice(5)])
    hub.add(repository, f"{config}/{split}/0000.parquet", table)
    hub.add(repository, f"{config}/train/0000.parquet", table.filter(pl.col("label") >= 0).head(40))
    return table


@pytest.mark.parametrize("name", PLACES)
def test_the_dataset_is_row_for_row_that_of_the_local_file_and_the_record_says_so(hub, name):
    table = add_real(hub, name)
    (found,) = load(name).values()
    (own,) = load_datasets([name], DataOptions(paths=(shared_data("pvi"),)), query_every_row=True)
    assert_frame_equal(found.test, own.test)
    assert (found.template, found.verbalizer, found.text_fields) == (own.template, own.verbalizer, own.text_fields)
    repository, config, split = PLACES[name]
    source, compared, *left_out = found.notes
    assert source == f"from {repository} ({config}) on the hub, commit {hub.commit(repository)} of refs/convert/parquet"
    assert compared == f"its {own.test.height:,} rows are the published ones, text for text and label for label"
    lost = [f"{table.height - own.test.height} of 10,000 rows of {split} are left out: no label, or no text"]
    # Notes on repeated texts are those of any table.
    assert [note for note in left_out if "texts " not in note] == (lost if config == "plain_text" else [])


def test_one_changed_text_or_label_or_row_is_reported(hub):
    table = add_real(hub, "rte")
    path = "rte/validation/0000.parquet"
    differ = "its rows differ from the published ones: "
    for changed, how in (
        (
            table.with_columns(sentence2=pl.col("sentence2").str.replace("accident", "accidents")),
            "other texts or labels",
        ),
        (table.with_columns(label=1 - pl.col("label")), "other texts or labels"),
        (table.reverse(), "other texts or labels"),
        (table.head(276), "276 instead of 277"),
    ):
        hub.add("nyu-mll/glue", path, changed)
        assert load("rte")["rte"].notes[1] == differ + how


def test_training_rows_of_all_files_are_demonstrations(hub):
    add_rte(hub)
    hub.add("nyu-mll/glue", "rte/train/0001.parquet", pairs(3, first=200))
    rte = load("rte")["rte"]
    numbers = [*range(100, 120), *range(200, 203)]
    assert rte.demonstration["texts"].to_list() == [[f"Dog {n} runs.", f"Animal {n} moves."] for n in numbers]
    assert rte.demonstration["gold"].to_list() == [n % 2 for n in numbers]
    assert rte.test["gold"].to_list() == [0, 1, 0, 1, 0, 1]


def test_rows_without_a_gold_label_or_a_text_are_left_out_and_counted(hub):
    no_text = pairs(1).with_columns(sentence1=pl.lit(None, pl.String))
    train = pl.concat([pairs(4), pairs(2, labels=(-1,)), pairs(2).with_columns(sentence2=pl.lit("  ")), no_text])
    add_rte(hub, validation=pl.concat([pairs(1, labels=(-1,)), pairs(6)]), train=train)
    rte = load("rte")["rte"]
    assert (rte.test.height, rte.demonstration.height) == (6, 4)
    assert rte.notes[2:4] == (
        "1 of 7 rows of validation are left out: no label, or no text",
        "5 of 9 rows of train are left out: no label, or no text",
    )


def test_only_what_is_named_is_downloaded(hub):
    add_rte(hub)
    hub.add("nyu-mll/glue", "cola/train/0000.parquet", pairs(2))
    hub.add("nyu-mll/glue", "rte/test/0000.parquet", pairs(2))
    load("rte")
    assert sorted(hub.asked) == [f"nyu-mll/glue/rte/{split}/0000.parquet" for split in ("train", "validation")]


def test_a_second_load_needs_no_network_and_gives_the_same(tmp_path, monkeypatch):
    hub = Hub()
    add_rte(hub)
    hub.add("nyu-mll/glue", "cola/validation/0000.parquet", pairs(2))
    with serving(hub):
        ask(hub, tmp_path, monkeypatch)
        first = load("rte")["rte"]
    again = load("rte")["rte"]
    assert (again.notes, again.fingerprint) == (first.notes, first.fingerprint)
    assert_frame_equal(again.test, first.test)
    with pytest.raises(
        DatasetError, match=r"(?s)'nyu-mll/glue' was not found.*hub cannot be reached.*Run once with a netw"
    ):
        load("cola")
    forget_files(tmp_path, monkeypatch)
    with pytest.raises(DatasetError, match=r"(?s)may be incomplete there, and the hub cannot be reached"):
        load("rte")


def test_a_table_of_other_columns_is_refused_with_those_found_and_expected(hub):
    add_rte(hub, validation=pairs(6, columns=("premise", "sentence2")))
    with pytest.raises(DatasetError) as refused:
        load("rte")
    assert str(refused.value) == (
        f"nyu-mll/glue on the hub, rte/validation at commit {hub.commit('nyu-mll/glue')} has no column "
        "'sentence1'. Did you mean 'sentence2'? It has: premise, sentence2, label, idx. Expected are sentence1, "
        "sentence2 and label."
    )


@pytest.mark.parametrize(
    ("train", "message"),
    [
        (pairs(6, labels=(0, 2)), "rte/train at commit .*: labels 0, 2 where 0, 1, -1 are expected"),
        (pairs(6).with_columns(label=pl.lit("entailment")), r"label \(String\); expected are"),
        (pairs(6, labels=(0, None)), "labels None, 0 where"),
    ],
)
def test_other_labels_are_refused(hub, train, message):
    add_rte(hub, train=train)
    with pytest.raises(DatasetError, match=message):
        load("rte")


def test_a_file_that_is_no_parquet_is_refused(hub):
    add_rte(hub)
    hub.repositories["nyu-mll/glue"]["rte/train/0000.parquet"] = b"<html>Try again later.</html>"
    with pytest.raises(DatasetError, match=r"rte/train at .*parquet cannot be read as Parquet.* Remove the file"):
        load("rte")


def test_a_config_without_files_is_refused(hub):
    add_rte(hub)
    del hub.repositories["nyu-mll/glue"]["rte/train/0000.parquet"]
    with pytest.raises(DatasetError, match=r"rte/train at commit .*: there is no Parquet file"):
        load("rte")


def test_a_failed_download_is_an_error_that_names_the_alternative(hub, monkeypatch):
    hint = r"put rte_dev\.parquet \(premise, hypothesis, label\) into a folder, with rte_train if .* name that with"
    with pytest.raises(
        DatasetError, match=rf"'nyu-mll/glue' was not found.*no dataset on the hub has this name.*{hint}"
    ):
        load("rte")
    add_rte(hub)
    hub.without_parquet.add("nyu-mll/glue")
    with pytest.raises(DatasetError, match=rf"not found in revision 'refs/convert/parquet'.*{hint}"):
        load("rte")
    hub.gated.add("nyu-mll/glue")
    with pytest.raises(DatasetError, match=rf"requires a login and acceptance of its licence.*{hint}"):
        load("rte")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(DatasetError, match=rf"(?s)hub cannot be reached.*without HF_HUB_OFFLINE.*{hint}"):
        load("rte")


def test_a_dataset_that_is_not_on_the_hub_names_where_it_was_released(hub):
    with pytest.raises(DatasetError) as refused:
        load("causal_language")
    assert "junwang4/causal-language-use-in-science, data/pubmed_causal_language_use.csv" in str(refused.value)
    assert "causal_language.csv or causal_language.parquet (sentence, label)" in str(refused.value)
    with pytest.raises(DatasetError, match=r"junwang4/detecting-health-advice.*health_advice_structured_abstract\.csv"):
        load("health_advice")
    assert hub.asked == []


def test_a_cache_folder_that_cannot_be_written_is_an_error(hub, tmp_path, monkeypatch):
    add_rte(hub)
    (tmp_path / "file").touch()
    monkeypatch.setenv("EVALUATOR_CACHE", str(tmp_path / "file"))
    with pytest.raises(DatasetError, match="set EVALUATOR_CACHE"):
        load("rte")


def test_files_take_precedence_over_the_hub_and_a_users_table_is_read_too(hub, tmp_path):
    add_rte(hub)
    mine = tmp_path / "mine.parquet"
    pl.DataFrame({"text": list("abcd"), "label": ["x", "y"] * 2}).write_parquet(mine)
    assert list(load("rte", data=(mine,))) == ["mine", "rte"]
    own = pl.DataFrame({"premise": ["a", "b"], "hypothesis": ["c", "d"], "label": ["entailment", "not_entailment"]})
    own.write_parquet(tmp_path / "rte_dev.parquet")
    hub.asked.clear()
    assert load("rte", data=(tmp_path,), query_every_row=True)["rte"].test.height == 2
    assert hub.asked == []


def test_the_word_hub_is_the_hub_and_a_path_is_a_path():
    given = defaultdict(lambda: None, data=("mine.csv", "hub", "./hub"))
    data = data_options(given)
    assert (data.hub, data.paths) == (True, (Path("mine.csv"), Path("hub")))
    assert not data_options(given | {"data": ("./hub",)}).hub


def test_nothing_is_downloaded_that_is_not_named():
    with pytest.raises(ConfigError, match=r"--data hub downloads nothing but what is named: .* --datasets snli,rte"):
        RunConfig(suites=("pvi",), data=DataOptions(hub=True, paths=(Path("mine.csv"),)))


@pytest.mark.usefixtures("pages")
def test_a_run_of_the_command_shows_where_its_rows_are_from(hub, tmp_path):
    add_rte(hub)
    fake = ("--model", "x", "--engine", "fake", "--queries", 5, "--out", tmp_path / "run")
    command("run", "pvi", "--data", "hub", "--datasets", "rte", *fake)
    predictions = pl.read_parquet(tmp_path / "run" / "tables" / "predictions.parquet")
    assert predictions["query_id"].unique().sort().to_list() == [0, 1, 2, 3, 4]
    (page,) = (tmp_path / "run").glob("*.html")
    assert hub.commit("nyu-mll/glue") in page.read_text()
    assert "its rows differ from the published ones: 6 instead of 277" in page.read_text()
