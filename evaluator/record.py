"""What a run was, as dataclasses: DIR/run.json, one section a stage.

Reading and writing them is files.py's work; what is missing or of the wrong type is an error that names the field.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

from evaluator.errors import StoreError
from evaluator.schemas import Definition, PartKind

ModelKind = Literal["fake", "embedded", "random", "folder", "hub"]


@dataclass(frozen=True, kw_only=True)
class PartRecord:
    """One part of a suite, as this run measures it."""

    kind: PartKind
    definitions: list[Definition]
    prompts_differ: bool  # between definitions, so that the part is measured under one of them


@dataclass(frozen=True, kw_only=True)
class PromptsRecord:
    """What was built: which prompts, of which data, for which measures."""

    fingerprint: str  # name of the store's folder
    config: dict[str, Any]  # config.RunConfig, as run/config_json.py writes it
    suites: list[str]
    datasets: list[str]
    methods: list[str]
    definitions: list[Definition]
    prompt_definition: Definition
    parts: dict[str, dict[str, PartRecord]]  # suite -> part
    shots: str  # as a reader is told: "4", "1, 2, 4"
    n_shots: int | None  # where all prompts of the suites have as many
    n_queries: int | None  # None: all
    queries: str  # as a reader is told
    notes: dict[str, list[str]]  # dataset -> what a rule decided about its data
    seeds: dict[str, int]
    requests: int
    distinct_prompts: int


@dataclass(frozen=True, kw_only=True)
class TokensRecord:
    """Tokens of a run's prompts, those of a second round included."""

    request_tokens: int  # repeated prompts included
    tokens: int  # each prompt once
    floor_tokens: int  # that must be computed when nothing is computed twice
    block_tokens: int | None  # prefix-cache block of the engine
    block_floor_tokens: int | None  # the floor where whole blocks are shared


@dataclass(frozen=True, kw_only=True)
class ModelRecord:
    """The model that was evaluated."""

    name: str
    kind: ModelKind
    revision: str | None
    weights_fingerprint: str
    n_parameters: int | None
    context_tokens: int


@dataclass(frozen=True, kw_only=True)
class EngineRecord:
    """The engine that made the numbers; engine.base.EngineFacts."""

    name: str
    versions: dict[str, str]
    device: str
    dtype: str
    prefix_block_tokens: int | None
    has_hidden_states: bool
    tokens_per_step: int


@dataclass(frozen=True, kw_only=True)
class ScoresRecord:
    """Where a run's scores are, and what it took to get them."""

    stores: list[str]  # the run's own, then that of the second round
    tokens: list[str]  # folder of each store's tokens, within it
    tables: list[str]  # folder of each store's scores, below scores/
    label_boundary: Literal["separate", "merged"]
    prompts: int  # scored, earlier runs' included
    reused_prompts: int  # of these, scored by earlier runs
    prompt_tokens: int
    cached_tokens: int
    computed_tokens: int
    elapsed_s: float
    tokens_per_s: float
    kernels: dict[str, str] = field(default_factory=dict)  # kernel -> implementation used


@dataclass(frozen=True, kw_only=True)
class MeasuresRecord:
    """Which scores the tables were measured of."""

    scores: list[str]  # ScoresRecord.tables at that time
    tables: list[str]  # names of DIR/tables


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """run.json whole; a stage that has not been run yet is None."""

    evaluator: str  # version
    started: str
    finished: str
    data: str  # folder of store/ and scores/, relative to the run's
    commands: dict[str, str] = field(default_factory=dict)  # stage -> as it was typed
    elapsed_s: dict[str, float] = field(default_factory=dict)  # stage -> seconds
    prompts: PromptsRecord | None = None
    tokens: TokensRecord | None = None
    model: ModelRecord | None = None
    engine: EngineRecord | None = None
    scores: ScoresRecord | None = None
    measures: MeasuresRecord | None = None


@dataclass(frozen=True, kw_only=True)
class MeasuredRecord:
    """The record of a run that went through all stages: what a report and a comparison are made of."""

    evaluator: str
    started: str
    finished: str
    command: str  # of all stages, a line each
    elapsed_s: dict[str, float]
    prompts: PromptsRecord
    tokens: TokensRecord
    model: ModelRecord
    engine: EngineRecord
    scores: ScoresRecord


def measured_record(record: RunRecord, where: str) -> MeasuredRecord:
    """Return the record of a measured run. Raises StoreError, with the command to run, where a stage is missing."""
    prompts, tokens, model, engine, scores = record.prompts, record.tokens, record.model, record.engine, record.scores
    if not (prompts and tokens and model and engine and scores):
        raise StoreError(f"{where} has no scores yet. Run `evaluator score {where} --model MODEL` first.")
    if record.measures is None or record.measures.scores != scores.tables:
        raise StoreError(f"The tables in {where} are those of earlier scores. Run `evaluator measure {where}` first.")
    return MeasuredRecord(
        evaluator=record.evaluator,
        started=record.started,
        finished=record.finished,
        command="\n".join(dict.fromkeys(record.commands.values())),
        elapsed_s=record.elapsed_s,
        prompts=prompts,
        tokens=tokens,
        model=model,
        engine=engine,
        scores=scores,
    )
