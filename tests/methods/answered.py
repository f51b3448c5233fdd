"""Requests as if a model had answered them: the same prompt always gets the same made-up scores."""

from collections.abc import Iterable, Sequence

import numpy as np
import polars as pl

from evaluator.config import DEFINITIONS, Definition, RunConfig
from evaluator.methods import METHODS
from evaluator.methods.base import Method, MethodContext, ScoredRequests
from evaluator.prompts.rows import normal_requests
from evaluator.record import PartRecord
from evaluator.schemas import REQUESTS, SCORES
from tests.toolkit import our_dataset

BOTH: tuple[Definition, ...] = ("paper", "released")
NORMAL = {"normal": PartRecord("classification", BOTH)}
"""The parts of a run of staicc-normal alone."""

FOR_PART = pl.when(pl.col("part") != "normal").then(pl.lit("normal"))
"""The column for_part of such a run, whose other rows methods added."""


def named(*names: str) -> dict[str, Method]:
    """These methods by name."""
    return {name: METHODS[name] for name in names}


def context(
    name: str, *, n_shots: int = 4, n_queries: int | None = 5, definitions: tuple[Definition, ...] = DEFINITIONS
) -> MethodContext:
    """What a method writes its requests from: staicc-normal on one of its datasets."""
    config = RunConfig(
        suites=("staicc-normal",), datasets=(name,), n_shots=n_shots, n_queries=n_queries, definitions=definitions
    )
    rows = pl.concat(normal_requests(our_dataset(name), n_shots=n_shots, n_queries=n_queries))
    return MethodContext(our_dataset(name), rows.with_columns(part=pl.lit("normal")).lazy(), "normal", config)


def record_scores(rows: pl.DataFrame, *, seed: int = 0, spread: float = 3.0) -> pl.DataFrame:
    """`rows` of Suite.requests with suite, prompt_id and random scores, one a continuation or text."""
    random = np.random.default_rng(seed)
    question = ["ask", "prompt", "continuations"]
    distinct = rows.select(question).unique(maintain_order=True)
    sizes = distinct.select(pl.when(ask="text").then(1).otherwise(pl.col("continuations").list.len())).to_series()
    columns = {
        "label_log_likelihoods": [(-spread * random.random(size) * 10).tolist() for size in sizes],
        "last_token_log_probs": [(-spread * random.random(size)).tolist() for size in sizes],
        "label_token_counts": [random.integers(1, 9, size).tolist() for size in sizes],
    }
    scores = distinct.with_columns(pl.Series(name, values, dtype=SCORES[name]) for name, values in columns.items())
    scores = scores.with_columns(prompt_id=pl.int_range(pl.len()).cast(pl.String) + f"-{seed}")
    return rows.with_columns(suite=pl.lit("s"), for_part=FOR_PART).join(scores, on=question, maintain_order="left")


def table(
    part: str, log_likelihoods: Sequence[Sequence[float]], *, dataset: str = "d", positions: Iterable[int] | None = None
) -> pl.DataFrame:
    """Answered requests with these label log-likelihoods, all labels of one token."""
    names = [chr(ord("a") + label) for label in range(len(log_likelihoods[0]))]
    places = list(range(len(log_likelihoods)) if positions is None else positions)
    return pl.DataFrame(
        {
            "suite": "s",
            "part": part,
            "for_part": None,
            "dataset": dataset,
            "position": places,
            "query_id": places,
            "demonstration_set": 0,
            "n_shots": 0,
            "template": 0,
            "noise_rate": 0.0,
            "n_wrong_labels": 0,
            "label_tried": None,
            "ordering": None,
            "training_row": None,
            "demonstration_ids": [[]] * len(places),
            "gold": 0,
            "label_names": [names] * len(places),
            "prompt_id": [f"{part}-{dataset}-{place}" for place in places],
            "label_log_likelihoods": [list(row) for row in log_likelihoods],
            "last_token_log_probs": [list(row) for row in log_likelihoods],
            "label_token_counts": [[1] * len(names)] * len(places),
        },
        schema=REQUESTS | {name: dtype for name, dtype in SCORES.items() if name != "prompt_id"},
    )


def answers(*tables: pl.DataFrame) -> ScoredRequests:
    """What a run has to measure: rows in an order that should not matter."""
    scored = pl.concat(tables, how="diagonal_relaxed").sample(fraction=1, shuffle=True, seed=1)
    return ScoredRequests(rows=scored.lazy(), parts=NORMAL, answered_part="normal")
