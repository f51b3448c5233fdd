"""Answers to methods that ask for hidden states: a made-up model, and the toolkit driven with the same one."""

import zlib
from contextlib import redirect_stdout
from functools import cache
from io import StringIO
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from StaICC.normal import ORIGINAL_DATA_LOADER_NORMAL, Normal

from evaluator.datasets import SOURCES
from evaluator.methods.base import ScoredRequests
from evaluator.schemas import HIDDEN_STATES, LABEL_DISTANCES, REQUESTS, SCORES
from tests.methods.answered import FOR_PART, NORMAL

N_FEATURES = 8


def hidden_state(prompt: str) -> np.ndarray:
    """Looks random, depends on the prompt alone, and is a float32 exactly."""
    return np.random.default_rng(zlib.crc32(prompt.encode())).normal(size=N_FEATURES).astype(np.float32)


def label_scores(prompt: str, n_labels: int) -> list[float]:
    """Whole numbers of 1/1024, so that the toolkit's differences of float32 are exact."""
    scores = np.random.default_rng(zlib.crc32(prompt.encode()) + 1).normal(size=n_labels)
    return (np.round(scores * 1024) / 1024).tolist()


def answer(frames: list[pl.DataFrame]) -> ScoredRequests:
    """What the made-up model says of request rows: label scores, or a hidden state where that is asked."""
    rows = pl.concat([frame.select(sorted(frame.columns)) for frame in frames]).with_columns(
        suite=pl.lit("staicc-normal"),
        for_part=FOR_PART,
        prompt_id=pl.concat_str("prompt", pl.col("continuations").list.join("|")),
    )
    for_states = pl.col("ask") == "state"
    scores = [label_scores(*row) for row in rows.select("prompt", pl.col("continuations").list.len()).iter_rows()]
    states = [hidden_state(prompt).tolist() for prompt in rows["prompt"]]
    answered = rows.with_columns(
        label_log_likelihoods=pl.Series(scores, dtype=pl.List(pl.Float64)),
        last_token_log_probs=pl.Series(scores, dtype=pl.List(pl.Float64)),
        label_token_counts=pl.col("continuations").list.eval(pl.lit(1, pl.Int32)),
        hidden_state=pl.Series(states, dtype=pl.List(pl.Float32)),
    )
    return ScoredRequests(
        rows=answered.filter(~for_states).select(*REQUESTS, *(set(SCORES) - {"prompt_id"})).lazy(),
        states=answered.filter(for_states).select(*REQUESTS, *(set(HIDDEN_STATES) - {"prompt_id"})).lazy(),
        parts=NORMAL,
        answered_part="normal",
    )


class Task(NamedTuple):
    """Answers about one small label space, worked by hand: rows of states."""

    queries: list[list[float]]
    anchors: list[list[float]]
    labels: list[int]
    label_names: list[str]


def answers_of(task: Task, distances: dict[tuple[str, str], list[list[float]]] | None = None) -> ScoredRequests:
    """The made-up task as answers; `distances` by method and definition, one list a query."""
    common = {
        "suite": "s",
        "dataset": "d",
        "demonstration_set": 0,
        "n_shots": 2,
        "template": 0,
        "noise_rate": 0.0,
        "n_wrong_labels": 0,
        "label_names": task.label_names,
    }
    ids = [f"query {place}" for place in range(len(task.queries))]
    queries = [common | {"position": place, "query_id": place, "gold": 0} for place in range(len(task.queries))]
    scores = {"label_log_likelihoods": [0.0] * len(task.label_names)}
    scores["last_token_log_probs"] = [-float(label) for label in range(len(task.label_names))]
    states = [
        row | {"part": "query_states", "prompt_id": name, "hidden_state": state}
        for row, name, state in zip(queries, ids, task.queries, strict=True)
    ] + [
        common
        | {"position": place, "query_id": None, "gold": label, "part": "training_states"}
        | {"prompt_id": f"anchor {place}", "hidden_state": state}
        for place, (label, state) in enumerate(zip(task.labels, task.anchors, strict=True))
    ]
    measured = [
        {"method": method, "definition": definition, "prompt_id": name, "distances": row}
        for (method, definition), rows in (distances or {}).items()
        for name, row in zip(ids, rows, strict=True)
    ]
    return ScoredRequests(
        rows=pl.LazyFrame(
            [row | scores | {"part": "normal", "prompt_id": f"scored {row['position']}"} for row in queries]
        ),
        states=pl.LazyFrame(states, schema_overrides={"hidden_state": pl.List(pl.Float32)}),
        distances=pl.LazyFrame(measured, schema=LABEL_DISTANCES),
        parts=NORMAL,
        answered_part="normal",
    )


def probs_of(frame: pl.LazyFrame) -> list[list[float]]:
    return frame.sort("position").collect()["label_probs"].to_list()


@cache
def toolkit_experiment(dataset: str, n_shots: int = 2) -> Any:
    """The toolkit's own experiment: its splits, prompts and label space."""
    loader = dict(zip(SOURCES, ORIGINAL_DATA_LOADER_NORMAL, strict=True))[dataset]
    with redirect_stdout(StringIO()):
        return Normal(k=n_shots, datasets=[loader])[0]
