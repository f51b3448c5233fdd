"""Define a format, the measured run that formats read, and the answers to its requests."""

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import polars as pl

from evaluator.metrics.classification import DEFINITIONS
from evaluator.metrics.groups import prediction_groups
from evaluator.models.weights import last_part
from evaluator.record import MeasuredRecord
from evaluator.report.notes import first_definition
from evaluator.report.table import MetricTexts
from evaluator.schemas import declare


class ExportedFile(NamedTuple):
    """A file of a format, to be written."""

    name: str  # path below the folder of the export
    content: bytes


class AnsweredGroup(NamedTuple):
    """The requests of one part and dataset, answered by one method, under one definition."""

    key: Mapping[str, str]  # suite, part, dataset, method, definition
    rows: pl.DataFrame  # ANSWERS, by position


ANSWERS = declare(
    position=pl.Int64(),  # as in schemas.PREDICTIONS
    query_id=pl.Int64(),
    demonstration_set=pl.Int64(),
    label_names=pl.List(pl.String()),
    gold=pl.Int64(),
    pred=pl.Int64(),
    correct=pl.Boolean(),
    true_label_prob=pl.Float64(),  # null, as the two lists below, where only labels are known
    label_probs=pl.List(pl.Float64()),  # as the definition measures them
    prompt=pl.String(),
    # One text and one number of nats for each label; null where the prompt is not scored on the labels, because the
    # method predicts from hidden states or from the likelihood of texts.
    continuations=pl.List(pl.String()),
    label_log_likelihoods=pl.List(pl.Float64()),
)


PROBABILITIES = ("true_label_prob", "label_probs", "label_log_likelihoods")
"""Columns that are null where only labels are known."""


@dataclass(frozen=True, kw_only=True)
class ExportedRun:
    """A measured run, as formats see it."""

    record: MeasuredRecord
    metrics: pl.DataFrame  # schemas.METRICS, of the definitions that are exported
    texts: MetricTexts
    answers: Callable[[], Iterator[AnsweredGroup]]
    """Yield the answers to all requests under the first exported definition. Read from the run when it is called."""
    attachments: Callable[[], Sequence[Path]] = tuple
    """Return the files of the run that go along as they are: its tables, checked, and its page if it has one."""

    @property
    def model(self) -> str:
        """Return the model's name, followed by that of its adapter; of local folders, the names without their paths."""
        model, adapter = self.record.model, self.record.model.adapter
        name = last_part(model.name) if model.kind == "folder" else model.name
        return f"{name} + {last_part(adapter.name)}" if adapter else name

    @property
    def finished(self) -> datetime:
        """Return when the run ended. It stands for the time of the export, so that equal runs give equal files."""
        return datetime.fromisoformat(self.record.finished)

    @property
    def finite_metrics(self) -> pl.DataFrame:
        """Return the metrics that JSON and YAML readers take: finite values; null for an interval without end."""
        has_ends = pl.col("ci_low").is_finite() & pl.col("ci_high").is_finite()
        ends = (pl.when(has_ends).then(pl.col(name)) for name in ("ci_low", "ci_high"))
        return self.metrics.filter(pl.col("value").is_finite()).with_columns(ends)


@dataclass(frozen=True, kw_only=True)
class Format:
    """A format to export to."""

    summary: str
    is_folder: bool = False  # whether it has several files
    files: Callable[[ExportedRun], Iterator[ExportedFile]]
    """Yield the files of a run. A format of one file yields one, named as it is called without --out."""


def json_text(content: object, indent: int | None = None) -> str:
    """Return JSON that every reader takes. Raises ValueError for NaN and infinities."""
    return json.dumps(content, ensure_ascii=False, allow_nan=False, indent=indent)


def json_lines(rows: Iterator[dict[str, object]]) -> bytes:
    """Return rows as JSON lines."""
    return "".join(f"{json_text(row)}\n" for row in rows).encode()


def sha256(text: str) -> str:
    """Return the SHA-256 of a text, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def file_name(name: str) -> str:
    """Return a name without the characters that cannot stand in a file name on every system, and none of dots alone."""
    return re.sub(r'[\x00-\x1f"<>:/|\\?*\[\]]+|^\.+$', "__", name)


def answered_groups(predictions: pl.DataFrame, metrics: pl.DataFrame, prompts: pl.DataFrame) -> Iterator[AnsweredGroup]:
    """Yield the answers of every part that has an accuracy, under the first measured definition.

    Args:
        predictions: schemas.PREDICTIONS; those without a true label are in no accuracy, and are left out.
        metrics: schemas.METRICS.
        prompts: prompt_id, prompt, continuations and label_log_likelihoods, one row a prompt.
    """
    judged = first_definition(metrics.filter(metric="accuracy"))
    # Imported labels come without probabilities.
    unknown = [] if "true_label_probability" in metrics["metric"] else [*PROBABILITIES]
    parts = judged.select("suite", "part").unique()
    rows = predictions.drop_nulls("gold").join(parts, on=["suite", "part"], how="semi")
    prompts = prompts.with_columns(pl.col("prompt_id").hash())
    for group in prediction_groups(rows):
        if group.definition not in judged["definition"]:
            continue
        label_probs = pl.concat_list(f"p{label}" for label in range(group.n_labels))
        named = group.key | {"definition": DEFINITIONS[group.definition].predictions}
        names = rows.filter(**named).sort("position")["label_names"]  # of each row: options can differ between rows
        requests = group.rows.select("position", "query_id", "demonstration_set", "prompt_id", label_names=names)
        results = group.requests.select("gold", "pred", "correct", "true_label_prob", label_probs=label_probs)
        answers = requests.hstack(results).join(prompts, on="prompt_id", how="left", maintain_order="left")
        texts = pl.col("continuations", "label_log_likelihoods")
        scored = pl.when(pl.all_horizontal(texts.list.len() == group.n_labels)).then(texts)
        answers = answers.with_columns(scored).with_columns(pl.lit(None).alias(name) for name in unknown)
        yield AnsweredGroup(group.key, answers.select(ANSWERS.names()).cast(ANSWERS))
