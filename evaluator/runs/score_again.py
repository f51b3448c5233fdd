"""Score a sample of a run's prompts again under other conditions, and measure how far numbers drift.

The conditions are another order, batch size and cache state: the sample is shuffled and sent in batches of drawn sizes,
and an engine begins each of them with an empty cache. With another engine or dtype, these differ as well.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

import numpy as np
import polars as pl

from evaluator.engine import ENGINES
from evaluator.engine.base import Engine
from evaluator.errors import ConfigError
from evaluator.progress import Progress, Stage
from evaluator.record import ReceiptRecord, RunRecord
from evaluator.run.scored_run import ScoredStore
from evaluator.schemas import RECEIPT, RECEIPT_KEY, SCORES
from evaluator.scores.prompts import join_prompt_scores
from evaluator.scores.shard_job import engine_requests, score_frame
from evaluator.suites import families_of
from evaluator.suites.base import ScoredRun

MAX_BATCH = 64
"""Largest number of prompts in a call of the engine."""


class ScoredAgain(NamedTuple):
    """A sample of a run's prompts with new scores."""

    tokens: pl.DataFrame  # schemas.TOKENS
    token_scores: pl.DataFrame  # schemas.TOKEN_SCORES, the new ones
    n_batches: int


def score_again(parts: Sequence[ScoredStore], engine: Engine, n_prompts: int, seed: int) -> Stage[ScoredAgain]:
    """Score a sample of the prompts that a run has log-likelihoods of, in random order and batches of random sizes.

    Args:
        parts: stores of the run, scored.
        engine: scores again.
        n_prompts: size of the sample; all prompts if there are no more.
        seed: of the sample, its order and its batches.

    Raises ConfigError if there are no such prompts.
    """
    tokens = _scored_tokens(parts)
    prompts = tokens["prompt_id"].unique().sort()
    if prompts.is_empty():
        raise ConfigError("The run has no log-likelihoods, so there is nothing to score again.")
    rng = np.random.default_rng(seed)
    drawn = rng.permutation(len(prompts))[:n_prompts]
    sizes = _batch_sizes(rng, len(drawn))
    frames, token_scores, done = [], [], 0
    for size in sizes:
        yield Progress(stage="Scoring again", done=done, total=len(drawn), unit="prompts")
        chosen = pl.DataFrame({"prompt_id": prompts.gather(drawn[done : done + size])})
        # All rows of a prompt one after the other: its labels, and the last tokens of these.
        rows = chosen.join(tokens, on="prompt_id", maintain_order="left_right").select(tokens.columns)
        requests = engine_requests(rows)
        answers = {answer.index: answer.token_log_probs for answer in engine.log_likelihoods(requests)}
        token_scores.append(score_frame(rows, [answers[index] for index in range(len(requests))]))
        frames.append(rows)
        done += size
    yield Progress(stage="Scoring again", done=done, total=len(drawn), unit="prompts")
    return ScoredAgain(pl.concat(frames), pl.concat(token_scores).unique("token_id"), len(sizes))


def _scored_tokens(parts: Sequence[ScoredStore]) -> pl.DataFrame:
    """Return schemas.TOKENS of all prompts with log-likelihoods, each prompt's rows once."""
    rows = [
        part.tokens.tokens()
        .filter(pl.col("ask") != "state")
        .join(part.scores.read("scores"), on="token_id", how="semi", maintain_order="left")
        .collect()
        for part in parts
    ]
    return pl.concat(rows).unique(["prompt_id", "ask"], keep="first", maintain_order=True)


def _batch_sizes(rng: np.random.Generator, n_prompts: int) -> list[int]:
    sizes: list[int] = []
    while (left := n_prompts - sum(sizes)) > 0:
        sizes.append(min(left, int(rng.integers(1, MAX_BATCH + 1))))
    return sizes


def drifts(again: ScoredAgain, parts: Sequence[ScoredStore], name: str) -> pl.DataFrame:
    """Return the drift of each prompt of the sample: schemas.RECEIPT, sorted by its key.

    Args:
        again: the new scores.
        parts: with the scores of the run.
        name: of the receipt.
    """
    sampled = again.tokens.lazy().select("token_id").unique()
    stored = pl.concat([part.scores.read("scores") for part in parts]).join(sampled, on="token_id", how="semi")
    before, after = (
        join_prompt_scores(again.tokens.lazy(), scores).select(SCORES.names())
        for scores in (stored.unique("token_id"), again.token_scores.lazy())
    )
    asks = again.tokens.lazy().filter(pl.col("ask") != "last_tokens").select("prompt_id", "ask")
    joined = asks.join(before, on="prompt_id").join(after, on="prompt_id", suffix="_again")
    labels, labels_again = pl.col("label_log_likelihoods"), pl.col("label_log_likelihoods_again")
    largest = [
        (pl.col(f"{column}_again") - pl.col(column)).list.eval(pl.element().abs()).list.max()
        for column in ("label_log_likelihoods", "last_token_log_probs")
    ]
    has_choice = (pl.col("ask") == "labels") & (labels.list.len() > 1)
    ordered = labels.list.sort(descending=True)
    return (
        joined.select(
            "prompt_id",
            "ask",
            receipt=pl.lit(name),
            drift_nats=pl.max_horizontal(largest),
            pred=pl.when(has_choice).then(labels.list.arg_max()),
            pred_again=pl.when(has_choice).then(labels_again.list.arg_max()),
            margin_nats=pl.when(has_choice).then(ordered.list.get(0) - ordered.list.get(1, null_on_oob=True)),
        )
        .select(pl.col(column).cast(dtype) for column, dtype in RECEIPT.items())
        .sort(RECEIPT_KEY)
        .collect()
    )


class Verdicts(NamedTuple):
    """Comparison of a run's verdicts with those after the sampled prompts got their new scores."""

    n_verdicts: int | None  # None if prompts were chosen by earlier scores, so that other scores choose others
    changed: list[str]


def compare_verdicts(run: ScoredRun, again: ScoredAgain) -> Verdicts:
    """Compute all tables of a run with verdicts twice, with its scores and with the new ones of the sample in place.

    Args:
        run: complete.
        again: the new scores.
    """
    rounds = families_of(run.config.suites)[0].rounds
    if rounds and len(list(islice(rounds(run), 2))) > 1:
        return Verdicts(None, [])
    new = join_prompt_scores(again.tokens.lazy(), again.token_scores.lazy())
    columns = [name for name in SCORES if name != "prompt_id"]
    rows = run.scored.rows.join(new, on="prompt_id", how="left", suffix="_again", maintain_order="left")
    replaced = rows.with_columns(pl.coalesce(f"{name}_again", name).alias(name) for name in columns)
    scored = replace(run.scored, rows=replaced.drop(f"{name}_again" for name in columns))
    before, after = (dict(_verdict_tables(one)) for one in (run, replace(run, scored=scored)))
    changed = [line for name, table in before.items() for line in _changed(name, table, after[name])]
    return Verdicts(sum(table["verdict"].count() for table in before.values()), changed)


def _verdict_tables(run: ScoredRun) -> Iterator[tuple[str, pl.DataFrame]]:
    for family in families_of(run.config.suites):
        yield from ((name, table) for name, table in family.measure(run) if "verdict" in table.columns)


def _changed(name: str, before: pl.DataFrame, after: pl.DataFrame) -> Iterator[str]:
    """Yield a line for each row whose verdict differs; tables of a run have the same rows in the same order."""
    texts = [column for column, dtype in before.schema.items() if dtype == pl.String and column != "verdict"]
    rows = before.with_columns(again=after["verdict"]).filter(pl.col("again").ne_missing(pl.col("verdict")))
    for *place, verdict, again in rows.select(*texts, "verdict", "again").iter_rows():
        yield f"{name}: {', '.join(filter(None, place))}: {verdict} became {again}"


def receipt_record(
    record: RunRecord, table: pl.DataFrame, again: ScoredAgain, verdicts: Verdicts, engine: Engine, seed: int, made: str
) -> ReceiptRecord:
    """Return the record of a receipt from its table, schemas.RECEIPT."""
    drift = table["drift_nats"].to_numpy()
    assert record.scores is not None, "the run was scored"
    return ReceiptRecord(
        scores=record.scores.fingerprint,
        made=made,
        seed=seed,
        engine=engine.facts,
        threads=_threads(engine.facts.name),
        batch_invariant=engine.facts.name == "vllm" and os.environ.get("VLLM_BATCH_INVARIANT") == "1",
        prompts=table.height,
        batches=again.n_batches,
        max_drift_nats=float(drift.max()),
        p99_drift_nats=float(np.quantile(drift, 0.99)),
        p95_drift_nats=float(np.quantile(drift, 0.95)),
        median_drift_nats=float(np.median(drift)),
        predictions=table["pred"].count(),
        flipped=table.filter(pl.col("pred") != pl.col("pred_again")).height,
        verdicts=verdicts.n_verdicts,
        changed_verdicts=verdicts.changed,
    )


def _threads(engine: str) -> int | None:
    """Return the number of threads that a model computes with on a CPU; None without a model."""
    if engine in ENGINES and not ENGINES[engine].runs_a_model:
        return None
    import torch

    return int(torch.get_num_threads())
