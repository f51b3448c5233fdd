"""Sections about the run itself: what was run, the tokens that were computed, and the record in full."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

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


def about_section(record: Mapping[str, Any]) -> Section:
    """What was run, in the few lines that name it, with what was changed in its data."""
    changed = facts.look_up(record, "store", "notes") or {}
    return Section(
        anchor="run",
        title="What was run",
        template=core_template("about.html"),
        context=AboutContext(facts.headline_facts(record)),
        notes=tuple(f"{dataset}: {'; '.join(notes)}." for dataset, notes in changed.items() if notes),
    )


def tokens_section(record: Mapping[str, Any]) -> Section:
    return Section(
        anchor="tokens",
        title="Tokens computed",
        navigation="Tokens",
        template=core_template("tokens.html"),
        context=TokensContext(facts.token_counts(record), facts.token_summary(record)),
    )


def record_section(record: Mapping[str, Any]) -> Section:
    return Section(
        anchor="record",
        title="The record in full",
        kind="record",
        navigation="Record",
        template=core_template("record.html"),
        context=RecordContext(facts.commands(record), facts.record(record)),
    )
