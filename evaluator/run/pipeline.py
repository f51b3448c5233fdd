"""A whole run, one call a stage: build, score, measure, report. What a stage makes is handed on and written."""

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import NamedTuple, cast

import polars as pl

from evaluator.config import LabelBoundary, ModelConfig, RunConfig
from evaluator.engine import ENGINES, engine_name, find_source
from evaluator.errors import ConfigError
from evaluator.files import write_table, writing_to
from evaluator.models.embedded import EMBEDDED_MODELS
from evaluator.models.source import ModelSource
from evaluator.progress import Progress, Stage
from evaluator.record import EngineRecord, ModelKind, ModelRecord, PromptsRecord, RunRecord, ScoresRecord, TokensRecord
from evaluator.record import MeasuresRecord as Measures
from evaluator.run.build import Built, build_prompts, check_config
from evaluator.run.config_json import config_to_json
from evaluator.run.folder import open_built, open_scored, scores_section
from evaluator.run.measure import measured_tables
from evaluator.run.record import new_record, now, require_run, with_stage, write_run
from evaluator.run.report import PAGE, MeasuredFolder, write_run_page
from evaluator.run.score import Scored, check_capabilities, score_run
from evaluator.run.scored_run import ScoredStore, complete_run, scored_run
from evaluator.suites import SUITES, default_label_boundary
from evaluator_kernels import implementations


class Finished(NamedTuple):
    """What a run left, for whoever goes on with it in this process."""

    page: Path
    run: MeasuredFolder


def run(config: RunConfig, model: ModelConfig, out: Path, *, data: Path | None = None) -> Stage[Finished]:
    """Build, score, measure and report. What an earlier run of the same configuration left is kept.

    Args:
        config: what is evaluated.
        model: of which model.
        out: folder of the record, the tables and the page.
        data: folder of prompts and scores, which several runs may share; `out` where None.
    """
    check_config(config)
    check_capabilities(config, model)
    with writing_to(out):
        source = _find_model(model)  # a wrong name should not wait for the prompts
        record, built = yield from _build(config, out, data or out)
        scored = yield from score_run(built, source, model, _boundary(config, model), data or out)
        return (yield from _finished(_with_scores(record, scored, source, model, out), built, scored, out))


def run_models(config: RunConfig, models: Sequence[ModelConfig], out: Path, *, data: Path | None = None) -> Stage[Path]:
    """Evaluate several models on the same prompts, a run folder for each below `out`/models, and compare them.

    Returns the path of the page that compares them. Raises ConfigError, before anything is built, for suites whose runs
    cannot be compared.
    """
    from evaluator.run.compare import compare  # here, because its figures and SciPy take their time

    check_config(config)
    if alone := [name for name in config.suites if not SUITES[name].is_comparable]:
        raise ConfigError(
            f"{', '.join(alone)} measures no metrics that models are compared by. Give --model once, and run the "
            "others in commands of their own."
        )
    for model in models:
        check_capabilities(config, model)
    with writing_to(out):
        sources = [_find_model(model) for model in models]
        runs = [out / "models" / name for name in model_folders(sources)]
        _, built = yield from _build(config, out, data or out)
        for source, model, folder in zip(sources, models, runs, strict=True):
            with writing_to(folder):
                record = _recorded_build(built, folder, data or out, started=now(), elapsed_s=0.0)
                scored = yield from score_run(built, source, model, _boundary(config, model), data or out)
                record = _with_scores(record, scored, source, model, folder)
                yield from _finished(record, built, scored, folder)
    return (yield from compare(runs, out)).page


def model_folders(sources: Sequence[ModelSource]) -> list[str]:
    """A folder name for each model: its own, with a piece of its fingerprint where two have the same name."""
    names = [re.sub(r"[^\w.-]+", "--", source.name.rstrip("/").rsplit("/", 2)[-1]) for source in sources]
    return [
        name if names.count(name) == 1 else f"{name}-{source.fingerprint[:8]}"
        for name, source in zip(names, sources, strict=True)
    ]


def _finished(record: RunRecord, built: Built, scored: Scored, out: Path) -> Stage[Finished]:
    """Measure and report."""
    record, tables = yield from _measure(record, built, scored.parts, out, {})
    measured = MeasuredFolder(out, record, built.store, tables)
    return Finished((yield from _report(measured)), measured)


def build(config: RunConfig, out: Path, model: ModelConfig | None = None, *, data: Path | None = None) -> Stage[Built]:
    """Write the prompt store alone and, when a model is named, check that the model is there."""
    check_config(config)
    with writing_to(out):
        if model:
            _find_model(model)
        _, built = yield from _build(config, out, data or out)
        return built


def score(out: Path, model: ModelConfig) -> Stage[ScoresRecord]:
    """Score the prompts that were built in `out`; returns what it took."""
    require_run(out)  # before the lock makes a folder for what is not there
    with writing_to(out):
        folder = open_built(out)
        check_capabilities(folder.built.config, model)
        source, boundary = _find_model(model), _boundary(folder.built.config, model)
        scored = yield from score_run(folder.built, source, model, boundary, folder.data)
        return scores_section(_with_scores(folder.record, scored, source, model, out), out)


MeasureOptions = Callable[[Sequence[str]], Mapping[str, object]]
"""From the suites of a run to the options of their measures, by suite."""


def measure(out: Path, options: MeasureOptions = lambda _suites: {}) -> Stage[Mapping[str, pl.DataFrame]]:
    """Make predictions and metrics of the scores in `out`; returns the tables by name."""
    require_run(out)
    with writing_to(out):
        folder = open_built(out)
        chosen = options(folder.built.config.suites)
        _, tables = yield from _measure(folder.record, folder.built, open_scored(folder, out), out, chosen)
        return tables


def report(out: Path) -> Stage[Path]:
    """Write the page about the metrics in `out`; returns its path."""
    require_run(out)
    with writing_to(out):
        folder = open_built(out)
        return (yield from _report(MeasuredFolder(out, folder.record, folder.built.store)))


def _build(config: RunConfig, out: Path, data: Path) -> Stage[tuple[RunRecord, Built]]:
    started, clock = now(), time.monotonic()
    built = yield from build_prompts(config, data)
    return _recorded_build(built, out, data, started=started, elapsed_s=_since(clock)), built


def _recorded_build(built: Built, out: Path, data: Path, *, started: str, elapsed_s: float) -> RunRecord:
    """Write the record of a run that has its prompts and nothing else."""
    config = built.config
    described = [SUITES[name].describe(config) for name in config.suites]
    prompts = PromptsRecord(
        fingerprint=built.store.fingerprint,
        config=config_to_json(config),
        suites=list(config.suites),
        datasets=list(built.datasets),
        methods=list(config.methods),
        definitions=list(config.definitions),
        prompt_definition=config.prompt_definition,
        parts=built.parts,
        shots=described[0].shots,
        n_shots=described[0].n_shots,
        n_queries=config.n_queries,
        queries=described[0].queries,
        notes={name: list(dataset.notes) for name, dataset in built.datasets.items() if dataset.notes},
        seeds={name: seed for each in described for name, seed in each.seeds.items()},
        requests=built.store.manifest.n_requests,
        distinct_prompts=built.store.manifest.n_prompts,
    )
    record = new_record(os.path.relpath(data, out), started)
    record = with_stage(record, "build", elapsed_s={"build": elapsed_s}, prompts=prompts)
    write_run(out, record)
    return record


def _boundary(config: RunConfig, model: ModelConfig) -> LabelBoundary:
    return model.label_boundary or default_label_boundary(config.suites)


def _with_scores(record: RunRecord, scored: Scored, source: ModelSource, model: ModelConfig, out: Path) -> RunRecord:
    """Write the record of a run that was scored."""
    record = with_stage(
        record,
        "score",
        elapsed_s=dict(scored.elapsed_s),
        tokens=_tokens_record(scored),
        model=_model_record(source, model),
        engine=EngineRecord(**asdict(scored.engine)),
        scores=_scores_record(scored),
    )
    write_run(out, record)
    return record


def _tokens_record(scored: Scored) -> TokensRecord:
    block = scored.engine.prefix_block_tokens
    tables = [part.tokens.manifest.counts for part in scored.parts]
    floors = [table.block_floor_tokens.get(str(block)) for table in tables]
    return TokensRecord(
        request_tokens=sum(table.request_tokens for table in tables),
        tokens=sum(table.tokens for table in tables),
        floor_tokens=sum(table.floor_tokens for table in tables),
        block_tokens=block,
        block_floor_tokens=None if None in floors else sum(floor for floor in floors if floor is not None),
    )


def _scores_record(scored: Scored) -> ScoresRecord:
    totals = [part.scores.totals() for part in scored.parts]
    sums = {name: sum(total[name] for total in totals) for name in totals[0]}
    computed = sums["prompt_tokens"] - sums["cached_tokens"]
    return ScoresRecord(
        stores=[part.store.fingerprint for part in scored.parts],
        tokens=[part.tokens.folder.name for part in scored.parts],
        tables=[part.scores.name for part in scored.parts],
        label_boundary=scored.parts[0].tokens.manifest.label_boundary,
        prompts=int(sums["prompts"] + sums["reused_prompts"]),
        reused_prompts=int(sums["reused_prompts"]),
        prompt_tokens=int(sums["prompt_tokens"]),
        cached_tokens=int(sums["cached_tokens"]),
        computed_tokens=int(computed),
        elapsed_s=sums["elapsed_s"],
        tokens_per_s=sums["prompt_tokens"] / sums["elapsed_s"] if sums["elapsed_s"] else 0.0,
        kernels=implementations(),
    )


def _find_model(model: ModelConfig) -> ModelSource:
    if ENGINES[engine_name(model)].runs_a_model and model.model in EMBEDDED_MODELS:
        model = replace(model, model=str(EMBEDDED_MODELS[model.model]()))
    return find_source(model)


def _model_record(source: ModelSource, model: ModelConfig) -> ModelRecord:
    """What the record says of a model; `kind` tells a reader whether its numbers can mean anything."""
    kind: ModelKind = "hub" if source.revision else "folder"
    if not ENGINES[engine_name(model)].runs_a_model:
        kind = "fake"
    elif model.model in ("embedded", "random"):
        kind = cast(ModelKind, model.model)
    return ModelRecord(
        name=model.model if kind in EMBEDDED_MODELS else source.name,
        kind=kind,
        revision=source.revision,
        weights_fingerprint=source.fingerprint,
        n_parameters=source.n_parameters,
        context_tokens=source.context_length,
    )


def _measure(
    record: RunRecord, built: Built, parts: Sequence[ScoredStore], out: Path, options: Mapping[str, object]
) -> Stage[tuple[RunRecord, Mapping[str, pl.DataFrame]]]:
    clock = time.monotonic()
    scores = scores_section(record, out)
    model = record.model.name if record.model else out.name
    scored = complete_run(scored_run(built, parts, model=model, options=options), parts)
    tables: dict[str, pl.DataFrame] = {}
    for name, table in measured_tables(scored):
        yield Progress(stage="Measuring", done=len(tables), total=len(tables) + 1, unit="tables")
        write_table(out, name, table)
        tables[name] = table
    measures = Measures(scores=scores.tables, tables=sorted(tables))
    record = with_stage(record, "measure", elapsed_s={"measure": _since(clock)}, measures=measures)
    write_run(out, record)
    yield Progress(stage="Measuring", done=len(tables), total=len(tables), unit="tables")
    return record, tables


def _report(measured: MeasuredFolder) -> Stage[Path]:
    yield Progress(stage="Writing the report", done=0, total=1, unit="pages")
    page = write_run_page(measured, measured.out / PAGE)
    yield Progress(stage="Writing the report", done=1, total=1, unit="pages")
    return page


def _since(started: float) -> float:
    return round(time.monotonic() - started, 3)
