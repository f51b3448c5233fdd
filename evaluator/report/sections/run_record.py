"""Build the sections about the run: its main facts, the tokens computed, and the full record."""

from collections.abc import Sequence
from typing import NamedTuple

from evaluator.record import MeasuredRecord
from evaluator.report import facts
from evaluator.report.section import Section, core_template


class AboutContext(NamedTuple):
    headline: Sequence[facts.Fact]


class TokensContext(NamedTuple):
    counts: Sequence[facts.TokenCount]
    summary: str


class RecordContext(NamedTuple):
    command: str | None
    groups: Sequence[tuple[str, Sequence[facts.Fact]]]


def about_section(record: MeasuredRecord) -> Section:
    """Build the section of the main facts; changes to datasets become notes."""
    return Section(
        anchor="run",
        title="What was run",
        template=core_template("about.html"),
        context=AboutContext(facts.headline_facts(record)),
        notes=tuple(f"{dataset}: {'; '.join(notes)}." for dataset, notes in record.prompts.notes.items()),
    )


def tokens_section(record: MeasuredRecord) -> Section:
    return Section(
        anchor="tokens",
        title="Tokens computed",
        navigation="Tokens",
        template=core_template("tokens.html"),
        context=TokensContext(facts.token_counts(record), facts.token_summary(record)),
    )


def record_section(record: MeasuredRecord) -> Section:
    return Section(
        anchor="record",
        title="The record in full",
        kind="record",
        navigation="Record",
        template=core_template("record.html"),
        context=RecordContext(record.command, facts.record_facts(record)),
    )
