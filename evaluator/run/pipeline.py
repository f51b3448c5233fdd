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
from evaluator.engine.replicas import EngineLoader
from evaluator.errors import ConfigError
from evaluator.files.locks import writing_to
from evaluator.files.whole import scan_parquet, table_path
from evaluator.preflight.findings import check_accepted, require_accepted
from evaluator.progress import Progress, Stage
from evaluator.record import (
    PreflightRecord,
    RunRecord,
    ScoresRecord,
)
from evaluator.report.terminal import throughput_line
from evaluator.run.build import Built, build_prompts, check_config
from evaluator.run.folder import open_built, open_scored, refuse_imported_answers, scores_section
from evaluator.run.folders import mark_user
from evaluator.run.measure import measure_run
from evaluator.run.preflight import Labels, check_built, split_labels, with_accepted
from evaluator.run.record import MODELS, model_runs, require_run, write_run
from evaluator.run.replacement import (
    check_comparison,
    check_configuration,
    check_datasets,
    check_model,
    finished_run,
)
from evaluator.run.report import MeasuredFolder, report_run
from evaluator.run.resolved_models import (
    ResolvedModel,
    model_folders,
    of_one_load,
    resolve_model,
    resolve_models,
)
from evaluator.run.score import LOGS, Scored, begin_loading, check_capabilities, score_run, scores_folder
from evaluator.run.stage_records import dataset_fingerprints, record_build, record_scores
from evaluator.run_log import now, seconds_since
from evaluator.suites import SUITES

logger = logging.getLogger(__name__)


class Finished(NamedTuple):
    """The page of a finished run, and its record and tables."""

    page: Path
    run: MeasuredFolder


def run(
    config: RunConfig,
    model: ModelConfig,
    out: Path,
    *,
    data: Path | None = None,
    accept: Collection[str] = (),
    force: bool = False,
) -> Stage[Finished]:
    """Build, check, score, measure and report. Prompts and scores of earlier runs are used again.

    Args:
        config: what to evaluate.
        model: which model to evaluate.
        out: folder of the record, the tables and the page.
        data: folder of prompts and scores, which several runs may share; None for `out`.
        accept: names of findings (preflight.findings.FINDINGS) that do not stop the run.
        force: whether to replace a finished run in `out` that this one does not extend.

    Raises ConfigError for options that do not fit, for a finding that is not accepted and for a finished run that would
    be replaced, DatasetError, TemplateError,
    ModelError and ScoreError as the stages do.
    """
    check_config(config)
    check_accepted(accept)
    check_capabilities(config, model)
    with writing_to(out):
        check_comparison(out, [], force=force)
        earlier = finished_run(out, force=force)
        check_configuration(out, earlier, config)
        resolved = resolve_model(config, model)  # first, so that a wrong name is reported at once
        check_model(out, earlier, resolved)
        with closing(EngineLoader(resolved.source, resolved.config, out / LOGS)) as loader:
            yield from begin_loading(resolved, data or out, loader)
            record, built = yield from _build(config, out, data or out, earlier)
            labels, built = split_labels(built), built.without_datasets()
            check = yield from _check(built, labels, resolved, accept)
            record = _checked(record, check.record, resolved, data or out)
            write_run(out, record)
            require_accepted(check.record.findings, accept)
            scored = yield from score_run(built, resolved, data or out, loader, tokenised_s=check.tokenised_s)
        return (yield from measure_and_report(record_scores(record, scored, resolved.record, out), scored, out))


def run_models(
    config: RunConfig,
    models: Sequence[ModelConfig],
    out: Path,
    *,
    data: Path | None = None,
    accept: Collection[str] = (),
    force: bool = False,
) -> Stage[Path]:
    """Evaluate several models on the same prompts, a run folder for each below `out`/models, and compare them.

    Returns the path of the page that compares them. Raises ConfigError, before anything is built, for suites that do
    not measure what models are compared by.
    """
    from evaluator.run.compare import compare  # here, because SciPy is slow to import

    check_config(config)
    check_accepted(accept)
    _require_comparable(config)
    for model in models:
        check_capabilities(config, model)
    with writing_to(out), ExitStack() as stack:
        resolved = resolve_models(config, models)
        runs = [(one, out / MODELS / name) for one, name in zip(resolved, model_folders(resolved), strict=True)]
        check_comparison(out, [folder for _, folder in runs], force=force)
        earlier = {folder: finished_run(folder, force=force) for _, folder in runs}
        for one, folder in runs:
            check_configuration(folder, earlier[folder], config)
            check_model(folder, earlier[folder], one)
        loads = []
        for group in of_one_load(runs, key=lambda each: each[0]):
            one, folder = group[0]
            loads.append((stack.enter_context(closing(EngineLoader(one.source, one.config, folder / LOGS))), group))
        yield from begin_loading(resolved[0], data or out, loads[0][0])
        of_prompts, built = yield from _build(config, out, data or out, None)
        for _, folder in runs:
            check_datasets(folder, earlier[folder], dataset_fingerprints(built))
        labels = split_labels(built)
        checks: dict[Path, _Check] = {}  # of every model, before the first is scored
        for one, folder in runs:
            checks[folder] = yield from _check(built, labels, one, accept)
            require_accepted(checks[folder].record.findings, accept)
        build_s = of_prompts.elapsed_s["build"]  # once, for all models
        for loader, group in loads:
            for one, folder in group:
                with writing_to(folder):
                    mark_user(folder, data or out)
                    record = record_build(
                        built, folder, data or out, started=now(), elapsed_s=build_s, earlier=earlier[folder]
                    )
                    check = checks[folder]
                    record = _checked(record, check.record, one, data or out)
                    write_run(folder, record)
                    scored = yield from score_run(
                        built, one, data or out, loader, keep_loaded=True, tokenised_s=check.tokenised_s
                    )
                    record = record_scores(record, scored, one.record, folder)
                    yield from _speed(record)
                    yield from measure_and_report(record, scored, folder)
            loader.close()
    return (yield from compare([folder for _, folder in runs], out)).page


def _require_comparable(config: RunConfig) -> None:
    """Raise ConfigError for suites that do not measure what models are compared by."""
    if incomparable := [name for name in config.suites if not SUITES[name].is_comparable]:
        raise ConfigError(
            f"{', '.join(incomparable)} measures no metrics that models are compared by. Give --model once, and run "
            "the others in other commands."
        )


def _speed(record: RunRecord) -> Stage[None]:
    """Say how fast one of several models was scored."""
    assert record.model is not None, "it was scored"
    assert record.scores is not None, "it was scored"
    if speed := throughput_line(record.scores):
        n = record.scores.prompts
        yield Progress(stage="Scoring", done=n, total=n, unit="prompts", line=f"{record.model.title}: {speed}")


def measure_and_report(record: RunRecord, scored: Scored, out: Path) -> Stage[Finished]:
    """Measure a scored run and write its page."""
    record = yield from measure_run(record, scored.built, scored.parts, out, {})
    measured = MeasuredFolder(out, record, scored.built.store)
    return Finished((yield from report_run(measured)), measured)


def build(config: RunConfig, out: Path, *, data: Path | None = None, force: bool = False) -> Stage[Built]:
    """Write the prompt store and the record, without scoring. Raises as `run` does."""
    check_config(config)
    with writing_to(out):
        check_comparison(out, [], force=force)
        earlier = finished_run(out, force=force)
        check_configuration(out, earlier, config)
        _, built = yield from _build(config, out, data or out, earlier)
        return built


def score(out: Path, model: ModelConfig, *, force: bool = False) -> Stage[ScoresRecord]:
    """Score the prompts that were built in `out`, and return the record of the scores. Raises as `run` does."""
    require_run(out)  # before the lock, which would make the folder
    with writing_to(out):
        folder = open_built(out)
        refuse_imported_answers(folder.record, out)
        check_capabilities(folder.built.config, model)
        resolved = resolve_model(folder.built.config, model)
        check_model(out, None if force else folder.record, resolved)
        with closing(EngineLoader(resolved.source, resolved.config, out / LOGS)) as loader:
            yield from begin_loading(resolved, folder.data, loader)
            scored = yield from score_run(folder.built, resolved, folder.data, loader)
        return scores_section(record_scores(folder.record, scored, resolved.record, out), out)


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
    """Write the page about the metrics in `out`, and return its path.

    Of several models, write the page of each and compare them again.
    """
    require_run(out)
    with writing_to(out):
        folder = open_built(out)
        models = [] if folder.record.scores else model_runs(out)
        if not models:
            store = folder.built.store.without(scores_section(folder.record, out).left_out)
            return (yield from report_run(MeasuredFolder(out, folder.record, store)))
    from evaluator.run.compare import compare  # here, because SciPy is slow to import

    for model in models:
        yield from report(model)
    return (yield from compare(models, out)).page


def _build(config: RunConfig, out: Path, data: Path, earlier: RunRecord | None) -> Stage[tuple[RunRecord, Built]]:
    started, clock = now(), time.monotonic()
    built = yield from build_prompts(config, data, out)
    check_datasets(out, earlier, dataset_fingerprints(built))
    return record_build(built, out, data, started=started, elapsed_s=seconds_since(clock), earlier=earlier), built


def _checked(record: RunRecord, check: PreflightRecord, resolved: ResolvedModel, data: Path) -> RunRecord:
    """Return the record of a run before it is scored: with its checks, its model and where the scores will be."""
    scores = scores_folder(resolved.source, resolved.config, data).name
    return replace(record, preflight=check, model=resolved.record, scores_folder=scores)


class _Check(NamedTuple):
    """What was found before anything is scored."""

    record: PreflightRecord
    tokenised_s: float


def _check(built: Built, labels: Labels, resolved: ResolvedModel, accept: Collection[str]) -> Stage[_Check]:
    """Tokenise the prompts and check them."""
    clock = time.monotonic()
    found = yield from check_built(built, labels, resolved)
    return _Check(with_accepted(found, accept), seconds_since(clock))
