"""The comparison goes in; rank correlations between measures and between models come out."""

from collections.abc import Iterator
from itertools import combinations

import polars as pl

from evaluator.compare.measures import with_measure
from evaluator.compare.schema import RANK_CORRELATIONS, RANK_CORRELATIONS_KEY
from evaluator.methods import REFERENCE_METHOD
from evaluator.schemas import MEAN_OVER_DATASETS
from evaluator.statistics.rank_correlation import rank_correlation

RANKED_BY = "accuracy"
"""The metric that datasets are ranked by when two models are compared."""

NOT_INDEPENDENT = "no p-value: points of one model or one dataset are not independent"


def rank_correlations(comparison: pl.DataFrame) -> pl.DataFrame:
    """Spearman's rho between every two measures and between every two models, under the method vanilla.

    Over models, a measure of a model is its mean over datasets, as in Cho & Inoue
    2025 (StaICC), figure 8; over models and datasets, every dataset of every model is a point, and no p-value is given.
    Between models, the points are the accuracies on each dataset. Points where either value is undefined are left out.

    Args:
        comparison: schemas.COMPARISON.

    Returns schemas.RANK_CORRELATIONS, sorted by its key.
    """
    rows = with_measure(comparison.filter(method=REFERENCE_METHOD))
    is_mean = pl.col("dataset") == MEAN_OVER_DATASETS
    found = [
        {"definition": str(definition)} | row
        for (definition,), own in rows.partition_by("definition", as_dict=True, maintain_order=True).items()
        for row in (
            *_between_measures(own.filter(is_mean), "models"),
            *_between_measures(own.filter(~is_mean), "models and datasets"),
            *_between_models(own.filter(~is_mean)),
        )
    ]
    return pl.DataFrame(found, schema=RANK_CORRELATIONS).sort(RANK_CORRELATIONS_KEY)


def _between_measures(rows: pl.DataFrame, over: str) -> Iterator[dict[str, object]]:
    points = rows.pivot("measure", index=["number", "dataset"], values="value", sort_columns=True)
    for row, pairs in _correlated(points, sorted(set(rows["measure"]))):
        beside: dict[str, object] = {"between": "measures", "over": over, "n_models": pairs["number"].n_unique()}
        if over == "models and datasets" and row["rho"] is not None:
            beside |= {"p_value": None, "reason": NOT_INDEPENDENT}
        yield row | beside


def _between_models(rows: pl.DataFrame) -> Iterator[dict[str, object]]:
    ranked = rows.filter(metric=RANKED_BY).partition_by("measure", as_dict=True, maintain_order=True)
    for (measure,), own in ranked.items():
        points = own.pivot("model", index="dataset", values="value")
        for row, _ in _correlated(points, own.sort("number")["model"].unique(maintain_order=True).to_list()):
            yield row | {"between": "models", "over": "datasets", "measure": measure, "n_models": 2}


def _correlated(points: pl.DataFrame, columns: list[str]) -> Iterator[tuple[dict[str, object], pl.DataFrame]]:
    """Each two of the columns, with the points at which both are defined."""
    for a, b in combinations(columns, 2):
        pairs = points.filter(pl.all_horizontal(pl.col(a, b).is_not_null() & pl.col(a, b).is_not_nan()))
        found = rank_correlation(pairs[a].to_numpy(), pairs[b].to_numpy())
        yield {"a": a, "b": b, "n_points": pairs.height, **found._asdict()}, pairs
