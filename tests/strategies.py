"""Hypothesis strategies: label spaces, and score tables as frames of schema PREDICTIONS."""

import itertools
from typing import Any

import polars as pl
from hypothesis import strategies as st

from evaluator.schemas import PREDICTIONS


def label_spaces(max_size: int = 6) -> st.SearchStrategy[list[str]]:
    """Two or more different label names."""
    return st.lists(st.text("abcdefghij", min_size=1, max_size=4), min_size=2, max_size=max_size, unique=True)


@st.composite
def distributions(draw: st.DrawFn, n_labels: int, ties: bool = True) -> list[float]:
    """Exact fractions of small integers: rows such as 1/2, 1/2 and 1, 0, 0 come up often, and no row is ever softmaxed
    away from them. Without `ties` no two labels are equally probable."""
    weights = draw(
        st.lists(st.integers(0, 9), min_size=n_labels, max_size=n_labels, unique=not ties).filter(lambda row: sum(row))
    )
    return [weight / sum(weights) for weight in weights]


@st.composite
def score_tables(draw: st.DrawFn, ties: bool = True, max_datasets: int = 3) -> pl.DataFrame:
    """PREDICTIONS of one method on a few datasets, every query tested once or twice, alike under both definitions."""
    rows: list[dict[str, Any]] = []
    for dataset in range(draw(st.integers(1, max_datasets))):
        label_names = draw(label_spaces())
        n_labels = len(label_names)
        repeats = draw(st.integers(1, 2))
        for position in range(draw(st.integers(1, 8)) * repeats):
            probs = draw(distributions(n_labels, ties))
            row = {
                "suite": "suite",
                "part": "part",
                "dataset": f"dataset-{dataset}",
                "method": "vanilla",
                "position": position,
                "query_id": position // repeats,
                "demonstration_set": position % repeats,
                "n_shots": 2,
                "template": 0,
                "noise_rate": 0.0,
                "n_wrong_labels": 0,
                "prompt_id": f"{dataset}-{position}",
                "gold": draw(st.integers(0, n_labels - 1)),
                "pred": probs.index(max(probs)),
                "label_names": label_names,
                "label_probs": probs,
            }
            rows += [row | {"definition": definition} for definition in ("paper", "released")]
    return pl.DataFrame(rows, schema=PREDICTIONS)


REPEATED = {
    "normal": (1, 2),
    "contextual": (1, 2),
    "domain": (1, 1),
    "gler": (5, 1),
    "template": (3, 2),
    "sampling": (1, 4),
}
"""Part -> its noise rates or templates, and demonstration sets, some fewer than a benchmark has."""


@st.composite
def diagnostic_tables(draw: st.DrawFn, ties: bool = True) -> pl.DataFrame:
    """PREDICTIONS of one method and dataset, all parts that diagnostics measure, alike under both definitions."""
    label_names = draw(label_spaces(max_size=4))
    n_labels = len(label_names)
    gold = draw(st.lists(st.integers(0, n_labels - 1), min_size=1, max_size=5))
    rows: list[dict[str, Any]] = []
    for part, (n_settings, n_sets) in REPEATED.items():
        places = list(itertools.product(range(n_settings), range(n_sets), range(len(gold))))
        probs = [draw(distributions(n_labels, ties)) for _ in places]
        rows += [
            {
                "suite": "suite",
                "part": part,
                "dataset": "dataset-0",
                "method": "vanilla",
                "definition": definition,
                "position": position,
                "query_id": query_id,
                "demonstration_set": demonstration_set,
                "n_shots": 4,
                "template": setting if part == "template" else 0,
                "noise_rate": setting / 4 if part == "gler" else 0.0,
                "n_wrong_labels": setting if part == "gler" else 0,
                "prompt_id": f"{part}-{position}",
                "gold": gold[query_id],
                "pred": row.index(max(row)),
                "label_names": label_names,
                "label_probs": row,
            }
            for definition in ("paper", "released")
            for position, ((setting, demonstration_set, query_id), row) in enumerate(zip(places, probs, strict=True))
        ]
    return pl.DataFrame(rows, schema=PREDICTIONS)
