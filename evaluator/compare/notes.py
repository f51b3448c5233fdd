"""Write the notes at the top of a comparison: what was left out, and which models are not independent."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import polars as pl

from evaluator.compare.results import ANSWER_KEY, DATASET, datasets_of
from evaluator.compare.runs import ComparedRun, different_settings, settings
from evaluator.methods import REFERENCE_METHOD
from evaluator.report.table import p_text
from evaluator.schemas import DEFINITIONS, MEAN_OVER_DATASETS
from evaluator.statistics.paired import LEVEL

PLACE = pl.format("{} / {}", "suite", "part")


def comparison_notes(
    runs: Sequence[ComparedRun], comparison: pl.DataFrame, results: Sequence[pl.DataFrame] = ()
) -> list[str]:
    """Return a note for each dataset, method or parameter count that is missing, and for runs that are not independent.

    Args:
        runs: that are compared.
        comparison: schema.COMPARISON of the runs.
        results: compare.results.request_results of each run.
    """
    return [
        *_left_out(runs, comparison),
        *_not_measured(runs, comparison),
        *_settings(runs),
        *_same_weights(runs),
        *_same_scores(runs[: len(results)], results),
        *_without_parameters(runs),
    ]


def comparison_answer(runs: Sequence[ComparedRun], differences: pl.DataFrame) -> str:
    """Say which run has the best mean accuracy, by how much, and whether that is shown; nothing without accuracies.

    The numbers are of the first part, definition and method that the runs were measured under; `differences` are
    schema.DIFFERENCES.
    """
    rows = differences.filter(pl.col("model_a") != pl.col("model_b"), dataset=MEAN_OVER_DATASETS, metric="accuracy")
    if rows.is_empty():
        return ""
    parts = [(suite, part) for suite, parts in runs[0].record.prompts.parts.items() for part in parts]
    first = min(
        rows.select("suite", "part", "definition", "method_a").unique().rows(),
        key=lambda key: (
            parts.index(key[:2]) if key[:2] in parts else len(parts),
            DEFINITIONS.index(key[2]),
            key[3] != REFERENCE_METHOD,
            key,
        ),
    )
    rows = rows.filter(**dict(zip(("suite", "part", "definition", "method_a"), first, strict=True)))
    # Each pair in both directions: how far the first model is ahead of the second.
    turned = rows.rename({"model_a": "model_b", "model_b": "model_a"}).with_columns(
        difference=-pl.col("difference"), ci_low=-pl.col("ci_high"), ci_high=-pl.col("ci_low")
    )
    both = pl.concat([rows, turned.select(rows.columns)])
    ranked = both.group_by("model_a").agg(pl.col("difference").sum()).sort("difference", "model_a", descending=True)
    ahead = both.filter(model_a=ranked["model_a"][0]).sort("difference", "model_b")
    return " ".join(map(_difference_text, ahead.head(MAX_ANSWERS).iter_rows(named=True)))


def _difference_text(row: Mapping[str, Any]) -> str:
    points, low, high = (None if row[name] is None else 100 * row[name] for name in ("difference", "ci_low", "ci_high"))
    p_value = p_text(row["p_holm"]) if row["p_holm"] < 0.001 else f"= {p_text(row['p_holm'])}"
    interval = "" if low is None else f"95% interval {low:.1f} to {high:.1f}, "
    tests = f" after Holm's correction for {row['n_tests']} tests" if row["n_tests"] > 1 else ""
    numbers = f"by {points:.1f} points of accuracy ({interval}p {p_value}{tests}; {row['n_queries']:,} queries)"
    if row["p_holm"] <= LEVEL:
        return f"{row['model_a']} is better than {row['model_b']} {numbers}."
    return f"No difference is shown between {row['model_a']} and {row['model_b']}: the first is ahead {numbers}."


MAX_ANSWERS = 5
"""Largest number of models that the best is compared with in words."""


def _left_out(runs: Sequence[ComparedRun], comparison: pl.DataFrame) -> Iterator[str]:
    datasets = pl.concat([datasets_of(run).with_columns(model=pl.lit(run.model)) for run in runs])
    left_out = datasets.join(comparison, on=DATASET, how="anti", maintain_order="left")
    models_of_dataset = left_out.group_by(DATASET, maintain_order=True).agg("model").sort(DATASET)
    named = [
        f"{place}, {dataset} (only in {', '.join(models)})"
        for place, dataset, models in models_of_dataset.select(PLACE, "dataset", "model").rows()
    ]
    if named:
        yield f"Only datasets that all runs have are compared. Left out: {'; '.join(named)}."


def _not_measured(runs: Sequence[ComparedRun], comparison: pl.DataFrame) -> Iterator[str]:
    measured = comparison.select("suite", "part", "method").unique().sort(pl.all())
    for run in runs:
        missing = measured.join(run.metrics, on=["suite", "part", "method"], how="anti", maintain_order="left")
        named = [f"{method} in {place}" for place, method in missing.select(PLACE, "method").rows()]
        if named:
            yield f"{run.model} has no results of {', none of '.join(named)}."


def _same_weights(runs: Sequence[ComparedRun]) -> Iterator[str]:
    first_of: dict[str, ComparedRun] = {}
    for run in runs:
        first = first_of.setdefault(run.record.model.weights_fingerprint, run)
        if first is not run:
            yield f"{first.model} and {run.model} have the same weights. Correlations and line fits are over the first."


def _settings(runs: Sequence[ComparedRun]) -> Iterator[str]:
    is_one_model = len({run.record.model.weights_fingerprint for run in runs}) == 1
    for name in different_settings([run.record for run in runs]):
        if name not in ("dtype", "engine") and (is_one_model or name != "tokenizer"):
            values = "; ".join(f"{run.model}: {settings(run.record).get(name, 'none')}" for run in runs)
            yield f"The runs differ in their {name}, so that their differences are those of it as well. {values}."


def _same_scores(runs: Sequence[ComparedRun], results: Sequence[pl.DataFrame]) -> Iterator[str]:
    """Yield a note for runs whose probabilities are the same numbers for every request."""
    key = [*ANSWER_KEY, "position"]
    numbers = [rows.sort(key).select(*key, "true_label_prob") for rows in results]
    for (first, a), (second, b) in combinations(zip(runs, numbers, strict=True), 2):
        if a.height and not a["true_label_prob"].has_nulls() and a.equals(b):
            yield (
                f"{first.model} and {second.model} have the same scores to the last digit ({a.height:,} predictions), "
                "so that they are one model, or what sets them apart had no effect. Check --model and --adapter."
            )


def _without_parameters(runs: Sequence[ComparedRun]) -> Iterator[str]:
    unknown = [run.model for run in runs if run.record.model.n_parameters is None]
    if unknown:
        yield f"Not in the figures by size, because their number of parameters was not recorded: {', '.join(unknown)}."
