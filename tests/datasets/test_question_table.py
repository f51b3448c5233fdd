import json

import polars as pl
import pytest

from evaluator.config import DataOptions, TableColumns
from evaluator.datasets.sources import load_datasets

QUESTION = """
[colour]
type = "choice"
instructions = "Which colour fits?"
options_column = "choices"
gold = "pick"
"""
ROWS = [
    {"text": "a", "choices": ["red", "blue"], "pick": {"red": 3, "blue": 1}},
    {"text": "b", "choices": ["red", "green"], "pick": {"red": 1, "green": 1}},
]


def as_texts(rows: list[dict]) -> list[dict]:
    return [{name: cell if isinstance(cell, str) else json.dumps(cell) for name, cell in row.items()} for row in rows]


@pytest.mark.parametrize("rows", [ROWS, as_texts(ROWS)], ids=["values", "texts"])
def test_options_and_distributions_are_lists_and_objects_or_texts_that_hold_them(tmp_path, rows):
    (tmp_path / "q.toml").write_text(QUESTION)
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    data = DataOptions(paths=(tmp_path / "t.jsonl",), questions=tmp_path / "q.toml")
    [dataset] = load_datasets([], data)
    assert dataset.examples["options"].to_list() == [["red", "blue"], ["red", "green"]]
    assert dataset.examples["soft_gold"].to_list() == [[0.75, 0.25], [0.5, 0.5]]


def test_lists_of_parquet_are_options_and_the_input_shows_them_as_json(tmp_path):
    (tmp_path / "q.toml").write_text(QUESTION)
    table = pl.DataFrame(
        {"text": ["a", "b"], "choices": [["rosé", "blue"], ["green", "rosé"]], "pick": ["rosé", "rosé"]}
    )
    table.write_parquet(tmp_path / "t.parquet")
    columns = TableColumns(inputs=("text", "choices"))
    data = DataOptions(paths=(tmp_path / "t.parquet",), questions=tmp_path / "q.toml", columns=columns)
    [dataset] = load_datasets([], data)
    assert dataset.examples["gold"].to_list() == [0, 1]
    assert dataset.examples["input"][0] == 'text: a\nchoices: ["rosé", "blue"]'
