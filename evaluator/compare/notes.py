"""Write the notes at the top of a comparison: what was left out, and which models are not independent."""

from collections.abc import Iterator, Sequence
from itertools import combinations

import polars as pl

from evaluator.compare.results import ANSWER_KEY, DATASET, datasets_of
from evaluator.compare.runs import ComparedRun, different_settings, settings

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
