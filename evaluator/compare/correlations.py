"""Compute rank correlations between measures and between models from the table of a comparison."""

from collections.abc import Iterator
from itertools import combinations

import polars as pl

from evaluator.compare.measures import with_measure
from evaluator.compare.schema import RANK_CORRELATIONS, RANK_CORRELATIONS_KEY
from evaluator.methods import REFERENCE_METHOD
from evaluator.schemas import MEAN_OVER_DATASETS
from evaluator.statistics.correlation import rank_correlation

RANKED_BY = "accuracy"
"""Metric that ranks datasets when two models are compared."""

NOT_INDEPENDENT = "no p-value: points of one model or one dataset are not independent"


def rank_correlations(comparison: pl.DataFrame) -> pl.DataFrame:
    """Return Spearman's rho between every two measures and between every two models, under the method vanilla.

    Between measures, a point is a model with its means over datasets (Cho & Inoue 2025 (StaICC), figure 8), or a model
    on one dataset, without a p-value. Between models, a point is the accuracy on a dataset. Points where either value
    is undefined are left out.

    Args:
        comparison: schema.COMPARISON.

    Returns schema.RANK_CORRELATIONS, sorted by its key.
    """
    rows = with_measure(comparison.filter(method=REFERENCE_METHOD))
    is_mean = pl.col("dataset") == MEAN_OVER_DATASETS
    correlations = [
        {"definition": str(definition)} | row
        for (definition,), measured in rows.partition_by("definition", as_dict=True, maintain_order=True).items()
        for row in (
            *_between_measures(measured.filter(is_mean), "models"),
            *_between_measures(measured.filter(~is_mean), "models and datasets"),
            *_between_models(measured.filter(~is_mean)),
        )
    ]
    return pl.DataFrame(correlations, schema=RANK_CORRELATIONS).sort(RANK_CORRELATIONS_KEY)


def _between_measures(rows: pl.DataFrame, over: str) -> Iterator[dict[str, object]]:
    points = rows.pivot("measure", index=["number", "dataset"], values="value", sort_columns=True)
    for row, pairs in _correlated(points, sorted(set(rows["measure"]))):
        context: dict[str, object] = {"between": "measures", "over": over, "n_models": pairs["number"].n_unique()}
        if over == "models and datasets" and row["rho"] is not None:
            context |= {"p_value": None, "reason": NOT_INDEPENDENT}
        yield row | context


def _between_models(rows: pl.DataFrame) -> Iterator[dict[str, object]]:
    by_measure = rows.filter(metric=RANKED_BY).partition_by("measure", as_dict=True, maintain_order=True)
    for (measure,), accuracies in by_measure.items():
        points = accuracies.pivot("model", index="dataset", values="value")
        for row, _ in _correlated(points, accuracies.sort("number")["model"].unique(maintain_order=True).to_list()):
            yield row | {"between": "models", "over": "datasets", "measure": measure, "n_models": 2}


def _correlated(points: pl.DataFrame, columns: list[str]) -> Iterator[tuple[dict[str, object], pl.DataFrame]]:
    """Yield the correlation of every two columns, with the points at which both are defined."""
    for a, b in combinations(columns, 2):
        pairs = points.filter(pl.all_horizontal(pl.col(a, b).is_not_null() & pl.col(a, b).is_not_nan()))
        correlation = rank_correlation(pairs[a].to_numpy(), pairs[b].to_numpy())
        yield {"a": a, "b": b, "n_points": pairs.height, **correlation._asdict()}, pairs
