"""Write the page of a run: a header, the sections of its suites, and the record of the run."""

from pathlib import Path

import polars as pl

from evaluator.errors import plural
from evaluator.progress import Progress, Stage
from evaluator.record import MeasuredRecord
from evaluator.report import run_record
from evaluator.report.notes import label_mass_warnings, majority_warnings, throughput_line, verdict_lines
from evaluator.report.page import Header, write_page
from evaluator.report.query_rows import query_section
from evaluator.report.run_record import about_section, cost_section, receipt_section, record_section
from evaluator.report.section import MeasuredRun, Section
from evaluator.run.folder import MeasuredFolder
from evaluator.run.folders import PAGE
from evaluator.suites import families_of


def summary_lines(run: MeasuredRun) -> list[str]:
    """Return the last lines of a run for a terminal: accuracies with verdicts, the lines of suites, and warnings."""
    families = families_of(run.record.prompts.suites)
    failed = [f"Left out of every number and mean: {name}. {why}" for name, why in run.record.left_out.items()]
    warnings = [f"Warning: {text}" for text in (*majority_warnings(run), *label_mass_warnings(run.table("metrics")))]
    of_suites = (line for family in families for line in family.summary_lines(run))
    lines = [*run.record.decisions, *verdict_lines(run.table("metrics")), *of_suites]
    speed = throughput_line(run.record.scores)
    doctor = [f"Doctor: {run.record.doctor}"] if run.record.doctor else []
    return [*lines, *failed, *([speed] if speed else []), *doctor, *warnings]


def report_run(measured: MeasuredFolder) -> Stage[Path]:
    """Write the page of a run into its folder, and return the path."""
    yield Progress(stage="Writing the report", done=0, total=1, unit="pages")
    page = write_run_page(measured, measured.out / PAGE)
    yield Progress(stage="Writing the report", done=1, total=1, unit="pages")
    return page


def write_run_page(run: MeasuredRun, path: Path) -> Path:
    """Write the page of a run and return its path."""
    record = run.record
    sections = [section for family in families_of(record.prompts.suites) for section in family.sections(run)]
    warnings = [*record.decisions, *majority_warnings(run), *run_record.warnings(record)]
    warnings += [*run_record.accepted_warnings(record.preflight), *label_mass_warnings(run.table("metrics"))]
    subject, shown = _subject(record, run.table("metrics")), tuple(("", text) for text in warnings)
    header = Header(heading=record.model.title, subject=subject, warnings=shown)
    sections = sections or [Section("unmeasured", "Results", ["No metric was measured."], navigation="Results")]
    # Only suites that must be the only suite of a run have numbers of single queries.
    queries = query_section(run, families_of(record.prompts.suites)[0].query_numbers(run))
    sections += [one for one in (queries, about_section(record), cost_section(record)) if one]
    sections += [*([receipt_section(record.receipts)] if record.receipts else []), record_section(record)]
    return write_page(path, f"{record.model.title}: in-context classification", header, sections)


def _subject(record: MeasuredRecord, metrics: pl.DataFrame) -> str:
    """Describe what was measured: suites with their parts and methods, number of datasets, shots."""
    n_datasets, n_shots = len({*record.prompts.datasets} - {*record.left_out}), record.prompts.n_shots
    # Parts of a suite with the same methods share one phrase.
    methods_of_part = metrics.group_by("suite", "part").agg(pl.col("method").unique().sort())
    parts_of_methods = methods_of_part.group_by("suite", "method").agg(pl.col("part").sort()).sort("suite", "part")
    measured = [
        f"{suite}{' / ' + ', '.join(parts) if any(parts) else ''}, "
        + (methods[0] if len(methods) == 1 else f"{len(methods)} methods")
        for suite, parts, methods in parts_of_methods.select("suite", "part", "method").iter_rows()
    ]
    shots = f"shots: {record.prompts.shots}" if n_shots is None else plural(n_shots, "shot")
    return f"{'; '.join(measured or record.prompts.suites)} · {plural(n_datasets, 'dataset')} · {shots}"
