"""Token rows and an engine go in; score shards come out, one after the other, each of them kept.

A shard is a pure function of its rows: which rows belong to it depends on the tokens alone, and an engine carries
nothing from one call to the next. So a run that was killed and started again writes the same bytes as one never killed.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import polars as pl

from evaluator.engine.base import ContinuationRequest, ContinuationScores, Engine
from evaluator.progress import Progress, Stage
from evaluator.schemas import SCORES
from evaluator.scores.checks import require_finite
from evaluator.store import shards

STEPS_PER_SHARD = 64
"""Forward passes a shard holds: so few that a kill loses little, so many that an emptied cache costs little."""

SECONDS_BETWEEN_REPORTS = 0.1


@dataclass(frozen=True)
class ScoreTable:
    """Scores on disk; complete once every planned shard is there."""

    folder: Path
    manifest: dict[str, Any]

    def scores(self) -> pl.LazyFrame:
        """The scores of every finished shard."""
        return shards.scan_shards(self.folder, sorted(self.manifest["shards"]), SCORES)

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
        tokens: schemas.TOKENS, in prefix order.
        engine: a loaded engine.
        folder: where the shards of this model, engine and store live.
        identity: what made these scores; kept in the manifest.
        name: of these rows' shards, where a folder is filled in several calls with rows of their own.
    """
    plan = shard_plan(tokens, name, shard_tokens=STEPS_PER_SHARD * engine.facts.tokens_per_step)
    table = open_scores(folder) or ScoreTable(folder, {"identity": identity, "shards": {}})
    others = [shard for shard in table.manifest["shards"] if shard not in plan]
    table = ScoreTable(folder, table.manifest | {"n_shards": len(others) + len(plan)})
    done = {shard: entry["prompts"] for shard, entry in table.manifest["shards"].items()}
    earlier = sum(done[shard] for shard in others)
    clock = _Clock(engine, done_before=sum(done.values()), total=earlier + tokens.height)
    for shard_name, rows in plan.items():
        if shard_name not in table.manifest["shards"]:
            shard = tokens.slice(*rows)
            answers = yield from _score_shard(shard, engine, clock)
            table = _append(table, shard_name, score_frame(shard, answers), clock)
    yield clock.progress()
    return table


def shard_plan(tokens: pl.DataFrame, name: str = "scores", *, shard_tokens: int) -> dict[str, tuple[int, int]]:
    """Shard name -> (first row, number of rows); a shard closes once it holds `shard_tokens` context tokens."""
    lengths = tokens.select(pl.col("context").list.len().cast(pl.Int64))
    cut = lengths.select(number=(pl.col("context").cum_sum() - pl.col("context")) // shard_tokens)
    sizes = cut.group_by("number").len().sort("number")
    starts = sizes["len"].cum_sum() - sizes["len"]
    spans = zip(starts.to_list(), sizes["len"].to_list(), strict=True)
    return {f"{name}-{number:05d}.arrow": span for number, span in enumerate(spans)}


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
    manifest = shards.read_json(folder / shards.MANIFEST)
    if manifest is None:
        return None
    kept = {name: shard for name, shard in manifest["shards"].items() if shards.intact(folder, {name: shard["sha256"]})}
    return ScoreTable(folder, manifest | {"shards": kept})


class _Clock:
    """What this process has done so far: prompts, tokens and seconds."""

    def __init__(self, engine: Engine, *, done_before: int, total: int) -> None:
        self.engine = engine
        self.done_before, self.total = done_before, total
        self.prompts = 0  # in finished shards
        self.started = time.monotonic()
        self.start_shard()

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
        counts = self.engine.counts
        elapsed = time.monotonic() - self.started
        here = self.prompts + in_shard
        left = self.total - self.done_before - here
        return Progress(
            stage="Scoring",
            done=self.done_before + here,
            total=self.total,
            unit="prompts",
            tokens_per_s=counts.prompt_tokens / elapsed if elapsed > 0 else None,
            cached_share=counts.cached_tokens / counts.prompt_tokens if counts.prompt_tokens else None,
            # The first answers of a process wait for a whole batch and say little about the rest.
            seconds_left=elapsed / here * left if here and elapsed > 1 else None,
        )


def _score_shard(shard: pl.DataFrame, engine: Engine, clock: _Clock) -> Stage[list[list[list[float]]]]:
    clock.start_shard()
    answers: list[list[list[float]]] = [[]] * shard.height
    reported = 0.0
    for done, answer in enumerate(_each_once(engine.log_likelihoods(engine_requests(shard)), shard.height), start=1):
        answers[answer.index] = answer.token_log_probs
        if time.monotonic() - reported > SECONDS_BETWEEN_REPORTS:
            reported = time.monotonic()
            yield clock.progress(in_shard=done)
    return answers


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
    shards.write_json(table.folder / shards.MANIFEST, manifest)
    return ScoreTable(table.folder, manifest)
