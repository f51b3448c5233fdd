"""Define a format, and the measured run that formats read."""

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import polars as pl

from evaluator.models.names import last_part
from evaluator.record import MeasuredRecord
from evaluator.report.metric_texts import MetricTexts


class ExportedFile(NamedTuple):
    """A file of a format, to be written."""

    name: str  # path below the folder of the export
    content: bytes


class AnsweredGroup(NamedTuple):
    """The requests of one part and dataset, answered by one method, under one definition."""

    key: Mapping[str, str]  # suite, part, dataset, method, definition
    rows: pl.DataFrame  # answers.ANSWERS, by position


@dataclass(frozen=True, kw_only=True)
class ExportedRun:
    """A measured run, as formats see it."""

    record: MeasuredRecord
    metrics: pl.DataFrame  # schemas.METRICS, of the definitions that are exported
    texts: MetricTexts
    limits: Mapping[str, tuple[float, float]]  # metric -> lowest and highest possible value; absent: not stated
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
    """Return a name without the characters that cannot stand in a file name on every system."""
    return re.sub(r'[\x00-\x1f"<>:/|\\?*\[\]]+', "__", name)
