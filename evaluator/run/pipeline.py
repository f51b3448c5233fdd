"""The stages of a run: build, score, measure, report. Each stage has a function, and `run` calls all of them."""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple, cast, get_args

import polars as pl

from evaluator.config import Dtype, ModelConfig, ReceiptConfig, RunConfig
from evaluator.engine import ENGINES, find_source, with_devices
from evaluator.engine.base import adapted
from evaluator.engine.loader import EngineLoader
from evaluator.engine.replicas import OneReplica
from evaluator.errors import ConfigError, StoreError
from evaluator.files.locks import writing_to
from evaluator.files.whole import table_path, write_rows, write_table
from evaluator.metrics.queries import query_frames, query_texts
from evaluator.preflight.findings import check_accepted, require_accepted
from evaluator.progress import Progress, Stage
from evaluator.record import (
    EngineRecord,
    MeasuresRecord,
    ModelRecord,
    PreflightRecord,
    ReceiptRecord,
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
from evaluator.run.folder import open_built, open_scored, read_table, scores_section
from evaluator.run.preflight import check_built, with_accepted
from evaluator.run.receipt import compare_verdicts, drifts, receipt_record, score_again
from evaluator.run.record import require_run, with_stage, write_run
from evaluator.run.report import PAGE, MeasuredFolder, write_run_page
from evaluator.run.score import LOGS, Scored, begin_loading, check_capabilities, score_run
from evaluator.run.scored_run import ScoredStore, complete_run, on_disk, scored_run
from evaluator.run.stage_records import recorded_build, with_scores
from evaluator.run_log import now
from evaluator.schemas import PREDICTIONS, QUERIES, RECEIPT_KEY
from evaluator.store.prompt_store import ROWS_PER_SHARD
from evaluator.store.sorted_runs import SortedRuns
from evaluator.store.spool import slices, spooled, spooled_frames
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
            tokenised_s[folder] = _since(clock)
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
    record = yield from _measure(record, scored.built, scored.parts, out, {})
    measured = MeasuredFolder(out, record, scored.built.store)
    return Finished((yield from _report(measured)), measured)


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
        _require_prompts_for_a_model(folder.record, out)
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
        record = yield from _measure(folder.record, built, parts, out, chosen)
        assert record.measures is not None, "it was measured"
        return {name: pl.scan_parquet(table_path(out, name)) for name in record.measures.tables}


def report(out: Path) -> Stage[Path]:
    """Write the page about the metrics in `out`, and return its path."""
    require_run(out)
    with writing_to(out):
        folder = open_built(out)
        store = folder.built.store.without(scores_section(folder.record, out).left_out)
        return (yield from _report(MeasuredFolder(out, folder.record, store)))


def receipt(out: Path, config: ReceiptConfig) -> Stage[tuple[str, ReceiptRecord]]:
    """Score a sample of the prompts in `out` again; return the name and the record of the receipt.

    Writes `out`/tables/receipt.parquet and the record, and the report anew if the run was measured. Raises ConfigError
    for a model with other weights than the run's.
    """
    require_run(out)
    with writing_to(out):
        clock, folder = time.monotonic(), open_built(out)
        record, parts = folder.record, open_scored(folder, out)
        _require_prompts_for_a_model(record, out)
        built = folder.built.without(scores_section(record, out).left_out)
        assert record.model is not None, "the run was scored"
        assert record.engine is not None, "the run was scored"
        model = _model_again(record.model, record.engine, config)
        source = find_source(model)
        if source.fingerprint != record.model.weights_fingerprint:
            raise ConfigError(
                f"{source.title} has the weights {source.fingerprint}, and the run in {out} is of "
                f"{record.model.weights_fingerprint}. Name the run's model with --model."
            )
        loader = EngineLoader(source, with_devices(source, model), out / LOGS)
        try:
            replicas = yield from loader.replicas()
            assert isinstance(replicas, OneReplica), "a receipt takes no option for more"
            engine = adapted(replicas.engine, source.adapter)
            again = yield from score_again(parts, engine, config.n_prompts, config.seed)
        finally:
            loader.close()
        name = f"{engine.facts.name} {engine.facts.dtype}"
        table = drifts(again, parts, name)
        yield Progress(stage="Comparing verdicts", done=0, total=1, unit="runs")
        verdicts = compare_verdicts(complete_run(scored_run(built, parts), parts), again)
        yield Progress(stage="Comparing verdicts", done=1, total=1, unit="runs")
        made = receipt_record(record, table, again, verdicts, engine, config.seed, now())
        record = _with_receipt(record, name, made, table, out)
        record = with_stage(record, "receipt", elapsed_s={"receipt": _since(clock)})
        write_run(out, record)
        if record.measures:
            yield from _report(MeasuredFolder(out, record, built.store))
        return name, made


def _require_prompts_for_a_model(record: RunRecord, out: Path) -> None:
    """Raise ConfigError for imported answers: their prompts are not known here."""
    if record.model is not None and record.model.kind == "imported":
        raise ConfigError(f"{out} holds imported answers, which no model can give again here.")


def _model_again(model: ModelRecord, engine: EngineRecord, config: ReceiptConfig) -> ModelConfig:
    """Return the model of a run as it was loaded, with what a receipt changes; a served one is loaded here."""
    dtype = cast(Dtype, engine.dtype) if engine.dtype in get_args(Dtype) else "auto"
    engine_again = config.engine or (None if engine.name == "server" else engine.name)
    can_quantize = engine_again in ENGINES and ENGINES[engine_again].quantizes
    return ModelConfig(
        model=config.model or model.name,
        adapter=config.adapter or (model.adapter.name if model.adapter else None),
        engine=engine_again,
        dtype=config.dtype or dtype,
        quantization=engine.quantization if can_quantize else None,
        revision=model.revision if config.model is None else None,
        kv_cache_gib=config.kv_cache_gib,
        trust_remote_code=config.trust_remote_code,
    )


def _with_receipt(record: RunRecord, name: str, made: ReceiptRecord, table: pl.DataFrame, out: Path) -> RunRecord:
    """Write the table of a receipt, and return the record with it.

    Receipts of other engines and dtypes are kept if they are of the same scores and their table is undamaged.
    """
    earlier = {other: one for other, one in record.receipts.items() if other != name and one.scores == made.scores}
    kept = table.clear()
    if earlier:
        try:
            kept = read_table(out, "receipt", {"receipt": record.receipt_table})
        except StoreError as error:
            earlier = {}
            logger.warning("Earlier receipts are dropped. %s", error)
    everything = pl.concat([kept.filter(pl.col("receipt").is_in(list(earlier))), table]).sort(RECEIPT_KEY)
    digest = write_table(out, "receipt", everything)
    return replace(record, receipts={**earlier, name: made}, receipt_table=digest)


def _build(config: RunConfig, out: Path, data: Path) -> Stage[tuple[RunRecord, Built]]:
    started, clock = now(), time.monotonic()
    built = yield from build_prompts(config, data, out)
    return recorded_build(built, out, data, started=started, elapsed_s=_since(clock)), built


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
    return record, _since(clock)


def _measure(
    record: RunRecord, built: Built, parts: Sequence[ScoredStore], out: Path, options: Mapping[str, object]
) -> Stage[RunRecord]:
    clock = time.monotonic()
    scores = scores_section(record, out)
    model = record.model.title if record.model else out.name
    tables = _Tables(out)
    run = scored_run(built, parts, model=model, options=options)
    run = replace(complete_run(run, parts), keep=tables.keep, in_order=tables.in_order)
    # Suites of one family share a function, which is called once.
    functions = dict.fromkeys(SUITES[suite].measure for suite in run.config.suites)
    with on_disk(run, sum(part.store.manifest.n_requests for part in parts), out) as run:
        for name, table in chain.from_iterable(function(run) for function in functions):
            yield tables.progress(n_left=1)
            tables.write(name, table)
        predictions = tables.scan("predictions", PREDICTIONS)
        tables.keep("queries", QUERIES, query_frames(run.scored, query_texts(_prompts(parts)), predictions, out))
    measures = MeasuresRecord(scores=scores.fingerprint, tables=dict(sorted(tables.digests.items())))
    record = with_stage(record, "measure", elapsed_s={"measure": _since(clock)}, measures=measures)
    write_run(out, record)
    yield tables.progress(n_left=0)
    return record


class _Tables:
    """The tables of the measure stage, on disk."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self.digests: dict[str, str] = {}

    def write(self, name: str, table: pl.DataFrame) -> None:
        self.digests[name] = write_table(self._out, name, table)

    def keep(self, name: str, schema: pl.Schema, frames: Iterable[pl.DataFrame]) -> pl.LazyFrame:
        """Write a table frame by frame, and return a scan of it (suites.base.Keep)."""
        with spooled_frames(frames, schema, self._out) as rows:
            self.digests[name] = write_rows(self._out, name, rows)
        return self.scan(name, schema)

    def in_order(self, rows: pl.LazyFrame, column: str) -> Iterator[pl.DataFrame]:
        """Sort rows that need not fit into memory (suites.base.InOrder)."""
        runs = SortedRuns(self._out, column, lambda some: some.sort(column))
        with spooled(rows, self._out) as kept:
            for some in slices(kept, ROWS_PER_SHARD):
                runs.add(some)
        yield from (some for some, _ in runs.ranges(ROWS_PER_SHARD))

    def scan(self, name: str, schema: pl.Schema) -> pl.LazyFrame:
        """Return a table that was written; without rows if none was."""
        return pl.scan_parquet(table_path(self._out, name)) if name in self.digests else pl.LazyFrame(schema=schema)

    def progress(self, *, n_left: int) -> Progress:
        done = len(self.digests)
        return Progress(stage="Measuring", done=done, total=done + n_left, unit="tables")


def _prompts(parts: Sequence[ScoredStore]) -> Iterator[pl.DataFrame]:
    return chain.from_iterable(part.store.prompts_by_shard() for part in parts)


def _report(measured: MeasuredFolder) -> Stage[Path]:
    yield Progress(stage="Writing the report", done=0, total=1, unit="pages")
    page = write_run_page(measured, measured.out / PAGE)
    yield Progress(stage="Writing the report", done=1, total=1, unit="pages")
    return page


def _since(started: float) -> float:
    return round(time.monotonic() - started, 3)
