"""Write the page of a run: the sections of its suites, between what was run and its record."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from evaluator.report import facts
from evaluator.report.page import Header, write_page
from evaluator.report.section import MeasuredRun, Section, core_template
from evaluator.report.sections.run_record import about_section, record_section, tokens_section
from evaluator.report.terminal import verdict_lines
from evaluator.run.folder import current_table, run_store
from evaluator.run.record import read_run
from evaluator.suites import SUITES

PAGE = "report.html"


class FolderRun:
    """A MeasuredRun over an output folder. Each table is read once."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self._tables: dict[str, pl.DataFrame] = {}
        self.record: Mapping[str, Any] = read_run(out)

    def table(self, name: str) -> pl.DataFrame:
        if name not in self._tables:
            self._tables[name] = current_table(self._out, name)
        return self._tables[name]

    def side_table(self, name: str, schema: pl.Schema) -> pl.DataFrame:
        return run_store(self._out).table(name, schema).collect()


def write_run_page(run: MeasuredRun, path: Path) -> Path:
    """Write the page of a run and return its path. Raises StoreError where tables are not those of the last scores."""
    record = run.record
    # Suites of one family share a function, which is called once.
    builders = dict.fromkeys(SUITES[name].sections for name in facts.look_up(record, "store", "suites") or ())
    sections = [section for build in builders for section in build(run)]
    model = facts.look_up(record, "model", "name") or "model not recorded"
    warning = facts.warning(record)
    header = Header(
        kicker="In-context classification",
        heading=model,
        subject=_subject(record, run.table("metrics")),
        warnings=(("", warning),) if warning else (),
        about=about_section(record),
    )
    measured = sections or [
        Section(anchor="unmeasured", title="Results", template=core_template("unmeasured.html"), navigation="Results")
    ]
    everything = [*measured, tokens_section(record), record_section(record)]
    return write_page(path, f"{model}: in-context classification", header, everything)


def summary_lines(run: MeasuredRun) -> list[str]:
    """What a terminal shows at the end of a run: its metrics, then what its suites say."""
    names = facts.look_up(run.record, "store", "suites") or ()
    builders = dict.fromkeys(SUITES[name].summary_lines for name in names)
    return [*verdict_lines(run.table("metrics")), *(line for build in builders for line in build(run))]


def _subject(record: Mapping[str, Any], metrics: pl.DataFrame) -> str:
    """What was measured: suites with their parts and methods, datasets and shots."""
    names = facts.look_up(record, "store", "suites") or []
    n_datasets, n_shots = len(facts.datasets(record)), facts.look_up(record, "store", "n_shots")
    measured = "; ".join(_measured(metrics) or names)
    counts = [f"{n_datasets} dataset{'s' * (n_datasets != 1)}"] if n_datasets else []
    shots = [] if n_shots is None else [f"{n_shots} shot{'s' * (n_shots != 1)}"]
    return " · ".join([*([measured] if measured else []), *counts, *shots])


def _measured(metrics: pl.DataFrame) -> list[str]:
    """One line a suite and set of methods."""
    measured = metrics.group_by("suite", "part").agg(pl.col("method").unique().sort())
    together = measured.group_by("suite", "method").agg(pl.col("part").sort()).sort("suite", "part")
    return [
        f"{suite}{' / ' + ', '.join(parts) if any(parts) else ''}, "
        + (methods[0] if len(methods) == 1 else f"{len(methods)} methods")
        for suite, parts, methods in together.select("suite", "part", "method").iter_rows()
    ]
