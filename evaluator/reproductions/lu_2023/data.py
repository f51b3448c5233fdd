"""The released results of Lu et al. 2023: a folder of three Parquet files goes in, checked frames come out."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import polars as pl

from evaluator.datasets.parquet_columns import scan_columns
from evaluator.errors import DatasetError
from evaluator.reproductions.lu_2023.paper import GPT3

SOURCE = "UKPLab/in-context-pvi on GitHub"

DATASETS = {
    "boolq": "BoolQ",
    "cola": "CoLA",
    "multinli": "MultiNLI",
    "rte": "RTE",
    "snli": "SNLI",
    "advice": "Health Advice",
    "pubmed": "Causal Language",
}
"""Folder of a dataset's file, as in the results -> its name in the paper."""

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
"""Models that some correlations were released of and that the paper does not name."""


class File(NamedTuple):
    """A released file: what one row is, and the columns that are read, as here, with theirs and their types."""

    about: str
    columns: Mapping[str, tuple[str, pl.DataType]]


_RUN = {"dataset": ("dataset", pl.String()), "model": ("model", pl.String())}
_SET = {"demonstration_set": ("prompt_set", pl.String())}
FILES: Mapping[str, File] = {
    "results.parquet": File(
        "one row a dataset, model, number of shots and demonstration set: results.csv",
        {
            **_RUN,
            **_SET,
            "n_shots": ("number_of_shots", pl.Int64()),
            "n_queries": ("number_of_data", pl.Int64()),
            "accuracy": ("accuracy", pl.Float64()),
            "lowest_fifth_accuracy": ("accuracy_for_pvi<1/5quantile", pl.Float64()),
            "highest_fifth_accuracy": ("accuracy_for_pvi>4/5quantile", pl.Float64()),
            "right_pvi": ("average_pvi_for_T", pl.Float64()),
            "wrong_pvi": ("average_pvi_for_F", pl.Float64()),
        },
    ),
    "consistency_by_exemplar.parquet": File(
        "one row a dataset, model and number of shots: consistency_by_exemplar.csv",
        {**_RUN, "n_shots": ("number_of_shot", pl.Int64()), "r": ("r", pl.String())},
    ),
    "consistency_by_number_of_shots.parquet": File(
        "one row a dataset, model and demonstration set: consistency_by_number_of_shots.csv",
        {**_RUN, **_SET, "r": ("r", pl.Float64())},
    ),
}


@dataclass(frozen=True, kw_only=True)
class PublishedResults:
    """The released results under the names of FILES, datasets and models under the paper's."""

    runs: pl.DataFrame  # means over queries, to four decimals
    across_sets: pl.DataFrame  # `r`: List[f64], one correlation a pair of demonstration sets
    across_shots: pl.DataFrame  # `r`: between the two numbers of shots


def open_published(folder: Path) -> PublishedResults:
    """Raises DatasetError, saying what is expected and what was found, for files, columns or rows that do not fit."""
    if missing := [name for name in FILES if not (folder / name).is_file()]:
        needed = "\n".join(
            f"  {name}: {file.about}\n    columns {', '.join(theirs for theirs, _ in file.columns.values())}"
            for name, file in FILES.items()
        )
        raise DatasetError(
            f"{folder} lacks {', '.join(missing)}. The published numbers of in-context PVI are recomputed from the "
            f"results of {SOURCE}, each csv as a Parquet file:\n{needed}\nName their folder with --data."
        )
    runs, across_sets, across_shots = (_read(folder / name, file) for name, file in FILES.items())
    sets_file = folder / "consistency_by_exemplar.parquet"
    return PublishedResults(runs=runs, across_sets=_parsed(across_sets, sets_file), across_shots=across_shots)


def _read(path: Path, file: File) -> pl.DataFrame:
    found = scan_columns(path, [theirs for theirs, _ in file.columns.values()]).collect()
    for theirs, expected in file.columns.values():
        if found.schema[theirs] != expected:
            raise DatasetError(f"{path}: {theirs!r} must hold {expected} and holds {found.schema[theirs]}.")
    rows = found.select(**{name: theirs for name, (theirs, _) in file.columns.items()})
    named = rows.with_columns(
        dataset=_named(rows["dataset"].str.split("/").list.first(), DATASETS, path),
        model=_named(rows["model"], MODELS | NOT_IN_PAPER, path),
    )
    key = [name for name in ("dataset", "model", "n_shots", "demonstration_set") if name in named.columns]
    if named.select(key).is_duplicated().any():
        raise DatasetError(f"{path} must have {file.about}; some of these stand in more than one row.")
    return named.sort(key)


def _named(theirs: pl.Series, names: Mapping[str, str], path: Path) -> pl.Series:
    if unknown := [repr(name) for name in theirs.unique(maintain_order=True) if name not in names]:
        raise DatasetError(
            f"{path}: {', '.join(unknown)} in column {theirs.name!r} is none of the paper's: {', '.join(names)}."
        )
    return theirs.replace_strict(names, return_dtype=pl.String)


def _parsed(rows: pl.DataFrame, path: Path) -> pl.DataFrame:
    """`r` as it was released, a list of numbers written out, as a list of numbers."""
    try:
        return rows.with_columns(pl.col("r").str.json_decode(pl.List(pl.Float64)))
    except pl.exceptions.PolarsError as error:
        raise DatasetError(f"{path}: `r` must hold lists of numbers, as in [0.5, 0.25, 1.0] ({error}).") from error
