"""Tables of text as spreadsheets and other programs write them: separators, line ends, quotes, blank rows."""

import csv
import gzip
import io

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.config import DataOptions, TableColumns
from evaluator.datasets.sources import load_datasets
from evaluator.datasets.tables import read_columns, read_rows
from evaluator.errors import DatasetError

ROWS = [(f"text {n}, with more", "yes" if n % 2 else "no") for n in range(20)]


def written(rows, separator=",", line_end="\n", **options):
    file = io.StringIO(newline="")
    csv.writer(file, delimiter=separator, lineterminator=line_end, **options).writerows(rows)
    return file.getvalue()


def examples(path, **options):
    (dataset,) = load_datasets((), DataOptions(paths=(path,), **options))
    return dataset, pl.concat([dataset.demonstration, dataset.test]).sort("source_row")


CELLS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=8)


@given(
    cells=st.lists(st.tuples(CELLS, CELLS.filter(str.strip)), min_size=1, max_size=8),
    separator=st.sampled_from(",;\t|"),
    line_end=st.sampled_from(["\n", "\r\n", "\r"]),
    mark=st.sampled_from(["", "\ufeff"]),
)
def test_cells_are_those_that_the_csv_module_wrote(tmp_path_factory, cells, separator, line_end, mark):
    path = tmp_path_factory.mktemp("cells") / "T.CSV"
    # Every cell is quoted, and names are two, so that the separator is not open to doubt.
    path.write_bytes((mark + written([("a", "b"), *cells], separator, line_end, quoting=csv.QUOTE_ALL)).encode())
    assert [row for _, row in read_rows(path, ["a", "b"], "")] == [(first or None, second) for first, second in cells]


@pytest.mark.parametrize("name", ["t.csv", "T.CSV", "t.tsv", "t.csv.gz", "t.csv.zst", "t.Csv.GZ"])
@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_a_separator_and_a_compression_are_found_and_the_name_is_that_of_the_table(tmp_path, name, separator):
    content = written([("text", "label"), *ROWS], separator).encode()
    if "gz" in name.lower():
        content = gzip.compress(content)
    if "zst" in name:
        content = pa.Codec("zstd").compress(content, asbytes=True)
    (tmp_path / name).write_bytes(content)
    dataset, rows = examples(tmp_path / name)
    assert dataset.name == name[0]
    assert rows["texts"].to_list() == [[text] for text, _ in ROWS]


def test_a_compressed_file_is_read_whatever_it_is_called(tmp_path):
    (tmp_path / "t.csv").write_bytes(gzip.compress(written([("text", "label"), *ROWS]).encode()))
    assert examples(tmp_path / "t.csv")[1].height == 20
    (tmp_path / "t.csv").write_bytes(b"\x1f\x8b and no more")
    with pytest.raises(DatasetError, match=r"t\.csv cannot be read as a CSV file"):
        examples(tmp_path / "t.csv")


def test_a_folder_has_its_tables_by_any_ending(tmp_path):
    for name in ("a.TSV", "b.csv.gz", "b_train.CSV"):
        content = written([("text", "label"), *ROWS], "\t").encode()
        (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    datasets = {dataset.name: dataset for dataset in load_datasets((), DataOptions(paths=(tmp_path,)))}
    assert {*datasets} == {"a", "b"}
    assert datasets["b"].demonstration.height == datasets["b"].test.height == 20


def test_a_line_for_excel_names_the_separator(tmp_path):
    (tmp_path / "t.csv").write_text("sep=#\r\n" + written([("text", "label"), *ROWS], "#"))
    assert examples(tmp_path / "t.csv")[1].height == 20


def test_a_space_after_each_separator_is_no_part_of_a_cell(tmp_path):
    (tmp_path / "t.csv").write_text("text, label\n" + "".join(f'"row, {n}", "{n % 2}"\n' for n in range(8)))
    dataset, rows = examples(tmp_path / "t.csv")
    assert dataset.verbalizer.label_names == ("0", "1")
    assert rows["texts"].to_list()[0] == ["row, 0"]


def test_blank_rows_are_skipped_with_a_note_and_count_as_rows(tmp_path):
    lines = written([("text", "label"), *ROWS]).splitlines()
    (tmp_path / "t.csv").write_text("\n".join(["", lines[0], "", *lines[1:], ",", " , ", ""]))
    dataset, rows = examples(tmp_path / "t.csv")
    assert dataset.notes[0] == "blank rows of t.csv that are skipped: 3"
    assert rows["source_row"].to_list() == [*range(1, 21)]
    lines[5] = "a text without a label,"
    (tmp_path / "t.csv").write_text("\n\n".join(lines))
    with pytest.raises(DatasetError, match=r"row 9 \(from 0\): the label in label is missing"):  # 5 lines, 5 blank ones
        examples(tmp_path / "t.csv")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ('"Great" he said,yes', r"row 3 \(from 0\): a cell begins with a quote \(\"\) that ends before its cell does"),
        ('"broken,yes', r'row 3 \(from 0\): a cell begins with a quote \("\) that has no end'),
        (r'"he said \"go\" twice",yes', r"row 3 \(from 0\): .* write a quote within it as \"\", and not \\\""),
        ("one, two,yes", r"row 3 \(from 0\) has 3 cells, and the table 2 columns, separated by commas"),
        ("'one, two',yes", r"row 3 \(from 0\) has 3 cells, .* in double quotes"),
        ("only a text", r"row 3 \(from 0\): the label in label is missing"),
    ],
)
def test_a_row_that_does_not_fit_is_named_with_what_to_do(tmp_path, row, message):
    lines = written([("text", "label"), *ROWS]).replace(", with more", "").replace('"', "").splitlines()
    (tmp_path / "t.csv").write_text("\n".join([*lines[:4], row, *lines[4:]]))
    with pytest.raises(DatasetError, match=rf"t\.csv, {message}"):
        examples(tmp_path / "t.csv")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf_16_is_called_so(tmp_path, encoding):
    (tmp_path / "t.csv").write_text(written([("text", "label"), *ROWS]), encoding=encoding)
    with pytest.raises(DatasetError, match="is in UTF-16, and UTF-8 is read"):
        examples(tmp_path / "t.csv")


@pytest.mark.parametrize(
    "rows", [ROWS, [(n, n % 2) for n in range(20)], [("long " * 20 + str(n), n) for n in range(20)]]
)
def test_a_table_without_names_of_columns_is_called_so(tmp_path, rows):
    (tmp_path / "t.csv").write_text(written(rows))
    with pytest.raises(DatasetError, match=r"has no column .* Its first row looks like data"):
        examples(tmp_path / "t.csv")


def test_a_table_with_other_names_is_not_taken_for_one_without(tmp_path):
    (tmp_path / "t.csv").write_text(written([("body", "stars"), *ROWS]))
    with pytest.raises(DatasetError, match=r"has no column 'label'\. It has: body, stars\. Say which"):
        examples(tmp_path / "t.csv")


def test_a_cell_may_be_longer_than_the_csv_module_takes_by_default(tmp_path):
    text = "word " * 40_000
    (tmp_path / "t.csv").write_text(written([("text", "label"), (text, "a")]))
    assert read_columns(tmp_path / "t.csv", ["text"])["text"].to_list() == [text]


NAMES = {b"huggingface": b'{"info": {"features": {"label": {"names": ["bad", "good"], "_type": "ClassLabel"}}}}'}


def hub_table(labels):
    texts = [f"text {n}" for n in range(len(labels))]
    return pa.table({"text": texts, "label": labels}).replace_schema_metadata(NAMES)


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_classes_have_the_names_in_the_features_of_the_file(tmp_path, suffix):
    path, table = tmp_path / f"t.{suffix}", hub_table([n % 2 for n in range(10)])
    if suffix == "parquet":
        pq.write_table(table, path)
    else:
        with pa.ipc.new_stream(path, table.schema) as stream:
            stream.write_table(table)
    dataset, rows = examples(path)
    assert dataset.verbalizer.label_names == ("bad", "good")
    assert rows["gold"].to_list() == [n % 2 for n in range(10)]
    assert examples(path, labels={"0": "no", "1": "yes"})[0].verbalizer.label_names == ("no", "yes")
    pq.write_table(hub_table([0, 1, -1, *[0, 1] * 9]), tmp_path / "u.parquet")
    with pytest.raises(DatasetError, match=r"row 2 \(from 0\): the label in label is '-1', .* -1 stands for no label"):
        examples(tmp_path / "u.parquet")


@pytest.mark.parametrize(
    ("cells", "names"),
    [
        (pa.array([0, 1] * 10, pa.int64()), ("0", "1")),
        (pa.array([0.0, 1.0] * 10), ("0", "1")),  # whole numbers beside a missing one, in pandas
        (pa.array([0.5, 1.0] * 10), ("0.5", "1")),
        (pa.array([True, False] * 10), ("false", "true")),
        (pa.array(["a", "b"] * 10).dictionary_encode(), ("a", "b")),
    ],
)
def test_cells_of_any_type_have_the_text_of_their_value(tmp_path, cells, names):
    texts = [f"text {n}" for n in range(20)]
    pq.write_table(pa.table({"text": texts, "label": cells}), tmp_path / "t.parquet")
    assert examples(tmp_path / "t.parquet")[0].verbalizer.label_names == names


@pytest.mark.parametrize("missing", [None, float("nan")])
def test_a_missing_number_is_named_with_its_row(tmp_path, missing):
    table = pa.table({"text": [f"text {n}" for n in range(21)], "label": [*[0.0, 1.0] * 10, missing]})
    pq.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(DatasetError, match=r"row 20 \(from 0\): the label in label is missing"):
        examples(tmp_path / "t.parquet")


@pytest.mark.parametrize("stated", [{"0": "no", "1": "yes"}, {"0.0": "no", "1.0": "yes"}])
def test_a_number_may_be_written_in_two_ways(tmp_path, stated):
    (tmp_path / "t.csv").write_text(written([("text", "label"), *((f"text {n}", f"{n % 2}.0") for n in range(20))]))
    assert examples(tmp_path / "t.csv", labels=stated)[1]["gold"].to_list() == [0, 1] * 10
    lines = "".join(f'{{"text": "text {n}", "label": {["0", "1", "1.0"][n % 3]}}}\n' for n in range(30))
    (tmp_path / "t.jsonl").write_text(lines)
    assert examples(tmp_path / "t.jsonl", labels=stated)[1]["gold"].to_list() == [0, 1, 1] * 10


def test_one_number_written_in_two_ways_is_one_label_and_a_code_is_another(tmp_path):
    def labels(*cells, **options):
        rows = [("text", "label"), *((f"text {n}", cells[n % len(cells)]) for n in range(24))]
        (tmp_path / "t.csv").write_text(written(rows))
        return examples(tmp_path / "t.csv", **options)[0].verbalizer.label_names

    assert labels("1", "1.0", "2", "2.00") == ("1", "2")
    assert labels("01", "1", "1.0") == ("01", "1")
    with pytest.raises(DatasetError, match="is '01', none of 1, 2"):
        labels("1", "01", "2", labels={"1": "low", "2": "high"})
    with pytest.raises(DatasetError, match="is '9007199254740993', none of"):  # equal in 64 bits
        labels("9007199254740992", "9007199254740993", labels={"9007199254740992": "a", "1": "b"})


def test_a_number_of_32_bits_has_its_shortest_text(tmp_path):
    column = pa.array([1.1, 2.5, 3.0] * 8, pa.float32())
    pq.write_table(pa.table({"text": [f"text {n}" for n in range(24)], "label": column}), tmp_path / "t.parquet")
    assert examples(tmp_path / "t.parquet")[0].verbalizer.label_names == ("1.1", "2.5", "3")


def test_of_very_many_columns_a_message_has_the_first_and_no_blank_one(tmp_path):
    names = ["", *(f"c{n}" for n in range(10_000))]
    (tmp_path / "t.csv").write_text(written([names, names]))
    with pytest.raises(DatasetError) as refused:
        examples(tmp_path / "t.csv")
    assert "has no column 'label'. It has: c0, c1, c2," in str(refused.value)
    assert ", c99 and 9,900 more. " in str(refused.value)


def test_a_binary_column_is_called_so(tmp_path):
    pq.write_table(pa.table({"text": ["a", "b"], "label": [b"x", b"y"]}), tmp_path / "t.parquet")
    with pytest.raises(DatasetError, match=r"row 0 \(from 0\), column label: the column is binary, as in b'x'"):
        examples(tmp_path / "t.parquet")


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["no", "yes"] * 11 + ["No"], r"only one row has the label 'No', row 22 .* Did you mean 'no' \(11 rows\)"),
        (["no", "yes"] * 11 + ["yes\u00a0"], r"the label 'yes\\xa0', row 22 .* Did you mean 'yes' \(11 rows\)"),
        (["0", "1"] * 11 + ["-1"], r"only one row has the label '-1', row 22 .* -1 stands for no label"),
        ([str(n) for n in range(23)], r"There are 23 different labels in 23 rows. Is it the column of the label\?"),
        ([str(n // 1.3) for n in range(23)], r"only one row has .* different labels in 23 rows. Is it the column"),
    ],
)
def test_a_label_of_a_single_row_is_named_with_what_may_be_meant(tmp_path, labels, message):
    rows = [(f"text {n}", label) for n, label in enumerate(labels)]
    (tmp_path / "t.csv").write_text(written([("text", "label"), *rows]))
    with pytest.raises(DatasetError, match=message):
        examples(tmp_path / "t.csv", columns=TableColumns())


def test_a_compressed_file_that_stands_for_very_many_bytes_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("evaluator.datasets.tables.MAX_UNCOMPRESSED", 2**20)
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(b"text,label\n" + b"a" * 2**21))
    with pytest.raises(DatasetError, match="decompress it first"):
        examples(tmp_path / "t.csv.gz")
