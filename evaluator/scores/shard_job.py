"""Compute one shard with an engine, in the process that has the engine."""

import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from evaluator.engine.base import ContinuationRequest, Engine, adapted
from evaluator.engine.replicas import Job
from evaluator.errors import ScoreError
from evaluator.files.digests import list_fingerprint
from evaluator.models.adapters import Adapter
from evaluator.run_log import seconds_since
from evaluator.schemas import TOKEN_SCORES, TOKEN_STATES
from evaluator.scores.checks import require_finite, require_finite_states
from evaluator.scores.plan import request_starts
from evaluator.scores.table import Kind
from evaluator.tokens.rows import TokenRows

SECONDS_BETWEEN_REPORTS = 0.5  # to another process each costs a message

SECONDS_BETWEEN_KEPT = 60.0
"""How long the answers of a shard may be in memory alone: so much a run that is stopped can lose."""


Kept = Mapping[str, Any]
"""Answers of a shard that is not finished, as JSON holds them: `answers` by request, `rows` that were asked, counts."""


class ShardUpdate(NamedTuple):
    """How much of a shard is computed."""

    shard: str
    replica: int  # that computes it
    prompts: int
    prompt_tokens: int
    cached_tokens: int
    elapsed_s: float
    frame: pl.DataFrame | None = None  # schemas.TOKEN_SCORES or TOKEN_STATES of all rows, in the last update
    kept: Kept | None = None  # what the shard_job that goes on from here is given


def shard_job(
    name: str, kind: Kind, rows: TokenRows, size: float, adapter: Adapter | None = None, kept: Kept | None = None
) -> Job:
    """Return the job that computes a shard and yields `ShardUpdate`s.

    Args:
        name: of the shard.
        kind: what is computed.
        rows: all that belong to the shard, which are read when it is computed or sent.
        size: tokens that it computes, about.
        adapter: that it computes with; None for the base model.
        kept: the last `ShardUpdate.kept` of a job that was stopped; of other rows, it is ignored.
    """
    if kind == "states":
        return Job(name, size, _compute_states, (name, rows, adapter))
    return Job(name, size, _score_shard, (name, rows, adapter, kept or {}))


def _score_shard(
    loaded: Engine, replica: int, name: str, tokens: TokenRows, adapter: Adapter | None, kept: Kept
) -> Iterator[ShardUpdate]:
    engine, rows = adapted(loaded, adapter), tokens.frame()
    requests, identity = engine_requests(rows), list_fingerprint([rows["token_id"]])
    kept = kept if kept.get("rows") == identity else {}
    meter = _Meter(engine, replica, name, kept)
    answers: dict[int, list[list[float]]] = dict(kept.get("answers", ()))
    left = [index for index in range(len(requests)) if index not in answers]
    reported, written = 0.0, time.monotonic()
    for answer in engine.log_likelihoods([requests[index] for index in left]):
        if (index := left[answer.index]) in answers:
            raise ScoreError(f"The engine answered request {index} of {name} twice.")
        answers[index] = answer.token_log_probs
        now = time.monotonic()
        if now - written > SECONDS_BETWEEN_KEPT:
            written = now
            yield meter.update(len(answers), kept={"rows": identity, "answers": [*answers.items()]})
        elif now - reported > SECONDS_BETWEEN_REPORTS:
            reported = now
            yield meter.update(len(answers))
    if len(answers) < len(requests):
        raise ScoreError(f"The engine answered {len(answers)} of {len(requests)} requests of {name}.")
    frame = score_frame(rows, [answers[index] for index in range(len(requests))])
    yield meter.update(len(requests), frame)


def _compute_states(
    loaded: Engine, replica: int, name: str, tokens: TokenRows, adapter: Adapter | None
) -> Iterator[ShardUpdate]:
    engine, rows = adapted(loaded, adapter), tokens.frame()
    meter = _Meter(engine, replica, name)
    yield meter.update(0)
    states = engine.hidden_states(rows["context"].to_list())
    flat = pl.Series(states, dtype=pl.Array(pl.Float32, states.shape[1]))
    frame = pl.DataFrame({"token_id": rows["token_id"], "hidden_state": flat}).cast(TOKEN_STATES)
    require_finite_states(frame.with_columns(rows["prompt_id"]))
    yield meter.update(len(request_starts(rows)), frame)


class _Meter:
    """Measures the tokens and seconds that a shard takes, with those before it was stopped."""

    def __init__(self, engine: Engine, replica: int, name: str, kept: Kept | None = None) -> None:
        self.engine, self.replica, self.name = engine, replica, name
        spent = {"prompt_tokens": 0, "cached_tokens": 0, "elapsed_s": 0.0} | dict(kept or {})
        self.started = time.monotonic() - spent["elapsed_s"]
        self.sent_before = engine.counts.prompt_tokens - spent["prompt_tokens"]
        self.cached_before = engine.counts.cached_tokens - spent["cached_tokens"]

    def update(self, prompts: int, frame: pl.DataFrame | None = None, kept: Kept | None = None) -> ShardUpdate:
        spent = {
            "prompt_tokens": self.engine.counts.prompt_tokens - self.sent_before,
            "cached_tokens": self.engine.counts.cached_tokens - self.cached_before,
            "elapsed_s": seconds_since(self.started),
        }
        return ShardUpdate(self.name, self.replica, prompts, **spent, frame=frame, kept=kept and {**kept, **spent})


def engine_requests(tokens: pl.DataFrame) -> list[ContinuationRequest]:
    """Return one request per context, with the continuations of all its rows in order."""
    contexts, continuations = tokens["context"].to_list(), tokens["continuations"].to_list()
    bounds = pairwise([*request_starts(tokens).tolist(), tokens.height])
    return [
        ContinuationRequest(contexts[start], list(chain.from_iterable(continuations[start:end])))
        for start, end in bounds
    ]


def score_frame(tokens: pl.DataFrame, answers: Sequence[list[list[float]]]) -> pl.DataFrame:
    """Return schemas.TOKEN_SCORES from token log-probabilities.

    Args:
        tokens: schemas.TOKENS.
        answers: log-probabilities in nats, [request][continuation][token], in the order of engine_requests(tokens).

    Raises:
        ScoreError: a sum that is not finite.
    """
    # Requests join the continuations of several rows; group_by deals them out to the rows again.
    sums = [sum(continuation) for request in answers for continuation in request]
    counts = [len(continuation) for request in answers for continuation in request]
    rows = tokens["continuations"].list.len().to_numpy()
    flat = pl.DataFrame(
        {"row": np.arange(len(rows)).repeat(rows), "log_likelihoods": sums, "token_counts": counts},
        schema_overrides={"log_likelihoods": pl.Float64},
    )
    lists = flat.group_by("row", maintain_order=True).agg("log_likelihoods", "token_counts")
    frame = lists.select(tokens["token_id"], "log_likelihoods", "token_counts").cast(TOKEN_SCORES)
    require_finite(frame.with_columns(tokens["prompt_id"]))
    return frame
