"""Read and check the released results of Lu et al. 2023 (three Parquet files) and the printed tables."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import polars as pl

from evaluator.datasets.tables import read_columns
from evaluator.errors import DatasetError
from evaluator.reproductions.base import ReleasedFile, require_values
from evaluator.reproductions.cells import printed, printed_cells, printed_tables

GPT3 = "GPT3-175B"
GENERAL = ("accuracy", "acc. low PVI", "acc. high PVI", "PVI for TRUE", "PVI for FALSE")
"""Columns of tables 1 and 14. `low` and `high` are the fifths of queries with the lowest and the highest PVI; TRUE and
FALSE are right and wrong predictions."""

CORRELATION = ("avg.", "med.", "r > 0.6", "r < 0.3")
ANOVA = ("F-statistic", "p-value")

TABLES = printed_tables("lu_2023")
PRINTED_CELLS = printed_cells(TABLES, decimals=4)
"""Cells of the tables that Lu et al. 2023 print, from assets/printed.toml: PRINTED."""

DATASETS, MODELS, NOT_IN_PAPER = (printed("lu_2023")[names] for names in ("datasets", "models", "not_in_paper"))
"""Name in the released results -> usual name: of datasets (folder names), of models in the paper, and of models in the
released results that the paper does not name."""

_RUN = {"dataset": "dataset", "model": "model"}
_SET = {"demonstration_set": "prompt_set"}
RUNS = {
    **_RUN,
    **_SET,
    "n_shots": "number_of_shots",
    "n_queries": "number_of_data",
    "accuracy": "accuracy",
    "lowest_fifth_accuracy": "accuracy_for_pvi<1/5quantile",
    "highest_fifth_accuracy": "accuracy_for_pvi>4/5quantile",
    "lowest_half_accuracy": "accuracy_for_pvi<1/2quantile",
    "highest_half_accuracy": "accuracy_for_pvi>1/2quantile",
    "right_pvi": "average_pvi_for_T",
    "wrong_pvi": "average_pvi_for_F",
}
ACROSS_SETS = {**_RUN, "n_shots": "number_of_shot", "r": "r", "p": "p"}
ACROSS_SHOTS = {**_RUN, **_SET, "r": "r", "p": "p"}
"""Our name of a column -> name in the released file, for the three files."""

_MEANS = ("accuracy", "lowest_fifth_accuracy", "highest_fifth_accuracy", "right_pvi", "wrong_pvi")
MEANS = dict(zip(GENERAL, _MEANS, strict=True)) | {"random": "accuracy"}
"""Column of tables 1, 7 and 14 -> our name of the column whose mean over runs it is."""

_NAMES, _COUNTS = ("dataset", "model", "demonstration_set"), ("n_shots", "n_queries")
_TYPES = dict.fromkeys(_NAMES, pl.String()) | dict.fromkeys(_COUNTS, pl.Int64())
"""Types of the columns that are not Float64."""

_LISTS = dict.fromkeys(("r", "p"), pl.String())
"""Types of correlations across demonstration sets: the correlations of all pairs of sets were released as the text of a
list."""

FILES = tuple(
    ReleasedFile(
        f"{name}.parquet",
        f"one row a dataset, model{row}: {name}.csv",
        {released: types.get(ours, pl.Float64()) for ours, released in columns.items()},
    )
    for name, row, columns, types in (
        ("results", ", number of shots and demonstration set", RUNS, _TYPES),
        ("consistency_by_exemplar", " and number of shots", ACROSS_SETS, _TYPES | _LISTS),
        ("consistency_by_number_of_shots", " and demonstration set", ACROSS_SHOTS, _TYPES),
    )
)


class PublishedResults(NamedTuple):
    """The released results, with our column names and the paper's names of datasets and models."""

    runs: pl.DataFrame  # columns of RUNS; means over queries, to four decimals
    across_sets: pl.DataFrame  # `r` and its p-value `p`: List[f64], one correlation per pair of demonstration sets
    across_shots: pl.DataFrame  # `r` and its p-value `p`: Float64, correlation between two numbers of shots


def read_results(folder: Path) -> PublishedResults:
    """Read the released results in a folder that holds FILES.

    Raises DatasetError for columns of wrong types, missing values, unknown datasets or models, and duplicate rows.
    """
    runs, sets, shots = FILES
    across_sets = _read(folder, sets, ACROSS_SETS)
    rule = f"{folder / sets.name}: `r` and `p` must hold lists of numbers, as in [0.5, 0.25, 1.0]"
    try:
        across_sets = across_sets.with_columns(pl.col("r", "p").str.json_decode(pl.List(pl.Float64)))
    except pl.exceptions.PolarsError as error:
        raise DatasetError(f"{rule} ({error}).") from error
    n = pl.col("r").list.len()
    is_whole = (n > 0) & pl.all_horizontal(pl.col("r", "p").list.drop_nulls().list.len() == n)
    if not across_sets.select(is_whole.fill_null(False).all()).item():
        raise DatasetError(f"{rule}, as many in `p` as in `r` and at least one; in some row they do not.")
    return PublishedResults(_read(folder, runs, RUNS), across_sets, _read(folder, shots, ACROSS_SHOTS))


def _read(folder: Path, file: ReleasedFile, columns: Mapping[str, str]) -> pl.DataFrame:
    """Read a file, rename its columns, datasets and models, and sort it by its key."""
    path = folder / file.name
    released = read_columns(path, list(file.columns))
    require_values(path, file, released.lazy())
    rows = released.select(**columns)
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
