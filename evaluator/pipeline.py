"""A whole run, one call a stage. Each stage reads the tables of the one before it and writes its own."""

import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import polars as pl

from evaluator.config import ModelConfig, StoreConfig
from evaluator.datasets.lcg import SEED
from evaluator.embedded import first_model
from evaluator.engine import engine_name, load_engine
from evaluator.engine.model_source import ModelSource, find_model
from evaluator.errors import StoreError
from evaluator.methods.predictions import check_labels, predict
from evaluator.progress import Progress, Stage
from evaluator.run_record import command_line, now, read_run, record_stage, stage_fingerprint, writing_to
from evaluator.scores.checks import check_prompt_lengths, require_complete
from evaluator.scores.table import ScoreTable, score_prompts
from evaluator.store.prompt_store import PromptStore, build_store, check_names
from evaluator.store.shards import fingerprint, source_fingerprint
from evaluator.store.tokens import tokenise_store
from evaluator.tables import read_scores, read_table, run_store, write_table


def run(prompts: StoreConfig, model: ModelConfig, out: Path) -> Stage[Path]:
    """Prompts to report; returns the report's path. What an earlier run of the same configuration left is kept."""
    check_names(prompts)
    with writing_to(out):
        source = _find_model(model)  # a wrong name should not wait for the prompts
        store = yield from _build(prompts, out)
        yield from _score(store, source, model, out)
        yield from _measure(out)
        return (yield from _report(out))


def build(prompts: StoreConfig, out: Path, model: ModelConfig | None = None) -> Stage[PromptStore]:
    """The prompt store alone and, when a model is named, its tokens."""
    check_names(prompts)
    with writing_to(out):
        source = _find_model(model) if model else None
        store = yield from _build(prompts, out)
        if model and source:
            yield from tokenise_store(store, source, model.label_boundary)
        return store


def score(out: Path, model: ModelConfig) -> Stage[ScoreTable]:
    """Scores for the prompts that were built in `out`."""
    read_run(out)  # before the lock makes a folder for what is not there
    with writing_to(out):
        store = run_store(out)
        return (yield from _score(store, _find_model(model), model, out))


def measure(out: Path) -> Stage[pl.DataFrame]:
    """Predictions and metrics of the scores in `out`; returns the metrics."""
    read_run(out)
    with writing_to(out):
        return (yield from _measure(out))


def report(out: Path) -> Stage[Path]:
    """The page about the metrics in `out`; returns its path."""
    read_run(out)
    with writing_to(out):
        return (yield from _report(out))


def _build(prompts: StoreConfig, out: Path) -> Stage[PromptStore]:
    started, clock = now(), time.monotonic()
    store = yield from build_store(prompts, out)
    asked = {name: store.manifest[name] for name in ("suites", "datasets", "n_shots", "n_queries")}
    counts = {"requests": store.manifest["n_requests"], "distinct_prompts": store.manifest["n_prompts"]}
    record_stage(
        out,
        started=started,
        commands={"build": command_line()},
        store={"fingerprint": store.fingerprint, **asked, **counts},
        seeds={"splits and demonstrations": SEED},
        elapsed_s={"build": _since(clock)},
    )
    return store


def _score(store: PromptStore, source: ModelSource, model: ModelConfig, out: Path) -> Stage[ScoreTable]:
    clock = time.monotonic()
    table = yield from tokenise_store(store, source, model.label_boundary)
    tokens = table.tokens().collect()
    check_prompt_lengths(tokens, store.prompts(), source.context_length)
    check_labels(store.manifest["methods"], store.manifest["definitions"], tokens, store.prompts())
    tokenise_s = _since(clock)

    yield Progress(stage="Loading the model", done=0, total=1, unit="models")
    clock = time.monotonic()
    engine = load_engine(source, model)
    load_s = _since(clock)
    yield Progress(stage="Loading the model", done=1, total=1, unit="models")
    facts = asdict(engine.facts)
    identity = {
        "model": source.fingerprint,
        "engine": facts,
        "tokens": table.fingerprint,
        "code": source_fingerprint("engine", "scores"),
    }
    try:
        scores = yield from score_prompts(tokens, engine, out / "scores" / fingerprint(identity), identity=identity)
    finally:
        engine.close()
    totals = scores.totals()
    record_stage(
        out,
        commands={"score": command_line()},
        store=table.counts(facts["prefix_block_tokens"]),
        model=_describe(source, model),
        engine=facts,
        scores={"fingerprint": scores.folder.name, "label_boundary": model.label_boundary, **totals},
        elapsed_s={"tokenise": tokenise_s, "load": load_s, "score": totals["elapsed_s"]},
    )
    return scores


def _find_model(model: ModelConfig) -> ModelSource:
    if engine_name(model) != "fake" and model.model == first_model.NAME:
        model = replace(model, model=str(first_model.random_model_folder()))
    return find_model(model)


def _describe(source: ModelSource, model: ModelConfig) -> dict[str, Any]:
    """What the record says of a model; `kind` tells a reader whether its numbers can mean anything."""
    if model.engine == "fake":
        kind = "fake"
    elif model.model == first_model.NAME:
        kind = "random"
    else:
        kind = "hub" if source.revision else "folder"
    return {
        "name": model.model if kind == "random" else source.name,
        "kind": kind,
        "revision": source.revision,
        "weights_fingerprint": source.fingerprint,
        "n_parameters": source.n_parameters,
        "context_tokens": source.context_length,
    }


def _measure(out: Path) -> Stage[pl.DataFrame]:
    from evaluator.metrics import metrics_table  # here, because whoever only builds should not wait for SciPy

    clock = time.monotonic()
    yield Progress(stage="Measuring", done=0, total=2, unit="tables")
    store = run_store(out)
    scored = read_scores(out)
    require_complete(store.requests().collect(), scored.collect())
    predictions = predict(scored, store.manifest["methods"], store.manifest["definitions"]).collect()
    yield Progress(stage="Measuring", done=1, total=2, unit="tables")
    metrics = metrics_table(predictions).filter(pl.col("definition").is_in(store.manifest["definitions"]))
    write_table(out, "predictions", predictions)
    write_table(out, "metrics", metrics)
    measured = {"scores": stage_fingerprint(out, "scores")}
    record_stage(out, commands={"measure": command_line()}, measures=measured, elapsed_s={"measure": _since(clock)})
    yield Progress(stage="Measuring", done=2, total=2, unit="tables")
    return metrics


def _report(out: Path) -> Stage[Path]:
    from evaluator.metrics import confusion_table, reliability_table
    from evaluator.report.page import ReportData, write_report

    yield Progress(stage="Writing the report", done=0, total=1, unit="pages")
    run = read_run(out)
    predictions = read_table(out, "predictions")
    if run.get("measures", {}).get("scores") != stage_fingerprint(out, "scores"):
        raise StoreError(f"The metrics in {out} are those of earlier scores. Run `evaluator measure {out}` first.")
    data = ReportData(
        run=run | {"command": "\n".join(dict.fromkeys(run["commands"].values()))},
        metrics=read_table(out, "metrics"),
        predictions=predictions.lazy(),
        reliability=reliability_table(predictions),
        confusion=confusion_table(predictions),
    )
    page = write_report(data, out / "report.html")
    yield Progress(stage="Writing the report", done=1, total=1, unit="pages")
    return page


def _since(started: float) -> float:
    return round(time.monotonic() - started, 3)
