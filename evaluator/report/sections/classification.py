"""Build the sections of a classification run: methods, results, reliability and confusion of every part."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

import polars as pl

from evaluator.report import tables
from evaluator.report.metric_texts import MetricTexts
from evaluator.report.section import MeasuredRun, Section
from evaluator.report.sections.methods import method_order, method_summary, methods_section
from evaluator.report.sections.reliability import confusion_section, reliability_section
from evaluator.report.sections.results import (
    GroupResults,
    about,
    further_section,
    intervals_section,
    place_name,
    results_section,
)


def classification_sections(
    run: MeasuredRun, *, texts: MetricTexts | None = None, without_parts: Collection[str] = ()
) -> Iterator[Section]:
    """Yield the sections of each part: a comparison of methods, the first method in full, other methods folded.

    Args:
        run: with the tables metrics, label_spaces, reliability, confusion and method_differences.
        texts: titles of metrics.
        without_parts: parts that are left out.
    """
    metrics = run.table("metrics").filter(~pl.col("part").is_in(without_parts))
    results = _group_results(metrics, run.table("label_spaces"), datasets_of(run), texts)
    # Consecutive results of one suite and part: its methods.
    parts = [list(methods) for _, methods in groupby(results, key=lambda result: result.group[:2])]
    for methods in parts:
        yield from _part_sections(run, methods, has_others=len(results) > 1, has_other_parts=len(parts) > 1)


def with_head(
    sections: Sequence[Section], run: MeasuredRun, metrics: pl.DataFrame, notes: Sequence[str] = ()
) -> list[Section]:
    """Return the sections with notes, definitions and datasets, for the head and controls of the page, on the first.

    Args:
        metrics: schemas.METRICS, with the definitions that the reader can choose.
    """
    present = set(metrics["definition"])
    definitions = {name: meaning for name, meaning in tables.DEFINITIONS.items() if name in present}
    first, *others = sections
    return [replace(first, notes=tuple(notes), definitions=definitions, datasets=tuple(datasets_of(run))), *others]


def datasets_of(run: MeasuredRun) -> list[str]:
    """Return the measured datasets, in the order of the benchmark."""
    return tables.dataset_order(run.table("metrics"), run.record.prompts.datasets)


def _group_results(
    metrics: pl.DataFrame, spaces: pl.DataFrame, datasets: Sequence[str], texts: MetricTexts | None
) -> list[GroupResults]:
    """Return the results of each suite, part and method, in the order of methods."""
    texts = texts or MetricTexts()
    groups = sorted(tables.groups(metrics), key=lambda group: (group.suite, group.part, method_order(group.method)))
    is_headline = pl.col("metric").is_in([name for name in set(metrics["metric"]) if texts.is_headline(name)])
    results = []
    for number, group in enumerate(groups, 1):
        of_group, n_labels = tables.in_group(metrics, group), tables.label_counts(spaces, group)
        headline, further = (
            tables.result_tables(of_group.filter(chosen), n_labels, datasets, texts)
            for chosen in (is_headline, ~is_headline)
        )
        results.append(GroupResults(group, f"method-{number}", headline, further))
    return results


def _part_sections(
    run: MeasuredRun, results: Sequence[GroupResults], *, has_others: bool, has_other_parts: bool
) -> Iterator[Section]:
    first, *others = results
    place = f", {first.group.part}" if has_other_parts else ""
    n_shots, datasets = run.record.prompts.n_shots, datasets_of(run)
    if others:
        navigation = f"Inference methods{place}"
        yield methods_section(results, run.table("method_differences"), n_shots, datasets, navigation=navigation)
    subtitle = about(first.group) if has_others else ""
    yield results_section(first, subtitle=subtitle, navigation=f"Results{place}")
    yield intervals_section(first, subtitle=subtitle)
    yield from _drawn_sections(run, first, datasets, subtitle)
    if others:
        yield Section(
            anchor=f"others-{first.anchor}",
            title="Other methods",
            subtitle=f"{place_name(first.group)}: results, reliability and confusion of each",
            kind="other-methods",
            sections=tuple(_folded(run, method, datasets) for method in others),
        )


def _folded(run: MeasuredRun, results: GroupResults, datasets: Sequence[str]) -> Section:
    """Build a folded section without the figure of intervals, which are in the table of methods as well."""
    method, subtitle = results.group.method, about(results.group)
    return Section(
        anchor=f"folded-{results.anchor}",
        title=method,
        subtitle=method_summary(method) or "",
        kind="method",
        is_folded=True,
        sections=(
            results_section(results, subtitle=subtitle),
            *_drawn_sections(run, results, datasets, subtitle),
        ),
    )


def _drawn_sections(
    run: MeasuredRun, results: GroupResults, datasets: Sequence[str], subtitle: str
) -> Iterator[Section]:
    yield reliability_section(results, run.table("reliability"), datasets, subtitle=subtitle)
    spaces = run.table("label_spaces")
    yield confusion_section(results, run.table("confusion"), spaces, datasets, subtitle=subtitle)
    if results.further:
        yield further_section(results)
