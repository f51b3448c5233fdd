"""`evaluator compare`, one call a stage: folders of several runs go in; tables and a page come out."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import polars as pl

from evaluator.compare.correlations import rank_correlations
from evaluator.compare.differences import paired_differences
from evaluator.compare.notes import comparison_notes
from evaluator.compare.report import ComparisonData, comparison_header, comparison_sections
from evaluator.compare.request_results import request_answers, require_equal_prompts
from evaluator.compare.runs import ComparedRun, read_runs
from evaluator.compare.scaling import scaling_lines, scaling_points
from evaluator.compare.table import comparison_table
from evaluator.files import write_table, writing_to
from evaluator.progress import Progress, Stage
from evaluator.report.page import write_page
from evaluator.suites import METRIC_TEXTS
from evaluator.suites.in_context_pvi.compare import pvi_agreement
from evaluator.suites.in_context_pvi.report_comparison import pvi_comparison_sections

PAGE = "compare.html"


class Compared(NamedTuple):
    page: Path
    notes: list[str]  # what a reader must know before the numbers


def compare(folders: Sequence[Path], out: Path) -> Stage[Compared]:
    """Write OUT/tables/{comparison,differences,rank_correlations,scaling}.parquet and OUT/compare.html.

    Of runs of the suite pvi also OUT/tables/{pvi_models,pvi_consistency}.parquet. Equal runs give equal bytes. Raises
    ConfigError or StoreError for runs that cannot be compared, before anything is written.
    """
    runs = read_runs(folders)
    comparison = comparison_table(runs)
    answers = yield from _read_answers(runs)
    notes = comparison_notes(runs, comparison)
    yield Progress(stage="Comparing", done=0, total=2, unit="steps")
    differences = paired_differences(runs, answers, comparison)
    points = scaling_points(comparison, differences)
    pvi = pvi_agreement(runs)
    tables = {
        "comparison": comparison,
        "differences": differences,
        "rank_correlations": rank_correlations(comparison),
        "scaling": scaling_lines(points),
        **({} if pvi is None else {"pvi_models": pvi.models, "pvi_consistency": pvi.consistency}),
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
            texts=METRIC_TEXTS,
        )
        sections = [*pvi_comparison_sections(pvi, runs), *comparison_sections(data)]
        title = f"{len(runs)} models compared: in-context classification"
        page = write_page(out / PAGE, title, comparison_header(data, notes), sections)
    yield Progress(stage="Comparing", done=2, total=2, unit="steps")
    return Compared(page, notes)


def _read_answers(runs: Sequence[ComparedRun]) -> Stage[list[pl.DataFrame]]:
    answers = []
    for done, run in enumerate(runs):
        yield Progress(stage="Reading predictions", done=done, total=len(runs), unit="runs")
        answers.append(request_answers(run))
    require_equal_prompts(runs, answers)
    yield Progress(stage="Reading predictions", done=len(runs), total=len(runs), unit="runs")
    return answers
