"""Build the section of what was checked before a run."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from evaluator.preflight.text import detectable_text, label_text, template_text
from evaluator.record import CheckedDatasetRecord, FindingRecord, PreflightRecord
from evaluator.report.facts import Fact
from evaluator.report.section import Section, core_template


class ShownDataset(NamedTuple):
    checked: CheckedDatasetRecord
    labels: Sequence[str]
    detectable: str


class PreflightContext(NamedTuple):
    facts: Sequence[Fact]
    findings: Sequence[FindingRecord]
    datasets: Mapping[str, ShownDataset]


def preflight_section(record: PreflightRecord) -> Section:
    """Build the folded section of findings, labels, classes and detectable differences."""
    n_findings = len(record.findings)
    found = f"{n_findings} finding{'s' * (n_findings != 1)}" if n_findings else "nothing was found"
    return Section(
        anchor="preflight",
        title="Checked before the run",
        subtitle=f"{found}; labels in place, classes, detectable differences",
        is_folded=True,
        template=core_template("preflight.html"),
        context=PreflightContext(_facts(record), record.findings, _datasets(record)),
    )


def accepted_warnings(record: PreflightRecord | None) -> list[str]:
    """Return a warning for each finding that would have stopped the run, had the command not named it."""
    if record is None:
        return []
    accepted = [one for one in record.findings if one.level == "stop" and one.name in record.accepted]
    return [f"Accepted with --accept {one.name}: {one.dataset}: {one.text}" for one in accepted]


def _facts(record: PreflightRecord) -> list[Fact]:
    return [
        Fact("Tokens in front of a prompt", str(record.tokens_in_front)),
        Fact("Chat template", template_text(record)),
        Fact("Context", f"{record.context_tokens:,} tokens" if record.context_tokens else "no limit"),
    ]


def _datasets(record: PreflightRecord) -> dict[str, ShownDataset]:
    return {
        name: ShownDataset(dataset, [label_text(label) for label in dataset.labels], detectable_text(dataset))
        for name, dataset in record.datasets.items()
    }
