"""The texts of the large store."""

from pathlib import Path

import polars as pl

from benchmarks.columnar.big_stores import N_WORDS, TRAINING_ROWS, write_texts


def test_texts_are_distinct_and_labelled(tmp_path: Path) -> None:
    write_texts(tmp_path / "texts.parquet", 500)
    table = pl.read_parquet(tmp_path / "texts.parquet")
    assert table.height == 500 + TRAINING_ROWS
    assert table["text"].str.split(" ").list.len().unique().to_list() == [N_WORDS]
    assert table["text"].n_unique() > 0.99 * table.height
    assert sorted(table["label"].unique()) == ["negative", "positive"]
