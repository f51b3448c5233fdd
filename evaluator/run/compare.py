"""Compare several runs, write tables and a page (`evaluator compare`); test a run by a policy (`evaluator gate`)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import polars as pl

from evaluator.compare import differences, results
from evaluator.compare.across_models import rank_correlations, scaling_lines, scaling_points, with_measure
from evaluator.compare.gate import Gate, Policy, decide
from evaluator.compare.report import ComparisonData, comparison_header, comparison_sections, runs_section
from evaluator.compare.runs import ComparedRun, compared_runs
from evaluator.compare.schema import COMPARISON
from evaluator.errors import ConfigError, StoreError
from evaluator.files.whole import writing_to
from evaluator.progress import Progress, Stage
from evaluator.report.page import write_page
from evaluator.run.folder import read_table
from evaluator.run.folders import COMPARISON_PAGE, MODELS, RunFolder, read_run_if_intact, write_comparison
from evaluator.suites import families_of, metric_texts, shared_sets


class Compared(NamedTuple):
    """The results of a comparison."""

    page: Path
    notes: list[str]  # what limits the comparison, to read before the numbers
    tables: Mapping[str, pl.DataFrame]  # name in OUT/tables -> table
    answer: str  # the best run, its lead, and whether the test is significant; with a base, a line for each run


def compare(
    folders: Sequence[Path], out: Path, margin: float | None = None, base: Path | None = None
) -> Stage[Compared]:
    """Compare runs, and write tables and a page.

    Writes OUT/tables/{comparison,differences,rank_correlations,scaling}.parquet and OUT/compare.html. Suites can add
    tables and sections. Equal runs give equal bytes.

    Args:
        folders: folders of the runs.
        out: folder of the tables and the page.
        margin: largest difference of accuracy that does not matter, between 0 and 1 (both excluded), for
            equivalence.parquet; None: equivalence is not tested.
        base: folder of a run with which every other run is compared, for against.parquet; None: the runs are compared
            with each other.

    Raises ConfigError or StoreError for runs that cannot be compared, before anything is written.
    """
    runs = _read_checked(folders, out, margin, base)
    common = [name for name in runs[0].record.prompts.suites if all(name in run.record.prompts.suites for run in runs)]
    suite_comparisons = [added for family in families_of(common) if (added := family.comparison(runs)) is not None]
    shared = shared_by(runs)
    has_metrics = not all(run.metrics.is_empty() for run in runs)
    if not has_metrics and (margin or not suite_comparisons):
        raise StoreError(f"{folders[0]} and the others have no metrics to compare, or to test within --margin.")
    comparison = results.comparison_table(runs) if has_metrics else COMPARISON.to_frame()
    answered = yield from read_results(runs, with_probs=base is not None)
    notes = results.comparison_notes(runs, comparison, answered)
    yield Progress(stage="Comparing", done=0, total=2, unit="steps")
    estimated = differences.estimated_differences(
        [run.model for run in runs], answered, comparison, shared, is_against=base is not None
    )
    tested = differences.paired_differences(estimated)
    texts = metric_texts(dict.fromkeys(name for run in runs for name in run.record.prompts.suites))
    headlines = texts.headlines(comparison)
    # Correlations and line fits use a model once: the first of the runs with its weights.
    weights = [run.record.model.weights_fingerprint for run in runs]
    once = headlines.filter(pl.col("number").is_in([weights.index(each) + 1 for each in weights]))
    points = scaling_points(once, tested)
    ranks, lines = rank_correlations(once), scaling_lines(points)
    own = {"comparison": comparison, "differences": tested, "rank_correlations": ranks, "scaling": lines}
    if margin is not None:
        own["equivalence"] = differences.equivalence_table(estimated, margin)
    if base is not None:
        own["against"] = differences.against_table([run.model for run in runs], answered, tested, shared)
    tables = own | {name: table for added in suite_comparisons for name, table in added.tables.items()}
    yield Progress(stage="Comparing", done=1, total=2, unit="steps")
    answer = results.comparison_answer(runs, tested) if base is None else ""
    data = ComparisonData(runs=runs, headlines=with_measure(headlines), tables=own, points=points, texts=texts)
    # Sections of single suites come before the sections of every comparison; folded sections are moved to the end.
    of_suites = (section for added in suite_comparisons for section in added.sections)
    sections = (*of_suites, *comparison_sections(data), runs_section(data, notes))
    with writing_to(out):
        header, page = comparison_header(data, answer), out / COMPARISON_PAGE
        title = f"{header.heading}: in-context classification"
        write_page(page, title, header, sorted(sections, key=lambda section: section.is_folded))
        write_comparison(out, tables, [folder.name for folder in folders if folder.parent == out / MODELS])
    yield Progress(stage="Comparing", done=2, total=2, unit="steps")
    answers = [answer] if base is None else differences.against_lines(own["against"], base.name)
    return Compared(page, notes, tables, "\n".join(answers))


def _read_checked(folders: Sequence[Path], out: Path, margin: float | None, base: Path | None) -> list[ComparedRun]:
    """Read the runs of a comparison, with the base at the end, and check the other arguments of `compare`."""
    if margin is not None and not 0 < margin < 1:
        raise ConfigError(f"--margin must be above 0 and below 1, got {margin}.")
    if (held := read_run_if_intact(out)) and held.measures:
        raise ConfigError(f"{out} holds a finished run, whose tables this would write over. Choose another --out.")
    every = folders if base is None else [*folders, base]
    if base and len({folder.resolve() for folder in every}) < len(every):
        raise ConfigError("A run is named twice, or is the base --against. Name each once.")
    return read_runs(every, of_one_model=base is not None)


def shared_by(runs: Sequence[ComparedRun]) -> differences.Shared:
    """Return the demonstration sets and inputs that are shared, so that answers are not independent."""
    sets = shared_sets(name for run in runs for name in run.record.prompts.suites)
    return differences.Shared(sets=sets, inputs=runs[0].record.prompts.inputs)


def read_runs(folders: Sequence[Path], *, of_one_model: bool = False) -> list[ComparedRun]:
    """Read measured runs. Raises StoreError for a folder without a measured run, and what compared_runs raises."""
    records = [RunFolder(folder).measured for folder in folders]
    return compared_runs(folders, records, read_table, of_one_model=of_one_model)


def read_results(runs: Sequence[ComparedRun], *, with_probs: bool = False) -> Stage[list[pl.DataFrame]]:
    """Return results.request_results of each run. Raises ConfigError for runs with different queries."""
    answered = []
    for done, run in enumerate(runs):
        yield Progress(stage="Reading predictions", done=done, total=len(runs), unit="runs")
        answered.append(results.request_results(run.table("predictions"), run.metrics, with_probs=with_probs))
    if all(run.record.model.kind == "imported" for run in runs):
        answered = results.answers_to_common_prompts(answered)
    results.require_equal_queries(runs, answered)
    yield Progress(stage="Reading predictions", done=len(runs), total=len(runs), unit="runs")
    return answered


def gate(run: Path, base: Path, policy: Policy) -> Stage[Gate]:
    """Decide by a policy whether a run is good enough compared with its base run.

    Both runs may use the same model, for example on different engines. Raises ConfigError or StoreError for runs that
    cannot be compared, and for a policy that applies to nothing in the runs.
    """
    if run.resolve() == base.resolve():
        raise ConfigError(f"{run} and --against {base} are the same run. Name another one as the base.")
    runs = read_runs([run, base], of_one_model=True)
    answered = yield from read_results(runs)
    return decide(policy, runs, answered, shared_by(runs))
