import polars as pl
import pytest

from evaluator.config import DataOptions, TableColumns
from evaluator.datasets.sources import load_datasets
from evaluator.errors import DatasetError
from tests.shared_data import shared_data
from tests.suites.in_context_pvi.pvi_folder import write_folder, write_prompts


@pytest.fixture
def folder(tmp_path):
    return write_folder(tmp_path)


def load(*paths, named=(), columns=None, query_every_row=False):
    data = DataOptions(paths=paths, columns=columns or TableColumns())
    return {dataset.name: dataset for dataset in load_datasets(named, data, query_every_row=query_every_row)}


def table(folder, name="reviews.csv", **columns):
    path = folder / name
    frame = pl.DataFrame(columns)
    frame.write_csv(path) if path.suffix == ".csv" else frame.write_parquet(path)
    return path


def test_a_folder_gives_the_published_datasets_that_it_holds(folder):
    assert list(load(folder)) == ["cola", "snli"]
    assert list(load(folder, named=["snli"])) == ["snli"]


def test_a_named_dataset_that_no_path_holds_is_refused_with_the_file_it_is_read_from(folder):
    with pytest.raises(DatasetError, match=r"holds rte_dev\.parquet \(premise, hypothesis, label\)"):
        load(folder, named=["snli", "rte"])


def test_paths_that_hold_nothing_are_refused(tmp_path):
    with pytest.raises(DatasetError, match="gone does not exist"):
        load(tmp_path / "gone")
    with pytest.raises(DatasetError, match=r"holds no task\.json and no table"):
        load(tmp_path)
    write_prompts(tmp_path)
    with pytest.raises(DatasetError, match=r"holds none of the tables boolq_dev\.parquet"):
        load(tmp_path)


def test_training_rows_are_demonstrations_and_all_others_are_queries(folder):
    cola = load(folder)["cola"]
    assert cola.demonstration["texts"].list.first().to_list() == [f"Shown sentence {n}." for n in range(12)]
    assert cola.test["texts"].list.first().to_list() == [f"Asked sentence {n}." for n in range(9)]
    assert cola.test["gold"].to_list() == [0, 1, 0, 1, 0, 1, 0, 1, 0]
    assert cola.notes == ()


def test_without_training_rows_some_of_each_label_are_set_aside_and_the_record_says_so(folder):
    snli = load(folder)["snli"]
    # A tenth of ten rows a label is one; at least eight are taken, but never more than half: five.
    assert snli.demonstration["gold"].value_counts().sort("gold").rows() == [(0, 5), (1, 5), (2, 5)]
    shown, asked = snli.demonstration["source_row"].to_list(), snli.test["source_row"].to_list()
    assert sorted([*shown, *asked]) == list(range(30))
    assert (sorted(shown), sorted(asked)) == (shown, asked)
    assert snli.notes == (
        "no training rows: 15 of 30 rows, drawn by label with seed 42, are kept as demonstrations and are no queries",
    )


def test_with_published_demonstrations_every_row_is_a_query(folder):
    snli = load(folder, query_every_row=True)["snli"]
    assert snli.demonstration.is_empty()
    assert snli.test["source_row"].to_list() == list(range(30))


def test_a_large_table_sets_a_tenth_of_each_label_aside(tmp_path):
    path = table(tmp_path, text=[f"text {n}" for n in range(300)], label=["a", "a", "b"] * 100)
    (reviews,) = load(path).values()
    assert reviews.demonstration["gold"].value_counts().sort("gold").rows() == [(0, 20), (1, 10)]


def test_prompts_of_a_users_table_show_its_columns_and_labels(tmp_path):
    columns = TableColumns(inputs=("title", "body"), gold="mood")
    labels = ["good", "Bad"] * 2
    path = table(tmp_path, title=[f"T{n}" for n in range(4)], body=[f"B{n}" for n in range(4)], mood=labels)
    (reviews,) = load(path, columns=columns).values()
    assert reviews.name == "reviews"
    assert reviews.verbalizer.label_names == ("Bad", "good")
    query = reviews.test.select(text=reviews.template.query(pl.col("texts")))["text"]
    row = reviews.test["source_row"][0]
    assert query[0] == f"title: T{row}\nbody: B{row}\nmood: "


def test_labels_that_are_whole_numbers_are_sorted_by_size(tmp_path):
    path = table(tmp_path, name="stars.parquet", text=[f"t{n}" for n in range(22)], label=[*range(1, 12)] * 2)
    (stars,) = load(path).values()
    assert stars.verbalizer.label_names == tuple(map(str, range(1, 12)))


def test_a_users_table_takes_training_rows_from_the_table_next_to_it(tmp_path):
    path = table(tmp_path, text=["x", "y"], label=["a", "b"])
    table(tmp_path, name="reviews_train.csv", text=["v", "w"], label=["b", "a"])
    (reviews,) = load(path).values()
    assert reviews.demonstration.select(pl.col("texts").list.first(), "gold").rows() == [("v", 1), ("w", 0)]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"text": ["a", "b"], "label": ["x", "x"]}, "all 2 rows have the same label"),
        ({"text": ["a", "b", "c"], "label": ["x", "x", "y"]}, "only one row has the label 'y', row 2"),
        ({"text": ["a", " "], "label": ["x", "y"]}, r"row 1 \(from 0\): text is missing or empty, as in 1 of 2 rows"),
        ({"text": ["a", None], "label": ["x", "y"]}, r"row 1 \(from 0\): text is missing or empty"),
        ({"text": ["a", "b"], "label": ["x", None]}, r"row 1 \(from 0\): the label in label is missing or blank"),
        ({"text": ["a", "b"], "gold": ["x", "y"]}, "has no column 'label'.*--gold-column"),
        ({"sentence": ["a", "b"], "label": ["x", "y"]}, "has no column 'text'.*--input-column"),
        ({"text": [], "label": []}, "holds no rows"),
    ],
)
def test_a_table_without_usable_rows_is_refused_with_file_and_row(tmp_path, columns, message):
    path = table(tmp_path, name="reviews.parquet", **columns)
    with pytest.raises(DatasetError, match=rf"reviews\.parquet.*{message}"):
        load(path)


def test_a_known_file_with_other_columns_or_labels_is_refused(folder):
    snli = pl.read_parquet(folder / "snli_test.parquet")
    snli.rename({"gold_label": "label"}).write_parquet(folder / "snli_test.parquet")
    with pytest.raises(
        DatasetError, match=r"no column 'gold_label'.*snli_test\.parquet \(sentence1, sentence2, gold_label\)"
    ):
        load(folder)
    snli.with_columns(gold_label=pl.lit("-")).write_parquet(folder / "snli_test.parquet")
    with pytest.raises(DatasetError, match=r"row 0 .*none of contradiction, entailment, neutral, as in 30 of 30 rows"):
        load(folder)


def test_the_fingerprint_changes_with_the_rows_and_with_the_queries(folder):
    before = load(folder)["snli"].fingerprint
    assert load(folder, query_every_row=True)["snli"].fingerprint != before
    rows = pl.read_parquet(folder / "snli_test.parquet")
    rows.with_columns(sentence1=pl.lit("Other.")).write_parquet(folder / "snli_test.parquet")
    assert load(folder)["snli"].fingerprint != before


def test_the_published_tables_have_the_rows_and_labels_their_readme_counts():
    data = shared_data("pvi")
    datasets = load(data, query_every_row=True)
    heights = {name: dataset.test.height for name, dataset in datasets.items()}
    assert heights == {
        "boolq": 3270,
        "cola": 527,
        "multinli": 9815,
        "rte": 277,
        "snli": 9824,
        "health_advice": 5982,
        "causal_language": 3061,
    }
    # Counts of shared/data/README.md in the order of the prompts' questions: BoolQ's "(0) True" first; for Causal
    # Language "(1) correlation, (3) direct causation", which the corpus counts as 998 of 3 and 494 of 1.
    counts = {name: d.test["gold"].value_counts().sort("gold")["count"].to_list() for name, d in datasets.items()}
    assert counts["boolq"] == [2033, 1237]
    assert counts["causal_language"] == [1356, 998, 213, 494]
    assert counts["health_advice"] == [3575, 1482, 925]
    assert counts["snli"] == [3237, 3368, 3219]
    assert datasets["cola"].demonstration.height == 8551


def test_demonstrations_of_causal_language_have_in_the_table_the_labels_they_are_published_with():
    """Compare the published texts in the corpus: 28 occurrences in the six sets, nested ones counted twice."""
    data = shared_data("pvi")
    causal = load(data, named=["causal_language"], query_every_row=True)["causal_language"]
    gold = dict(causal.test.select(pl.col("texts").list.first(), "gold").rows())
    texts = pl.read_parquet(data / "prompts.parquet").filter(dataset="pubmed", kind="g_prime")["text"]
    shown = [
        (block.removeprefix("CONTEXT: ").split("\nQUESTION")[0], int(block[-1]))
        for text in texts
        for block in text.strip().split("\n\n")
    ]
    found = [(gold[sentence], label) for sentence, label in shown if sentence in gold]
    assert len(found) == 28
    assert all(own == label for own, label in found)
