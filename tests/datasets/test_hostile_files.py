"""Whatever stands in a user's files, a dataset comes out that has every row, or one sentence that names the file."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluator.config import DataOptions, TableColumns
from evaluator.datasets.sources import load_datasets
from evaluator.errors import DatasetError, EvaluatorError
from evaluator.suites.prompt_search.prompts import read_candidates
from evaluator.templates.template import ChoiceTemplate
from tests.datasets.sheets import sheet

ODD_TEXTS = ["", " ", "\ud800", "a\udfffb", "x\u2028y", "\x00", "nan", "null", "[" * 2_000, "0", "\u0660", "9" * 5_000]
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(10**41), 10**41)
    | st.floats()
    | st.text(max_size=6)
    | st.sampled_from(ODD_TEXTS)
)
CELLS = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=5,
)
LABELLED = [{"text": f"text {number}", "label": ["no", "yes"][number % 2]} for number in range(8)]
CHOICES = [{"input": f"which {number}?", "choices": ["a", "b"], "gold": number % 2} for number in range(4)]
TASK = {"examples": [{"input": f"q{number}", "target_scores": {"a": 1, "b": 0}} for number in range(4)]}


def said_or_loaded(path: Path, columns: TableColumns | None = None) -> str | list[Any]:
    """The datasets of a file, or what is said against it."""
    try:
        return list(load_datasets((), DataOptions(paths=(path,), columns=columns or TableColumns())))
    except EvaluatorError as error:
        return str(error)


def require_named_or_whole(path: Path, n_rows: int, columns: TableColumns | None = None) -> None:
    result = said_or_loaded(path, columns)
    if isinstance(result, str):
        assert str(path) in result
        result.encode()  # it can be printed
        return
    for dataset in result:
        frames = [dataset.examples] if hasattr(dataset, "examples") else [dataset.test, dataset.demonstration]
        assert sum(frame.height for frame in frames) == n_rows


def lines(folder: Path, rows: Sequence[object]) -> Path:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@given(cells=st.fixed_dictionaries({}, optional={"text": CELLS, "label": CELLS}), place=st.integers(0, 7))
def test_any_cell_of_a_labelled_table_is_a_row_or_one_sentence(tmp_path_factory, cells, place):
    rows = [row | cells if number == place else row for number, row in enumerate(LABELLED)]
    require_named_or_whole(lines(tmp_path_factory.mktemp("rows"), rows), len(rows))


@given(
    cells=st.fixed_dictionaries({}, optional={"input": CELLS, "choices": CELLS, "gold": CELLS, "id": CELLS}),
    place=st.integers(0, 3),
)
def test_any_cell_of_a_table_of_choices_is_a_row_or_one_sentence(tmp_path_factory, cells, place):
    rows = [{"id": number} | row | (cells if number == place else {}) for number, row in enumerate(CHOICES)]
    columns = TableColumns(example_id="id")
    require_named_or_whole(lines(tmp_path_factory.mktemp("rows"), rows), len(rows), columns)


@given(
    changes=st.fixed_dictionaries({}, optional={"input": CELLS, "target_scores": CELLS}),
    header=st.fixed_dictionaries({}, optional={"example_input_prefix": CELLS, "append_choices_to_input": CELLS}),
)
def test_any_value_in_a_task_is_an_example_or_one_sentence(tmp_path_factory, changes, header):
    path = tmp_path_factory.mktemp("task") / "task.json"
    first, *others = TASK["examples"]
    path.write_text(json.dumps(TASK | header | {"examples": [first | changes, *others]}))
    require_named_or_whole(path, 4)


@settings(max_examples=6)  # a sheet is read in a process of its own
@given(content=st.binary(max_size=80))
@pytest.mark.parametrize("name", ["rows.csv", "rows.jsonl", "rows.xlsx", "rows.parquet", "task.json"])
def test_any_bytes_are_one_sentence_or_a_dataset(tmp_path_factory, name, content):
    path = tmp_path_factory.mktemp("bytes") / name
    path.write_bytes(content)
    result = said_or_loaded(path)
    assert not isinstance(result, str) or str(path) in result


@settings(max_examples=60)
@given(data=st.data())
def test_a_damaged_parquet_file_is_one_sentence_or_read_whole(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("parquet") / "rows.parquet"
    pl.DataFrame(LABELLED).write_parquet(path)
    content = bytearray(path.read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(content[: data.draw(st.integers(0, len(content)) | st.just(len(content)))])
    require_named_or_whole(path, len(LABELLED))


@settings(max_examples=6)  # a sheet is read in a process of its own
@given(data=st.data())
def test_a_damaged_sheet_is_one_sentence_or_a_dataset(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("sheet") / "rows.xlsx"
    content = bytearray(sheet([["text", "label"], *((row["text"], row["label"]) for row in LABELLED)]))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(content)
    result = said_or_loaded(path)
    assert not isinstance(result, str) or str(path) in result


@given(content=st.dictionaries(st.sampled_from(["instructions", "templates"]), CELLS | st.lists(CELLS, max_size=2)))
def test_any_file_of_candidates_is_read_or_one_sentence(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("candidates") / "candidates.json"
    path.write_text(json.dumps(content))
    try:
        assert set(read_candidates(path, ChoiceTemplate())) <= {"instructions", "templates"}
    except EvaluatorError as error:
        said = str(error)
        assert str(path) in said


def test_a_text_may_hold_a_line_separator_that_is_no_newline(tmp_path):
    path = tmp_path / "rows.jsonl"
    rows = [row | {"text": f"{row['text']}\u2028on"} for row in LABELLED]
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    (dataset,) = load_datasets((), DataOptions(paths=(path,)))
    texts = pl.concat([dataset.test, dataset.demonstration])["texts"].list.first()
    assert texts.str.ends_with("\u2028on").all()


@pytest.mark.parametrize("cell", [{"a": 1}, ["a"], 10**40, float("nan"), float("inf")])
@pytest.mark.parametrize("column", ["text", "label"])
def test_a_cell_that_is_neither_text_nor_number_is_named_with_its_row_and_column(tmp_path, column, cell):
    rows = [*LABELLED[:2], LABELLED[2] | {column: cell}, *LABELLED[3:]]
    with pytest.raises(DatasetError, match=rf"rows\.jsonl, row 2 \(from 0\), column {column}: a text or a number"):
        list(load_datasets((), DataOptions(paths=(lines(tmp_path, rows),))))


@pytest.mark.parametrize("label", [None, "", "  "])
def test_a_row_without_a_label_is_refused(tmp_path, label):
    rows = [LABELLED[0] | {"label": label}, *LABELLED[1:]]
    with pytest.raises(DatasetError, match=r"row 0 \(from 0\): the label in label is missing or blank"):
        list(load_datasets((), DataOptions(paths=(lines(tmp_path, rows),))))


def test_a_key_that_a_line_repeats_is_refused(tmp_path):
    path = lines(tmp_path, LABELLED)
    path.write_text(path.read_text() + '{"text": "a", "label": "no", "text": "b"}\n')
    with pytest.raises(DatasetError, match=r"row 8 \(from 0\): .*the key 'text' occurs twice"):
        list(load_datasets((), DataOptions(paths=(path,))))


@pytest.mark.parametrize(
    "columns",
    [
        TableColumns(example_id="input"),
        TableColumns(example_id="gold"),
        TableColumns(choices="choices", gold="choices"),
        TableColumns(inputs=("choices",)),
    ],
)
def test_a_column_named_for_two_purposes_is_refused(tmp_path, columns):
    with pytest.raises(DatasetError, match=r"the column '\w+' is named for two purposes at once"):
        list(load_datasets((), DataOptions(paths=(lines(tmp_path, CHOICES),), columns=columns)))


@pytest.mark.parametrize("name", ["rows.csv", "rows.jsonl", "rows.parquet", "task.json"])
def test_a_pipe_is_refused_and_in_a_folder_left_out(tmp_path, name):
    os.mkfifo(tmp_path / name)
    with pytest.raises(DatasetError, match="is neither a file nor a folder"):
        list(load_datasets((), DataOptions(paths=(tmp_path / name,))))
    with pytest.raises(DatasetError, match=r"holds no task\.json and no table"):
        list(load_datasets((), DataOptions(paths=(tmp_path,))))


@pytest.mark.parametrize("cell", ["XFD1048576", "A1048576", "XFD3"])
@pytest.mark.parametrize("quote", ['"', "'"])
def test_a_sheet_with_a_far_cell_is_one_sentence_or_read(tmp_path, cell, quote):
    path = tmp_path / "rows.xlsx"
    rows = [["text", "label"], *((row["text"], row["label"]) for row in LABELLED)]
    path.write_bytes(
        sheet(rows, more=f"<row r={quote}{cell.lstrip('ABCDFX')}{quote}><c r={quote}{cell}{quote}><v>1</v></c></row>")
    )
    result = said_or_loaded(path)
    assert not isinstance(result, str) or str(path) in result
    if cell == "XFD1048576":
        assert (
            "cannot be read as an Excel file (it takes more than 4 GiB of memory). Save it again, or as CSV" in result
        )


def test_a_sheet_whose_reader_ends_the_process_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr("evaluator.datasets.tables._READ_SHEET", "import os; os.abort()")
    (tmp_path / "rows.xlsx").write_bytes(sheet([["text", "label"], ["a", "b"]]))
    assert "rows.xlsx cannot be read as an Excel file (it takes more than" in said_or_loaded(tmp_path / "rows.xlsx")
