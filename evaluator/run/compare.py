"""`evaluator compare`: read several runs, compare them, write tables and a page."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import polars as pl

from evaluator.compare.correlations import rank_correlations
from evaluator.compare.differences import paired_differences
from evaluator.compare.notes import comparison_notes
from evaluator.compare.report import ComparisonData, comparison_header, comparison_sections
from evaluator.compare.request_results import request_results, require_equal_prompts
from evaluator.compare.runs import ComparedRun, compared_runs
from evaluator.compare.scaling import scaling_lines, scaling_points
from evaluator.compare.table import comparison_table
from evaluator.files import write_table, writing_to
from evaluator.progress import Progress, Stage
from evaluator.record import measured_record
from evaluator.report.metric_texts import METRIC_TEXTS, MetricTexts
from evaluator.report.page import write_page
from evaluator.run.folder import read_table
from evaluator.run.record import read_run
from evaluator.suites import SUITES
from evaluator.suites.base import Comparison

PAGE = "compare.html"


class Compared(NamedTuple):
    """What a comparison left."""

    page: Path
    notes: list[str]  # what a reader must know before the numbers


def compare(folders: Sequence[Path], out: Path) -> Stage[Compared]:
    """Write OUT/tables/{comparison,differences,rank_correlations,scaling}.parquet and OUT/compare.html.

    Suites add tables and sections of their own to a comparison of their runs. Equal runs give equal bytes. Raises
    ConfigError or StoreError for runs that cannot be compared, before anything is written.
    """
    runs = read_runs(folders)
    comparison = comparison_table(runs)
    results = yield from _read_results(runs)
    notes = comparison_notes(runs, comparison)
    yield Progress(stage="Comparing", done=0, total=2, unit="steps")
    differences = paired_differences([run.model for run in runs], results, comparison)
    points = scaling_points(comparison, differences)
    added = _of_suites(runs)
    tables = {
        "comparison": comparison,
        "differences": differences,
        "rank_correlations": rank_correlations(comparison),
        "scaling": scaling_lines(points),
        **{name: table for each in added for name, table in each.tables.items()},
    }
    yield Progress(stage="Comparing", done=1, total=2, unit="steps")
    with writing_to(out):
        for name, table in tables.items():
            write_table(out, name, table)
        data = ComparisonData(
            runs=runs,
            comparison=comparison,
            differences=differences,
            rank_correlations=tables["rank_correlations"],
            points=points,
            lines=tables["scaling"],
            texts=_metric_texts(runs),
        )
        sections = [*(section for each in added for section in each.sections), *comparison_sections(data)]
        title = f"{len(runs)} models compared: in-context classification"
        page = write_page(out / PAGE, title, comparison_header(data, notes), sections)
    yield Progress(stage="Comparing", done=2, total=2, unit="steps")
    return Compared(page, notes)


def read_runs(folders: Sequence[Path]) -> list[ComparedRun]:
    """Read what was measured of each run. Raises as compared_runs does, and StoreError for a folder without a run."""
    records = [measured_record(read_run(folder), str(folder)) for folder in folders]
    return compared_runs(folders, records, [partial(read_table, folder) for folder in folders])


def _of_suites(runs: Sequence[ComparedRun]) -> list[Comparison]:
    """What the suites that all runs have in common add."""
    common = [name for name in runs[0].record.prompts.suites if all(name in run.record.prompts.suites for run in runs)]
    builders = dict.fromkeys(SUITES[name].comparison for name in common)
    return [added for build in builders if (added := build(runs)) is not None]


def _metric_texts(runs: Sequence[ComparedRun]) -> MetricTexts:
    """Titles of metrics, those of the runs' suites among them."""
    suites = dict.fromkeys(name for run in runs for name in run.record.prompts.suites)
    texts = {name: text for suite in suites for name, text in SUITES[suite].metric_texts.items()}
    return MetricTexts(METRIC_TEXTS | texts)


def _read_results(runs: Sequence[ComparedRun]) -> Stage[list[pl.DataFrame]]:
    results = []
    for done, run in enumerate(runs):
        yield Progress(stage="Reading predictions", done=done, total=len(runs), unit="runs")
        results.append(request_results(run.table("predictions"), run.metrics))
    require_equal_prompts(runs, results)
    yield Progress(stage="Reading predictions", done=len(runs), total=len(runs), unit="runs")
    return results
