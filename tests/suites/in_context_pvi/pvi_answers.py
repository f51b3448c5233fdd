"""Made-up answers to the suite pvi, and PVI tables as if they had been measured."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from evaluator.methods.base import ScoredRequests
from evaluator.record import PartRecord
from evaluator.schemas import REQUESTS, SCORES
from evaluator.suites.in_context_pvi.schema import PVI, PVI_DEFINITIONS, PVI_KEY, PVI_QUERIES

PARTS = {
    "input": PartRecord("classification", ("paper", "released")),
    "null": PartRecord("null", ("paper", "released")),
}


class Run(NamedTuple):
    """What a model says behind one demonstration set; log-likelihoods in nats, one a label."""

    gold: Sequence[int]
    inputs: Sequence[Sequence[float | None]]  # one row a query
    null: Sequence[float | None] | None  # None: it was not answered


Runs = Mapping[tuple[str, int, int], Run]
"""(dataset, shots, set) -> what was answered."""


def answers(runs: Runs, chosen: Mapping[str, Runs] | None = None) -> ScoredRequests:
    """The suite's own runs, and those of methods that choose demonstrations; the order of rows should not matter."""
    rows = [
        row | ({"part": method + ("_null" if row["part"] == "null" else ""), "for_part": "input"} if method else {})
        for method, own in {"": runs, **(chosen or {})}.items()
        for place, ((dataset, n_shots, number), run) in enumerate(own.items())
        for row in _rows(run, place, {"dataset": dataset, "n_shots": n_shots, "demonstration_set": number})
    ]
    scored = pl.DataFrame(rows, schema=REQUESTS | {name: SCORES[name] for name in SCORES if name != "prompt_id"})
    return ScoredRequests(
        rows=scored.sample(fraction=1, shuffle=True, seed=3).lazy(), parts=PARTS, answered_part="input"
    )


def _rows(run: Run, place: int, own: dict[str, object]) -> list[dict[str, object]]:
    n_labels = len(run.inputs[0])
    own |= {"suite": "pvi", "label_names": [str(label) for label in range(n_labels)], "demonstration_ids": []}
    rows = [
        {"part": "input", "position": place * len(run.gold) + query, "query_id": query, "gold": gold}
        | {"prompt_id": f"input-{own['dataset']}-{place}-{query}", "label_log_likelihoods": list(scores)}
        for query, (gold, scores) in enumerate(zip(run.gold, run.inputs, strict=True))
    ]
    if run.null is not None:
        rows.append(
            {"part": "null", "position": place, "query_id": None, "gold": None}
            | {"prompt_id": f"null-{own['dataset']}-{place}", "label_log_likelihoods": list(run.null)}
        )
    return [own | row | {"label_token_counts": [1] * n_labels} for row in rows]


def random_answers(
    *, seed: int = 0, datasets: Sequence[str] = ("a", "b"), n_queries: int = 50, n_labels: int = 3
) -> ScoredRequests:
    """Three sets and two numbers of shots; the gold label is likelier than others, and more so for some queries."""
    random = np.random.default_rng(seed)
    runs = {}
    for dataset in datasets:
        gold = random.integers(0, n_labels, n_queries)
        own = random.normal(-3, 1, (n_queries, n_labels))
        own[np.arange(n_queries), gold] += random.exponential(1, n_queries)
        for n_shots in (n_labels, 2 * n_labels):
            for number in range(3):
                inputs = own + random.normal(0, 0.5, own.shape)
                null = random.normal(-3, 0.3, n_labels).tolist()
                runs[dataset, n_shots, number] = Run(gold.tolist(), inputs.tolist(), null)
    return answers(runs)


def queries(table: pl.DataFrame) -> pl.DataFrame:
    """query_schema.PVI_QUERIES of the queries of a PVI table; each stands in a row 100 further down."""
    own = table.group_by("dataset", "query_id").agg(pl.col("gold").first()).sort("dataset", "query_id")
    text = pl.format("{}: text of {}", "dataset", "query_id")
    return own.select(
        "dataset", "query_id", row=pl.col("query_id") + 100, text=text, gold="gold", asked=pl.lit(True)
    ).cast(PVI_QUERIES)


def run_table(
    values: Sequence[float | None], correct: Sequence[bool | None], gold: Sequence[int] | None = None, **run: object
) -> pl.DataFrame:
    """schema.PVI of one run with these PVIs; two labels, so that a wrong prediction is the other one."""
    own = {
        "dataset": "d",
        "demonstrations": "random",
        "n_shots": 2,
        "demonstration_set": 0,
        "definition": "paper",
    } | run
    golds = [0] * len(values) if gold is None else gold
    rows = [
        own
        | {"query_id": query, "gold": label, "correct": right, "pvi_bits": value}
        | {"pred": None if right is None else label if right else 1 - label}
        for query, (value, right, label) in enumerate(zip(values, correct, golds, strict=True))
    ]
    return pl.DataFrame(rows, schema=PVI)


def random_table(seed: int, n_queries: int = 40, *, ties: bool = False, missing: bool = False) -> pl.DataFrame:
    """schema.PVI of two datasets, two numbers of shots, three sets, all definitions; PVI tells of being right."""
    random = np.random.default_rng(seed)
    frames = []
    for dataset in ("a", "b"):
        own, gold = random.normal(0, 2, n_queries), random.integers(0, 2, n_queries).tolist()
        for n_shots in (2, 4):
            for number in range(3):
                for definition in PVI_DEFINITIONS:
                    drawn = own + random.normal(0, 1, n_queries)
                    drawn = drawn.round() if ties else drawn
                    right = (random.random(n_queries) < 1 / (1 + np.exp(-drawn))).tolist()
                    gone = random.random(n_queries) < 0.1 * missing
                    values = [None if left else float(value) for left, value in zip(gone, drawn, strict=True)]
                    run = {
                        "dataset": dataset,
                        "n_shots": n_shots,
                        "demonstration_set": number,
                        "definition": definition,
                    }
                    frames.append(run_table(values, right, gold, **run))
    return pl.concat(frames).sort(PVI_KEY)
