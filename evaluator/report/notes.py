"""Write the notes and warnings at the top of a page: prompts of other definitions, missing labels, small label mass."""

from collections.abc import Iterator, Sequence

import polars as pl

from evaluator.methods import METHODS, REFERENCE_METHOD
from evaluator.record import MeasuredRecord
from evaluator.report.methods import method_order
from evaluator.report.section import MeasuredRun
from evaluator.report.terminal import first_definition
from evaluator.schemas import MEAN_OVER_DATASETS

SMALL_LABEL_MASS = 0.1
"""Median label mass below which a reader is warned: nine tenths of the probability are on texts that are no label."""


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


def majority_warnings(run: MeasuredRun) -> Iterator[str]:
    """Yield a sentence for each dataset of one's own on which vanilla is not more accurate than one label always is."""
    if run.record.prompts.config.get("datasets", True) or "confusion" not in run.record.tables:
        return
    accuracies = first_definition(run.table("metrics").filter(metric="accuracy", method=REFERENCE_METHOD))
    poor = accuracies.filter(pl.col("dataset") != MEAN_OVER_DATASETS, pl.col("value") <= pl.col("majority"))
    for row in poor.sort("suite", "part", "dataset").iter_rows(named=True):
        key = {name: row[name] for name in ("suite", "part", "dataset")}
        answers = (
            run.table("confusion").filter(method=REFERENCE_METHOD, **key).group_by("pred").agg(pl.sum("n_requests"))
        )
        pred, n = answers.sort("n_requests", "pred", descending=[True, False]).row(0)
        names = run.table("label_spaces").filter(**key)["label_names"][0]
        yield (
            f"{row['dataset']}: accuracy {row['value']:.3f} is not above {row['majority']:.3f}, that of always "
            f"answering with the most frequent label; the model answers “{names[pred]}” to "
            f"{n / answers['n_requests'].sum():.0%} of the prompts. Try "
            "--methods vanilla,batch_calibration, which corrects a preference without more calls; "
            "--chat-template none,auto; more --shots; an --instruction; label names that say more (--labels); or a "
            "larger model."
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


def label_mass_warnings(metrics: pl.DataFrame) -> Iterator[str]:
    """Yield a sentence for each part of classification in which the median label mass of some datasets is small.

    Takes schemas.METRICS, of which the first measured definition is used.
    """
    classified = metrics.filter(metric="accuracy").select("suite", "part").unique()
    medians = first_definition(metrics.filter(metric="label_mass_median"))
    small = (
        medians.filter(pl.col("dataset") != MEAN_OVER_DATASETS, pl.col("value") < SMALL_LABEL_MASS)
        .join(classified, on=["suite", "part"], how="semi")
        .sort("suite", "part", "value", "dataset")
    )
    for (suite, part), rows in small.group_by("suite", "part", maintain_order=True):
        named = ", ".join(f"{name} (median {value:.2g})" for name, value in rows.select("dataset", "value").iter_rows())
        yield (
            f"{suite} / {part}: the labels have less than {SMALL_LABEL_MASS:.0%} of the model's probability on "
            f"{named}. It may not be answering in labels there; another --label-boundary, other label names or more "
            "demonstrations may help."
        )
