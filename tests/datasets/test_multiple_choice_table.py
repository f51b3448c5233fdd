import json

import polars as pl
import pytest

from evaluator.config import DataOptions, TableColumns
from evaluator.datasets.sources import load_datasets
from evaluator.errors import DatasetError

COLUMNS = TableColumns(inputs=("question",), choices="options", gold="answer", example_id="id")
ROWS = [
    {"question": "2 + 2?", "options": ["three", "four"], "answer": "four", "id": "a"},
    {"question": "2 + 3?", "options": ["five", "six", "seven"], "answer": "five", "id": "b"},
]


def write(folder, suffix, rows=ROWS):
    path = folder / f"sums.{suffix}"
    if suffix == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif suffix == "parquet":
        pl.DataFrame(rows).write_parquet(path)
    else:
        cells = [row | {"options": json.dumps(row["options"])} for row in rows]
        pl.DataFrame(cells).write_csv(path)
    return path


def only(path, columns=COLUMNS):
    (dataset,) = load_datasets((), DataOptions(paths=(path,), columns=columns))
    return dataset


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_every_kind_of_file_gives_the_same_examples(tmp_path, suffix):
    dataset = only(write(tmp_path, suffix))
    assert dataset.name == "sums"
    assert dataset.examples["example_id"].to_list() == ["a", "b"]
    assert dataset.examples["choices"].to_list() == [["three", "four"], ["five", "six", "seven"]]
    assert dataset.examples["correct"].to_list() == [[1], [0]]


@pytest.mark.parametrize(("answers", "correct"), [([1, 0], [[1], [0]]), ([[0], [2, 0]], [[0], [0, 2]])])
def test_the_correct_choice_may_be_a_number_or_a_list(tmp_path, answers, correct):
    rows = [row | {"answer": answer} for row, answer in zip(ROWS, answers, strict=True)]
    assert only(write(tmp_path, "jsonl", rows)).examples["correct"].to_list() == correct


def test_whole_numbers_that_another_program_wrote_as_fractions_are_whole(tmp_path):
    rows = [row | {"answer": answer, "id": float(answer)} for row, answer in zip(ROWS, [1.0, 0.0], strict=True)]
    examples = only(write(tmp_path, "parquet", rows)).examples
    assert examples["correct"].to_list() == [[1], [0]]
    assert examples["example_id"].to_list() == ["1", "0"]
    for answer in (0.5, True):
        with pytest.raises(DatasetError, match="nor a whole number"):
            only(write(tmp_path, "parquet", [ROWS[0] | {"answer": answer}]))


def test_numbers_in_a_csv_are_numbers_of_choices(tmp_path):
    rows = [row | {"answer": answer} for row, answer in zip(ROWS, ["1", "[0, 2]"], strict=True)]
    assert only(write(tmp_path, "csv", rows)).examples["correct"].to_list() == [[1], [0, 2]]


def test_a_number_that_is_a_choice_and_another_ones_place_is_refused(tmp_path):
    rows = [{"question": "1 + 0?", "options": ["1", "2"], "answer": "1", "id": "a"}]
    with pytest.raises(DatasetError, match=r"csv, row 0 .*'1' is both a choice's text and another choice's number"):
        only(write(tmp_path, "csv", rows))
    # As a number it can only be a place.
    assert only(write(tmp_path, "jsonl", [rows[0] | {"answer": 1}])).examples["correct"].to_list() == [[1]]


def test_rows_are_numbered_where_no_id_column_is_named(tmp_path):
    columns = TableColumns(inputs=("question",), choices="options", gold="answer")
    assert only(write(tmp_path, "jsonl"), columns).examples["example_id"].to_list() == ["0", "1"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"options": "three, four"}, r"row 1 .*choices must be a list"),
        ({"options": ["three", 4]}, r"row 1 .*choices must be a list"),
        ({"options": None}, r"row 1 .*choices must be a list"),
        ({"answer": "nine"}, r"row 1 .*'nine' is neither one of"),
        ({"answer": 1.5}, r"row 1 .*1.5 is neither one of"),
        ({"answer": None}, r"row 1 .*no choice .*is correct"),
        ({"answer": -1}, r"row 1 .*number -1"),
        ({"id": "a"}, r"row 1 .*'a' is used in row 0"),
        ({"id": None}, r"row 1 .*has no id"),
        ({"question": None}, r"row 1 .*input is missing"),
    ],
)
def test_a_row_that_cannot_be_read_is_named(tmp_path, change, message):
    path = tmp_path / "sums.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in [ROWS[0], ROWS[1] | change]))
    with pytest.raises(DatasetError, match=rf"sums\.jsonl, {message}"):
        only(path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[1]", "a JSON object was expected"),
        ("[\n{}]", "a JSON list begins here. Write each of its objects on a line"),
        ('{"id": 1}', "no column 'question'"),
    ],
)
def test_a_line_that_is_no_row_is_named(tmp_path, line, message):
    (tmp_path / "sums.jsonl").write_text(json.dumps(ROWS[0]) + "\n" + line + "\n")
    with pytest.raises(DatasetError, match=rf"sums\.jsonl, row 1 .*{message}"):
        only(tmp_path / "sums.jsonl")


def test_a_missing_column_is_named_with_those_that_exist(tmp_path):
    with pytest.raises(DatasetError, match=r"no column 'input'. It has: question, options, answer, id"):
        only(write(tmp_path, "parquet"), TableColumns(choices="options"))


@pytest.mark.parametrize(
    ("name", "message"), [("none.csv", "does not exist"), ("sums.ods", "must end in"), ("empty", "holds no task.json")]
)
def test_what_is_no_data_is_refused(tmp_path, name, message):
    (tmp_path / "sums.ods").touch()
    (tmp_path / "empty").mkdir()
    with pytest.raises(DatasetError, match=message):
        only(tmp_path / name)


def test_a_table_has_the_prefixes_that_tasks_json_in_its_folder_states(tmp_path):
    path = write(tmp_path, "jsonl")
    assert only(path).template.choice_prefix == "\n  choice: "
    (tmp_path / "tasks.json").write_text(json.dumps({"tasks": {"sums": {"append_choices_to_input": False}}}))
    assert only(path).template.choice_prefix is None
