"""Build the sections about a run: its main facts, the checks before it, tokens computed, receipts, the full record."""

from collections.abc import Iterator, Mapping, Sequence

import polars as pl
from markupsafe import Markup

from evaluator.preflight.findings import detectable_text, label_text, template_text
from evaluator.record import MeasuredRecord, PreflightRecord, ReceiptRecord, ThroughputRecord
from evaluator.report import facts
from evaluator.report.figures import throughput_figure
from evaluator.report.section import Filled, Group, List, Panel, Panels, Section, core_template, texts
from evaluator.report.table import Column, Table, line, plural, significant, text_column

TEXTS = texts("evaluator.report")


def about_section(record: MeasuredRecord) -> Section:
    """Build the section of the main facts and the checks before the run; changes to datasets become notes."""
    return Section(
        "run",
        "What was run",
        (_facts(facts.headline_facts(record)), *([_preflight_section(record.preflight)] if record.preflight else [])),
        navigation="What was run",
        notes=tuple(f"{dataset}: {'; '.join(notes)}." for dataset, notes in record.prompts.notes.items()),
        is_folded=True,
    )


def accepted_warnings(record: PreflightRecord | None) -> list[str]:
    """Return a warning for each finding that would have stopped the run, had the command not named it."""
    if record is None:
        return []
    accepted = [one for one in record.findings if one.level == "stop" and one.name in record.accepted]
    return [f"Accepted with --accept {one.name}: {one.dataset}: {one.text}" for one in accepted]


def tokens_section(record: MeasuredRecord) -> Section:
    """Build the section of the tokens of prompts and those computed."""
    bar = Markup('<span style="--share: {:.2f}%"></span>')
    table = Table(
        facts.token_counts(record),
        (
            text_column("Count", "name", below="meaning"),
            Column("Tokens", "tokens"),
            Column("× floor", "times_floor"),
            Column("", "share", show=lambda share: bar.format(100 * share), style="bar"),
        ),
        style="metrics tokens",
        row_data={"count": "name"},
        absent="Token counts were not recorded.",
    )
    return Section(
        "tokens",
        "Tokens computed",
        (
            *([] if table.rows.is_empty() else [facts.token_summary(record)]),
            table,
            *_throughput_sections(record.scores.throughput),
        ),
        navigation="Tokens",
    )


def receipt_section(receipts: Mapping[str, ReceiptRecord]) -> Section:
    """Build the section with a row for each receipt: the drift when a sample of the prompts is scored again."""
    names = ("prompts", "batches", "median_drift_nats", "p95_drift_nats", "p99_drift_nats", "max_drift_nats")
    rows = [
        {"name": name, "determinism": determinism(receipt), "n_changed": len(receipt.changed_verdicts)}
        | {column: getattr(receipt, column) for column in (*names, "flipped", "predictions", "verdicts")}
        for name, receipt in receipts.items()
    ]
    drifts = {"Median drift": names[2], "95%": names[3], "99%": names[4], "Largest": names[5]}
    table = Table(
        pl.DataFrame(rows, schema_overrides={"verdicts": pl.Int64}),
        (
            text_column("Scored again with", "name", below="determinism"),
            Column("Prompts", "prompts", note="batches", below="batches"),
            *(Column(title, name, show=significant, style="number drift") for title, name in drifts.items()),
            Column("Flipped", "flipped", note="predictions", below=(line("predictions", "of {:,}".format),)),
            Column(
                "Changed",
                cell=lambda row: "not compared" if row["verdicts"] is None else str(row["n_changed"]),
                note="verdicts",
                below=(line("verdicts", lambda n: f"of {n}"),),
            ),
        ),
        row_data={"receipt": "name"},
    )
    return Section(
        "receipt",
        "Numerical receipt",
        (
            TEXTS["receipt_content"],
            table,
            *(f"{name}: {'; '.join(one.changed_verdicts)}." for name, one in receipts.items() if one.changed_verdicts),
        ),
        subtitle="a sample of the prompts, scored again",
        kind="receipt",
        navigation="Receipt",
    )


def receipt_lines(name: str, receipt: ReceiptRecord) -> Iterator[str]:
    """Yield the lines about a receipt for a terminal."""
    yield (
        f"{receipt.prompts:,} prompts scored again, shuffled, in {receipt.batches} batches: {name} "
        f"({determinism(receipt)})"
    )
    yield (
        f"Drift: at most {receipt.max_drift_nats:.2g} nats, 99% below {receipt.p99_drift_nats:.2g}, 95% below "
        f"{receipt.p95_drift_nats:.2g}, median {receipt.median_drift_nats:.2g}"
    )
    yield f"Flipped predictions: {receipt.flipped} of {receipt.predictions}"
    if receipt.verdicts is None:
        yield "Verdicts were not compared: prompts were chosen by earlier scores, and other scores choose others"
    else:
        yield f"Changed verdicts: {len(receipt.changed_verdicts)} of {receipt.verdicts}"
        yield from (f"  {line}" for line in receipt.changed_verdicts)


def determinism(receipt: ReceiptRecord) -> str:
    """Describe what the reproducibility of the new numbers depends on."""
    threads = "" if receipt.threads is None else f", {plural(receipt.threads, 'thread')}"
    return f"{receipt.engine.dtype}{threads}, batch invariance {'on' if receipt.batch_invariant else 'off'}"


def record_section(record: MeasuredRecord) -> Section:
    """Build the section of the command and all other facts of the record."""
    chat = record.scores.chat
    conversation = [Group([_lines(chat.example)], "A prompt with a label, as the model gets it")] if chat else []
    groups = [Group([_facts(group)], title) for title, group in facts.record_facts(record).items()]
    return Section(
        "record",
        "The record in full",
        (
            _lines(record.command) if record.command else "The command was not recorded.",
            *conversation,
            Group(groups, style="columns"),
        ),
        kind="record",
        navigation="Record",
    )


def _facts(rows: facts.Facts) -> Filled:
    return Filled(core_template("facts.html"), {"facts": rows})


def _lines(lines: str) -> Filled:
    return Filled(core_template("lines.html"), {"lines": lines})


def _preflight_section(record: PreflightRecord) -> Section:
    """Build the folded section of findings, labels, classes and detectable differences."""
    rows = [
        {
            "dataset": name,
            "queries": checked.queries,
            "classes": ", ".join(f"{label} {n:,}" for label, n in checked.class_queries.items())
            or "each query has its own",
            "labels": ", ".join(map(label_text, checked.labels)) or None,
            "detectable": detectable_text(checked),
        }
        for name, checked in record.datasets.items()
    ]
    columns = (
        text_column("Dataset", "dataset"),
        Column("Queries", "queries"),
        text_column("Classes", "classes", style="text"),
        text_column("Tokens of the labels", "labels", style="text"),
        text_column("Smallest detectable difference of two accuracies", "detectable", style="text"),
    )
    found = plural(len(record.findings), "finding") if record.findings else "nothing was found"
    return Section(
        "preflight",
        "Checked before the run",
        (
            _facts(
                {
                    "Tokens in front of a prompt": str(record.tokens_in_front),
                    "Chat template": template_text(record),
                    "Context": facts.context_text(record.context_tokens),
                }
            ),
            List(
                [
                    f"{one.level.capitalize()}, {one.name}: {f'{one.dataset}: ' if one.dataset else ''}{one.text}"
                    for one in record.findings
                ]
            ),
            Table(pl.DataFrame(rows), columns),
        ),
        subtitle=f"{found}; labels in place, classes, detectable differences",
        is_folded=True,
    )


def _throughput_sections(throughput: ThroughputRecord) -> Sequence[Section]:
    """Build the folded section of throughput over time; none if there is no course of time to show."""
    if len(throughput.period_requests_per_s) < 2:
        return ()
    # Some engines do not tell which tokens were computed.
    rates = {
        "prompts/s": throughput.period_requests_per_s,
        "tokens computed/s": throughput.period_computed_tokens_per_s,
    }
    arithmetic = facts.arithmetic_rate(throughput)
    tokens = throughput.computed_tokens_per_s
    summary = (
        f"Over {throughput.elapsed_s:,.1f} s: {throughput.requests_per_s:,.1f} prompts/s"
        + (f", {tokens:,.0f} tokens computed/s" if tokens else "")
        + (f", {arithmetic}" if arithmetic else "")
        + TEXTS["throughput_summary"]
    )
    panels = [Panel("", [throughput_figure(rate, throughput.period_s, unit)]) for unit, rate in rates.items() if rate]
    return [Section("throughput", "Throughput over time", (summary, Panels(panels)), is_folded=True)]
