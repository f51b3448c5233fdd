"""`evaluator receipt`: score a sample of a run's prompts again under other conditions; measure how far numbers drift.

The conditions are another order, batch size and cache state: the sample is shuffled and sent in batches of random
sizes, and the engine begins each batch with an empty cache. Another engine or dtype can be chosen in addition.
"""

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple, cast, get_args

import numpy as np
import polars as pl

from evaluator.config import Dtype, ModelConfig, ReceiptConfig
from evaluator.engine import ENGINES, find_source, with_devices
from evaluator.engine.base import ContinuationRequest, ContinuationScores, Engine, adapted
from evaluator.engine.replicas import EngineLoader, Job, OneReplica, Replicas
from evaluator.errors import ConfigError, ScoreError, StoreError
from evaluator.files.whole import write_table
from evaluator.models.weights import Adapter
from evaluator.progress import Progress, Stage
from evaluator.record import EngineRecord, ModelRecord, ReceiptRecord, RunRecord
from evaluator.run.folder import MeasuredFolder, open_scored, opened_run, read_table
from evaluator.run.folders import write_stage
from evaluator.run.measure import ScoredStore, complete_run, on_disk, scored_run
from evaluator.run.pipeline import report_run
from evaluator.run.score import LOGS
from evaluator.run.until import rounds_of
from evaluator.run_log import now, seconds_since
from evaluator.schemas import RECEIPT, RECEIPT_KEY
from evaluator.scores.compute import engine_requests, score_frame
from evaluator.scores.plan import find_requests
from evaluator.scores.table import prompt_scores
from evaluator.suites import families_of
from evaluator.suites.base import ScoredRun

logger = logging.getLogger(__name__)

MAX_BATCH = 64
"""Largest number of prompts in a call of the engine."""


def make_receipt(out: Path, config: ReceiptConfig) -> Stage[tuple[str, ReceiptRecord]]:
    """Score a sample of the prompts in `out` again; return the name and the record of the receipt.

    Writes `out`/tables/receipt.parquet, the record, and the page of a measured run. Raises ConfigError for a model
    whose weights are not those of the run, and for a run of imported answers.
    """
    clock = time.monotonic()
    with opened_run(out) as folder:
        record, parts, scores = folder.record, open_scored(folder), folder.scores
        folder.refuse_imported_answers()
        engine, again = yield from _loaded_and_scored(record, parts, out, config)
        name = f"{engine.name} {engine.dtype}"
        tokens, stored = again.tokens.lazy(), pl.concat([part.scores.read("scores") for part in parts])
        sampled = stored.join(tokens.select("token_id").unique(), on="token_id", how="semi").unique("token_id")
        table = drifts(again, prompt_scores(tokens, sampled), name)
        built = folder.built.without(scores.left_out)
        yield Progress(stage="Comparing verdicts", done=0, total=1, unit="runs")
        run = complete_run(scored_run(built, parts), parts)
        with on_disk(run, out) as run:
            n_verdicts, changed_verdicts = _compared_verdicts(run, again)
        yield Progress(stage="Comparing verdicts", done=1, total=1, unit="runs")
        drift = table["drift_nats"].to_numpy()
        receipt = ReceiptRecord(
            scores=scores.fingerprint,
            made=now(),
            seed=config.seed,
            engine=engine,
            threads=_threads(engine.name),
            batch_invariant=engine.name == "vllm" and os.environ.get("VLLM_BATCH_INVARIANT") == "1",
            prompts=table.height,
            batches=again.n_batches,
            max_drift_nats=float(drift.max()),
            p99_drift_nats=float(np.quantile(drift, 0.99)),
            p95_drift_nats=float(np.quantile(drift, 0.95)),
            median_drift_nats=float(np.median(drift)),
            predictions=table["pred"].count(),
            flipped=table.filter(pl.col("pred") != pl.col("pred_again")).height,
            verdicts=n_verdicts,
            changed_verdicts=changed_verdicts,
        )
        record = _write_receipts(record, name, receipt, table, out)
        record = write_stage(out, record, "receipt", elapsed_s={"receipt": seconds_since(clock)})
        if record.measures:
            yield from report_run(MeasuredFolder(out, record, built.store))
        return name, receipt


def _loaded_and_scored(
    record: RunRecord, parts: Sequence[ScoredStore], out: Path, config: ReceiptConfig
) -> Stage[tuple[EngineRecord, "ScoredAgain"]]:
    """Load the model of a run and score a sample of its prompts; return the engine's facts and the new scores."""
    assert record.model is not None, "the run was scored"
    assert record.engine is not None, "the run was scored"
    model = _model_again(record.model, record.engine, config)
    source = find_source(model)
    if source.fingerprint != record.model.weights_fingerprint:
        raise ConfigError(
            f"{source.title} has the weights {source.fingerprint}, and the run in {out} is of "
            f"{record.model.weights_fingerprint}. Name the run's model with --model."
        )
    with closing(EngineLoader(source, with_devices(source, model), out / LOGS)) as loader:
        replicas = yield from loader.replicas(max(find_requests(part.tokens.rows()).longest for part in parts))
        assert isinstance(replicas, OneReplica), "a receipt takes no option for more"
        engine = adapted(replicas.engine, source.adapter)
        again = yield from score_shuffled(_scored_tokens(parts), engine, config.n_prompts, config.seed)
    return engine.facts, again


def _model_again(model: ModelRecord, engine: EngineRecord, config: ReceiptConfig) -> ModelConfig:
    """Return the configuration of a run's model, with the changes of a receipt; a served model is loaded here."""
    dtype = cast(Dtype, engine.dtype) if engine.dtype in get_args(Dtype) else "auto"
    engine_again = config.engine or (None if engine.name == "server" else engine.name)
    can_quantize = engine_again in ENGINES and ENGINES[engine_again].quantizes
    return ModelConfig(
        model=config.model or model.name,
        adapter=config.adapter or (model.adapter.name if model.adapter else None),
        engine=engine_again,
        dtype=config.dtype or dtype,
        head_dtype="float32" if engine.head_dtype == "float32" != engine.dtype else "model",
        quantization=engine.quantization if can_quantize else None,
        revision=model.revision if config.model is None else None,
        kv_cache_gib=config.kv_cache_gib,
        trust_remote_code=config.trust_remote_code,
    )


def _write_receipts(record: RunRecord, name: str, receipt: ReceiptRecord, table: pl.DataFrame, out: Path) -> RunRecord:
    """Write the table of a receipt, and return the record with it.

    Receipts by other engines and dtypes are kept if they belong to the same scores and their table is intact.
    """
    earlier = {other: one for other, one in record.receipts.items() if other != name and one.scores == receipt.scores}
    kept = table.clear()
    if earlier:
        try:
            kept = read_table(out, "receipt", {"receipt": record.receipt_table})
        except StoreError as error:
            earlier = {}
            logger.warning("Earlier receipts are dropped. %s", error)
    everything = pl.concat([kept.filter(pl.col("receipt").is_in(list(earlier))), table]).sort(RECEIPT_KEY)
    digest = write_table(out, "receipt", everything)
    return replace(record, receipts={**earlier, name: receipt}, receipt_table=digest)


class ScoredAgain(NamedTuple):
    """A sample of a run's prompts with new scores."""

    tokens: pl.DataFrame  # schemas.TOKENS
    scores: pl.DataFrame  # schemas.SCORES, the new ones
    n_batches: int


def _scored_tokens(parts: Sequence[ScoredStore]) -> pl.DataFrame:
    """Return schemas.TOKENS of all prompts for which a run has log-likelihoods."""
    scored = []
    for part in parts:
        asked = part.tokens.tokens.filter(pl.col("ask") != "state")
        scored.append(asked.join(part.scores.read("scores"), on="token_id", how="semi", maintain_order="left"))
    return pl.concat(scored).unique(["prompt_id", "ask"], keep="first", maintain_order=True).collect()


def score_shuffled(tokens: pl.DataFrame, engine: Engine, n_prompts: int, seed: int) -> Stage[ScoredAgain]:
    """Score a sample of prompts in random order and batches of random sizes.

    Args:
        tokens: schemas.TOKENS, without rows that ask for hidden states.
        engine: the engine that scores.
        n_prompts: size of the sample; all prompts if there are fewer.
        seed: seed of the sample, its order and its batches.

    Raises ConfigError if there are no prompts.
    """
    prompts = tokens["prompt_id"].unique().sort()
    if prompts.is_empty():
        raise ConfigError("The run has no log-likelihoods, so there is nothing to score again.")
    rng = np.random.default_rng(seed)
    drawn = rng.permutation(len(prompts))[:n_prompts]
    batches, done = [], 0
    while done < len(drawn):
        yield Progress(stage="Scoring again", done=done, total=len(drawn), unit="prompts")
        end = done + int(rng.integers(1, MAX_BATCH + 1))
        chosen = pl.DataFrame({"prompt_id": prompts.gather(drawn[done:end])})
        # Keep the rows of a prompt together: its labels, and the last tokens of the labels.
        rows = chosen.join(tokens, on="prompt_id", maintain_order="left_right").select(tokens.columns)
        batches.append(score_in_one_call(rows, engine.log_likelihoods))
        done += len(chosen)
    yield Progress(stage="Scoring again", done=done, total=len(drawn), unit="prompts")
    return ScoredAgain(
        pl.concat([batch.tokens for batch in batches]), pl.concat([batch.scores for batch in batches]), len(batches)
    )


Score = Callable[[Sequence[ContinuationRequest]], Iterable[ContinuationScores]]


def score_in_one_call(tokens: pl.DataFrame, score: Score) -> ScoredAgain:
    """Score prompts in this order, in one call of an engine.

    Args:
        tokens: schemas.TOKENS, without rows that ask for hidden states.
        score: the engine's log_likelihoods.

    Raises ScoreError for answers that are missing, not finite, or do not fit the continuations.
    """
    requests = engine_requests(tokens)
    answers = {answer.index: answer.token_log_probs for answer in score(requests)}
    for index, request in enumerate(requests):
        received = [len(numbers) for numbers in answers.get(index, ())]
        if received != [len(tokens) for tokens in request.continuations]:
            raise ScoreError(f"The engine answered request {index} with {received} numbers for its continuations.")
    frame = score_frame(tokens, [answers[index] for index in range(len(requests))])
    return ScoredAgain(tokens, prompt_scores(tokens.lazy(), frame.unique("token_id").lazy()).collect(), 1)


def score_as_job(
    engine: Engine, replica: int, tokens: pl.DataFrame, adapter: Adapter | None
) -> Iterator[tuple[int, ScoredAgain]]:
    """Score prompts as a job of a replica (engine.replicas.Job); yield the replica's number and the scores."""
    yield replica, score_in_one_call(tokens, adapted(engine, adapter).log_likelihoods)


def score_in_jobs(
    replicas: Replicas, tokens: pl.DataFrame, adapter: Adapter | None, n_jobs: int
) -> Iterator[ScoredAgain]:
    """Score prompts (`tokens`: schemas.TOKENS) in equal jobs, which replicas share; yield the scores of each job."""
    size = -(-tokens.height // n_jobs)
    parts = ((first, tokens.slice(first, size)) for first in range(0, tokens.height, size))
    jobs = [Job(f"prompts from {first}", size, score_as_job, (part, adapter)) for first, part in parts]
    return (scored for _, scored in replicas.run(jobs))


def drifts(again: ScoredAgain, before: pl.DataFrame | pl.LazyFrame, name: str) -> pl.DataFrame:
    """Return the drift of each prompt of the sample: schemas.RECEIPT, sorted by its key.

    Args:
        again: the new scores.
        before: schemas.SCORES of the same prompts, and perhaps of others.
        name: name of the receipt: engine and dtype.
    """
    tokens = again.tokens.lazy()
    asks = tokens.filter(pl.col("ask") != "last_tokens").select("prompt_id", "ask")
    joined = asks.join(before.lazy(), on="prompt_id").join(again.scores.lazy(), on="prompt_id", suffix="_again")
    labels, labels_again = pl.col("label_log_likelihoods"), pl.col("label_log_likelihoods_again")
    scored = ("label_log_likelihoods", "last_token_log_probs")  # the drift is the largest difference of either
    differences = (pl.col(f"{column}_again") - pl.col(column) for column in scored)
    largest = [difference.list.eval(pl.element().abs()).list.max() for difference in differences]
    has_choice = (pl.col("ask") == "labels") & (labels.list.len() > 1)
    ordered = labels.list.sort(descending=True)
    columns = {
        "receipt": pl.lit(name),
        "drift_nats": pl.max_horizontal(largest),
        "pred": pl.when(has_choice).then(labels.list.arg_max()),
        "pred_again": pl.when(has_choice).then(labels_again.list.arg_max()),
        "margin_nats": pl.when(has_choice).then(ordered.list.get(0) - ordered.list.get(1, null_on_oob=True)),
    }
    return joined.with_columns(**columns).select(RECEIPT.names()).cast(RECEIPT).sort(RECEIPT_KEY).collect()


def _compared_verdicts(run: ScoredRun, again: ScoredAgain) -> tuple[int | None, list[str]]:
    """Compute the tables with verdicts twice: with the run's scores, and with the sample's new scores in their place.

    Returns the number of verdicts and a line for each verdict that changed. The number is None if prompts were chosen
    by earlier scores, because other scores would choose other prompts.

    Args:
        run: a complete run.
        again: the new scores of the sample.
    """
    families = families_of(run.config.suites)
    if (rounds := rounds_of(run.config)) and len(list(islice(rounds(run), 2))) > 1:
        return None, []
    scored = replace(run.scored, rows=run.scored.rows.update(again.scores.lazy(), on="prompt_id"))

    def with_verdicts(measured: ScoredRun) -> dict[str, pl.DataFrame]:
        tables = chain.from_iterable(family.measure(measured) for family in families)
        return {name: table for name, table in tables if "verdict" in table.columns}

    before, after = with_verdicts(run), with_verdicts(replace(run, scored=scored))
    changed = [line for name, table in before.items() for line in _changed(name, table, after[name])]
    return sum(table["verdict"].count() for table in before.values()), changed


def _changed(name: str, before: pl.DataFrame, after: pl.DataFrame) -> Iterator[str]:
    """Yield a line for each row whose verdict differs; tables of a run have the same rows in the same order."""
    texts = [column for column, dtype in before.schema.items() if dtype == pl.String and column != "verdict"]
    rows = before.with_columns(again=after["verdict"]).filter(pl.col("again").ne_missing(pl.col("verdict")))
    for *place, verdict, again in rows.select(*texts, "verdict", "again").iter_rows():
        yield f"{name}: {', '.join(filter(None, place))}: {verdict} became {again}"


def _threads(engine: str) -> int | None:
    """Return the number of threads that a model computes with on a CPU; None without a model."""
    if engine in ENGINES and not ENGINES[engine].runs_a_model:
        return None
    import torch

    return int(torch.get_num_threads())
