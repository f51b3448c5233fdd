"""A whole run, one call a stage. Each stage reads the tables of the one before it and writes its own."""

import os
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from evaluator.config import LabelBoundary, ModelConfig, StoreConfig
from evaluator.datasets.lcg import SEED
from evaluator.engine import engine_name
from evaluator.files import write_table, writing_to
from evaluator.models.embedded import EMBEDDED_MODELS
from evaluator.models.source import ModelSource, find_model
from evaluator.progress import Progress, Stage
from evaluator.run.build import PromptStore, build_store, check_names
from evaluator.run.folder import run_store
from evaluator.run.measure import run_tables
from evaluator.run.record import command_line, data_folder, now, read_run, record_stage, stage_fingerprint
from evaluator.run.score import ScoredRun, score_store
from evaluator.suites import default_label_boundary
from evaluator.suites.prompt_search.prompts import MAX_QUERIES
from evaluator.tokens.table import tokenise_store


def run(prompts: StoreConfig, model: ModelConfig, out: Path) -> Stage[Path]:
    """Prompts to report; returns the report's path. What an earlier run of the same configuration left is kept."""
    check_names(prompts)
    with writing_to(out):
        source = _find_model(model)  # a wrong name should not wait for the prompts
        store = yield from _build(prompts, out, [out])
        return (yield from _evaluate(store, source, model, out))


def run_models(prompts: StoreConfig, models: Sequence[ModelConfig], out: Path) -> Stage[Path]:
    """One store, several models, a run folder for each under `out`/models, and a page that compares them; its path."""
    from evaluator.compare.pipeline import compare  # here, because its figures and SciPy take their time

    check_names(prompts)
    with writing_to(out):
        sources = [_find_model(model) for model in models]
        runs = [out / "models" / name for name in model_folders(sources)]
        store = yield from _build(prompts, out, runs)
        for source, model, own in zip(sources, models, runs, strict=True):
            with writing_to(own):
                yield from _evaluate(store, source, model, own)
    return (yield from compare(runs, out)).page


def model_folders(sources: Sequence[ModelSource]) -> list[str]:
    """A folder name for each model: its own, with a piece of its fingerprint where two have the same name."""
    names = [re.sub(r"[^\w.-]+", "--", source.name.rstrip("/").rsplit("/", 2)[-1]) for source in sources]
    return [
        name if names.count(name) == 1 else f"{name}-{source.fingerprint[:8]}"
        for name, source in zip(names, sources, strict=True)
    ]


def _evaluate(store: PromptStore, source: ModelSource, model: ModelConfig, out: Path) -> Stage[Path]:
    yield from _score(store, source, model, out)
    yield from _measure(out)
    return (yield from _report(out))


def build(prompts: StoreConfig, out: Path, model: ModelConfig | None = None) -> Stage[PromptStore]:
    """The prompt store alone and, when a model is named, its tokens."""
    check_names(prompts)
    with writing_to(out):
        source = _find_model(model) if model else None
        store = yield from _build(prompts, out, [out])
        if model and source:
            yield from tokenise_store(store, source, _label_boundary(store, model))
        return store


def score(out: Path, model: ModelConfig) -> Stage[ScoredRun]:
    """Scores for the prompts that were built in `out`."""
    read_run(out)  # before the lock makes a folder for what is not there
    with writing_to(out):
        store = run_store(out)
        return (yield from _score(store, _find_model(model), model, out))


def measure(out: Path, annotations: Sequence[Path] = ()) -> Stage[pl.DataFrame]:
    """Predictions and metrics of the scores in `out`; returns the metrics.

    `annotations` are files of several annotators' labels, which the suite pvi compares with.
    """
    read_run(out)
    with writing_to(out):
        return (yield from _measure(out, annotations))


def report(out: Path) -> Stage[Path]:
    """The page about the metrics in `out`; returns its path."""
    read_run(out)
    with writing_to(out):
        return (yield from _report(out))


def _build(prompts: StoreConfig, out: Path, runs: Sequence[Path]) -> Stage[PromptStore]:
    """The store in `out`, recorded in the folder of each run that reads it."""
    started, clock = now(), time.monotonic()
    store = yield from build_store(prompts, out)
    asked = {
        name: store.manifest[name]
        for name in ("suites", "datasets", "n_shots", "n_queries", "prompt_definition", "search", "pvi", "notes")
    }
    counts = {"requests": store.manifest["n_requests"], "distinct_prompts": store.manifest["n_prompts"]}
    seeds = {"splits and demonstrations": SEED}
    if search := asked["search"]:
        asked["n_shots"] = ", ".join(map(str, search["shots"]))
        asked["n_queries"] = asked["n_queries"] or f"at most {MAX_QUERIES}"
        seeds = {"queries, demonstrations and ties": search["seed"]}
    if pvi := asked["pvi"]:
        asked["n_shots"] = ", ".join(map(str, pvi["shots"] or ["number of labels, and twice as many"]))
        seeds = {"demonstrations": pvi["seed"]}
    for run_folder in runs:
        record_stage(
            run_folder,
            started=started,
            data=os.path.relpath(out, run_folder),
            commands={"build": command_line()},
            store={"fingerprint": store.fingerprint, **asked, **counts},
            seeds=seeds,
            elapsed_s={"build": _since(clock)},
        )
    return store


def _score(store: PromptStore, source: ModelSource, model: ModelConfig, out: Path) -> Stage[ScoredRun]:
    boundary = _label_boundary(store, model)
    scored = yield from score_store(store, source, model, boundary, data_folder(out))
    first, *following = scored.parts
    record_stage(
        out,
        commands={"score": command_line()},
        store=scored.token_counts() | {"follow_up": [part.store.fingerprint for part in following]},
        model=_describe(source, model),
        engine=scored.engine,
        scores={
            "fingerprint": first.scores.folder.name,
            "follow_up": [part.scores.folder.name for part in following],
            "label_boundary": boundary,
            **scored.totals(),
        },
        elapsed_s=scored.elapsed_s,
    )
    return scored


def _label_boundary(store: PromptStore, model: ModelConfig) -> LabelBoundary:
    return model.label_boundary or default_label_boundary(store.manifest["suites"])


def _find_model(model: ModelConfig) -> ModelSource:
    if engine_name(model) != "fake" and model.model in EMBEDDED_MODELS:
        model = replace(model, model=str(EMBEDDED_MODELS[model.model]()))
    return find_model(model)


def _describe(source: ModelSource, model: ModelConfig) -> dict[str, Any]:
    """What the record says of a model; `kind` tells a reader whether its numbers can mean anything."""
    if model.engine == "fake":
        kind = "fake"
    elif model.model in EMBEDDED_MODELS:
        kind = model.model
    else:
        kind = "hub" if source.revision else "folder"
    return {
        "name": model.model if kind in EMBEDDED_MODELS else source.name,
        "kind": kind,
        "revision": source.revision,
        "weights_fingerprint": source.fingerprint,
        "n_parameters": source.n_parameters,
        "context_tokens": source.context_length,
    }


def _measure(out: Path, annotations: Sequence[Path] = ()) -> Stage[pl.DataFrame]:
    clock = time.monotonic()
    tables: dict[str, pl.DataFrame] = {}
    for name, table in run_tables(out, annotations):
        yield Progress(stage="Measuring", done=len(tables), total=len(tables) + 1, unit="tables")
        write_table(out, name, table)
        tables[name] = table
    measured = {"scores": stage_fingerprint(out, "scores")}
    record_stage(out, commands={"measure": command_line()}, measures=measured, elapsed_s={"measure": _since(clock)})
    yield Progress(stage="Measuring", done=len(tables), total=len(tables), unit="tables")
    return tables["metrics"]


def _report(out: Path) -> Stage[Path]:
    from evaluator.run.report import (  # here, because whoever only builds should not wait for its figures
        PAGE,
        FolderRun,
        write_run_page,
    )

    yield Progress(stage="Writing the report", done=0, total=1, unit="pages")
    page = write_run_page(FolderRun(out), out / PAGE)
    yield Progress(stage="Writing the report", done=1, total=1, unit="pages")
    return page


def _since(started: float) -> float:
    return round(time.monotonic() - started, 3)
