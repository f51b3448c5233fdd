"""Write the notes at the top of a page: definitions of prompts, and labels without training prompts."""

from collections.abc import Iterator, Sequence

import polars as pl

from evaluator.methods import METHODS
from evaluator.record import MeasuredRecord
from evaluator.report.sections.methods import method_order


def prompt_definition_notes(run: MeasuredRecord, metrics: pl.DataFrame) -> Iterator[str]:
    """Yield a note on the parts and methods whose prompts follow one definition and are not measured under the other.

    Args:
        run: the run's record.
        metrics: schemas.METRICS.
    """
    followed = run.prompts.prompt_definition
    measured = metrics.select("suite", "part").unique().sort(pl.all()).rows()
    parts = [part for suite, part in measured if run.prompts.parts[suite][part].prompts_differ]
    ordered = sorted(set(metrics["method"]), key=method_order)
    methods = [name for name in ordered if name in METHODS and METHODS[name].prompts.differ]
    named = in_words([*_named("the part", parts), *_named("the method", methods)])
    if named:
        other = "released" if followed == "paper" else "paper"
        yield (
            f"Paper and released code build different prompts for {named}. Here they are those of {followed}, so that "
            f"these have no results under {other}; a run with --definition {other} has them."
        )


def missing_class_notes(missing: pl.DataFrame) -> Iterator[str]:
    """Yield a note on the labels without training prompts.

    Args:
        missing: as returned by methods.training_states.missing_classes.
    """
    if missing.is_empty():
        return
    labels = missing.group_by("dataset", "method").agg(pl.col("label").sort())
    for dataset, names, methods in (
        labels.group_by("dataset", "label").agg(pl.col("method").sort()).sort("dataset", "label").iter_rows()
    ):
        yield (
            f"{dataset}: none of the training prompts of {in_words(methods)} has {labels_in_words(names)}. Under paper "
            f"they give {pronoun(names)} no probability; under released the queries of this dataset have "
            "vanilla's probabilities."
        )


def _named(kind: str, names: Sequence[str]) -> list[str]:
    return [f"{kind}{'s' * (len(names) > 1)} {in_words(names)}"] if names else []


def labels_in_words(names: Sequence[str]) -> str:
    """Return “the label “x”” or “the labels “x” and “y””."""
    return f"the label{'s' * (len(names) > 1)} {in_words([f'“{name}”' for name in names])}"


def pronoun(names: Sequence[str]) -> str:
    """Return “it” or “them”."""
    return "it" if len(names) == 1 else "them"


def in_words(names: Sequence[str]) -> str:
    """Return “a, b and c”."""
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)
