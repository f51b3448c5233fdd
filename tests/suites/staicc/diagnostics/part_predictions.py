"""Predictions of one part, from arrays."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from evaluator.schemas import PREDICTIONS

Probs = npt.NDArray[np.float64]


def part_predictions(
    part: str,
    probs: npt.ArrayLike,
    gold: npt.ArrayLike,
    definition: str = "paper",
    suite: str = "suite",
    n_shots: int = 4,
    wrong_counts: Sequence[int] = range(6),
) -> pl.DataFrame:
    """PREDICTIONS in the benchmark's order: all queries, then all again behind other demonstrations, then the next
    noise rate or template.

    Args:
        probs: label_probs [noise rate or template, demonstration set, query, label].
        gold: [query].
        wrong_counts: wrong demonstration labels at each noise rate of `gler`.
    """
    rows = np.asarray(probs, dtype=np.float64)
    n_labels = rows.shape[-1]
    setting, demonstration_set, query_id = (index.ravel() for index in np.indices(rows.shape[:3]))
    flat, n = rows.reshape(-1, n_labels), len(query_id)
    columns = {
        "suite": suite,
        "part": part,
        "dataset": "a",
        "method": "vanilla",
        "definition": definition,
        "position": np.arange(n),
        "query_id": query_id,
        "demonstration_set": demonstration_set,
        "n_shots": n_shots,
        "template": setting if part in ("template", "connector") else 0,
        "noise_rate": setting / 4 if part == "gler" else 0.0,
        "n_wrong_labels": np.array(wrong_counts)[setting] if part == "gler" else 0,
        "prompt_id": pl.Series(range(n)).cast(pl.String),
        "gold": np.asarray(gold)[query_id],
        "pred": flat.argmax(axis=1),
        "label_probs": flat,
    }
    label_names = [f"label {label}" for label in range(n_labels)]
    return (
        pl.DataFrame(columns)
        .with_columns(label_names=pl.lit(label_names))
        .select(PREDICTIONS.names())
        .cast(PREDICTIONS)
    )


def values(table: pl.DataFrame, definition: str = "paper", dataset: str = "a") -> dict[str, float]:
    """Metric -> value, from a metrics table of one part."""
    return dict(table.filter(definition=definition, dataset=dataset).select("metric", "value").iter_rows())


def interval(table: pl.DataFrame, metric: str, dataset: str = "a") -> tuple[float | None, float | None]:
    low, high = table.filter(metric=metric, dataset=dataset).select("ci_low", "ci_high").row(0)
    return low, high
