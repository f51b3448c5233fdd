"""Imported answers to the queries of datasets, and how they become the request rows and scores of a run."""

from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

import polars as pl

from evaluator.config import Numbers
from evaluator.prompts.render import NO_SPANS
from evaluator.prompts.rows import NOT_VARIED
from evaluator.schemas import PROMPTS, REQUESTS

IMPORTED = "imported"
"""Name of an imported run's suite, of its only part and of its side table."""

NUMBERS = pl.Schema({"dataset": pl.String(), "numbers": pl.String()})  # side table of an imported run: Numbers


class ImportedRow(NamedTuple):
    """The answer to one request."""

    query: str  # id: rows with the same one are answers to one query, and are not independent
    prompt: str  # empty if it is not known
    gold: int
    log_likelihoods: list[float]  # nats, in label-space order; -inf for what has no probability


class ImportedDataset(NamedTuple):
    """The answers to the queries of a dataset."""

    name: str
    label_names: tuple[str, ...]
    numbers: Numbers
    rows: list[ImportedRow]
    file: str  # name of the file that it was read from


def answer_rows(datasets: Sequence[ImportedDataset]) -> pl.DataFrame:
    """Return the columns of REQUESTS and PROMPTS and `log_likelihoods`, one row for each answer.

    Rows with the same id of a query are its requests, numbered by `demonstration_set`. `prompt_id` is a digest of what
    was asked and not of who answered, so that runs of several models can be compared, and is never the same twice.
    """
    rows = [row for dataset in datasets for row in _dataset_rows(dataset)]
    schema = {**REQUESTS, **PROMPTS, "log_likelihoods": pl.List(pl.Float64())}
    constant = {
        **{name: value for name, value in NOT_VARIED.items() if name != "demonstration_set"},
        "suite": pl.lit(IMPORTED),
        "part": pl.lit(IMPORTED),
        "for_part": pl.lit(None, pl.String),
        "n_shots": pl.lit(None, pl.Int64),
        "demonstration_ids": pl.lit([], pl.List(pl.Int64)),
        "ask": pl.lit("labels"),
        "continuations": pl.col("label_names"),
        "spans": NO_SPANS,
    }
    frame = pl.DataFrame(rows, schema={name: schema[name] for name in rows[0]})
    return frame.with_columns(**constant).select(*schema)


def _dataset_rows(dataset: ImportedDataset) -> list[dict[str, object]]:
    numbers = {query: number for number, query in enumerate(dict.fromkeys(row.query for row in dataset.rows))}
    seen: Counter[str] = Counter()
    rows: list[dict[str, object]] = []
    for position, row in enumerate(dataset.rows):
        asked = (dataset.name, row.query, str(seen[row.query]), row.prompt, *dataset.label_names)
        rows.append(
            {
                "dataset": dataset.name,
                "position": position,
                "query_id": numbers[row.query],
                "demonstration_set": seen[row.query],
                "gold": row.gold,
                "label_names": list(dataset.label_names),
                "prompt_id": blake2b("\0".join(asked).encode(), digest_size=16).hexdigest(),
                "prompt": row.prompt,
                "log_likelihoods": row.log_likelihoods,
            }
        )
        seen[row.query] += 1
    return rows
