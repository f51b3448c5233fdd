"""Read and check the released results of Lu et al. 2023, a folder of three Parquet files."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import polars as pl

from evaluator.datasets.tables import read_columns
from evaluator.errors import DatasetError
from evaluator.reproductions.base import ReleasedFile
from evaluator.reproductions.lu_2023.paper import GPT3

DATASETS = {
    "boolq": "BoolQ",
    "cola": "CoLA",
    "multinli": "MultiNLI",
    "rte": "RTE",
    "snli": "SNLI",
    "advice": "Health Advice",
    "pubmed": "Causal Language",
}
"""Folder of a dataset in the released results -> its name in the paper."""

MODELS = {
    "gpt2": "GPT2-125M",
    "EleutherAI/gpt-neo-1.3B": "GPT-Neo-1.3B",
    "EleutherAI/gpt-neo-2.7B": "GPT-Neo-2.7B",
    "EleutherAI/gpt-j-6b": "GPT-J-6B",
    "togethercomputer/GPT-JT-6B-v1": "GPT-JT-6B",
    "chavinlo/alpaca-native": "Alpaca-7B",
    "chavinlo/alpaca-13b": "Alpaca-13B",
    "text-davinci-003": GPT3,
}
"""Model in the results -> its name in the paper."""

NOT_IN_PAPER = {
    "EleutherAI/gpt-neox-20b": "GPT-NeoX-20B",
    "togethercomputer/GPT-NeoXT-Chat-Base-20B": "GPT-NeoXT-Chat-Base-20B",
}
"""Models in the released correlations that the paper does not name -> their usual names."""


class Column(NamedTuple):
    """The name and the type of a column of a released file."""

    released: str
    dtype: pl.DataType


_RUN = {"dataset": Column("dataset", pl.String()), "model": Column("model", pl.String())}
_SET = {"demonstration_set": Column("prompt_set", pl.String())}
RUN_COLUMNS = {
    **_RUN,
    **_SET,
    "n_shots": Column("number_of_shots", pl.Int64()),
    "n_queries": Column("number_of_data", pl.Int64()),
    "accuracy": Column("accuracy", pl.Float64()),
    "lowest_fifth_accuracy": Column("accuracy_for_pvi<1/5quantile", pl.Float64()),
    "highest_fifth_accuracy": Column("accuracy_for_pvi>4/5quantile", pl.Float64()),
    "lowest_half_accuracy": Column("accuracy_for_pvi<1/2quantile", pl.Float64()),
    "highest_half_accuracy": Column("accuracy_for_pvi>1/2quantile", pl.Float64()),
    "right_pvi": Column("average_pvi_for_T", pl.Float64()),
    "wrong_pvi": Column("average_pvi_for_F", pl.Float64()),
}
ACROSS_SETS_COLUMNS = {
    **_RUN,
    "n_shots": Column("number_of_shot", pl.Int64()),
    "r": Column("r", pl.String()),
    "p": Column("p", pl.String()),
}
ACROSS_SHOTS_COLUMNS = {**_RUN, **_SET, "r": Column("r", pl.Float64()), "p": Column("p", pl.Float64())}
"""Our name of a column -> the released one."""


def _released(name: str, about: str, columns: Mapping[str, Column]) -> ReleasedFile:
    return ReleasedFile(name, about, tuple(column.released for column in columns.values()))


FILES = (
    _released(
        "results.parquet",
        "one row a dataset, model, number of shots and demonstration set: results.csv",
        RUN_COLUMNS,
    ),
    _released(
        "consistency_by_exemplar.parquet",
        "one row a dataset, model and number of shots: consistency_by_exemplar.csv",
        ACROSS_SETS_COLUMNS,
    ),
    _released(
        "consistency_by_number_of_shots.parquet",
        "one row a dataset, model and demonstration set: consistency_by_number_of_shots.csv",
        ACROSS_SHOTS_COLUMNS,
    ),
)


@dataclass(frozen=True, kw_only=True)
class PublishedResults:
    """The released results, with our names of columns and the paper's names of datasets and models."""

    runs: pl.DataFrame  # means over queries, to four decimals
    across_sets: pl.DataFrame  # `r` and its `p`: List[f64], one correlation a pair of demonstration sets
    across_shots: pl.DataFrame  # `r` and its `p`: between the two numbers of shots


def read_results(folder: Path) -> PublishedResults:
    """Read the released results in a folder that holds FILES.

    Raises DatasetError for columns of other types, unknown datasets or models, and duplicate rows.
    """
    columns = (RUN_COLUMNS, ACROSS_SETS_COLUMNS, ACROSS_SHOTS_COLUMNS)
    runs, across_sets, across_shots = (_read(folder, file, schema) for file, schema in zip(FILES, columns, strict=True))
    parsed = _parsed(across_sets, folder / "consistency_by_exemplar.parquet")
    return PublishedResults(runs=runs, across_sets=parsed, across_shots=across_shots)


def _read(folder: Path, file: ReleasedFile, columns: Mapping[str, Column]) -> pl.DataFrame:
    path = folder / file.name
    released = read_columns(path, file.columns)
    for column in columns.values():
        dtype = released.schema[column.released]
        if dtype != column.dtype:
            raise DatasetError(f"{path}: column {column.released!r} must be {column.dtype} and is {dtype}.")
    rows = released.select(**{name: column.released for name, column in columns.items()})
    named = rows.with_columns(
        dataset=_named(rows["dataset"].str.split("/").list.first(), DATASETS, path),
        model=_named(rows["model"], MODELS | NOT_IN_PAPER, path),
    )
    key = [name for name in ("dataset", "model", "n_shots", "demonstration_set") if name in named.columns]
    if named.select(key).is_duplicated().any():
        raise DatasetError(f"{path} must have {file.about}; some of these are in more than one row.")
    return named.sort(key)


def _named(released: pl.Series, names: Mapping[str, str], path: Path) -> pl.Series:
    if unknown := [repr(name) for name in released.unique(maintain_order=True) if name not in names]:
        raise DatasetError(
            f"{path}: {', '.join(unknown)} in column {released.name!r} is none of the paper's: {', '.join(names)}."
        )
    return released.replace_strict(names, return_dtype=pl.String)


def _parsed(rows: pl.DataFrame, path: Path) -> pl.DataFrame:
    """Parse `r` and `p`, which were released as texts of lists of numbers."""
    try:
        return rows.with_columns(pl.col("r", "p").str.json_decode(pl.List(pl.Float64)))
    except pl.exceptions.PolarsError as error:
        raise DatasetError(
            f"{path}: `r` and `p` must hold lists of numbers, as in [0.5, 0.25, 1.0] ({error})."
        ) from error
