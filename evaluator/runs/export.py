"""`evaluator export`: write a measured run in a format that other tools read."""

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from evaluator.errors import ConfigError, StoreError, require_known
from evaluator.exports import FORMATS, TRACKERS
from evaluator.exports.base import ExportedRun, answered_groups
from evaluator.exports.metrics_tables import comparison_file
from evaluator.files.json_files import read_json
from evaluator.files.whole import table_path, write_bytes
from evaluator.record import MeasuredRecord, require_every_query
from evaluator.run.folder import read_requests, read_scores, read_table
from evaluator.run.folders import COMPARISON_FILE, PAGE, RUN_FILE, RunFolder, compared_models, read_run
from evaluator.suites import metric_texts

EXPORTS = "exports"
"""Subfolder of a run for exports without a target."""


def export(out: Path, name: str, target: Path | None = None, definition: str = "all") -> list[Path]:
    """Write a run in a format, and return the paths of the files.

    Args:
        out: folder of the run, or a folder of several models, whose runs are exported one after the other.
        name: name of the format, in FORMATS or TRACKERS.
        target: the file or, for a format of several files, the folder; None: in `out`/exports. For several models, the
            file or folder of each run has the run's name added. In Markdown and LaTeX, a comparison also has a table of
            all its runs, which is written to `target`.
        definition: the only definition to export, or "all".

    Raises ConfigError for a format or definition that does not exist and for a tracker whose client is not installed,
    StoreError for a run that is not measured.
    """
    has_run, of_several = (out / RUN_FILE).is_file(), [*_comparison(out, name, target)]
    if of_several and not has_run:
        return of_several
    if has_run and read_run(out).scores is None and (folders := compared_models(out)):
        is_file, of_each = name in FORMATS and not FORMATS[name].is_folder, list[Path]()
        for one in folders:
            in_file = target.with_stem(f"{target.stem}-{one.name}") if target and target.suffix and is_file else None
            of_each += export(one, name, in_file or (target and target / one.name), definition)
        return [*of_each, *of_several]
    if tracker := TRACKERS.get(name):
        tracker.require_client()
        return [tracker.log(exported_run(out, definition), target or out / EXPORTS / name)]
    require_known("There is no format", [name], [*FORMATS, *TRACKERS])
    run, chosen = exported_run(out, definition), FORMATS[name]
    folder, written = target or out / EXPORTS / name, []
    for file in chosen.files(run):
        path = folder / file.name if chosen.is_folder else target or out / EXPORTS / file.name
        write_bytes(path, file.content)
        written.append(path)
    return written


def _comparison(out: Path, name: str, target: Path | None) -> Iterator[Path]:
    """Write the table of a comparison in `out`, if the format is Markdown or LaTeX; yield its path.

    Raises StoreError for a comparison without accuracies.
    """
    digests = (read_json(out / COMPARISON_FILE) or {}).get("tables", {})
    if name in ("markdown", "latex") and "comparison" in digests:
        accuracies = read_table(out, "comparison", digests).filter(metric="accuracy")
        if accuracies.is_empty():
            raise StoreError(f"{out} has no metrics to export: its suites measure no accuracy.")
        file = comparison_file(accuracies, is_latex=name == "latex")
        path = (target or out / EXPORTS) / file.name if not (target and target.suffix) else target
        write_bytes(path, file.content)
        yield path


def exported_run(out: Path, definition: str = "all") -> ExportedRun:
    """Return a measured run for export; predictions and prompts are read only if a format needs them.

    Raises StoreError for a run that is not measured or has no metrics, ConfigError for a definition under which it was
    not measured.
    """
    record = RunFolder(out).measured
    require_every_query(record, str(out))
    metrics = read_table(out, "metrics", record.tables)
    if metrics.is_empty():
        raise StoreError(f"{out} has no metrics to export: {', '.join(record.prompts.suites)} measures none.")
    if definition != "all":
        measured = sorted(set(metrics["definition"]))
        metrics = metrics.filter(definition=definition)
        if metrics.is_empty():
            raise ConfigError(f"{out} was not measured under {definition!r}, but under {', '.join(measured)}.")
    return ExportedRun(
        record=record,
        metrics=metrics,
        texts=metric_texts(record.prompts.suites),
        answers=lambda: answered_groups(read_table(out, "predictions", record.tables), metrics, _prompts(out)),
        attachments=lambda: _attachments(out, record),
    )


def _attachments(out: Path, record: MeasuredRecord) -> list[Path]:
    """Verify the tables, and return the absolute paths of the tables and the page."""
    for name in record.tables:
        read_table(out, name, record.tables)
    paths = [*(table_path(out, name) for name in record.tables), out / PAGE]
    return [path.absolute() for path in paths if path.is_file()]


def _prompts(out: Path) -> pl.DataFrame:
    """Return every prompt of a run with its continuations and their log-likelihoods (nats; null if not scored)."""
    texts = read_requests(out).select("prompt_id", "prompt", "continuations").unique("prompt_id", keep="first")
    scores = read_scores(out).select("prompt_id", "label_log_likelihoods").unique("prompt_id", keep="first")
    return texts.join(scores, on="prompt_id", how="left").collect()
