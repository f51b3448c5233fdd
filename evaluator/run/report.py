"""Write the page of a run: a header, the sections of its suites, and the record of the run."""

from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path

import polars as pl

from evaluator.progress import Progress, Stage
from evaluator.record import MeasuredRecord, RunRecord, measured_record
from evaluator.report import run_record
from evaluator.report.notes import label_mass_warnings, majority_warnings, throughput_line, verdict_lines
from evaluator.report.page import Header, write_page
from evaluator.report.query_rows import NO_NUMBERS, query_section
from evaluator.report.run_record import about_section, cost_section, receipt_section, record_section
from evaluator.report.section import MeasuredRun, Section
from evaluator.run.folder import read_table, scan_table
from evaluator.store.prompt_store import PromptStore, require_store
from evaluator.store.tables import compact_copy
from evaluator.suites import families_of

PAGE = "report.html"


class MeasuredFolder:
    """A MeasuredRun in an output folder. Tables are read once, or passed on by the measure stage."""

    def __init__(
        self, out: Path, record: RunRecord, store: PromptStore, tables: Mapping[str, pl.DataFrame] | None = None
    ) -> None:
        self.out, self._data, self._store = out, out / record.data, store
        self.record: MeasuredRecord = measured_record(record, str(out))
        self._tables = dict(tables or {})

    def table(self, name: str) -> pl.DataFrame:
        """Return a table of the measure stage. Raises StoreError if it is missing or not the one that was written."""
        if name not in self._tables:
            self._tables[name] = read_table(self.out, name, self.record.measures.tables)
        return self._tables[name]

    def scan(self, name: str) -> pl.LazyFrame:
        """Return a scan of a table that need not fit into memory. Raises as `table` does."""
        return self._tables[name].lazy() if name in self._tables else scan_table(self.out, name, self.record.tables)

    def side_table(self, name: str, schema: pl.Schema) -> pl.DataFrame:
        """Return a table that a suite wrote with its prompts."""
        return self._store.table(name, schema).collect()

    def prompts(self, prompt_ids: pl.Series) -> pl.DataFrame:
        """Return prompt_id, prompt and spans of the given prompts, as far as the run built them in either round."""
        wanted = pl.col("prompt_id").is_in(prompt_ids.implode())
        shards = chain.from_iterable(store.prompts_by_shard() for store in (self._store, *self._later_stores()))
        found = [compact_copy(rows.select("prompt_id", "prompt", "spans").filter(wanted)) for rows in shards]
        return pl.concat(found).unique("prompt_id", keep="first", maintain_order=True)

    def _later_stores(self) -> Iterator[PromptStore]:
        scores = self.record.scores
        for name in scores.stores:
            if name != self._store.fingerprint:
                hint = f"Run `evaluator verify {self.out} --repair`."
                yield require_store(self._data / "store" / name, hint).without(scores.left_out)


def summary_lines(run: MeasuredRun) -> list[str]:
    """Return the last lines of a run for a terminal: accuracies with verdicts, the lines of suites, and warnings."""
    families = families_of(run.record.prompts.suites)
    failed = [f"Left out of every number and mean: {name}. {why}" for name, why in run.record.left_out.items()]
    warnings = [f"Warning: {text}" for text in (*majority_warnings(run), *label_mass_warnings(run.table("metrics")))]
    lines = [
        *run.record.decisions,
        *verdict_lines(run.table("metrics")),
        *(line for family in families for line in family.summary_lines(run)),
    ]
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
    header = Header(
        kicker="In-context classification",
        heading=record.model.title,
        subject=_subject(record, run.table("metrics")),
        warnings=tuple(("", text) for text in warnings),
    )
    sections = sections or [Section("unmeasured", "Results", ["No metric was measured."], navigation="Results")]
    # Only a suite with a run to itself has numbers of single queries.
    queries = query_section(run, families_of(record.prompts.suites)[0].query_numbers(run) or NO_NUMBERS)
    sections += [one for one in (queries, about_section(record), cost_section(record)) if one]
    sections += [*([receipt_section(record.receipts)] if record.receipts else []), record_section(record)]
    return write_page(path, f"{record.model.title}: in-context classification", header, sections)


def _subject(record: MeasuredRecord, metrics: pl.DataFrame) -> str:
    """Describe what was measured: suites with their parts and methods, number of datasets, shots."""
    n_datasets, n_shots = len({*record.prompts.datasets} - {*record.left_out}), record.prompts.n_shots
    measured = "; ".join(_suite_lines(metrics) or record.prompts.suites)
    shots = f"shots: {record.prompts.shots}" if n_shots is None else f"{n_shots} shot{'s' * (n_shots != 1)}"
    return f"{measured} · {n_datasets} dataset{'s' * (n_datasets != 1)} · {shots}"


def _suite_lines(metrics: pl.DataFrame) -> list[str]:
    """Return a line for each suite and set of methods, with the parts that were measured with these methods."""
    methods_of_part = metrics.group_by("suite", "part").agg(pl.col("method").unique().sort())
    parts_of_methods = methods_of_part.group_by("suite", "method").agg(pl.col("part").sort()).sort("suite", "part")
    return [
        f"{suite}{' / ' + ', '.join(parts) if any(parts) else ''}, "
        + (methods[0] if len(methods) == 1 else f"{len(methods)} methods")
        for suite, parts, methods in parts_of_methods.select("suite", "part", "method").iter_rows()
    ]
