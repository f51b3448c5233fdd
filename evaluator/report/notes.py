"""What a reader must know before the numbers: the record and what was found missing go in, sentences come out."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from evaluator.report.facts import look_up
from evaluator.report.methods import method_order
from evaluator.suites import ALL_METHODS as METHODS
from evaluator.suites import SUITES

UNDEFINED = {"paper": "infinite", "released": "undefined"}
"""What becomes of the empirical bias where a label that no query has is given probability."""


def reader_notes(
    run: Mapping[str, Any], metrics: pl.DataFrame, missing: pl.DataFrame, absent: pl.DataFrame
) -> list[str]:
    """Whose prompts these are, and which labels training prompts or queries lack.

    Args:
        metrics: schemas.METRICS.
        missing: methods.training_states.missing_classes.
        absent: diagnostics.label_bias.absent_labels.
    """
    return [*_whose_prompts(run, metrics), *_missing_classes(missing), *_absent_labels(absent)]


def _whose_prompts(run: Mapping[str, Any], metrics: pl.DataFrame) -> Iterator[str]:
    followed = look_up(run, "store", "prompt_definition")
    measured = metrics.select("suite", "part").unique().sort(pl.all()).rows()
    parts = [part for suite, part in measured if suite in SUITES and part in SUITES[suite].prompts_differ]
    own = sorted(set(metrics["method"]), key=method_order)
    methods = [name for name in own if name in METHODS and METHODS[name].prompts_differ]
    named = _and([*_named("the part", parts), *_named("the method", methods)])
    if followed and named:
        other = "released" if followed == "paper" else "paper"
        yield (
            f"Paper and released code build different prompts for {named}. Here they are those of {followed}, so that "
            f"these have no rows under the other; a run with --definition {other} has them."
        )


def _missing_classes(missing: pl.DataFrame) -> Iterator[str]:
    if missing.is_empty():
        return
    labels = missing.group_by("dataset", "method").agg(pl.col("label").sort())
    for dataset, names, methods in (
        labels.group_by("dataset", "label").agg(pl.col("method").sort()).sort("dataset", "label").iter_rows()
    ):
        yield (
            f"{dataset}: none of the training prompts of {_and(methods)} has {_labels(names)}. Under paper they give "
            f"{_it(names)} no probability; under released the queries of this dataset have vanilla's probabilities."
        )


def _absent_labels(absent: pl.DataFrame) -> Iterator[str]:
    if absent.is_empty():
        return
    found = absent.group_by("dataset").agg(pl.col("label_name", "definition").unique().sort()).sort("dataset")
    for dataset, labels, definitions in found.select("dataset", "label_name", "definition").iter_rows():
        becomes = _and([f"{UNDEFINED[definition]} under {definition}" for definition in definitions])
        yield (
            f"{dataset}: no query has {_labels(labels)}. The empirical bias of a method that gives {_it(labels)} "
            f"probability is {becomes}, and so is the mean over datasets."
        )


def _named(kind: str, names: Sequence[str]) -> list[str]:
    return [f"{kind}{'s' * (len(names) > 1)} {_and(names)}"] if names else []


def _labels(names: Sequence[str]) -> str:
    return f"the label{'s' * (len(names) > 1)} {_and([f'“{name}”' for name in names])}"


def _it(names: Sequence[str]) -> str:
    return "it" if len(names) == 1 else "them"


def _and(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)
