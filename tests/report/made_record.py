"""The record of a run that went through all stages, made up, and the same with other entries."""

from dataclasses import replace
from typing import Any

from evaluator.record import (
    EngineRecord,
    MeasuredRecord,
    MeasuresRecord,
    ModelRecord,
    PartRecord,
    PromptsRecord,
    RunRecord,
    ScoresRecord,
    TokensRecord,
    measured_record,
)

NORMAL = PartRecord(kind="classification", definitions=["paper", "released", "published"], prompts_differ=False)

RUN = RunRecord(
    evaluator="0.1.0",
    started="2026-01-02T03:04:05+00:00",
    finished="2026-01-02T03:14:05+00:00",
    data=".",
    commands={"run": "evaluator run staicc-normal"},
    elapsed_s={"build": 1.5, "score": 598.0},
    prompts=PromptsRecord(
        fingerprint="0123456789abcdef",
        config={},
        suites=["staicc-normal"],
        datasets=["zoo", "mid", "abc"],
        methods=["vanilla"],
        definitions=["paper", "released", "published"],
        prompt_definition="paper",
        parts={"staicc-normal": {"normal": NORMAL}},
        shots="4",
        n_shots=4,
        n_queries=None,
        queries="the whole test split",
        notes={},
        seeds={"demonstrations": 42},
        requests=24,
        distinct_prompts=20,
    ),
    tokens=TokensRecord(request_tokens=2400, tokens=2000, floor_tokens=1000, block_tokens=32, block_floor_tokens=1100),
    model=ModelRecord(
        name="acme/small",
        kind="hub",
        revision="c0ffee",
        weights_fingerprint="fedcba9876543210",
        n_parameters=1234567,
        context_tokens=2048,
    ),
    engine=EngineRecord(
        name="vllm",
        versions={"vllm": "9.9.9"},
        device="cpu",
        dtype="float32",
        prefix_block_tokens=32,
        tokens_per_step=2048,
    ),
    scores=ScoresRecord(
        stores=["0123456789abcdef"],
        tokens=["tokens"],
        tables=["0123"],
        label_boundary="separate",
        prompts=20,
        reused_prompts=0,
        prompt_tokens=2000,
        cached_tokens=750,
        elapsed_s=0.0,
    ),
)


def run_record(tables: dict[str, str] | None = None, **changed: dict[str, Any]) -> RunRecord:
    """RUN with other entries in some of its sections, measured; `tables` are the digests of its tables."""
    sections = {section: replace(getattr(RUN, section), **entries) for section, entries in changed.items()}
    record = replace(RUN, **sections)
    assert record.scores is not None
    return replace(record, measures=MeasuresRecord(scores=record.scores.fingerprint, tables=tables or {}))


def made_record(**changed: dict[str, Any]) -> MeasuredRecord:
    """The same as pages and comparisons take it."""
    return measured_record(run_record(**changed), "OUT")


def changed_record(record: MeasuredRecord, **changed: dict[str, Any]) -> MeasuredRecord:
    """The record with other entries in some of its sections."""
    sections = {name: replace(getattr(record, name), **entries) for name, entries in changed.items()}
    return replace(record, **sections)
