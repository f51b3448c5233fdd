"""All metrics of ten datasets, three definitions, with intervals, against the StaICC toolkit's own functions.

python -m benchmarks.columnar.metrics

The toolkit computes less: the same four metrics under `released` alone, and no interval. These numbers are compared
before anything is timed.
"""

from typing import Any

import numpy as np
import polars as pl
from StaICC.util import functional

from benchmarks.harness import Target, Work, print_targets, race, require_green_tests
from evaluator.metrics import metrics_table
from evaluator.schemas import MEAN_OVER_DATASETS, PREDICTIONS

N_LABELS = [2, 2, 3, 3, 6, 5, 4, 2, 3, 2]  # ten label spaces of the sizes that classification datasets have
N_QUERIES, N_REPEATS = 512, 2
N_REQUESTS = N_QUERIES * N_REPEATS
TOOLKIT = {
    "accuracy": functional.accuracy,
    "expected_calibration_error": functional.expected_calibration_error_1,
    "macro_f1": functional.macro_F1,
    "true_label_probability": functional.averaged_truelabel_likelihood,
}


def main() -> None:
    require_green_tests("tests/metrics/test_released.py")
    predictions = pl.concat([_predictions(index, n_labels) for index, n_labels in enumerate(N_LABELS)])
    matrices = [
        (rows["gold"].to_list(), rows["label_probs"].to_list())
        for rows in predictions.filter(definition="released").partition_by("dataset", maintain_order=True)
    ]
    work = Work(
        benchmark="metrics",
        case=f"{len(N_LABELS)} datasets of {N_REQUESTS} requests",
        items=len(N_LABELS) * N_REQUESTS,
        unit="requests",
        packages=["polars", "numpy", "StaICC"],
    )
    timings = race(
        work,
        {
            "toolkit, released": lambda: [metric(*rows) for rows in matrices for metric in TOOLKIT.values()],
            "evaluator, all": lambda: _released_values(metrics_table(predictions)),
        },
        runs=9,
        same=_assert_same,
    )
    print_targets(Target(what="all metrics with intervals, s", value=timings["evaluator, all"].median_s, at_most=3))


def _predictions(index: int, n_labels: int) -> pl.DataFrame:
    rng = np.random.default_rng(index)
    frames = []
    for definition in ("paper", "released"):
        probs = rng.dirichlet(np.ones(n_labels), N_REQUESTS)
        columns = {
            "suite": "staicc-normal",
            "part": "normal",
            "dataset": f"dataset-{index}",
            "method": "vanilla",
            "definition": definition,
            "position": np.arange(N_REQUESTS),
            "query_id": np.repeat(np.arange(N_QUERIES), N_REPEATS),
            "repeat": np.tile(np.arange(N_REPEATS), N_QUERIES),
            "prompt_id": [f"{index}-{position}" for position in range(N_REQUESTS)],
            "gold": rng.integers(0, n_labels, N_REQUESTS),
            "pred": probs.argmax(axis=1),
            "label_names": [[f"label {label}" for label in range(n_labels)]] * N_REQUESTS,
            "label_probs": probs,
        }
        frames.append(pl.DataFrame(columns).cast(PREDICTIONS))
    return pl.concat(frames)


def _released_values(table: pl.DataFrame) -> list[float]:
    """In the order of the toolkit's answers: by dataset, then metric."""
    chosen = table.filter(pl.col("definition") == "released", pl.col("dataset") != MEAN_OVER_DATASETS)
    return chosen.sort("dataset", "metric")["value"].to_list()


def _assert_same(theirs: Any, ours: Any) -> None:
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-9)


if __name__ == "__main__":
    main()
