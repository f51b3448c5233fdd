"""The stages of a run: build, score, measure, report. Each stage has a function, and `run` calls all of them."""

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import polars as pl

from evaluator.config import ModelConfig, RunConfig
from evaluator.engine.loader import EngineLoader
from evaluator.errors import ConfigError
from evaluator.files.locks import writing_to
from evaluator.files.scans import scan_parquet
from evaluator.files.whole import table_path
from evaluator.preflight.findings import check_accepted, require_accepted
from evaluator.progress import Progress, Stage
from evaluator.record import (
    PreflightRecord,
    RunRecord,
    ScoresRecord,
)
from evaluator.report.terminal import throughput_line
from evaluator.run.asked_models import (
    AskedModel,
    asked_model,
    asked_models,
    model_folders,
    of_one_load,
)
from evaluator.run.build import Built, build_prompts, check_config
from evaluator.run.data_users import mark_user
from evaluator.run.folder import open_built, open_scored, require_prompts_for_a_model, scores_section
from evaluator.run.measure import measure_run
from evaluator.run.preflight import check_built, with_accepted
from evaluator.run.record import require_run, write_run
from evaluator.run.report import MeasuredFolder, report_run
from evaluator.run.score import LOGS, Scored, begin_loading, check_capabilities, score_run
from evaluator.run.stage_records import recorded_build, with_scores
from evaluator.run_log import now, seconds_since
from evaluator.suites import SUITES

logger = logging.getLogger(__name__)


class Finished(NamedTuple):
    """The page of a finished run, and its record and tables."""

    page: Path
    run: MeasuredFolder


def run(
    config: RunConfig, model: ModelConfig, out: Path, *, data: Path | None = None, accept: Collection[str] = ()
) -> Stage[Finished]:
    """Build, check, score, measure and report. Prompts and scores of earlier runs are used again.

    Args:
        config: what to evaluate.
        model: which model to evaluate.
        out: folder of the record, the tables and the page.
        data: folder of prompts and scores, which several runs may share; None for `out`.
        accept: findings (preflight.findings.FINDINGS) that do not stop the run. Raises ConfigError for others that do.
    """
    check_config(config)
    check_accepted(accept)
    check_capabilities(config, model)
    with writing_to(out):
        asked = asked_model(config, model)  # first, so that a wrong name is reported at once
        with closing(EngineLoader(asked.source, asked.config, out / LOGS)) as loader:
            yield from begin_loading(asked, data or out, loader)
            record, built = yield from _build(config, out, data or out)
            record, tokenised_s = yield from _check(record, built, asked, accept, out)
            scored = yield from score_run(built, asked, data or out, loader, tokenised_s=tokenised_s)
        return (yield from finished(with_scores(record, scored, asked.record, out), scored, out))


def run_models(
    config: RunConfig,
    models: Sequence[ModelConfig],
    out: Path,
    *,
    data: Path | None = None,
    accept: Collection[str] = (),
) -> Stage[Path]:
    """Evaluate several models on the same prompts, a run folder for each below `out`/models, and compare them.

    Returns the path of the page that compares them. Raises ConfigError, before anything is built, for suites that do
    not measure what models are compared by.
    """
    from evaluator.run.compare import compare  # here, because SciPy is slow to import

    check_config(config)
    check_accepted(accept)
    if incomparable := [name for name in config.suites if not SUITES[name].is_comparable]:
        raise ConfigError(
            f"{', '.join(incomparable)} measures no metrics that models are compared by. Give --model once, and run "
            "the others in commands of their own."
        )
    for model in models:
        check_capabilities(config, model)
    with writing_to(out), ExitStack() as stack:
        asked = asked_models(config, models)
        runs = [(one, out / "models" / name) for one, name in zip(asked, model_folders(asked), strict=True)]
        loads = []
        for group in of_one_load(runs, key=lambda each: each[0]):
            one, folder = group[0]
            loads.append((stack.enter_context(closing(EngineLoader(one.source, one.config, folder / LOGS))), group))
        yield from begin_loading(asked[0], data or out, loads[0][0])
        of_prompts, built = yield from _build(config, out, data or out)
        checks: dict[Path, PreflightRecord] = {}  # of every model, before the first is scored
        tokenised_s: dict[Path, float] = {}
        for one, folder in runs:
            clock = time.monotonic()
            checks[folder] = yield from check_built(built, one)
            require_accepted(checks[folder].findings, accept)
            tokenised_s[folder] = seconds_since(clock)
        for loader, group in loads:
            for one, folder in group:
                with writing_to(folder):
                    mark_user(folder, data or out)
                    build_s = of_prompts.elapsed_s["build"]  # once, for all models
                    record = recorded_build(built, folder, data or out, started=now(), elapsed_s=build_s)
                    record = replace(record, preflight=with_accepted(checks[folder], accept))
                    scored = yield from score_run(
                        built, one, data or out, loader, keep_loaded=True, tokenised_s=tokenised_s[folder]
                    )
                    record = with_scores(record, scored, one.record, folder)
                    yield from _speed(record)
                    yield from finished(record, scored, folder)
            loader.close()
    return (yield from compare([folder for _, folder in runs], out)).page


def _speed(record: RunRecord) -> Stage[None]:
    """Say how fast one of several models was scored."""
    assert record.model is not None, "it was scored"
    assert record.scores is not None, "it was scored"
    if speed := throughput_line(record.scores):
        n = record.scores.prompts
        yield Progress(stage="Scoring", done=n, total=n, unit="prompts", line=f"{record.model.title}: {speed}")


def finished(record: RunRecord, scored: Scored, out: Path) -> Stage[Finished]:
    """Measure a scored run and write its page."""
    record = yield from measure_run(record, scored.built, scored.parts, out, {})
    measured = MeasuredFolder(out, record, scored.built.store)
    return Finished((yield from report_run(measured)), measured)


def build(config: RunConfig, out: Path, *, data: Path | None = None) -> Stage[Built]:
    """Write the prompt store and the record, without scoring."""
    check_config(config)
    with writing_to(out):
        _, built = yield from _build(config, out, data or out)
        return built


def score(out: Path, model: ModelConfig) -> Stage[ScoresRecord]:
    """Score the prompts that were built in `out`, and return the record of the scores."""
    require_run(out)  # before the lock, which would make the folder
    with writing_to(out):
        folder = open_built(out)
        require_prompts_for_a_model(folder.record, out)
        check_capabilities(folder.built.config, model)
        asked = asked_model(folder.built.config, model)
        with closing(EngineLoader(asked.source, asked.config, out / LOGS)) as loader:
            yield from begin_loading(asked, folder.data, loader)
            scored = yield from score_run(folder.built, asked, folder.data, loader)
        return scores_section(with_scores(folder.record, scored, asked.record, out), out)


MeasureOptions = Callable[[Sequence[str]], Mapping[str, object]]
"""Returns the measure options of the suites with these names, by suite."""


def measure(out: Path, options: MeasureOptions = lambda _suites: {}) -> Stage[Mapping[str, pl.LazyFrame]]:
    """Compute predictions and metrics from the scores in `out`, and return scans of the tables by name."""
    require_run(out)
    with writing_to(out):
        folder = open_built(out)
        chosen = options(folder.built.config.suites)
        parts = open_scored(folder, out)
        built = folder.built.without(scores_section(folder.record, out).left_out)
        record = yield from measure_run(folder.record, built, parts, out, chosen)
        assert record.measures is not None, "it was measured"
        return {name: scan_parquet(table_path(out, name)) for name in record.measures.tables}


def report(out: Path) -> Stage[Path]:
    """Write the page about the metrics in `out`, and return its path."""
    require_run(out)
    with writing_to(out):
        folder = open_built(out)
        store = folder.built.store.without(scores_section(folder.record, out).left_out)
        return (yield from report_run(MeasuredFolder(out, folder.record, store)))


def _build(config: RunConfig, out: Path, data: Path) -> Stage[tuple[RunRecord, Built]]:
    started, clock = now(), time.monotonic()
    built = yield from build_prompts(config, data, out)
    return recorded_build(built, out, data, started=started, elapsed_s=seconds_since(clock)), built


def _check(
    record: RunRecord, built: Built, asked: AskedModel, accept: Collection[str], out: Path
) -> Stage[tuple[RunRecord, float]]:
    """Record what is found before anything is scored; also return the seconds that tokenising took.

    Raises ConfigError for a finding that would spoil results and is not accepted.
    """
    clock = time.monotonic()
    found = yield from check_built(built, asked)
    record = replace(record, preflight=with_accepted(found, accept))
    write_run(out, record)
    require_accepted(found.findings, accept)
    return record, seconds_since(clock)
