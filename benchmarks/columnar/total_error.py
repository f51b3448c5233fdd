"""Time the variance components of a million scores, and all measures of total error of a StaICC run.

A StaICC run has ten datasets of 512 queries; every query has prompts with two demonstration sets and nine templates,
and with eight sets and one template. Components are compared with plain sums of squares, computed from the definition.
"""

from typing import Any

import numpy as np
import polars as pl

from benchmarks.columnar.metrics import N_LABELS, PARTS, _predictions
from benchmarks.harness import Target, Work, print_targets, race, require_green_tests
from evaluator.metrics.groups import prediction_groups
from evaluator.statistics.variance_components import variance_components
from evaluator.suites.staicc.robustness import total_errors

N_QUERIES, N_TEMPLATES, N_SETS = 55_556, 9, 2  # 1,000,008 scores


def main() -> None:
    require_green_tests("tests/statistics/test_variance_components.py")
    cells = np.random.default_rng(0).normal(size=(N_QUERIES, N_TEMPLATES, N_SETS))
    million = race(
        Work(
            benchmark="total_error",
            case="variance components",
            items=cells.size,
            unit="scores",
            packages=["numpy", "scipy"],
        ),
        {"plain sums": lambda: _plain(cells), "evaluator, with intervals": lambda: _components(cells)},
        runs=5,
        same=lambda theirs, ours: np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-10),
    )
    predictions = pl.concat([_predictions(index, n, part) for index, n in enumerate(N_LABELS) for part in PARTS])
    whole = race(
        Work(
            benchmark="total_error",
            case="StaICC whole: components, total intervals, design study",
            items=predictions.height,
            unit="requests",
            packages=["polars", "numpy", "scipy"],
        ),
        {"evaluator, all": lambda: _total_error(predictions)},
        runs=3,
    )
    print_targets(
        Target(
            what="components of a million scores, s", value=million["evaluator, with intervals"].median_s, at_most=5
        ),
        Target(what="total error of a StaICC run, s", value=whole["evaluator, all"].median_s, at_most=10),
    )


def _total_error(predictions: pl.DataFrame) -> int:
    parts = total_errors()
    for group in prediction_groups(predictions):
        parts.add(group)
    return parts.tables(["paper", "released"])["variance_components"].height


def _components(cells: Any) -> list[float]:
    found = variance_components(cells)
    return [found[name].variance for name in ("query", "level", "interaction", "draw", "residual")]


def _plain(cells: Any) -> list[float]:
    """Compute the components from mean squares over all cells, by solving the equations of their expected values."""
    n_queries, n_levels, n_draws = cells.shape
    mean, query, level = cells.mean(), cells.mean(axis=(1, 2), keepdims=True), cells.mean(axis=(0, 2), keepdims=True)
    both, draw = cells.mean(axis=2, keepdims=True), cells.mean(axis=1, keepdims=True)

    def mean_square(effect: Any, degrees: int) -> float:
        return float((np.broadcast_to(effect, cells.shape) ** 2).sum()) / degrees

    of_query = mean_square(query - mean, n_queries - 1)
    of_level = mean_square(level - mean, n_levels - 1)
    of_both = mean_square(both - query - level + mean, (n_queries - 1) * (n_levels - 1))
    of_draw = mean_square(draw - query, n_queries * (n_draws - 1))
    residual = mean_square(cells - both - draw + query, n_queries * (n_draws - 1) * (n_levels - 1))
    return [
        (of_query - of_both - of_draw + residual) / (n_levels * n_draws),
        (of_level - of_both) / (n_queries * n_draws),
        (of_both - residual) / n_draws,
        (of_draw - residual) / n_levels,
        residual,
    ]


if __name__ == "__main__":
    main()
