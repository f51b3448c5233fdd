"""The page of a run: its tables go in, one HTML file comes out, each kind of run with a page of its own."""

from pathlib import Path
from typing import Any

import polars as pl

from evaluator.metrics import confusion_table, reliability_table
from evaluator.run.folder import current_table, run_store
from evaluator.run.record import read_run
from evaluator.suites.in_context_pvi.query_schema import PVI_QUERIES

PAGE = "report.html"


def write_page(out: Path) -> Path:
    """Write DIR/report.html; returns its path. Raises StoreError where the tables are not those of the last scores."""
    record = read_run(out)
    run = record | {"command": "\n".join(dict.fromkeys(record["commands"].values()))}
    if record["store"].get("search"):
        return _write_search_page(run, out)
    if record["store"].get("pvi"):
        return _write_pvi_page(run, out)
    return _write_classification_page(run, out)


def _write_classification_page(run: dict[str, Any], out: Path) -> Path:
    from evaluator.report.page import ReportData, write_report
    from evaluator.suites.staicc.diagnostics.label_bias import absent_labels

    predictions = current_table(out, "predictions")
    data = ReportData(
        run=run,
        metrics=current_table(out, "metrics"),
        predictions=predictions.lazy(),
        reliability=reliability_table(predictions),
        confusion=confusion_table(predictions),
        groups=current_table(out, "group_metrics"),
        differences=current_table(out, "method_differences"),
        missing=current_table(out, "missing_classes"),
        absent=absent_labels(predictions),
    )
    return write_report(data, out / PAGE)


def _write_search_page(run: dict[str, Any], out: Path) -> Path:
    """Choices that differ from query to query have no reliability or confusion to draw."""
    from evaluator.report.page import ReportData, write_report
    from evaluator.suites.prompt_search.report import SearchTables

    none = current_table(out, "predictions").clear()
    parts = {"prompts": "prompts", "results": "results", "curves": "curves", "held_out": "held_out_prediction"}
    data = ReportData(
        run=run,
        metrics=current_table(out, "metrics"),
        predictions=none.lazy(),
        reliability=reliability_table(none),
        confusion=confusion_table(none),
        search=SearchTables(**{part: current_table(out, f"search_{name}") for part, name in parts.items()}),
    )
    return write_report(data, out / PAGE)


def _write_pvi_page(run: dict[str, Any], out: Path) -> Path:
    from evaluator.suites.in_context_pvi.report import PviReport, write_pvi_report

    queries = run_store(out).table("pvi_queries", PVI_QUERIES).collect()
    predictions = current_table(out, "predictions")
    spaces = predictions.group_by("dataset").agg(pl.col("label_names").first())
    tables = {path.stem: current_table(out, path.stem) for path in sorted((out / "tables").glob("pvi*.parquet"))}
    report = PviReport(run=run, tables=tables, queries=queries, label_names=dict(spaces.iter_rows()))
    return write_pvi_report(report, out / PAGE)
