"""Write the notes at the top of a comparison: what was left out, and which models are not independent."""

from collections.abc import Iterator, Sequence
from itertools import combinations

import polars as pl

from evaluator.compare.results import DATASET, datasets_of
from evaluator.compare.runs import ComparedRun, prompt_form

PLACE = pl.format("{} / {}", "suite", "part")


def comparison_notes(runs: Sequence[ComparedRun], comparison: pl.DataFrame) -> list[str]:
    """Return a note for each dataset, method or parameter count that is missing, and for models of the same weights.

    Args:
        comparison: schema.COMPARISON of the runs.
    """
    return [
        *_left_out(runs, comparison),
        *_not_measured(runs, comparison),
        *_forms(runs),
        *_same_weights(runs),
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
    for first, second in combinations(runs, 2):
        if first.record.model.weights_fingerprint == second.record.model.weights_fingerprint:
            dtypes = [run.record.engine.dtypes for run in (first, second)]
            computed = f", computed in {dtypes[0]} and {dtypes[1]}" if dtypes[0] != dtypes[1] else ""
            yield (
                f"{first.model} and {second.model} have the same weights{computed}. They count as two models in every "
                "correlation and line fit."
            )


def _forms(runs: Sequence[ComparedRun]) -> Iterator[str]:
    if any(run.record.scores.chat for run in runs):
        named = "; ".join(f"{run.record.model.title}: {prompt_form(run.record)}" for run in runs)
        yield f"How prompts reach the models: {named}. What is asked is the same."


def _without_parameters(runs: Sequence[ComparedRun]) -> Iterator[str]:
    unknown = [run.model for run in runs if run.record.model.n_parameters is None]
    if unknown:
        yield f"Not in the figures by size, because their number of parameters was not recorded: {', '.join(unknown)}."
