"""The page of a run: the sections of its suites, between what was run and its record."""

from collections.abc import Mapping
from pathlib import Path

import polars as pl

from evaluator.record import MeasuredRecord, RunRecord, measured_record
from evaluator.report import facts
from evaluator.report.page import Header, write_page
from evaluator.report.section import MeasuredRun, Section, core_template
from evaluator.report.sections.run_record import about_section, record_section, tokens_section
from evaluator.report.terminal import verdict_lines
from evaluator.run.folder import read_table
from evaluator.store.prompt_store import PromptStore
from evaluator.suites import SUITES

PAGE = "report.html"


class MeasuredFolder:
    """A measured run in an output folder; a MeasuredRun. Tables are read once, or handed over by the stage before."""

    def __init__(
        self, out: Path, record: RunRecord, store: PromptStore, tables: Mapping[str, pl.DataFrame] | None = None
    ) -> None:
        self.out, self._store = out, store
        self.record: MeasuredRecord = measured_record(record, str(out))
        self._tables = dict(tables or {})

    def table(self, name: str) -> pl.DataFrame:
        """A table of the measure stage. Raises StoreError where it is missing."""
        if name not in self._tables:
            self._tables[name] = read_table(self.out, name)
        return self._tables[name]

    def side_table(self, name: str, schema: pl.Schema) -> pl.DataFrame:
        """A table that a suite wrote next to its prompts."""
        return self._store.table(name, schema).collect()


def summary_lines(run: MeasuredRun) -> list[str]:
    """What a terminal shows at the end of a run: its accuracies, then what its suites say."""
    builders = dict.fromkeys(SUITES[name].summary_lines for name in run.record.prompts.suites)
    return [*verdict_lines(run.table("metrics")), *(line for build in builders for line in build(run))]


def write_run_page(run: MeasuredRun, path: Path) -> Path:
    """Write the page of a run and return its path."""
    record = run.record
    # Suites of one family share a function, which is called once.
    builders = dict.fromkeys(SUITES[name].sections for name in record.prompts.suites)
    sections = [section for build in builders for section in build(run)]
    warning = facts.warning(record)
    header = Header(
        kicker="In-context classification",
        heading=record.model.name,
        subject=_subject(record, run.table("metrics")),
        warnings=(("", warning),) if warning else (),
        about=about_section(record),
    )
    measured = sections or [
        Section(anchor="unmeasured", title="Results", template=core_template("unmeasured.html"), navigation="Results")
    ]
    everything = [*measured, tokens_section(record), record_section(record)]
    return write_page(path, f"{record.model.name}: in-context classification", header, everything)


def _subject(record: MeasuredRecord, metrics: pl.DataFrame) -> str:
    """What was measured: suites with their parts and methods, datasets and shots."""
    n_datasets, n_shots = len(record.prompts.datasets), record.prompts.n_shots
    measured = "; ".join(_measured(metrics) or record.prompts.suites)
    shots = f"shots: {record.prompts.shots}" if n_shots is None else f"{n_shots} shot{'s' * (n_shots != 1)}"
    return f"{measured} · {n_datasets} dataset{'s' * (n_datasets != 1)} · {shots}"


def _measured(metrics: pl.DataFrame) -> list[str]:
    """One line a suite and set of methods."""
    measured = metrics.group_by("suite", "part").agg(pl.col("method").unique().sort())
    together = measured.group_by("suite", "method").agg(pl.col("part").sort()).sort("suite", "part")
    return [
        f"{suite}{' / ' + ', '.join(parts) if any(parts) else ''}, "
        + (methods[0] if len(methods) == 1 else f"{len(methods)} methods")
        for suite, parts, methods in together.select("suite", "part", "method").iter_rows()
    ]
