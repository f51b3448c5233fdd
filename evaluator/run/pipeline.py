"""Run the stages build, score, measure and report: each stage by its function, or all stages by `run`.

The page of a run has a header, the sections of its suites, and the record of the run.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from dataclasses import replace
from itertools import chain
from operator import attrgetter
from pathlib import Path
from threading import Thread
from typing import NamedTuple

import polars as pl

from evaluator.config import ModelConfig, RunConfig
from evaluator.engine import find_machine
from evaluator.engine.replicas import EngineLoader
from evaluator.errors import ConfigError, plural, require_known
from evaluator.files.whole import scan_parquet, table_path, writing_to
from evaluator.preflight.devices import Assumptions
from evaluator.preflight.findings import FINDINGS, require_accepted, warn
from evaluator.progress import Progress, Stage
from evaluator.record import MeasuredRecord, ModelRecord, RunRecord, ScoresRecord
from evaluator.report import run_record
from evaluator.report.figures import load_compiler
from evaluator.report.notes import label_mass_warnings, majority_warnings, throughput_line, verdict_lines
from evaluator.report.page import Header, write_page
from evaluator.report.query_rows import query_section
from evaluator.report.run_record import about_section, cost_section, receipt_section, record_section
from evaluator.report.section import MeasuredRun, Section
from evaluator.run import stage_records
from evaluator.run.build import Built, build_prompts, check_config
from evaluator.run.compare import compare
from evaluator.run.folder import MeasuredFolder, open_scored, opened_run
from evaluator.run.folders import MODELS, PAGE, compared_models, mark_user, write_run
from evaluator.run.measure import measure_run
from evaluator.run.preflight import checked, split_labels
from evaluator.run.resolved_models import (
    ResolvedModel,
    Tokenised,
    model_folders,
    of_one_load,
    resolve_model,
    resolve_models,
    tokenise_scorable,
)
from evaluator.run.score import LOGS, Scored, begin_hashing, begin_loading, check_capabilities, score_run, scores_folder
from evaluator.run.side_by_side import Load, devices_of_each, side_by_side, take_places
from evaluator.run.until import check_base
from evaluator.run_log import now, seconds_since
from evaluator.suites import families_of


class Finished(NamedTuple):
    """The page of a finished run or of a comparison of several runs, and the folder of each run."""

    page: Path
    runs: list[MeasuredFolder]
    answer: str = ""  # of a comparison: the best run, its lead, and whether the test is significant

    @property
    def run(self) -> MeasuredFolder:
        """Return the only run; there is one if the run has a single model."""
        (run,) = self.runs
        return run


class _ModelRun(NamedTuple):
    """A model of a run, and the folder of its record, tables and page."""

    model: ResolvedModel
    folder: Path


def run(
    config: RunConfig,
    models: ModelConfig | Sequence[ModelConfig],
    out: Path,
    *,
    data: Path | None = None,
    accept: Collection[str] = (),
    force: bool = False,
) -> Stage[Finished]:
    """Build, check, score, measure and report a run. Prompts and scores of earlier runs are reused.

    Several models are evaluated on the same prompts, each in its folder below `out`/models, and then compared.

    Args:
        config: what to evaluate.
        models: the model to evaluate, or several.
        out: folder of the record, the tables and the page.
        data: folder of prompts and scores, which several runs may share; None for `out`.
        accept: names of findings (preflight.findings.FINDINGS) that do not stop the run.
        force: whether to replace a finished run in `out` that this one does not extend.

    Raises ConfigError for options that do not fit, for a finding that is not accepted, and for a finished run that
    would be replaced; StoreError for several models whose runs have no metrics to compare; DatasetError,
    TemplateError, ModelError and ScoreError as the stages do.
    """
    configs, data = [models] if isinstance(models, ModelConfig) else models, data or out
    _check_options(config, configs, accept)
    with writing_to(out), ExitStack() as stack:
        runs = _model_runs(config, configs, out, force=force)
        begin_hashing([each.model for each in runs])
        Thread(target=load_compiler, name="compiler of charts").start()  # while imports use one core
        loads = _loads(runs, stack)
        for load in [load for load in loads if load.loader.place] or loads[:1]:
            yield from begin_loading(load.runs[0].model, data, load.loader)
        records, built, tokens = yield from _build_and_check(config, runs, out, data, accept, force=force)

        def scoring(load: Load[_ModelRun], each: _ModelRun) -> Stage[Scored]:
            return score_run(built, each.model, data, load.loader, each is not load.runs[-1], tokens[each.folder])

        def measuring(each: _ModelRun, scored: Scored) -> Stage[Finished]:
            return measure_and_report(records[each.folder], scored, each.model.record, each.folder, len(runs) > 1)

        def finish_runs(load: Load[_ModelRun]) -> Stage[list[Finished]]:
            finished = []
            for each in load.runs:
                with _writing_below(out, each.folder):
                    finished.append((yield from measuring(each, (yield from scoring(load, each)))))
            return finished

        if any(load.loader.place for load in loads):
            finished = [*chain.from_iterable((yield from side_by_side(loads, finish_runs)))]
        else:  # the same loop, written here to keep the call stack to the engine short
            finished = []
            for load, each in [(one, each) for one in loads for each in one.runs]:
                with _writing_below(out, each.folder):
                    finished.append((yield from measuring(each, (yield from scoring(load, each)))))
    if len(runs) == 1:
        return finished[0]
    compared = yield from compare([each.folder for each in runs], out)
    return Finished(compared.page, [each.run for each in finished], compared.answer)


def _check_options(config: RunConfig, configs: Sequence[ModelConfig], accept: Collection[str]) -> None:
    check_config(config)
    require_known("--accept: there is no finding", accept, FINDINGS)
    if config.until.goal and len(configs) > 1:
        raise ConfigError(
            "--until stops each model after queries of its own, and runs that stop early are not compared. Name one "
            "model, one --adapter and one --chat-template, and run once for each, with its own --out."
        )
    check_capabilities(config, *configs)


def _model_runs(config: RunConfig, configs: Sequence[ModelConfig], out: Path, *, force: bool) -> list[_ModelRun]:
    """Resolve the models of a run, and check that it replaces no finished run, before anything is built."""
    resolved = resolve_models(config, configs)
    below = [out / MODELS / name for name in model_folders(resolved)] if len(configs) > 1 else []
    stage_records.check_comparison(out, below, force=force)
    runs = [_ModelRun(model, folder) for model, folder in zip(resolved, below or [out], strict=True)]
    for model, folder in runs:
        earlier = stage_records.finished_run(folder, force=force)
        stage_records.check_extension(folder, earlier, config=config, model=model)
    return runs


def _loads(runs: Sequence[_ModelRun], stack: ExitStack) -> list[Load[_ModelRun]]:
    """Group runs that one loaded model can score, and create a loader for each group.

    If the devices hold several models at the same time, the largest models get their devices here. The loaders, and
    the Ray cluster that they then share, are closed with `stack`.
    """
    groups = [*of_one_load(runs, attrgetter("model"))]
    alone = [group[0].model.config for group in groups]
    if configs := devices_of_each(alone):
        from evaluator.engine.ray_cluster import cluster_of, shared

        stack.enter_context(shared(cluster_of(alone[0].devices, find_machine(alone[0]).kind)))
    loads = []
    for group, config in zip(groups, configs or alone, strict=True):
        one = group[0].model
        loader = stack.enter_context(closing(EngineLoader(one.source, config, group[0].folder / LOGS)))
        loads.append(Load(group, one.title, one.source.n_parameters or 0, config, loader))
    if configs and isinstance(n_devices := alone[0].devices.n, int):
        take_places(loads, {*range(n_devices)}, n_devices)
    return loads


def _build_and_check(
    config: RunConfig, runs: Sequence[_ModelRun], out: Path, data: Path, accept: Collection[str], *, force: bool
) -> Stage[tuple[dict[Path, RunRecord], Built, dict[Path, Tokenised]]]:
    """Build the prompts, then tokenise and check them for every model.

    Returns folder -> record, the built prompts, and folder -> tokens.

    Raises ConfigError for a finding that is not accepted.
    """
    build_record, built = yield from _build(config, out, data, [each.folder for each in runs], force=force)
    labels, built = split_labels(built), built.without_datasets()
    records, tokens = dict[Path, RunRecord](), dict[Path, Tokenised]()
    started, elapsed_s, prompts = build_record.started, build_record.elapsed_s["build"], build_record.prompts
    for model, folder in runs:
        with _writing_below(out, folder):
            record = build_record
            if folder != out:
                assert prompts is not None, "they are built"
                mark_user(folder, data)
                record = stage_records.record_build(prompts, folder, data, started, elapsed_s, force=force)
            clock = time.monotonic()
            tokenised = yield from tokenise_scorable(built, built.store, model)
            preflight = checked(built, labels, model, tokenised, Assumptions(), accept)
            tokens[folder] = tokenised._replace(elapsed_s=seconds_since(clock))
            records[folder] = replace(
                record,
                preflight=preflight,
                model=model.record,
                scores_folder=scores_folder(model.source, model.config, data).name,
                elapsed_s=record.elapsed_s | {"tokenise": tokens[folder].elapsed_s},
            )
            write_run(folder, records[folder])
        warn(preflight.findings, model.source.title)
        require_accepted(preflight.findings, accept)
    return records, built, tokens


def _writing_below(out: Path, folder: Path) -> AbstractContextManager[None]:
    """Lock the folder of a model's run, unless it is `out`, which is locked already."""
    return nullcontext() if folder == out else writing_to(folder)


def measure_and_report(
    record: RunRecord, scored: Scored, model: ModelRecord, out: Path, is_speed_shown: bool = False
) -> Stage[Finished]:
    """Record the scores of a run, measure it and write its page.

    With `is_speed_shown`, first show the throughput of scoring.
    """
    record = stage_records.record_scores(record, scored, model, out)
    assert record.scores is not None, "it was scored"
    if is_speed_shown and (speed := throughput_line(record.scores)):
        n = record.scores.prompts
        yield Progress(stage="Scoring", done=n, total=n, unit="prompts", line=f"{model.title}: {speed}")
    record = yield from measure_run(record, scored.built, scored.stores, out, {})
    measured = MeasuredFolder(out, record, scored.built.store)
    return Finished((yield from report_run(measured)), [measured])


def build(config: RunConfig, out: Path, *, data: Path | None = None, force: bool = False) -> Stage[Built]:
    """Build the prompts and write the record, without scoring. Arguments and errors are those of `run`."""
    check_config(config)
    with writing_to(out):
        stage_records.check_comparison(out, [], force=force)
        stage_records.check_extension(out, stage_records.finished_run(out, force=force), config=config)
        _, built = yield from _build(config, out, data or out, [out], force=force)
        return built


def _build(
    config: RunConfig, out: Path, data: Path, folders: Sequence[Path], *, force: bool
) -> Stage[tuple[RunRecord, Built]]:
    """Build the prompts and write the record of `out`.

    Args:
        config, out, data, force: as for `run`.
        folders: folder of each model's run.
    """
    started, clock = now(), time.monotonic()
    built = yield from build_prompts(config, data, out)
    prompts = stage_records.prompts_record(built)
    check_base(config, prompts)
    digests, n_requests = prompts.dataset_fingerprints, prompts.requests_of
    for folder in folders:
        earlier = stage_records.finished_run(folder, force=force)
        stage_records.check_extension(folder, earlier, config=built.config, datasets=digests, requests=n_requests)
    stage_records.remove_replaced(out, is_comparison=out not in folders)
    return stage_records.record_build(prompts, out, data, started, seconds_since(clock), force=force), built


def score(out: Path, model: ModelConfig, *, force: bool = False) -> Stage[ScoresRecord]:
    """Score the prompts built in `out`, and return the record of the scores. Raises as `run` does."""
    with opened_run(out) as folder:
        folder.refuse_imported_answers()
        check_capabilities(folder.built.config, model)
        resolved, earlier = resolve_model(folder.built.config, model), None if force else folder.record
        stage_records.check_comparison(out, [], force=force)
        stage_records.check_extension(out, earlier, config=folder.built.config, model=resolved)
        begin_hashing([resolved])
        with closing(EngineLoader(resolved.source, resolved.config, out / LOGS)) as loader:
            yield from begin_loading(resolved, folder.data.path, loader)
            scored = yield from score_run(folder.built, resolved, folder.data.path, loader)
        stage_records.remove_replaced(out, is_comparison=False)
        record = stage_records.record_scores(folder.record, scored, resolved.record, out)
        assert record.scores is not None, "it was scored"
        return record.scores


def measure(
    out: Path, options: Callable[[Sequence[str]], Mapping[str, object]] = lambda _suites: {}
) -> Stage[Mapping[str, pl.LazyFrame]]:
    """Compute predictions and metrics from the scores in `out`, and return scans of the tables by name.

    Args:
        out: folder of the run.
        options: function from the names of the run's suites to their measure options, by suite.
    """
    with opened_run(out) as folder:
        chosen = options(folder.built.config.suites)
        stores, built = open_scored(folder), folder.built.without(folder.scores.left_out)
        record = yield from measure_run(folder.record, built, stores, out, chosen)
        assert record.measures is not None, "it was measured"
        return {name: scan_parquet(table_path(out, name)) for name in record.measures.tables}


def report(out: Path) -> Stage[Path]:
    """Write the page of a run and return its path.

    For a folder of several models, write the page of each model's run and compare the runs again.
    """
    with opened_run(out) as folder:
        models = [] if folder.record.scores else compared_models(out)
        if not models:
            return (yield from report_run(MeasuredFolder(out, folder.record, folder.built.store)))
    for model in models:
        yield from report(model)
    return (yield from compare(models, out)).page


def summary_lines(run: MeasuredRun) -> list[str]:
    """Return the last lines of a run for a terminal: accuracies with verdicts, the lines of suites, and warnings."""
    families = families_of(run.record.prompts.suites)
    failed = [f"Left out of every number and mean: {name}. {why}" for name, why in run.record.left_out.items()]
    warnings = [f"Warning: {text}" for text in (*majority_warnings(run), *label_mass_warnings(run.table("metrics")))]
    of_suites = (line for family in families for line in family.summary_lines(run))
    lines = [*run.record.decisions, *verdict_lines(run.table("metrics")), *of_suites]
    speed = throughput_line(run.record.scores)
    doctor = [f"Doctor: {run.record.doctor}"] if run.record.doctor else []
    return [*lines, *failed, *([speed] if speed else []), *doctor, *warnings]


def report_run(measured: MeasuredFolder) -> Stage[Path]:
    """Write the page of a run into its folder, and return the path."""
    yield Progress(stage="Writing the report", done=0, total=1, unit="pages")
    page = write_run_page(measured, measured.out / PAGE)
    yield Progress(stage="Writing the report", done=1, total=1, unit="pages")
    return page


def write_run_page(run: MeasuredRun, path: Path) -> Path:
    """Write the page of a run and return its path."""
    record = run.record
    sections = [section for family in families_of(record.prompts.suites) for section in family.sections(run)]
    warnings = [*record.decisions, *majority_warnings(run), *run_record.warnings(record)]
    warnings += [*run_record.accepted_warnings(record.preflight), *label_mass_warnings(run.table("metrics"))]
    subject, shown = _subject(record, run.table("metrics")), tuple(("", text) for text in warnings)
    header = Header(heading=record.model.title, subject=subject, warnings=shown)
    sections = sections or [Section("unmeasured", "Results", ["No metric was measured."], navigation="Results")]
    # Only suites that must be the only suite of a run have numbers of single queries.
    queries = query_section(run, families_of(record.prompts.suites)[0].query_numbers(run))
    sections += [one for one in (queries, about_section(record), cost_section(record)) if one]
    sections += [*([receipt_section(record.receipts)] if record.receipts else []), record_section(record)]
    return write_page(path, f"{record.model.title}: in-context classification", header, sections)


def _subject(record: MeasuredRecord, metrics: pl.DataFrame) -> str:
    """Describe what was measured: suites with their parts and methods, number of datasets, shots."""
    n_datasets, n_shots = len({*record.prompts.datasets} - {*record.left_out}), record.prompts.n_shots
    # Parts of a suite with the same methods share one phrase.
    methods_of_part = metrics.group_by("suite", "part").agg(pl.col("method").unique().sort())
    parts_of_methods = methods_of_part.group_by("suite", "method").agg(pl.col("part").sort()).sort("suite", "part")
    measured = [
        f"{suite}{' / ' + ', '.join(parts) if any(parts) else ''}, "
        + (methods[0] if len(methods) == 1 else f"{len(methods)} methods")
        for suite, parts, methods in parts_of_methods.select("suite", "part", "method").iter_rows()
    ]
    shots = f"shots: {record.prompts.shots}" if n_shots is None else plural(n_shots, "shot")
    return f"{'; '.join(measured or record.prompts.suites)} · {plural(n_datasets, 'dataset')} · {shots}"
