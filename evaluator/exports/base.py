"""Define export formats, the measured run that they read, and the table of its answers."""

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
    """A file that a format yields, to be written by the caller."""

    name: str  # path relative to the folder of the export
    content: bytes


class AnsweredGroup(NamedTuple):
    """The answers of one method to the requests of one part and dataset, under one definition."""

    key: Mapping[str, str]  # suite, part, dataset, method, definition
    rows: pl.DataFrame  # ANSWERS, sorted by position


ANSWERS = declare(
    position=pl.Int64(),  # this and the next two columns are as in schemas.PREDICTIONS
    query_id=pl.Int64(),
    demonstration_set=pl.Int64(),
    label_names=pl.List(pl.String()),
    gold=pl.Int64(),  # index into label_names
    pred=pl.Int64(),  # index into label_names
    correct=pl.Boolean(),
    true_label_prob=pl.Float64(),  # null if only labels are known; so are label_probs and label_log_likelihoods
    label_probs=pl.List(pl.Float64()),  # as the definition computes them
    prompt=pl.String(),
    # Text of each label, and its log-likelihood in nats. Null if the labels were not scored after the prompt, because
    # the method predicts from hidden states or from the likelihood of texts.
    continuations=pl.List(pl.String()),
    label_log_likelihoods=pl.List(pl.Float64()),
)


PROBABILITIES = ("true_label_prob", "label_probs", "label_log_likelihoods")
"""Columns of ANSWERS that are null if only labels are known."""


@dataclass(frozen=True, kw_only=True)
class ExportedRun:
    """A measured run: what formats may read."""

    record: MeasuredRecord
    metrics: pl.DataFrame  # schemas.METRICS of the exported definitions
    texts: MetricTexts  # titles of metrics
    answers: Callable[[], Iterator[AnsweredGroup]]
    """Yield the answers to all requests under the first exported definition; a call reads them from the run."""
    attachments: Callable[[], Sequence[Path]] = tuple
    """Return the files of the run to export unchanged: its tables, which are verified, and its page if it exists."""

    @property
    def model(self) -> str:
        """Return the name of the model and of its adapter; local folders are named without the path to them."""
        model, adapter = self.record.model, self.record.model.adapter
        name = last_part(model.name) if model.kind == "folder" else model.name
        return f"{name} + {last_part(adapter.name)}" if adapter else name

    @property
    def finished(self) -> datetime:
        """Return the time at which the run ended.

        Formats use it as the time of the export, so that equal runs give equal files.
        """
        return datetime.fromisoformat(self.record.finished)

    @property
    def finite_metrics(self) -> pl.DataFrame:
        """Return the rows of `metrics` with finite values; both ends of an interval are null if one is not finite.

        JSON and YAML readers do not accept infinities and NaN.
        """
        has_ends = pl.col("ci_low").is_finite() & pl.col("ci_high").is_finite()
        ends = (pl.when(has_ends).then(pl.col(name)) for name in ("ci_low", "ci_high"))
        return self.metrics.filter(pl.col("value").is_finite()).with_columns(ends)


@dataclass(frozen=True, kw_only=True)
class Format:
    """An export format."""

    summary: str  # line of help
    is_folder: bool = False  # whether the format has several files
    files: Callable[[ExportedRun], Iterator[ExportedFile]]
    """Yield the files of a run. A format of one file yields one, whose name is used if --out names none."""


def json_text(content: object, indent: int | None = None) -> str:
    """Return content as standard JSON. Raises ValueError for NaN and infinities."""
    return json.dumps(content, ensure_ascii=False, allow_nan=False, indent=indent)


def json_lines(rows: Iterator[dict[str, object]]) -> bytes:
    """Return rows as JSON lines in UTF-8."""
    return "".join(f"{json_text(row)}\n" for row in rows).encode()


def sha256(text: str) -> str:
    """Return the SHA-256 of a text, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def file_name(name: str) -> str:
    """Return a name that every system allows as a file name: forbidden characters, or a name of dots, become "__".

    It has 200 bytes at most, because formats add to it, and file systems allow 255.
    """
    allowed = re.sub(r'[\x00-\x1f"<>:/|\\?*\[\]]+|^\.+$', "__", name)
    return allowed.encode()[:200].decode(errors="ignore")


def distinct(name: str, taken: set[str]) -> str:
    """Return a name with "_" at its end until it is not among the taken ones, and add it to them.

    Different names, such as a:b and a/b, become equal where a format replaces characters.
    """
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def answered_groups(predictions: pl.DataFrame, metrics: pl.DataFrame, prompts: pl.DataFrame) -> Iterator[AnsweredGroup]:
    """Yield the answers of every part that has an accuracy, under the first measured definition.

    Args:
        predictions: schemas.PREDICTIONS; rows without a true label are left out, as they do not count for accuracy.
        metrics: schemas.METRICS.
        prompts: prompt_id, prompt, continuations and label_log_likelihoods, one row for each prompt.
    """
    judged = first_definition(metrics.filter(metric="accuracy"))
    # Runs of imported labels have no probabilities, only indicators of the predicted label.
    unknown = [] if "true_label_probability" in metrics["metric"] else [*PROBABILITIES]
    parts = judged.select("suite", "part").unique()
    rows = predictions.drop_nulls("gold").join(parts, on=["suite", "part"], how="semi")
    prompts = prompts.with_columns(pl.col("prompt_id").hash())
    for group in prediction_groups(rows):
        if group.definition not in judged["definition"]:
            continue
        label_probs = pl.concat_list(f"p{label}" for label in range(group.n_labels))
        named = group.key | {"definition": DEFINITIONS[group.definition].predictions}
        names = rows.filter(**named).sort("position")["label_names"]  # label space of each row, as options can differ
        requests = group.rows.select("position", "query_id", "demonstration_set", "prompt_id", label_names=names)
        results = group.requests.select("gold", "pred", "correct", "true_label_prob", label_probs=label_probs)
        answers = requests.hstack(results).join(prompts, on="prompt_id", how="left", maintain_order="left")
        # Keep the scored texts only if there is one for each label.
        texts = pl.col("continuations", "label_log_likelihoods")
        scored = pl.when(pl.all_horizontal(texts.list.len() == group.n_labels)).then(texts)
        answers = answers.with_columns(scored).with_columns(pl.lit(None).alias(name) for name in unknown)
        yield AnsweredGroup(group.key, answers.select(ANSWERS.names()).cast(ANSWERS))
