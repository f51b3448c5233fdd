"""Write the notes and warnings of a page, and summarise the metrics of a run in a few lines for a terminal.

Notes and warnings are about parts that another definition measures, labels without training prompts, accuracies below
the majority baseline, and small label mass.
"""

from collections.abc import Iterator, Sequence

import polars as pl

from evaluator.config import DEFINITIONS
from evaluator.errors import plural
from evaluator.methods import METHODS, REFERENCE_METHOD
from evaluator.metrics.guessing import VERDICTS
from evaluator.random_baselines.max_random import TAIL_TO_TELL
from evaluator.record import MeasuredRecord, ScoresRecord
from evaluator.report.methods import method_order
from evaluator.report.run_record import arithmetic_rate
from evaluator.report.section import MeasuredRun
from evaluator.schemas import MEAN_OVER_DATASETS


def verdict_lines(metrics: pl.DataFrame) -> list[str]:
    """Return lines for a terminal: for each suite and part, a line about vanilla and a table of the other methods.

    The line has the mean accuracy over datasets, the baselines chance and majority, and the number of datasets with
    each verdict (metrics.guessing.VERDICTS); if there is one dataset, its accuracy and verdict. The table has the mean
    accuracy of each method and its difference to vanilla. In a part without vanilla, each method has a line.

    Args:
        metrics: schemas.METRICS. The first measured definition of config.DEFINITIONS is shown; rows of a method
            without verdicts are left out.
    """
    is_judged = pl.col("verdict").is_not_null()
    is_mean = pl.col("dataset") == MEAN_OVER_DATASETS  # has no verdict if datasets differ in their numbers of queries
    judged = metrics.filter(is_judged.any().over("suite", "part", "method"), is_judged | is_mean, metric="accuracy")
    parts = first_definition(judged).group_by("suite", "part", maintain_order=True)
    return [line for key, rows in parts for line in _part_lines(key, rows)]


def throughput_line(scores: ScoresRecord) -> str | None:
    """Describe the speed of scoring in a line for a terminal; None if this run scored no prompts itself."""
    rates = scores.throughput
    if not rates.elapsed_s or not scores.prompt_tokens:
        return None
    if scores.cached_tokens is None:
        return f"Scored at {rates.requests_per_s:,.1f} prompts/s"
    replicas = rates.replica_computed_tokens_per_s
    together = f", {rate}" if (rate := arithmetic_rate(rates)) else ""
    if len(replicas) > 1:
        together += f"; {len(replicas)} replicas, the slowest at {min(replicas):,.0f} tokens computed/s"
    return (
        f"Scored at {rates.requests_per_s:,.1f} prompts/s, {rates.computed_tokens_per_s:,.0f} tokens computed/s, "
        f"{scores.cached_tokens / scores.prompt_tokens:.0%} of tokens cached{together}"
    )


def first_definition(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of the first definition, in the order of config.DEFINITIONS, that has rows."""
    measured = next((name for name in DEFINITIONS if name in set(rows["definition"])), None)
    return rows.filter(definition=measured) if measured else rows


def _part_lines(key: tuple[object, ...], rows: pl.DataFrame) -> Iterator[str]:
    methods = rows["method"].unique(maintain_order=True).to_list()
    has_vanilla = REFERENCE_METHOD in methods
    for method in [REFERENCE_METHOD] if has_vanilla else methods:
        yield _line((*key, method), rows.filter(method=method))
    if has_vanilla:
        yield from _other_methods(rows.filter(dataset=MEAN_OVER_DATASETS), rows["dataset"].n_unique() > 2)


def _other_methods(means: pl.DataFrame, of_several: bool) -> Iterator[str]:
    accuracies = dict(means.select("method", "value").iter_rows())
    vanilla = accuracies.pop(REFERENCE_METHOD, None)
    if vanilla is None or not accuracies:
        return
    width = max(len(name) for name in ("method", *accuracies))
    yield f"  {'method':{width}}  {'mean accuracy' if of_several else 'accuracy':>13}  minus vanilla"
    for method, value in accuracies.items():
        yield f"  {method:{width}}  {value:13.3f}  {value - vanilla:+13.3f}"


def _line(key: tuple[object, ...], rows: pl.DataFrame) -> str:
    suite, part, method = key
    datasets = rows.filter(pl.col("dataset") != MEAN_OVER_DATASETS)
    mean, what = rows.filter(dataset=MEAN_OVER_DATASETS), "mean accuracy"
    counts = ", ".join(f"{verdict} on {datasets.filter(verdict=verdict).height}" for verdict in VERDICTS)
    counts += f" of {plural(datasets.height, 'dataset')}"
    if datasets.height == 1:
        mean, what, counts = datasets, f"accuracy on {datasets['dataset'].item()}", datasets["verdict"].item()
    numbers = [
        f"{what} {value:.3f}, chance {chance:.3f}, majority label {majority:.3f}; "
        for value, chance, majority in mean.select("value", "chance", "majority").drop_nulls().iter_rows()
    ]
    corrected = f"{TAIL_TO_TELL:.0%} level, Holm's correction for {plural(datasets['n_tests'].item(0), 'test')}"
    return f"{suite} / {part}, {method}: {''.join(numbers)}{counts} ({corrected})"


SMALL_LABEL_MASS = 0.1
"""Median label mass below which the page has a warning: texts other than labels have over 90% of the probability."""


def prompt_definition_notes(run: MeasuredRecord, metrics: pl.DataFrame) -> Iterator[str]:
    """Yield at most one note: the parts and methods that paper and released code give different prompts.

    A run has the prompts of one of the two definitions, so these parts and methods have no results under the other.

    Args:
        run: record of the run.
        metrics: schemas.METRICS.
    """
    followed = run.prompts.prompt_definition
    measured = metrics.select("suite", "part").unique().sort(pl.all()).rows()
    parts = [part for suite, part in measured if run.prompts.parts[suite][part].prompts_differ]
    ordered = sorted(set(metrics["method"]), key=method_order)
    methods = [name for name in ordered if name in METHODS and METHODS[name].prompts.differ]
    kinds = {"the part": parts, "the method": methods}
    named = in_words([f"{kind}{'s' * (len(some) > 1)} {in_words(some)}" for kind, some in kinds.items() if some])
    if named:
        other = "released" if followed == "paper" else "paper"
        yield (
            f"Paper and released code build different prompts for {named}. This run has the prompts of {followed}, so "
            f"these have no results under {other}; a run with --definition {other} has them."
        )


def missing_class_notes(missing: pl.DataFrame) -> Iterator[str]:
    """Yield a note for each dataset and set of labels that the training prompts of some methods lack.

    Args:
        missing: schemas.MISSING_CLASSES, as returned by methods.hidden_states.missing_classes.
    """
    if missing.is_empty():
        return
    labels = missing.group_by("dataset", "method").agg(pl.col("label").sort())
    of_methods = labels.group_by("dataset", "label").agg(pl.col("method").sort()).sort("dataset", "label")
    for dataset, names, methods in of_methods.iter_rows():
        yield (
            f"{dataset}: none of the training prompts of {in_words(methods)} has {labels_in_words(names)}. Under paper "
            f"they give {pronoun(names)} no probability; under released the queries of this dataset have "
            "vanilla's probabilities."
        )


def majority_warnings(run: MeasuredRun) -> Iterator[str]:
    """Yield a warning for each table of the user on which vanilla is not above the accuracy of the majority label.

    Runs on published datasets have no such warnings.
    """
    is_imported = run.record.model.kind == "imported"
    is_published = bool(run.record.prompts.config.get("datasets", True)) and not is_imported
    # The table `confusion` counts answers under the definition `paper` only.
    if is_published or "confusion" not in run.record.tables or run.table("confusion").is_empty():
        return
    accuracies = first_definition(run.table("metrics").filter(metric="accuracy", method=REFERENCE_METHOD))
    poor = accuracies.filter(pl.col("dataset") != MEAN_OVER_DATASETS, pl.col("value") <= pl.col("majority"))
    has_questions = (run.record.prompts.config.get("data") or {}).get("questions") is not None
    texts = _TEXTS_OF_QUESTIONS if has_questions else _TEXTS_OF_TABLES
    chat = "--chat-template none,auto; " if run.record.model.has_chat_template else ""
    has_parts = accuracies["part"].n_unique() > 1
    for row in poor.sort("suite", "part", "dataset").iter_rows(named=True):
        key = {name: row[name] for name in ("suite", "part", "dataset")}
        confusion = run.table("confusion").filter(method=REFERENCE_METHOD, **key)
        # An answer that counts as wrong is stored as a wrong label that the model never gave: do not name that label.
        notes = run.record.prompts.notes.get(row["dataset"], ())
        is_made_up = any("counted as wrong" in note or f"{row['part']} counts them as wrong" in note for note in notes)
        answers = confusion.group_by("pred").agg(pl.sum("n_requests"))
        pred, n = answers.sort("n_requests", "pred", descending=[True, False]).row(0)
        names = run.table("label_spaces").filter(**key)["label_names"][0]
        most = f"; the model answers “{names[pred]}” to {n / answers['n_requests'].sum():.0%} of the prompts"
        yield (
            f"{row['dataset']}{', ' + row['part'] if has_parts else ''}: accuracy {row['value']:.3f} is not above "
            f"{row['majority']:.3f}, which always answering the most frequent label reaches{'' if is_made_up else most}"
            f". Try {_ELSEWHERE if is_imported else _OPTIONS.format(chat, texts)}."
        )


_OPTIONS = (
    "--methods vanilla,batch_calibration, which corrects a preference without more calls; {}"
    "more --shots; {}; or a larger model"
)
_TEXTS_OF_TABLES = "an --instruction; clearer label names (--labels)"
_TEXTS_OF_QUESTIONS = "clearer instructions, options or descriptions (--questions)"
_ELSEWHERE = "more demonstrations, an instruction, clearer label names, or a larger model, and import its answers"


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
    """Yield a warning for each part with datasets whose median label mass is below SMALL_LABEL_MASS.

    Args:
        metrics: schemas.METRICS; only parts with an accuracy, under the first measured definition.
    """
    classified = metrics.filter(metric="accuracy").select("suite", "part").unique()
    medians = first_definition(metrics.filter(metric="label_mass_median"))
    small = medians.filter(pl.col("dataset") != MEAN_OVER_DATASETS, pl.col("value") < SMALL_LABEL_MASS)
    small = small.join(classified, on=["suite", "part"], how="semi").sort("suite", "part", "value", "dataset")
    for (suite, part), rows in small.group_by("suite", "part", maintain_order=True):
        named = ", ".join(f"{name} (median {value:.2g})" for name, value in rows.select("dataset", "value").iter_rows())
        yield (
            f"{suite} / {part}: the labels have less than {SMALL_LABEL_MASS:.0%} of the model's probability on "
            f"{named}. It may not be answering in labels there; another --label-boundary, other label names or more "
            "demonstrations may help."
        )
