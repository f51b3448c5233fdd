"""Scores on disk, stored by model and engine and by the tokens that they were computed from.

    scores/<model and engine>/<rows>/manifest.json and shards

Each set of rows that a run needs has its own folder below that of its model and engine. A plan states which shards of
other folders already hold scores of some rows, and cuts the remaining rows into shards. The plan is written before the
engine is used, and a shard is a pure function of its rows: which rows belong to it depends on the tokens and the plan
alone, and an engine carries nothing from one call to the next. So a run that was killed and restarted writes the same
bytes.
"""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain, pairwise
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from evaluator.engine.base import ContinuationRequest, Engine, EngineFacts
from evaluator.engine.loader import EngineLoader
from evaluator.files import MANIFEST, fingerprint, read_record, write_record
from evaluator.progress import Progress, Stage
from evaluator.schemas import LABEL_DISTANCES, TOKEN_SCORES, TOKEN_STATES
from evaluator.scores.checks import require_finite, require_finite_states
from evaluator.store import shards
from evaluator.tokens.table import ragged
from evaluator_kernels.shared_prefix import shared_prefix_lengths

Kind = Literal["scores", "states"]
"""What a shard holds: log-likelihoods or hidden states. Names of plans and shards begin with it."""

STAGE_NAMES: dict[Kind, str] = {"scores": "Scoring", "states": "Computing hidden states"}
SCHEMAS: dict[str, pl.Schema] = {"scores": TOKEN_SCORES, "states": TOKEN_STATES}

STEPS_PER_SHARD = (
    64  # forward passes: few, so that a kill loses little; enough, so that starting with an empty cache costs little
)
SHARD_CUT_WINDOW = 0.75  # a shard may close in the last quarter of its size, where the shared prefix is shortest
SECONDS_BETWEEN_REPORTS = 0.1
TOKEN_COUNTS = ("prompt_tokens", "cached_tokens")


@dataclass(frozen=True, kw_only=True)
class ShardRecord:
    """One finished shard, with its tokens and time."""

    sha256: str
    prompts: int
    prompt_tokens: int
    cached_tokens: int
    elapsed_s: float


@dataclass(frozen=True, kw_only=True)
class PlanRecord:
    """How one set of rows gets its scores: from shards of earlier runs and from new shards."""

    reused: dict[str, str]  # path below the folder of the model and engine -> SHA-256
    prompts: int  # scored by this plan
    reused_prompts: int
    n_shards: int  # into which these prompts are cut
    shard_tokens: int
    shares_prefixes: bool


@dataclass(frozen=True, kw_only=True)
class ScoreManifest:
    """manifest.json of one folder of scores."""

    engine: EngineFacts | None = None  # None: all rows have scores from earlier runs
    plans: dict[str, PlanRecord] = field(default_factory=dict)
    shards: dict[str, ShardRecord] = field(default_factory=dict)
    distances: dict[str, str] = field(default_factory=dict)  # method -> SHA-256 of its file


@dataclass(frozen=True)
class ScoreTable:
    """Scores of one set of rows; shards are verified when it is opened. Complete once every plan is."""

    folder: Path
    manifest: ScoreManifest

    @property
    def name(self) -> str:
        """Path of the folder below scores/."""
        return f"{self.folder.parent.name}/{self.folder.name}"

    def read(self, kind: Kind) -> pl.LazyFrame:
        """Return TOKEN_SCORES or TOKEN_STATES, each row once: from all finished shards, then from reused ones."""
        files = [self.folder / name for name in sorted(self.manifest.shards) if name.startswith(kind)]
        reused = {name for key, plan in self.manifest.plans.items() if key.startswith(kind) for name in plan.reused}
        files += [self.folder.parent / name for name in sorted(reused)]
        if not files:
            return pl.LazyFrame(schema=SCHEMAS[kind])
        rows = pl.concat([pl.scan_ipc(file) for file in files])
        return rows.unique("token_id", keep="first", maintain_order=True) if reused else rows

    def digests(self) -> list[str]:
        """Return the SHA-256 of every shard that these scores are read from."""
        reused = [sha256 for plan in self.manifest.plans.values() for sha256 in plan.reused.values()]
        return sorted({*reused, *(shard.sha256 for shard in self.manifest.shards.values())})

    def distances(self) -> pl.LazyFrame:
        """Return schemas.LABEL_DISTANCES of all methods that have any."""
        files = [self.folder / distances_file(method) for method in sorted(self.manifest.distances)]
        return pl.concat([pl.LazyFrame(schema=LABEL_DISTANCES), *(pl.scan_ipc(file) for file in files)])

    def totals(self) -> dict[str, float]:
        """Return prompts, tokens and seconds over all shards of this folder, whichever process wrote them."""
        written = self.manifest.shards.values()
        total: dict[str, float] = {
            key: sum(getattr(shard, key) for shard in written) for key in ("prompts", *TOKEN_COUNTS, "elapsed_s")
        }
        total["reused_prompts"] = sum(plan.reused_prompts for plan in self.manifest.plans.values())
        return total

    def with_manifest(self, manifest: ScoreManifest) -> "ScoreTable":
        """Write the manifest and return the table with it."""
        write_record(self.folder / MANIFEST, manifest)
        return ScoreTable(self.folder, manifest)


def open_scores(folder: Path) -> ScoreTable:
    """Open the scores in a folder, leaving out shards that are missing or changed; without scores, an empty table.

    A plan stays without the reused shards that are missing or changed; their rows are planned again.
    """
    manifest = read_record(folder / MANIFEST, ScoreManifest) or ScoreManifest()
    kept = {name: shard for name, shard in manifest.shards.items() if shards.intact(folder, {name: shard.sha256})}
    reused = {name: sha256 for plan in manifest.plans.values() for name, sha256 in plan.reused.items()}
    intact = {name for name, sha256 in reused.items() if shards.intact(folder.parent, {name: sha256})}
    plans = {
        key: replace(plan, reused={name: sha256 for name, sha256 in plan.reused.items() if name in intact})
        for key, plan in manifest.plans.items()
    }
    distances = {
        method: sha256
        for method, sha256 in manifest.distances.items()
        if shards.intact(folder, {distances_file(method): sha256})
    }
    return ScoreTable(folder, replace(manifest, plans=plans, shards=kept, distances=distances))


@dataclass(frozen=True)
class Plan:
    """The rows of one set that remain to be computed."""

    key: str
    record: PlanRecord
    rows: pl.DataFrame  # schemas.TOKENS without scores in reused shards, each token_id once, in prefix order

    @property
    def kind(self) -> Kind:
        return "states" if self.key.startswith("states") else "scores"

    def shards(self) -> dict[str, tuple[int, int]]:
        """Return shard name -> (first row, number of rows)."""
        return shard_plan(
            self.rows, self.key, shard_tokens=self.record.shard_tokens, shares_prefixes=self.record.shares_prefixes
        )


def plan_rows(tokens: pl.DataFrame, table: ScoreTable, kind: Kind) -> Plan:
    """Plan how these rows get their scores: as planned before, or from all shards of the model and engine.

    Nothing is written. A plan that is not in the manifest has no shard size yet.

    Args:
        tokens: schemas.TOKENS, in prefix order.
        table: scores of these rows.
        kind: what is computed.
    """
    rows = tokens.unique("token_id", keep="first", maintain_order=True)
    key = f"{kind}-{fingerprint(rows['token_id'].to_list())[:8]}"
    planned = table.manifest.plans.get(key)
    files = dict(planned.reused) if planned else _other_shards(table, kind, key)
    # Which file holds which token_id; the first file by name where several hold it.
    holders = [pl.scan_ipc(table.folder.parent / name).select("token_id", file=pl.lit(name)) for name in sorted(files)]
    scored = pl.concat([pl.LazyFrame(schema={"token_id": pl.String(), "file": pl.String()}), *holders])
    reused = (
        rows.lazy().select("token_id").join(scored.unique("token_id", keep="first", maintain_order=True), on="token_id")
    ).collect()
    missing = rows.join(reused, on="token_id", how="anti", maintain_order="left")
    if planned:
        return Plan(key, planned, missing)
    record = PlanRecord(
        reused={name: files[name] for name in reused["file"].unique().sort()},
        prompts=n_requests(missing),
        reused_prompts=reused.height,
        n_shards=0,
        shard_tokens=0,
        shares_prefixes=False,
    )
    return Plan(key, record, missing)


def _other_shards(table: ScoreTable, kind: Kind, key: str) -> dict[str, str]:
    """Return the model and engine's intact shards of this kind, without those of this plan: path -> SHA-256.

    Folders are read in the order of their names, so that a plan does not depend on file times.
    """
    others: dict[str, str] = {}
    for path in sorted(table.folder.parent.glob(f"*/{MANIFEST}")):
        in_table = path.parent == table.folder  # verified when the table was opened
        manifest = table.manifest if in_table else read_record(path, ScoreManifest)
        for name, shard in sorted((manifest.shards if manifest else {}).items()):
            fits = name.startswith(kind) and not (in_table and name.startswith(key))
            if fits and (in_table or shards.intact(path.parent, {name: shard.sha256})):
                others[f"{path.parent.name}/{name}"] = shard.sha256
    return others


def score_rows(tokens: pl.DataFrame, table: ScoreTable, loader: EngineLoader, kind: Kind) -> Stage[ScoreTable]:
    """Compute the scores or states that are missing, and return the complete table.

    The engine is loaded only if something is missing.

    Args:
        tokens: schemas.TOKENS, in prefix order; with continuations for scores, without for states.
        table: scores of these rows.
        loader: of the engine that the table belongs to.
        kind: what is computed.
    """
    if tokens.is_empty():
        return table
    plan = plan_rows(tokens, table, kind)
    if plan.record.reused_prompts:
        yield Progress(
            stage="Reused from earlier runs",
            done=plan.record.reused_prompts,
            total=plan.record.reused_prompts + plan.record.prompts,
            unit="prompts",
        )
    if plan.key not in table.manifest.plans or not table.manifest.plans[plan.key].shard_tokens:
        table, plan = yield from _write_plan(plan, table, loader)
    cut = plan.shards()
    missing = {name: rows for name, rows in cut.items() if name not in table.manifest.shards}
    if missing:
        engine = yield from loader.load()
        clock = _Clock(engine, STAGE_NAMES[kind])
        clock.start(done_before=_n_finished(table, cut), total=n_requests(plan.rows))
        for name, (first, n_rows) in missing.items():
            clock.start_shard()
            rows = plan.rows.slice(first, n_rows)
            frame = yield from (_score_shard if kind == "scores" else _compute_states)(rows, clock)
            table = _write_shard(table, name, frame, clock, n_requests(rows))
        yield clock.progress()
    elif plan.record.prompts:
        yield Progress(stage=STAGE_NAMES[kind], done=plan.record.prompts, total=plan.record.prompts, unit="prompts")
    # A reused shard that was removed or damaged since the plan was made leaves rows to be planned again.
    lost = tokens.join(table.read(kind).select("token_id").collect(), on="token_id", how="anti", maintain_order="left")
    return (yield from score_rows(lost, table, loader, kind)) if lost.height else table


def _write_plan(plan: Plan, table: ScoreTable, loader: EngineLoader) -> Stage[tuple[ScoreTable, Plan]]:
    """Complete a new plan with the engine's step size, if the engine is needed, and write it."""
    record, manifest = plan.record, table.manifest
    if plan.rows.height:
        engine = yield from loader.load()
        manifest = replace(manifest, engine=manifest.engine or engine.facts)
        record = replace(
            record,
            shard_tokens=STEPS_PER_SHARD * engine.facts.tokens_per_step,
            shares_prefixes=engine.facts.prefix_block_tokens is not None,
        )
        record = replace(record, n_shards=len(replace(plan, record=record).shards()))
    table = table.with_manifest(replace(manifest, plans=manifest.plans | {plan.key: record}))
    return table, replace(plan, record=record)


def _n_finished(table: ScoreTable, cut: dict[str, tuple[int, int]]) -> int:
    """Return the number of prompts in finished shards of a plan."""
    return sum(shard.prompts for name, shard in table.manifest.shards.items() if name in cut)


def shard_plan(
    tokens: pl.DataFrame, name: str = "scores", *, shard_tokens: int, shares_prefixes: bool
) -> dict[str, tuple[int, int]]:
    """Cut rows into shards: name -> (first row, number of rows).

    No request begins after the first `shard_tokens` computed tokens of its shard; with shared prefixes, tokens that a
    request shares with the previous one are not computed. A shard ends in its last quarter, at the request that shares
    least with the previous one: each shard begins with an empty cache, so a prefix that is cut is computed twice.
    """
    if tokens.is_empty():
        return {}
    starts_at = request_starts(tokens)  # rows of one request stay together
    # Tokens fed for each request: its context, and its continuations without their last tokens.
    stems = pl.col("continuations").list.eval(pl.element().list.len() - 1).list.sum().cast(pl.Int64)
    in_row = tokens.select(stems).to_series().to_numpy()
    lengths = tokens["context"].list.len().cast(pl.Int64).to_numpy()[starts_at]
    fed = lengths + np.add.reduceat(in_row, starts_at)
    shared = shared_prefix_lengths(*ragged(tokens.select(_fed_first()).to_series()))[starts_at]
    computed = np.maximum(fed - shared, 1) if shares_prefixes else fed  # at least the last token
    before = computed.cumsum() - computed  # tokens of all earlier requests
    starts = [0]  # first request of each shard
    while (full := int(np.searchsorted(before, before[starts[-1]] + shard_tokens))) < len(starts_at):
        late = int(np.searchsorted(before, before[starts[-1]] + SHARD_CUT_WINDOW * shard_tokens))
        # Of the requests in the last quarter of the shard, the one that shares least begins the next shard.
        candidates = slice(max(late, starts[-1] + 1), full + 1)
        starts.append(candidates.start + int(shared[candidates].argmin()))
    spans = pairwise([*starts_at[starts].tolist(), tokens.height])
    return {f"{name}-{number:05d}.arrow": (start, end - start) for number, (start, end) in enumerate(spans)}


def _fed_first() -> pl.Expr:
    """Return the tokens fed first for each row: its context, and its continuation if it has exactly one."""
    only_one = pl.when(pl.col("continuations").list.len() == 1).then(pl.col("continuations").list.first())
    return pl.concat_list("context", only_one.fill_null([]))


def request_starts(tokens: pl.DataFrame) -> npt.NDArray[np.int64]:
    """Return the first row of each request: labels and last tokens after the same context form one request.

    Args:
        tokens: schemas.TOKENS in prefix order, so that equal contexts are neighbours.
    """
    if tokens.is_empty():
        return np.empty(0, np.int64)
    joins = tokens["ask"].is_in(["labels", "last_tokens"]).to_numpy()
    context = tokens["context"]
    # A context equals the previous one if both have the same length and share all tokens.
    same = (shared_prefix_lengths(*ragged(context)) == context.list.len().to_numpy()) & (
        context.list.len() == context.list.len().shift(1)
    ).fill_null(False).to_numpy()
    same[1:] &= joins[1:] & joins[:-1]
    same[0] = False
    return np.flatnonzero(~same)


def n_requests(tokens: pl.DataFrame) -> int:
    """Return the number of requests in these rows, which progress and totals count as prompts."""
    return len(request_starts(tokens))


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
    # Requests join the continuations of several rows; deal them out to the rows again.
    flat = chain.from_iterable(answers)
    rows = [[next(flat) for _ in range(n)] for n in tokens["continuations"].list.len()]
    frame = pl.DataFrame(
        {
            "token_id": tokens["token_id"],
            "log_likelihoods": [[sum(continuation) for continuation in row] for row in rows],
            "token_counts": [[len(continuation) for continuation in row] for row in rows],
        },
        schema=TOKEN_SCORES,
    )
    require_finite(frame.with_columns(tokens["prompt_id"]))
    return frame


def distances_file(method: str) -> str:
    """Return the name of the file with a method's label distances."""
    return f"distances-{method}.arrow"


class _Clock:
    """Counts prompts, tokens and seconds of this process, for progress and shard records."""

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

    def end_shard(self, sha256: str, prompts: int) -> ShardRecord:
        self.prompts += prompts
        spent = {key: count - self.shard_counts[key] for key, count in self.counts().items()}
        elapsed_s = round(time.monotonic() - self.shard_started, 3)
        return ShardRecord(sha256=sha256, prompts=prompts, **spent, elapsed_s=elapsed_s)

    def progress(self, in_shard: int = 0) -> Progress:
        counts = {key: count - self.started_counts[key] for key, count in self.counts().items()}
        sent = counts["prompt_tokens"]
        elapsed = time.monotonic() - self.started
        done = self.prompts + in_shard  # by this process
        left = self.total - self.done_before - done
        return Progress(
            stage=self.stage,
            done=self.done_before + done,
            total=self.total,
            unit="prompts",
            tokens_per_s=sent / elapsed if elapsed > 0 else None,
            cached_share=counts["cached_tokens"] / sent if sent else None,
            # The first results wait for a whole batch and say little about the speed of the rest.
            seconds_left=elapsed / done * left if done and elapsed > 1 else None,
        )


def _score_shard(shard: pl.DataFrame, clock: _Clock) -> Stage[pl.DataFrame]:
    """Compute schemas.TOKEN_SCORES of a shard."""
    requests = engine_requests(shard)
    answers: dict[int, list[list[float]]] = {}
    reported = 0.0
    for answer in clock.engine.log_likelihoods(requests):
        assert answer.index not in answers, f"the engine answered request {answer.index} twice"
        answers[answer.index] = answer.token_log_probs
        if time.monotonic() - reported > SECONDS_BETWEEN_REPORTS:
            reported = time.monotonic()
            yield clock.progress(in_shard=len(answers))
    assert len(answers) == len(requests), f"the engine answered {len(answers)} of {len(requests)} requests"
    return score_frame(shard, [answers[index] for index in range(len(requests))])


def _compute_states(shard: pl.DataFrame, clock: _Clock) -> Stage[pl.DataFrame]:
    """Compute schemas.TOKEN_STATES of a shard."""
    yield clock.progress()
    states = clock.engine.hidden_states(shard["context"].to_list())
    flat = pl.Series(states, dtype=pl.Array(pl.Float32, states.shape[1]))
    frame = pl.DataFrame({"token_id": shard["token_id"], "hidden_state": flat}).cast(TOKEN_STATES)
    require_finite_states(frame.with_columns(shard["prompt_id"]))
    return frame


def _write_shard(table: ScoreTable, name: str, frame: pl.DataFrame, clock: _Clock, n_prompts: int) -> ScoreTable:
    """Write a shard, then the manifest that names it."""
    sha256 = shards.write_shard(table.folder / name, frame)
    entry = clock.end_shard(sha256, n_prompts)
    return table.with_manifest(replace(table.manifest, shards=table.manifest.shards | {name: entry}))
