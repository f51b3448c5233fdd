"""Token rows and an engine go in; score shards come out, one after the other, each of them kept.

A shard is a pure function of its rows: which rows belong to it depends on the tokens alone, and an engine carries
nothing from one call to the next. So a run that was killed and started again writes the same bytes as one never killed.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from evaluator.engine.base import ContinuationRequest, ContinuationScores, Engine
from evaluator.files import read_json, write_json
from evaluator.progress import Progress, Stage
from evaluator.schemas import HIDDEN_STATES, SCORES
from evaluator.scores.checks import require_finite, require_finite_states
from evaluator.store import shards
from evaluator.tokens.table import ragged
from evaluator_kernels.shared_prefix import shared_prefix_lengths

STEPS_PER_SHARD = 64
"""Forward passes a shard holds: so few that a kill loses little, so many that an emptied cache costs little."""

CLOSES_FROM = 0.75
"""Of its size, from where on a shard looks for a place to close."""

SECONDS_BETWEEN_REPORTS = 0.1

STATES = "hidden_states"
"""What the names of shards of hidden states begin with."""


@dataclass(frozen=True)
class ScoreTable:
    """Scores on disk; complete once every planned shard is there."""

    folder: Path
    manifest: dict[str, Any]

    def scores(self) -> pl.LazyFrame:
        """schemas.SCORES of every finished shard."""
        names = sorted(name for name in self.manifest["shards"] if not name.startswith(STATES))
        return shards.scan_shards(self.folder, names, SCORES)

    def states(self) -> pl.LazyFrame:
        """schemas.HIDDEN_STATES of every finished shard."""
        names = sorted(name for name in self.manifest["shards"] if name.startswith(STATES))
        return shards.scan_shards(self.folder, names, HIDDEN_STATES)

    def totals(self) -> dict[str, float]:
        """Prompts, tokens and seconds over all shards, whichever process wrote them."""
        written = self.manifest["shards"].values()
        total = {key: sum(shard[key] for shard in written) for key in ("prompts", *TOKEN_COUNTS, "elapsed_s")}
        total["computed_tokens"] = total["prompt_tokens"] - total["cached_tokens"]
        total["tokens_per_s"] = total["prompt_tokens"] / total["elapsed_s"] if total["elapsed_s"] else 0.0
        return total


TOKEN_COUNTS = ("prompt_tokens", "cached_tokens")


def score_prompts(
    tokens: pl.DataFrame, engine: Engine, folder: Path, *, identity: dict[str, Any], name: str = "scores"
) -> Stage[ScoreTable]:
    """Score what is missing in `folder` and return the whole.

    Args:
        tokens: schemas.TOKENS, in prefix order, of prompts that ask for log-likelihoods.
        engine: a loaded engine.
        folder: where the shards of this model, engine and store live.
        identity: what made these scores; kept in the manifest.
        name: of these rows' shards, where a folder is filled in several calls with rows of their own.
    """
    clock = _Clock(engine, "Scoring")
    return (yield from _fill(tokens, folder, _scored, clock, identity=identity, name=name))


def compute_hidden_states(
    tokens: pl.DataFrame, engine: Engine, folder: Path, *, identity: dict[str, Any]
) -> Stage[ScoreTable]:
    """As score_prompts, for prompts that ask for the hidden state at their end."""
    clock = _Clock(engine, "Computing hidden states")
    return (yield from _fill(tokens, folder, _with_states, clock, identity=identity, name=STATES))


def _fill(
    tokens: pl.DataFrame, folder: Path, answer: "_Answer", clock: "_Clock", *, identity: dict[str, Any], name: str
) -> Stage[ScoreTable]:
    """Have the shards of these rows answered that are not there yet."""
    facts = clock.engine.facts
    plan = shard_plan(
        tokens,
        name,
        shard_tokens=STEPS_PER_SHARD * facts.tokens_per_step,
        shares_prefixes=facts.prefix_block_tokens is not None,
    )
    table = open_scores(folder) or ScoreTable(folder, {"identity": identity, "shards": {}})
    others = [shard for shard in table.manifest["shards"] if shard not in plan]
    table = ScoreTable(folder, table.manifest | {"n_shards": len(others) + len(plan)})
    done = [entry["prompts"] for shard, entry in table.manifest["shards"].items() if shard in plan]
    clock.start(done_before=sum(done), total=tokens.height)
    for shard_name, rows in plan.items():
        if shard_name not in table.manifest["shards"]:
            clock.start_shard()
            frame = yield from answer(tokens.slice(*rows), clock)
            table = _append(table, shard_name, frame, clock)
    yield clock.progress()
    return table


def shard_plan(
    tokens: pl.DataFrame, name: str = "scores", *, shard_tokens: int, shares_prefixes: bool
) -> dict[str, tuple[int, int]]:
    """Shard name -> (first row, number of rows); no row begins beyond the first `shard_tokens` tokens of its shard.

    Counted are tokens that are computed: where prefixes are shared, those that a row does not share with the one
    before. A shard closes in its last quarter, where the next row shares least with the one before: each shard begins
    with an empty cache, and whatever prefix is cut through there is computed twice.
    """
    if tokens.is_empty():
        return {}
    stems = pl.col("continuations").list.eval(pl.element().list.len() - 1).list.sum()
    fed = tokens.select(pl.col("context").list.len().cast(pl.Int64) + stems.cast(pl.Int64)).to_series().to_numpy()
    shared = shared_prefix_lengths(*ragged(tokens.select(_fed_first()).to_series()))
    computed = np.maximum(fed - shared, 1) if shares_prefixes else fed  # of what is shared whole, the last token
    before = computed.cumsum() - computed  # tokens of all rows in front of each
    starts = [0]
    while (full := int(np.searchsorted(before, before[starts[-1]] + shard_tokens))) < tokens.height:
        late = int(np.searchsorted(before, before[starts[-1]] + CLOSES_FROM * shard_tokens))
        candidates = slice(max(late, starts[-1] + 1), full + 1)
        starts.append(candidates.start + int(shared[candidates].argmin()))
    spans = pairwise([*starts, tokens.height])
    return {f"{name}-{number:05d}.arrow": (start, end - start) for number, (start, end) in enumerate(spans)}


def _fed_first() -> pl.Expr:
    """Return the tokens of each row that are fed at once: its context and, of a text or lone continuation, the rest."""
    is_one_text = (pl.col("ask") == "text") | (pl.col("continuations").list.len() == 1)
    rest = pl.when(is_one_text).then(pl.col("continuations").list.first())
    return pl.concat_list("context", rest.fill_null([]))


def engine_requests(tokens: pl.DataFrame) -> list[ContinuationRequest]:
    """One request a row: its continuations, then the last token of each that has several (for `released`)."""
    rows = zip(tokens["context"].to_list(), tokens["continuations"].to_list(), strict=True)
    return [
        ContinuationRequest(context, [*labels, *([label[-1]] for label in labels if len(label) > 1)])
        for context, labels in rows
    ]


def score_frame(tokens: pl.DataFrame, answers: Sequence[list[list[float]]]) -> pl.DataFrame:
    """Token log-probabilities, one answer a row of `tokens`, as schemas.SCORES. Raises ScoreError when not finite."""
    labels = [answer[:n] for answer, n in zip(answers, tokens["continuations"].list.len(), strict=True)]
    extras = (iter(answer[len(row) :]) for answer, row in zip(answers, labels, strict=True))
    frame = pl.DataFrame(
        {
            "prompt_id": tokens["prompt_id"],
            "label_log_likelihoods": [[sum(label) for label in row] for row in labels],
            "last_token_log_probs": [
                [label[0] if len(label) == 1 else next(last)[0] for label in row]
                for row, last in zip(labels, extras, strict=True)
            ],
            "label_token_counts": [[len(label) for label in row] for row in labels],
        },
        schema=SCORES,
    )
    require_finite(frame)
    return frame


def open_scores(folder: Path) -> ScoreTable | None:
    """The scores in this folder, without the shards that are missing or changed; None where there are none."""
    manifest = read_json(folder / shards.MANIFEST)
    if manifest is None:
        return None
    kept = {name: shard for name, shard in manifest["shards"].items() if shards.intact(folder, {name: shard["sha256"]})}
    return ScoreTable(folder, manifest | {"shards": kept})


class _Clock:
    """What this process has done so far: prompts, tokens and seconds."""

    def __init__(self, engine: Engine, stage: str) -> None:
        self.engine, self.stage = engine, stage
        self.start(done_before=0, total=0)

    def start(self, *, done_before: int, total: int) -> None:
        self.done_before, self.total = done_before, total
        self.prompts = 0  # in finished shards
        self.started = time.monotonic()
        self.started_counts = self.counts()

    def counts(self) -> dict[str, int]:
        counts = asdict(self.engine.counts)
        return {key: counts[key] for key in TOKEN_COUNTS}

    def start_shard(self) -> None:
        self.shard_started, self.shard_counts = time.monotonic(), self.counts()

    def end_shard(self, prompts: int) -> dict[str, Any]:
        self.prompts += prompts
        spent = {key: count - self.shard_counts[key] for key, count in self.counts().items()}
        return {"prompts": prompts, **spent, "elapsed_s": round(time.monotonic() - self.shard_started, 3)}

    def progress(self, in_shard: int = 0) -> Progress:
        counts = {key: count - self.started_counts[key] for key, count in self.counts().items()}
        sent = counts["prompt_tokens"]
        elapsed = time.monotonic() - self.started
        here = self.prompts + in_shard
        left = self.total - self.done_before - here
        return Progress(
            stage=self.stage,
            done=self.done_before + here,
            total=self.total,
            unit="prompts",
            tokens_per_s=sent / elapsed if elapsed > 0 else None,
            cached_share=counts["cached_tokens"] / sent if sent else None,
            # The first answers of a process wait for a whole batch and say little about the rest.
            seconds_left=elapsed / here * left if here and elapsed > 1 else None,
        )


_Answer = Callable[[pl.DataFrame, _Clock], Stage[pl.DataFrame]]


def _scored(shard: pl.DataFrame, clock: _Clock) -> Stage[pl.DataFrame]:
    answers: list[list[list[float]]] = [[]] * shard.height
    reported = 0.0
    given = _each_once(clock.engine.log_likelihoods(engine_requests(shard)), shard.height)
    for done, answer in enumerate(given, start=1):
        answers[answer.index] = answer.token_log_probs
        if time.monotonic() - reported > SECONDS_BETWEEN_REPORTS:
            reported = time.monotonic()
            yield clock.progress(in_shard=done)
    return score_frame(shard, answers)


def _with_states(shard: pl.DataFrame, clock: _Clock) -> Stage[pl.DataFrame]:
    yield clock.progress()
    states = clock.engine.hidden_states(shard["context"].to_list())
    flat = pl.Series(states, dtype=pl.Array(pl.Float32, states.shape[1]))
    frame = pl.DataFrame({"prompt_id": shard["prompt_id"], "hidden_state": flat}).cast(HIDDEN_STATES)
    require_finite_states(frame)
    return frame


def _each_once(answers: Iterator[ContinuationScores], expected: int) -> Iterator[ContinuationScores]:
    seen = set()
    for answer in answers:
        assert answer.index not in seen, f"the engine answered request {answer.index} twice"
        seen.add(answer.index)
        yield answer
    assert len(seen) == expected, f"the engine answered {len(seen)} of {expected} requests"


def _append(table: ScoreTable, name: str, frame: pl.DataFrame, clock: _Clock) -> ScoreTable:
    entry = {"sha256": shards.write_shard(table.folder / name, frame), **clock.end_shard(frame.height)}
    manifest = table.manifest | {"shards": table.manifest["shards"] | {name: entry}}
    write_json(table.folder / shards.MANIFEST, manifest)
    return ScoreTable(table.folder, manifest)
