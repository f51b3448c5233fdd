"""What files, folders and names give which datasets; how each kind is read is tested with its reader."""

import gzip
import json
import re

import polars as pl
import pytest

from evaluator.config import DataOptions, TableColumns
from evaluator.datasets import DATASETS, INSTALLED, PUBLISHED_TABLES
from evaluator.datasets.base import ClassificationDataset, MultipleChoiceDataset
from evaluator.datasets.sources import dataset_sources, load_datasets
from evaluator.errors import ConfigError, DatasetError
from tests.suites.in_context_pvi.pvi_folder import write_folder

LABELLED = {"text": ["a", "b", "c", "d"], "label": ["x", "y", "x", "y"]}
CHOICES = {"input": ["1 + 1?", "2 + 2?"], "choices": [["2", "3"], ["4", "5", "6"]], "gold": [0, 0]}
TASK = {"examples": [{"input": "sky?", "target_scores": {"blue": 1, "green": 0}}]}
LITE = {"input": ["a"], "choices": [["b", "c"]], "scores": [[1.0, 0.0]], "subtask": [""], "row": [0]}


def table(folder, name, columns):
    folder.mkdir(exist_ok=True)
    pl.DataFrame(columns).write_parquet(folder / name)
    return folder / name


def task(folder, name="task.json"):
    folder.mkdir(exist_ok=True, parents=True)
    (folder / name).write_text(json.dumps(TASK))
    return folder / name


def load(*paths, named=(), **columns):
    data = DataOptions(paths=paths, columns=TableColumns(**columns))
    return {dataset.name: dataset for dataset in load_datasets(named, data)}


def kinds(datasets):
    return {name: type(dataset) for name, dataset in datasets.items()}


def test_a_table_with_a_column_of_choices_is_multiple_choice_and_any_other_is_labelled(tmp_path):
    paths = table(tmp_path, "reviews.parquet", LABELLED), table(tmp_path, "sums.parquet", CHOICES)
    assert kinds(load(*paths)) == {"reviews": ClassificationDataset, "sums": MultipleChoiceDataset}


def test_a_named_column_of_choices_makes_a_table_multiple_choice(tmp_path):
    columns = {"question": CHOICES["input"], "options": CHOICES["choices"], "answer": CHOICES["gold"]}
    path = table(tmp_path, "sums.parquet", columns)
    loaded = load(path, inputs=("question",), choices="options", gold="answer")
    assert kinds(loaded) == {"sums": MultipleChoiceDataset}
    reviews = table(tmp_path, "reviews.parquet", LABELLED)
    with pytest.raises(DatasetError, match=r"reviews\.parquet has no column 'options'. It has: text, label."):
        load(reviews, choices="options", inputs=("text",), gold="label")


def test_a_table_that_fits_no_kind_is_refused_with_its_columns_and_the_options(tmp_path):
    path = table(tmp_path, "mine.parquet", {"question": ["a"], "options": [["b", "c"]]})
    with pytest.raises(DatasetError) as refused:
        load(path)
    assert str(refused.value) == (
        f"{path} has no column 'label'. It has: question, options. Say which hold the texts and the label with "
        "--input-column A,B and --gold-column C; if each row has its own choices, say which column holds them with "
        "--choices-column."
    )


def test_columns_that_a_kind_of_table_does_not_take_are_refused(tmp_path):
    with pytest.raises(DatasetError, match=r"sums\.parquet: a table with choices has one column of inputs, got a, b"):
        load(table(tmp_path, "sums.parquet", CHOICES), inputs=("a", "b"))
    with pytest.raises(DatasetError, match=r"reviews\.parquet: rows .* are numbered, so leave out --id-column n"):
        load(table(tmp_path, "reviews.parquet", LABELLED), example_id="n")


def test_a_file_of_json_is_a_task_and_a_table_that_tasks_json_lists_is_one_of_bigbench_lite(tmp_path):
    table(tmp_path, "colours.parquet", LITE)
    (tmp_path / "tasks.json").write_text(json.dumps({"tasks": {"colours": {}}}))
    loaded = load(task(tmp_path / "sky"), tmp_path / "colours.parquet")
    assert kinds(loaded) == {"sky": MultipleChoiceDataset, "colours": MultipleChoiceDataset}
    # A named column of inputs says that it is a table of the user's own; it still has choices.
    with pytest.raises(DatasetError, match="no column 'gold'"):
        load(tmp_path / "colours.parquet", inputs=("input",))


def test_a_folder_gives_its_tasks_or_else_its_tables_without_those_of_training_rows(tmp_path):
    for name in ("reviews", "reviews_train", "lone_train"):
        table(tmp_path, f"{name}.parquet", LABELLED)
    table(tmp_path, "sums.parquet", CHOICES)
    loaded = load(tmp_path)
    assert list(loaded) == ["lone_train", "reviews", "sums"]
    assert loaded["reviews"].demonstration.height == 4
    task(tmp_path / "sky")
    assert list(load(tmp_path)) == ["sky"]


def test_a_folder_with_a_table_in_several_files_is_refused(tmp_path):
    table(tmp_path, "test-00000-of-00001.parquet", LABELLED)
    assert list(load(tmp_path)) == ["test-00000-of-00001"]
    first, _ = (table(tmp_path, f"train-0000{n}-of-00002.parquet", LABELLED) for n in range(2))
    with pytest.raises(
        DatasetError, match=f"{re.escape(str(first))} holds a part of a table, and every file in a folder is a dataset"
    ):
        load(tmp_path)


def test_training_rows_of_multiple_choice_are_a_table_like_any_other(tmp_path):
    for name in ("sums", "sums_train"):
        table(tmp_path, f"{name}.parquet", CHOICES)
    assert list(load(tmp_path)) == ["sums", "sums_train"]


def test_a_folder_of_published_tables_gives_those_that_are_named_or_else_the_papers(tmp_path):
    folder = write_folder(tmp_path)
    table(folder, "snli_dev.parquet", pl.read_parquet(folder / "snli_test.parquet").to_dict())
    table(folder, "mine.parquet", LABELLED)
    assert list(load(folder)) == ["cola", "snli"]
    assert list(load(folder, named=["snli_dev"])) == ["snli_dev"]
    assert list(load(folder, folder / "mine.parquet", named=["trec", "cola"])) == ["trec", "cola", "mine"]


def test_a_file_called_after_a_published_table_is_that_one_unless_it_has_choices(tmp_path):
    folder = write_folder(tmp_path)
    assert load(folder / "snli_test.parquet")["snli"].text_fields == ("sentence1", "sentence2")
    assert kinds(load(table(tmp_path / "mine", "snli_test.parquet", CHOICES))) == {"snli_test": MultipleChoiceDataset}


def test_a_named_dataset_is_looked_for_in_every_path_and_a_user_s_folder_without_it_is_no_error(tmp_path):
    folder, empty = tmp_path / "tables", tmp_path / "empty"
    folder.mkdir()
    empty.mkdir()
    write_folder(folder)
    assert list(load(empty, folder, named=["cola"])) == ["cola"]
    with pytest.raises(DatasetError) as refused:
        load(empty, named=["rte", "causal_language"])
    assert str(refused.value) == (
        "None of the paths in --data holds rte_dev.parquet (premise, hypothesis, label); causal_language.parquet "
        "(sentence, label). Name the folder that does, or have rte downloaded with --data hub."
    )


def test_nothing_is_loaded_before_all_sources_are_known_to_differ(tmp_path):
    reviews = table(tmp_path, "trec.parquet", {"unreadable": [1]})
    with pytest.raises(DatasetError) as refused:
        load(reviews, named=["trec"])
    assert str(refused.value) == (
        f"Two datasets are called 'trec', one from StaICC and one from {reviews}. "
        "Name it once, or give its file another name."
    )
    with pytest.raises(
        DatasetError, match=r"called 'snli', one from .*a/snli_test.* and one from .*b/snli_test\.parquet"
    ):
        load(*(table(tmp_path / name, "snli_test.parquet", {"any": [1]}) for name in "ab"))


def test_the_hub_is_used_only_for_datasets_in_no_path_and_only_on_loading(tmp_path):
    data = DataOptions(paths=(write_folder(tmp_path),), hub=True)
    sources = dataset_sources(["rte", "cola", "sst5"], data)
    assert [(source.name, source.origin) for source in sources] == [
        ("sst5", "StaICC"),
        ("cola", str(tmp_path / "cola_in_domain_dev.parquet")),
        ("rte", "the hub"),
    ]


def test_an_unknown_name_is_refused_with_those_there_are(tmp_path):
    with pytest.raises(
        ConfigError,
        match=r"There is no dataset 'sst6'\. Did you mean 'sst5' or 'glue_sst2'\? There are: glue_sst2, .*multinli",
    ):
        load(named=["sst6"])
    # A folder of tables has no choice among them by name.
    with pytest.raises(ConfigError, match=r"There is no dataset 'own'; a table of --data is chosen by its file, "):
        dataset_sources(["own"], DataOptions(paths=(tmp_path,)))


def test_every_name_says_where_it_comes_from_and_what_it_needs():
    assert list(DATASETS) == [*INSTALLED, *PUBLISHED_TABLES]
    on_github = {"health_advice", "health_advice_unstructured", "health_advice_discussion", "causal_language"}
    needs = {name: DATASETS[name].partition("; needs ")[2] for name in DATASETS}
    assert {name for name in needs if needs[name] == "a table in --data"} == on_github
    assert {name for name in needs if "hub" in needs[name]} == PUBLISHED_TABLES.keys() - on_github
    assert {name for name in needs if not needs[name]} == {*INSTALLED}


def test_options_about_tables_are_refused_where_there_is_no_table_of_the_users_own(tmp_path):
    with pytest.raises(ConfigError, match=r"--gold-column is for .* and no --data is given\. Add --data FILE"):
        dataset_sources(("sst5",), DataOptions(columns=TableColumns(gold="label")))
    path = table(tmp_path, "snli_test.parquet", {"premise": ["a"], "hypothesis": ["b"], "label": [0]})
    with pytest.raises(ConfigError, match=r"--input-column, --labels is for .* \(published: snli\)"):
        dataset_sources((), DataOptions(paths=(path,), columns=TableColumns(inputs=("premise",)), labels={"0": "yes"}))
    with pytest.raises(ConfigError, match=r"task\.json is a BIG-bench task, and --template is for tables"):
        dataset_sources((), DataOptions(paths=(task(tmp_path / "one"),), template=tmp_path / "t.toml"))
    (rows := tmp_path / "rows.json").write_text('[{"text": "a", "label": "b"}]')
    with pytest.raises(DatasetError, match=r"write it as JSON lines: an object for each row, .* ends in \.jsonl"):
        dataset_sources((), DataOptions(paths=(rows,), columns=TableColumns(gold="label")))
    # With a table, they are for that one.
    own = table(tmp_path, "reviews.parquet", LABELLED)
    assert len(dataset_sources(("sst5",), DataOptions(paths=(own,), instruction="Judge."))) == 2


def test_no_dataset_has_the_name_of_the_mean_over_datasets(tmp_path):
    with pytest.raises(DatasetError, match=r"mean\.parquet: a dataset cannot be called 'mean'"):
        load(table(tmp_path, "mean.parquet", LABELLED))


def test_training_rows_of_a_compressed_table_with_questions_are_those_of_its_name(tmp_path):
    rows = "text,refund\nAm I charged twice?,yes\nIt crashes.,no\n"
    for name in ("tickets.csv.gz", "tickets_train.csv.gz"):
        (tmp_path / name).write_bytes(gzip.compress(rows.encode()))
    questions = tmp_path / "questions.toml"
    questions.write_text('[refund]\ntype = "yes-no"\ninstructions = "A refund?"\ngold = "refund"\n')
    (dataset,) = load_datasets((), DataOptions(paths=(tmp_path / "tickets.csv.gz",), questions=questions))
    assert dataset.examples["gold"].to_list() == dataset.demonstrations["gold"].to_list() == [1, 0]
