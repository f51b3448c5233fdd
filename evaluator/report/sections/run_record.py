"""Build the sections about the run: its main facts, the tokens computed, and the full record."""

from collections.abc import Sequence
from typing import NamedTuple

from evaluator.record import MeasuredRecord, ThroughputRecord
from evaluator.report import facts
from evaluator.report.figures import throughput_figure
from evaluator.report.section import Section, core_template
from evaluator.report.sections.preflight import preflight_section


class AboutContext(NamedTuple):
    headline: Sequence[facts.Fact]


class TokensContext(NamedTuple):
    counts: Sequence[facts.TokenCount]
    summary: str


class ThroughputContext(NamedTuple):
    throughput: ThroughputRecord
    arithmetic: str | None
    figures: Sequence[str]  # SVG


class RecordContext(NamedTuple):
    command: str | None
    groups: Sequence[tuple[str, Sequence[facts.Fact]]]
    conversation: str | None = None  # an example, if prompts go through a chat template


def about_section(record: MeasuredRecord) -> Section:
    """Build the section of the main facts; changes to datasets become notes."""
    return Section(
        anchor="run",
        title="What was run",
        template=core_template("about.html"),
        context=AboutContext(facts.headline_facts(record)),
        notes=tuple(f"{dataset}: {'; '.join(notes)}." for dataset, notes in record.prompts.notes.items()),
        sections=(preflight_section(record.preflight),) if record.preflight else (),
    )


def tokens_section(record: MeasuredRecord) -> Section:
    """Build the section of the tokens of prompts and those computed."""
    return Section(
        anchor="tokens",
        title="Tokens computed",
        navigation="Tokens",
        template=core_template("tokens.html"),
        context=TokensContext(facts.token_counts(record), facts.token_summary(record)),
        sections=_throughput_sections(record.scores.throughput),
    )


def _throughput_sections(throughput: ThroughputRecord) -> tuple[Section, ...]:
    """Build the folded section of throughput over time; none if there is no course of time to show."""
    if len(throughput.period_requests_per_s) < 2:
        return ()
    figures = [
        throughput_figure(throughput.period_requests_per_s, throughput.period_s, "prompts/s"),
    ]
    if computed := throughput.period_computed_tokens_per_s:  # some engines do not tell which tokens were computed
        figures.append(throughput_figure(computed, throughput.period_s, "tokens computed/s"))
    return (
        Section(
            anchor="throughput",
            title="Throughput over time",
            is_folded=True,
            template=core_template("throughput.html"),
            context=ThroughputContext(throughput, facts.arithmetic_rate(throughput), figures),
        ),
    )


def record_section(record: MeasuredRecord) -> Section:
    """Build the section of the command and all other facts of the record."""
    chat = record.scores.chat
    return Section(
        anchor="record",
        title="The record in full",
        kind="record",
        navigation="Record",
        template=core_template("record.html"),
        context=RecordContext(record.command, facts.record_facts(record), chat.example if chat else None),
    )
