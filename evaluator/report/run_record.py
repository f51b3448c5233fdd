"""Build the sections about a run from its record: main facts, preflight checks, cost, receipts, the full record.

Missing values are shown as "not recorded".
"""

from collections.abc import Iterator, Mapping, Sequence

import polars as pl
from markupsafe import Markup

from evaluator.errors import plural
from evaluator.preflight.findings import detectable_text, label_text, template_text
from evaluator.record import EngineRecord, MeasuredRecord, PreflightRecord, ReceiptRecord, ThroughputRecord
from evaluator.report.figures import throughput_figure, time_line
from evaluator.report.section import Block, Filled, Group, List, Panel, Panels, Section, texts
from evaluator.report.table import DATASET, Column, Row, Table, line, significant, text_column

KIND_WARNINGS = {
    "embedded": "This is the small model that ships here: it shows how a run goes, not what models can do.",
    "random": "This model's weights are random: every number here is chance.",
    "fake": "No model was asked: a fake engine made these numbers up, and every one of them is chance.",
}
"""Kind of a model whose results say nothing about real models -> warning at the top of the page."""

STAGES = {"build": "Build", "tokenise": "Tokenise", "load": "Load model", "score": "Score", "measure": "Measure"}
"""Stage of a run, as in MeasuredRecord.elapsed_s -> its title, in order of time."""


Facts = dict[str, str | None]
"""Name of a fact -> its value as a text; None if the run did not record it."""


def warnings(run: MeasuredRecord) -> Iterator[str]:
    """Yield the warnings of a page: a model that is not real, datasets that failed, answers that count as wrong."""
    if run.model.kind in KIND_WARNINGS:
        yield KIND_WARNINGS[run.model.kind]
    for dataset, reason in run.left_out.items():
        yield f"{dataset} failed and is left out of every number and every mean on this page. {reason}"
    for dataset, notes in run.prompts.notes.items():
        yield from (f"{dataset}: {note}." for note in notes if "as wrong" in note)


def headline_facts(run: MeasuredRecord) -> Facts:
    """Return the main facts of a run: model, engine, prompts, seeds and times."""
    engine = run.engine
    version = engine.versions.get(engine.name)
    return {
        "Model": run.model.title,
        "Revision": run.model.revision or (None if run.model.kind == "hub" else "none, a local model"),
        "Weights fingerprint": run.model.weights_fingerprint,
        "Parameters": _count(run.model.n_parameters),
        "Engine": f"{engine.name} {version}" if version else engine.name,
        "Device": engine.device,
        "dtype": engine.dtypes,
        **({"Doctor": run.doctor} if run.doctor else {}),
        "Shots": run.prompts.shots,
        "Prompts": _form(run),
        "Label boundary": run.scores.label_boundary,
        "Seeds": ", ".join(f"{name} {value:,}" for name, value in run.prompts.seeds.items()) or None,
        "Started": _time(run.started),
        "Finished": _time(run.finished),
    }


def record_facts(run: MeasuredRecord) -> dict[str, Facts]:
    """Return the other facts that are needed to repeat the run: heading -> facts."""
    prompts, scores, engine, left_out = run.prompts, run.scores, run.engine, run.left_out
    arithmetic, tokens_per_s = arithmetic_rate(scores.throughput), scores.tokens_per_s
    return {
        "Prompts": {
            "Store fingerprint": prompts.fingerprint,
            "Suites": ", ".join(prompts.suites),
            "Datasets": ", ".join([name for name in prompts.datasets if name not in left_out]),
            **({"Left out": ", ".join(left_out)} if left_out else {}),
            "Definition of the prompts": prompts.prompt_definition,
            "Queries of each dataset": prompts.queries,
            "Requests": _count(prompts.requests),
            "Distinct prompts": _count(prompts.distinct_prompts),
        },
        "Model and engine": {
            "Kind of model": run.model.kind,
            "Context": context_text(run.model.context_tokens),
            "Prefix-cache block": _block(engine),
            "Prompts scored": _count(scores.prompts),
            **({"Scored by earlier runs": _count(scores.reused_prompts)} if scores.reused_prompts else {}),
            "Throughput": f"{tokens_per_s:,.1f} tokens/s" if tokens_per_s else None,
            **({"Arithmetic rate": arithmetic} if arithmetic else {}),
        },
        "Time": {
            title: f"{run.elapsed_s[stage]:,.1f} s" if stage in run.elapsed_s else None
            for stage, title in STAGES.items()
        },
        "Versions": {"evaluator": run.evaluator, **dict(sorted(engine.versions.items()))},
    }


def context_text(tokens: int | None) -> str:
    """Return the maximum length of a model's context in words."""
    return f"{tokens:,} tokens" if tokens else "no limit"


def token_counts(run: MeasuredRecord) -> pl.DataFrame:
    """Return the token counts of a run, from the tokens of all requests to the fewest that must be computed.

    Returns name, meaning, tokens, times_floor (tokens divided by the floor) and share (tokens divided by the largest
    count). Counts that are unknown have no row.
    """
    tokens, scores = run.tokens, run.scores
    block = tokens.block_tokens
    counts = [
        ("All requests", "every request's tokens, repeated prompts included", tokens.request_tokens),
        ("Distinct prompts", "each prompt once, nothing shared", tokens.tokens),
        ("Sent to the engine", "contexts, and what labels of several tokens need in addition",
         scores.prompt_tokens),
        ("Computed", "sent, minus those from the prefix cache", scores.computed_tokens),
        (f"Floor in blocks of {block}" if block else "Floor in whole blocks",
         "the fewest when a cache shares whole blocks only", tokens.block_floor_tokens),
        ("Floor", "the fewest when no token is computed twice after the same prefix", tokens.floor_tokens),
    ]  # fmt: skip
    schema = {"name": pl.String, "meaning": pl.String, "tokens": pl.Int64}
    counted = pl.DataFrame(counts, schema=schema, orient="row").filter(pl.col("tokens").is_not_null())
    return counted.with_columns(
        times_floor=pl.col("tokens") / pl.lit(tokens.floor_tokens or None, pl.Float64),
        share=(pl.col("tokens") / pl.col("tokens").max()).fill_nan(0.0),
    )


def token_summary(run: MeasuredRecord) -> str:
    """Summarise the token counts in sentences."""
    sentences = [f"{run.prompts.requests:,} requests are {run.prompts.distinct_prompts:,} distinct prompts."]
    if run.scores.reused_prompts:
        sentences.append(f"Earlier runs had scored {run.scores.reused_prompts:,} of them.")
    if sent := run.scores.prompt_tokens:
        cached = run.scores.cached_tokens
        unknown = "The engine does not tell how many of the tokens sent came from a prefix cache."
        known = f"{(cached or 0) / sent:.1%} of the tokens sent came from the prefix cache."
        sentences.append(unknown if cached is None else known)
    if rate := run.scores.tokens_per_s:
        arithmetic = arithmetic_rate(run.scores.throughput)
        at = f", at {arithmetic}" if arithmetic else ""
        sentences.append(f"Scoring went through {rate:,.0f} tokens a second{at}.")
    return " ".join(sentences)


def arithmetic_rate(rates: ThroughputRecord) -> str | None:
    """Return the rate of floating-point operations as a text, with its share of the devices' peak if that is known.

    None if the rate is unknown.
    """
    if not rates.flop_per_s:
        return None
    share = "" if rates.peak_share is None else f", {rates.peak_share:.0%} of the devices' peak (MFU)"
    return f"{rates.flop_per_s / 1e12:,.3g} TFLOP/s{share}"


def _form(run: MeasuredRecord) -> str:
    """Return in words how prompts were sent: through a chat template, or plain."""
    if run.scores.chat:
        return f"through {run.scores.chat.form}, thinking {run.scores.chat.thinking}"
    return "plain, though the model has a chat template" if run.model.has_chat_template else "plain"


def _block(engine: EngineRecord) -> str:
    if not engine.counts_cached_tokens:
        return "not known"
    return f"{engine.prefix_block_tokens:,} tokens" if engine.prefix_block_tokens else "none, no prefix cache"


def _count(value: int | None) -> str | None:
    return None if value is None else f"{value:,}"


def _time(value: str) -> str:
    return value.replace("T", " ").replace("+00:00", " UTC")


TEXTS = texts("evaluator.report")


def about_section(record: MeasuredRecord) -> Section:
    """Build the section of the main facts and the preflight checks; its notes are those about the datasets."""
    return Section(
        "run",
        "What was run",
        (_facts(headline_facts(record)), *([_preflight_section(record.preflight)] if record.preflight else [])),
        navigation="What was run",
        notes=tuple(f"{dataset}: {'; '.join(notes)}." for dataset, notes in record.prompts.notes.items()),
        is_folded=True,
    )


def accepted_warnings(record: PreflightRecord | None) -> list[str]:
    """Return a warning for each preflight finding that would have stopped the run without --accept."""
    stopping = [one for one in record.findings if one.level == "stop" and one.name in record.accepted] if record else []
    return [f"Accepted with --accept {one.name}: {one.about}" for one in stopping]


def cost_section(record: MeasuredRecord) -> Section | None:
    """Build the section of costs: of a hosted service if recorded, else token counts with throughput over time.

    None for an imported run.
    """
    if record.scores.costs:
        return Section("tokens", "What it cost", [List(record.scores.costs)], navigation="Cost")
    if record.model.kind == "imported":
        return None
    bar = Markup('<span style="--share: {:.2f}%"></span>')
    columns = (
        text_column("Count", "name", below="meaning"),
        Column("Tokens", "tokens"),
        Column("× floor", "times_floor"),
        Column("", "share", show=lambda share: bar.format(100 * share), style="bar"),
    )
    table = Table(token_counts(record), columns, style="metrics tokens", row_data={"count": "name"})
    blocks: list[Block] = [token_summary(record), table, *_throughput_sections(record.scores.throughput)]
    return Section("tokens", "Tokens computed", blocks, navigation="Tokens")


def receipt_section(receipts: Mapping[str, ReceiptRecord]) -> Section:
    """Build the section of receipts: how far log-likelihoods drift when a sample of the prompts is scored again.

    Args:
        receipts: engine and dtype that scored again, as "vllm float32" -> its receipt; one row each.
    """
    drifts = {"median_drift_nats": "Median drift", "p95_drift_nats": "95%", "p99_drift_nats": "99%"}
    drifts |= {"max_drift_nats": "Largest"}
    recorded = ("prompts", "batches", "flipped", "predictions", "verdicts", "changed_verdicts", *drifts)
    rows = [
        {"name": name, "determinism": determinism(one), **{column: getattr(one, column) for column in recorded}}
        for name, one in receipts.items()
    ]

    def changed(row: Row) -> str:
        return "not compared" if row["verdicts"] is None else str(len(row["changed_verdicts"]))

    columns = (
        text_column("Scored again with", "name", below="determinism"),
        Column("Prompts", "prompts", note="batches", below="batches"),
        *(Column(title, name, show=significant, style="number drift") for name, title in drifts.items()),
        Column("Flipped", "flipped", note="predictions", below=(line("predictions", "of {:,}".format),)),
        Column("Changed", cell=changed, note="verdicts", below=(line("verdicts", "of {}".format),)),
    )
    shown = pl.DataFrame(rows, schema_overrides={"verdicts": pl.Int64, "changed_verdicts": pl.List(pl.String)})
    lines = (f"{name}: {'; '.join(one.changed_verdicts)}." for name, one in receipts.items() if one.changed_verdicts)
    return Section(
        "receipt",
        "Numerical receipt",
        (TEXTS["receipt_content"], Table(shown, columns, row_data={"receipt": "name"}), *lines),
        subtitle="a sample of the prompts, scored again",
        kind="receipt",
        navigation="Receipt",
    )


def receipt_lines(name: str, receipt: ReceiptRecord) -> Iterator[str]:
    """Yield lines about a receipt for a terminal.

    Args:
        name: engine and dtype that scored again.
        receipt: result of the re-scoring.
    """
    yield (
        f"{plural(receipt.prompts, 'prompt')} scored again, shuffled, in {plural(receipt.batches, 'batch')}: {name} "
        f"({determinism(receipt)})"
    )
    yield (
        f"Drift: at most {receipt.max_drift_nats:.2g} nats, 99% at most {receipt.p99_drift_nats:.2g}, 95% at most "
        f"{receipt.p95_drift_nats:.2g}, median {receipt.median_drift_nats:.2g}"
    )
    yield f"Flipped predictions: {receipt.flipped} of {receipt.predictions}"
    if receipt.verdicts is None:
        yield "Verdicts were not compared: prompts were chosen by earlier scores, and other scores choose others"
    else:
        yield f"Changed verdicts: {len(receipt.changed_verdicts)} of {receipt.verdicts}"
        yield from (f"  {line}" for line in receipt.changed_verdicts)


def determinism(receipt: ReceiptRecord) -> str:
    """Return dtype, number of threads and batch invariance of a re-scoring, on which its reproducibility depends."""
    threads = "" if receipt.threads is None else f", {plural(receipt.threads, 'thread')}"
    return f"{receipt.engine.dtype}{threads}, batch invariance {'on' if receipt.batch_invariant else 'off'}"


def record_section(record: MeasuredRecord) -> Section:
    """Build the section of the command, an example of a chat prompt, all other facts, and the time of each stage."""
    command, chat = record.command, record.scores.chat
    blocks: list[Block] = [Filled("lines.html", {"lines": command}) if command else "The command was not recorded."]
    if chat:
        lines = Filled("lines.html", {"lines": chat.example})
        blocks.append(Group([lines], "A prompt with a label, as the model gets it"))
    blocks.append(
        Group([Group([_facts(group)], title) for title, group in record_facts(record).items()], style="columns")
    )
    if seconds := {title: record.elapsed_s[stage] for stage, title in STAGES.items() if stage in record.elapsed_s}:
        blocks.append(Group([Panels([Panel("", [time_line(seconds)])])], "Time that the command waited for each stage"))
    return Section("record", "The record in full", blocks, kind="record", navigation="Record")


def _facts(rows: Facts) -> Filled:
    return Filled("facts.html", {"facts": rows})


def _preflight_section(record: PreflightRecord) -> Section:
    """Build the folded section of the preflight checks: findings, labels, classes and detectable differences."""
    rows = [
        (
            name,
            checked.queries,
            ", ".join(f"{label} {n:,}" for label, n in checked.class_queries.items()) or "each query has its own",
            ", ".join(map(label_text, checked.labels)) or None,
            detectable_text(checked),
        )
        for name, checked in record.datasets.items()
    ]
    about = {"classes": "Classes", "labels": "Tokens of the labels"}
    about |= {"detectable": "Smallest detectable difference of two accuracies"}
    titled = [text_column(title, name, style="text") for name, title in about.items()]
    columns = [DATASET, Column("Queries", "queries"), *titled]
    facts: Facts = {
        "Tokens in front of a prompt": str(record.tokens_in_front),
        "Chat template": template_text(record),
        "Context": context_text(record.context_tokens),
    }
    found = plural(len(record.findings), "finding") if record.findings else "nothing was found"
    return Section(
        "preflight",
        "Checked before the run",
        (
            _facts(facts),
            List([f"{one.level.capitalize()}, {one.name}: {one.about}" for one in record.findings]),
            Table(pl.DataFrame(rows, schema=["dataset", "queries", *about], orient="row"), columns),
        ),
        subtitle=f"{found}; labels in place, classes, detectable differences",
        is_folded=True,
    )


def _throughput_sections(throughput: ThroughputRecord) -> Sequence[Section]:
    """Build the folded section of throughput over time; no section if fewer than two periods were recorded."""
    if len(throughput.period_requests_per_s) < 2:
        return ()
    # Engines that do not report computed tokens have an empty list, which is not drawn.
    requests, computed = throughput.period_requests_per_s, throughput.period_computed_tokens_per_s
    rates = {"prompts/s": requests, "tokens computed/s": computed}
    arithmetic = arithmetic_rate(throughput)
    tokens = throughput.computed_tokens_per_s
    summary = f"Over {throughput.elapsed_s:,.1f} s: {throughput.requests_per_s:,.1f} prompts/s"
    summary += f", {tokens:,.0f} tokens computed/s" if tokens else ""
    summary += (f", {arithmetic}" if arithmetic else "") + TEXTS["throughput_summary"]
    panels = [Panel("", [throughput_figure(rate, throughput.period_s, unit)]) for unit, rate in rates.items() if rate]
    return [Section("throughput", "Throughput over time", (summary, Panels(panels)), is_folded=True)]
