"""Time all metrics of ten datasets, with intervals, against the functions of the StaICC toolkit.

python -m benchmarks.columnar.metrics

One race uses the part `normal`, another all parts of StaICC. The toolkit computes less: only values under the
definition `released`, and no intervals. These values are compared before anything is timed.
"""

from collections.abc import Callable, Iterator

import numpy as np
import polars as pl
from StaICC.util import functional

from benchmarks.harness import Target, Timing, Work, print_targets, race, require_green_tests
from evaluator.metrics.classification import METRICS, STAICC_METRICS
from evaluator.metrics.groups import SCORE_PARTS, measured_groups
from evaluator.metrics.table import metrics_table
from evaluator.schemas import MEAN_OVER_DATASETS, PREDICTIONS
from evaluator.suites.staicc.diagnostics import DIAGNOSTIC_PARTS, DIAGNOSTICS
from evaluator.suites.staicc.robustness import RELEASED_RATES

N_LABELS = [2, 2, 3, 3, 6, 5, 4, 2, 3, 2]  # ten label spaces of the sizes that classification datasets have
N_QUERIES = 512
PARTS = {  # part -> number of noise rates or templates, and number of demonstration sets
    "normal": (1, 2),
    "contextual": (1, 2),
    "domain": (1, 2),
    "gler": (5, 2),
    "template": (9, 2),
    "sampling": (1, 8),
}
TOOLKIT = {
    "accuracy": functional.accuracy,
    "expected_calibration_error": functional.expected_calibration_error_1,
    "macro_f1": functional.macro_F1,
    "true_label_probability": functional.averaged_truelabel_likelihood,
}

Matrix = tuple[list[int], list[list[float]]]
"""Gold labels and label probabilities, in the order of positions."""
Values = dict[tuple[str, str, str], float]
"""Dataset, part and metric -> value."""


def main() -> None:
    require_green_tests("tests/metrics/test_toolkit_formulas.py")
    require_green_tests("tests/suites/staicc/diagnostics")
    predictions = pl.concat(
        [_predictions(index, n_labels, part) for index, n_labels in enumerate(N_LABELS) for part in PARTS]
    )
    normal = _race("datasets of 1024 requests", predictions.filter(part="normal"), _everything, runs=9)
    all_parts = _race("datasets, all parts", predictions, _everything, runs=5)
    print_targets(
        Target(what="all metrics with intervals, s", value=normal["evaluator, all"].median_s, at_most=3),
        Target(what="and all diagnostics and groups, s", value=all_parts["evaluator, all"].median_s, at_most=3),
    )


def _race(
    case: str, predictions: pl.DataFrame, measure: Callable[[pl.DataFrame], pl.DataFrame], runs: int
) -> dict[str, Timing]:
    released = predictions.filter(definition="released")
    matrices = {
        (dataset, part): (rows["gold"].to_list(), rows["label_probs"].to_list())
        for (dataset, part), rows in released.partition_by("dataset", "part", as_dict=True).items()
    }
    work = Work(
        benchmark="metrics",
        case=f"{len(N_LABELS)} {case}",
        items=released.height,
        unit="requests",
        packages=["polars", "numpy", "StaICC"],
    )
    contestants = {
        "toolkit, released": lambda: _toolkit_values(matrices),
        "evaluator, all": lambda: _released_values(measure(predictions)),
    }
    return race(work, contestants, runs=runs, same=_assert_same)


def _everything(predictions: pl.DataFrame) -> pl.DataFrame:
    parts = {*predictions["part"]} - {*DIAGNOSTIC_PARTS}
    return metrics_table(measured_groups(predictions, parts, DIAGNOSTICS))


def _predictions(index: int, n_labels: int, part: str) -> pl.DataFrame:
    rng = np.random.default_rng(index)
    setting, demonstration_set, query_id = (place.ravel() for place in np.indices((*PARTS[part], N_QUERIES)))
    n_requests = len(query_id)
    frames = []
    for definition in ("paper", "released"):
        probs = rng.dirichlet(np.ones(n_labels), n_requests)
        columns = {
            "suite": "staicc",
            "part": part,
            "dataset": f"dataset-{index}",
            "method": "vanilla",
            "definition": definition,
            "position": np.arange(n_requests),
            "query_id": query_id,
            "demonstration_set": demonstration_set,
            "n_shots": 4,
            "template": setting if part == "template" else 0,
            "noise_rate": setting / 4 if part == "gler" else 0.0,
            "n_wrong_labels": setting if part == "gler" else 0,
            "prompt_id": [f"{part}-{index}-{position}" for position in range(n_requests)],
            "gold": rng.integers(0, n_labels, n_requests),
            "pred": probs.argmax(axis=1),
            "label_names": [[f"label {label}" for label in range(n_labels)]] * n_requests,
            "label_probs": probs,
        }
        frames.append(pl.DataFrame(columns).cast(PREDICTIONS))
    return pl.concat(frames)


def _toolkit_values(matrices: dict[tuple[str, str], Matrix]) -> Values:
    return {
        (dataset, part, metric): value
        for (dataset, part), matrix in matrices.items()
        for metric, value in _of_part(part, *matrix)
    }


def _of_part(part: str, gold: list[int], rows: list[list[float]]) -> Iterator[tuple[str, float]]:
    n_prompts = len(rows) // PARTS[part][0]
    if part == "normal":
        yield "empirical_bias", functional.post_bias_dl_metric(gold, rows)
        for name, metric in TOOLKIT.items():
            yield name, metric(gold, rows)
    elif part == "gler":
        runs = [slice(start, start + n_prompts) for start in range(0, len(rows), n_prompts)]
        for name, metric in TOOLKIT.items():
            at_rates = [metric(gold[run], rows[run]) for run in runs]
            slope, _intercept = functional.linear_regression(RELEASED_RATES, at_rates)
            yield "gler" if name == "accuracy" else f"gler_{name}", slope
    elif part == "template":
        yield "template_consistency", functional.consistency(gold, rows, loop_length=n_prompts)
    elif part == "sampling":
        yield "sampling_consistency", functional.consistency(gold, rows, loop_length=N_QUERIES)
    else:
        yield f"{part}_bias", functional.bias_mean_entropy_metric(gold, rows)


def _released_values(table: pl.DataFrame) -> Values:
    """Select the values that the toolkit also computes.

    It has no means over datasets and none of this project's further metrics, and over templates and demonstration sets
    only consistency.
    """
    ours = {*METRICS, *SCORE_PARTS} - {*STAICC_METRICS}
    shared = (pl.col("dataset") != MEAN_OVER_DATASETS) & ~pl.col("metric").str.contains("_over_")
    shared &= ~pl.col("metric").is_in(ours)
    values = table.filter(shared, definition="released")
    return {
        (dataset, part, metric): value
        for dataset, part, metric, value in values.select("dataset", "part", "metric", "value").iter_rows()
    }


def _assert_same(theirs: Values, ours: Values) -> None:
    assert ours.keys() == theirs.keys()
    np.testing.assert_allclose([ours[key] for key in theirs], list(theirs.values()), rtol=0, atol=1e-9)


if __name__ == "__main__":
    main()
