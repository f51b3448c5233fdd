"""Markdown for a pull request: tables as GitHub renders them, those of further definitions folded."""

import re
from collections.abc import Iterator

from evaluator.exports.base import ExportedFile, ExportedRun, Format
from evaluator.exports.tables import TextTable, text_tables
from evaluator.report import facts


def _files(run: ExportedRun) -> Iterator[ExportedFile]:
    yield ExportedFile("results.md", "\n\n".join(_blocks(run)).encode() + b"\n")


def _blocks(run: ExportedRun) -> Iterator[str]:
    record = run.record
    yield f"### {_escaped(run.model)}: in-context classification"
    yield (
        f"{', '.join(record.prompts.suites)} · shots: {record.prompts.shots} · queries: {record.prompts.queries} · "
        f"{record.engine.name} {record.engine.dtype} · evaluator {record.evaluator} · 95% intervals in brackets"
    )
    if warning := facts.warning(record):
        yield f"**{warning}**"
    for dataset, reason in record.left_out.items():
        yield f"Left out of every number and mean: {_escaped(dataset)}. {_escaped(reason)}"
    tables = list(text_tables(run))
    for table in tables:
        title = _escaped(table.title)
        if table.definition == tables[0].definition:
            yield f"**{title}**"
            yield _table(table)
        else:
            yield f"<details><summary>{title}</summary>"
            yield _table(table)
            yield "</details>"


def _table(table: TextTable) -> str:
    rows = [*table.rows, *([table.mean] if table.mean else [])]
    lines = [table.columns, ["---", *["---:"] * (len(table.columns) - 1)]]
    lines += [[_escaped(cell) for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _escaped(text: str) -> str:
    """Return a text that shows as it is, on one line."""
    return re.sub(r"([\\`*_{}<>#|~\[\]])", r"\\\1", " ".join(text.split()))


MARKDOWN = Format(summary="Tables for a pull request or an issue on GitHub.", files=_files)
