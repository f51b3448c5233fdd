"""Write the numerical receipt of a run: how far numbers drift when a sample is scored again (runs/score_again.py)."""

import logging
import time
from dataclasses import replace
from pathlib import Path
from typing import cast, get_args

import polars as pl

from evaluator.config import Dtype, ModelConfig, ReceiptConfig
from evaluator.engine import ENGINES, find_source, with_devices
from evaluator.engine.base import adapted
from evaluator.engine.loader import EngineLoader
from evaluator.engine.replicas import OneReplica
from evaluator.errors import ConfigError, StoreError
from evaluator.files.locks import writing_to
from evaluator.files.whole import write_table
from evaluator.progress import Progress, Stage
from evaluator.record import EngineRecord, ModelRecord, ReceiptRecord, RunRecord
from evaluator.run.folder import open_built, open_scored, read_table, refuse_imported_answers, scores_section
from evaluator.run.record import require_run, with_stage, write_run
from evaluator.run.report import MeasuredFolder, report_run
from evaluator.run.score import LOGS
from evaluator.run.scored_run import complete_run, on_disk, scored_run
from evaluator.run_log import now, seconds_since
from evaluator.runs.score_again import compare_verdicts, drifts, receipt_record, score_again
from evaluator.schemas import RECEIPT_KEY

logger = logging.getLogger(__name__)


def make_receipt(out: Path, config: ReceiptConfig) -> Stage[tuple[str, ReceiptRecord]]:
    """Score a sample of the prompts in `out` again; return the name and the record of the receipt.

    Writes `out`/tables/receipt.parquet and the record, and the report anew if the run was measured. Raises ConfigError
    for a model with other weights than the run's.
    """
    require_run(out)
    with writing_to(out):
        clock, folder = time.monotonic(), open_built(out)
        record, parts = folder.record, open_scored(folder, out)
        refuse_imported_answers(record, out)
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
        run = complete_run(scored_run(built, parts), parts)
        with on_disk(run, parts, out) as run:
            verdicts = compare_verdicts(run, again)
        yield Progress(stage="Comparing verdicts", done=1, total=1, unit="runs")
        made = receipt_record(record, table, again, verdicts, engine, config.seed, now())
        record = _write_receipts(record, name, made, table, out)
        record = with_stage(record, "receipt", elapsed_s={"receipt": seconds_since(clock)})
        write_run(out, record)
        if record.measures:
            yield from report_run(MeasuredFolder(out, record, built.store))
        return name, made


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


def _write_receipts(record: RunRecord, name: str, made: ReceiptRecord, table: pl.DataFrame, out: Path) -> RunRecord:
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
