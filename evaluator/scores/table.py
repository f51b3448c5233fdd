"""Scores on disk. A score belongs to the tokens it was computed of, and to the model and engine that computed it.

    scores/<model and engine>/<rows>/manifest.json and shards

Each set of rows that a run needs has a folder of its own below that of its model and engine. Its plan says which shards
of other folders answer some of the rows already, and cuts the rest into shards. A plan is written before the engine is
used, and a shard is a pure function of its rows: which rows belong to it depends on the tokens and the plan alone, and
an engine carries nothing from one call to the next. So a run that was killed and started again writes the same bytes.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
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

TITLES: dict[Kind, str] = {"scores": "Scoring", "states": "Computing hidden states"}
SCHEMAS: dict[str, pl.Schema] = {"scores": TOKEN_SCORES, "states": TOKEN_STATES}

STEPS_PER_SHARD = 64  # forward passes: few enough that a kill loses little, enough that an emptied cache costs little
SHARD_CUT_WINDOW = 0.75  # a shard may close in the last quarter of its size, where the shared prefix is shortest
SECONDS_BETWEEN_REPORTS = 0.1
TOKEN_COUNTS = ("prompt_tokens", "cached_tokens")


@dataclass(frozen=True, kw_only=True)
class ShardRecord:
    """One finished shard and what it took."""

    sha256: str
    prompts: int
    prompt_tokens: int
    cached_tokens: int
    elapsed_s: float


@dataclass(frozen=True, kw_only=True)
class PlanRecord:
    """How one set of rows is answered: by shards of earlier runs, and by shards of its own."""

    reused: dict[str, str]  # file below the folder of the model and engine -> SHA-256
    prompts: int  # to be scored by this plan
    reused_prompts: int
    n_shards: int  # that these prompts are cut into
    shard_tokens: int
    shares_prefixes: bool


@dataclass(frozen=True, kw_only=True)
class ScoreManifest:
    """manifest.json of one folder of scores."""

    engine: EngineFacts | None = None  # None: every row was answered by earlier runs
    plans: dict[str, PlanRecord] = field(default_factory=dict)
    shards: dict[str, ShardRecord] = field(default_factory=dict)
    distances: dict[str, str] = field(default_factory=dict)  # method -> SHA-256 of its file


@dataclass(frozen=True)
class ScoreTable:
    """Scores of one set of rows, verified when opened; complete once every plan is."""

    folder: Path
    manifest: ScoreManifest

    @property
    def name(self) -> str:
        """Path below scores/."""
        return f"{self.folder.parent.name}/{self.folder.name}"

    def read(self, kind: Kind) -> pl.LazyFrame:
        """Rows of TOKEN_SCORES or TOKEN_STATES, each once: of every finished shard, then of reused ones."""
        files = [self.folder / name for name in sorted(self.manifest.shards) if name.startswith(kind)]
        reused = {name for key, plan in self.manifest.plans.items() if key.startswith(kind) for name in plan.reused}
        files += [self.folder.parent / name for name in sorted(reused)]
        if not files:
            return pl.LazyFrame(schema=SCHEMAS[kind])
        rows = pl.concat([pl.scan_ipc(file) for file in files])
        return rows.unique("token_id", keep="first", maintain_order=True) if reused else rows

    def digests(self) -> list[str]:
        """SHA-256 of every shard that these scores are read from."""
        reused = [sha256 for plan in self.manifest.plans.values() for sha256 in plan.reused.values()]
        return sorted({*reused, *(shard.sha256 for shard in self.manifest.shards.values())})

    def distances(self) -> pl.LazyFrame:
        """schemas.LABEL_DISTANCES of every method that has any."""
        files = [self.folder / distances_file(method) for method in sorted(self.manifest.distances)]
        return pl.concat([pl.LazyFrame(schema=LABEL_DISTANCES), *(pl.scan_ipc(file) for file in files)])

    def totals(self) -> dict[str, float]:
        """Prompts, tokens and seconds over all shards of this folder, whichever process wrote them."""
        written = self.manifest.shards.values()
        total: dict[str, float] = {
            key: sum(getattr(shard, key) for shard in written) for key in ("prompts", *TOKEN_COUNTS, "elapsed_s")
        }
        total["reused_prompts"] = sum(plan.reused_prompts for plan in self.manifest.plans.values())
        return total

    def with_manifest(self, manifest: ScoreManifest) -> "ScoreTable":
        """Write the manifest and return the table that has it."""
        write_record(self.folder / MANIFEST, manifest)
        return ScoreTable(self.folder, manifest)


def open_scores(folder: Path) -> ScoreTable:
    """The scores in this folder, without shards that are missing or changed; an empty table where there are none.

    A plan that reuses a shard which is missing or changed is kept without it: its rows are planned again.
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
    """What is left to do for one set of rows."""

    key: str
    record: PlanRecord
    rows: pl.DataFrame  # schemas.TOKENS that no reused shard answers, each token_id once, in prefix order

    @property
    def kind(self) -> Kind:
        return "states" if self.key.startswith("states") else "scores"

    def shards(self) -> dict[str, tuple[int, int]]:
        """Shard name -> (first row, number of rows)."""
        return shard_plan(
            self.rows, self.key, shard_tokens=self.record.shard_tokens, shares_prefixes=self.record.shares_prefixes
        )


def plan_rows(tokens: pl.DataFrame, table: ScoreTable, kind: Kind) -> Plan:
    """Plan how to answer these rows: as planned before, or by all shards that the model and engine have.

    Args:
        tokens: schemas.TOKENS, in prefix order.
        table: the folder of these rows.
        kind: what is computed of them.

    Nothing is written. A plan that is not in the manifest has no shard size yet.
    """
    rows = tokens.unique("token_id", keep="first", maintain_order=True)
    key = f"{kind}-{fingerprint(rows['token_id'].to_list())[:8]}"
    known = table.manifest.plans.get(key)
    files = dict(known.reused) if known else _other_shards(table, kind, key)
    owners = [pl.scan_ipc(table.folder.parent / name).select("token_id", file=pl.lit(name)) for name in sorted(files)]
    answered = pl.concat([pl.LazyFrame(schema={"token_id": pl.String(), "file": pl.String()}), *owners])
    found = (
        rows.lazy()
        .select("token_id")
        .join(answered.unique("token_id", keep="first", maintain_order=True), on="token_id")
    ).collect()
    left = rows.join(found, on="token_id", how="anti", maintain_order="left")
    if known:
        return Plan(key, known, left)
    record = PlanRecord(
        reused={name: files[name] for name in found["file"].unique().sort()},
        prompts=n_requests(left),
        reused_prompts=found.height,
        n_shards=0,
        shard_tokens=0,
        shares_prefixes=False,
    )
    return Plan(key, record, left)


def _other_shards(table: ScoreTable, kind: Kind, key: str) -> dict[str, str]:
    """Finished shards of the model and engine, of this kind and of no shard of this plan: file -> SHA-256.

    Only what is intact is listed. Folders are read in the order of their names, so that a plan does not depend on time.
    """
    others: dict[str, str] = {}
    for path in sorted(table.folder.parent.glob(f"*/{MANIFEST}")):
        is_own = path.parent == table.folder  # verified when it was opened
        manifest = table.manifest if is_own else read_record(path, ScoreManifest)
        for name, shard in sorted((manifest.shards if manifest else {}).items()):
            fits = name.startswith(kind) and not (is_own and name.startswith(key))
            if fits and (is_own or shards.intact(path.parent, {name: shard.sha256})):
                others[f"{path.parent.name}/{name}"] = shard.sha256
    return others


def answer_rows(tokens: pl.DataFrame, table: ScoreTable, loader: EngineLoader, kind: Kind) -> Stage[ScoreTable]:
    """Compute what is missing of these rows and return the table that has them all.

    The engine is loaded only where something is missing.

    Args:
        tokens: schemas.TOKENS, in prefix order; with continuations for scores, without for states.
        table: the folder of these rows.
        loader: of the engine that the folder belongs to.
        kind: what is computed.
    """
    if tokens.is_empty():
        return table
    plan = plan_rows(tokens, table, kind)
    if plan.record.reused_prompts:
        yield Progress(
            stage="Answered by earlier runs",
            done=plan.record.reused_prompts,
            total=plan.record.reused_prompts + plan.record.prompts,
            unit="prompts",
        )
    if plan.key not in table.manifest.plans or not table.manifest.plans[plan.key].shard_tokens:
        table, plan = yield from _written(plan, table, loader)
    cut = plan.shards()
    missing = {name: rows for name, rows in cut.items() if name not in table.manifest.shards}
    if missing:
        engine = yield from loader.load()
        clock = _Clock(engine, TITLES[kind])
        clock.start(done_before=_finished(table, cut), total=n_requests(plan.rows))
        for name, (first, n_rows) in missing.items():
            clock.start_shard()
            rows = plan.rows.slice(first, n_rows)
            frame = yield from (_scored if kind == "scores" else _with_states)(rows, clock)
            table = _append(table, name, frame, clock, n_requests(rows))
        yield clock.progress()
    elif plan.record.prompts:
        yield Progress(stage=TITLES[kind], done=plan.record.prompts, total=plan.record.prompts, unit="prompts")
    # A shard of an earlier run that was removed or damaged since the plan was made leaves rows to plan once more.
    lost = tokens.join(table.read(kind).select("token_id").collect(), on="token_id", how="anti", maintain_order="left")
    return (yield from answer_rows(lost, table, loader, kind)) if lost.height else table


def _written(plan: Plan, table: ScoreTable, loader: EngineLoader) -> Stage[tuple[ScoreTable, Plan]]:
    """Complete a new plan with the engine's step size, where the engine is needed, and write it."""
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


def _finished(table: ScoreTable, cut: dict[str, tuple[int, int]]) -> int:
    return sum(shard.prompts for name, shard in table.manifest.shards.items() if name in cut)


def shard_plan(
    tokens: pl.DataFrame, name: str = "scores", *, shard_tokens: int, shares_prefixes: bool
) -> dict[str, tuple[int, int]]:
    """Cut rows into shards: name -> (first row, number of rows).

    No request begins beyond the first `shard_tokens` tokens of its shard. Counted are tokens that are computed: where
    prefixes are shared, those that a request does not share with the one before. A shard closes in its last quarter,
    where the next request shares least with the one before: each shard begins with an empty cache, and whatever prefix
    is cut through there is computed twice.
    """
    if tokens.is_empty():
        return {}
    starts_at = request_starts(tokens)  # rows of one request stay together
    stems = pl.col("continuations").list.eval(pl.element().list.len() - 1).list.sum().cast(pl.Int64)
    in_row = tokens.select(stems).to_series().to_numpy()
    lengths = tokens["context"].list.len().cast(pl.Int64).to_numpy()[starts_at]
    fed = lengths + np.add.reduceat(in_row, starts_at)
    shared = shared_prefix_lengths(*ragged(tokens.select(_fed_first()).to_series()))[starts_at]
    computed = np.maximum(fed - shared, 1) if shares_prefixes else fed  # of what is shared whole, the last token
    before = computed.cumsum() - computed  # tokens of all requests in front of each
    starts = [0]
    while (full := int(np.searchsorted(before, before[starts[-1]] + shard_tokens))) < len(starts_at):
        late = int(np.searchsorted(before, before[starts[-1]] + SHARD_CUT_WINDOW * shard_tokens))
        candidates = slice(max(late, starts[-1] + 1), full + 1)
        starts.append(candidates.start + int(shared[candidates].argmin()))
    spans = pairwise([*starts_at[starts].tolist(), tokens.height])
    return {f"{name}-{number:05d}.arrow": (start, end - start) for number, (start, end) in enumerate(spans)}


def _fed_first() -> pl.Expr:
    """What is fed of each row: its context and, where there is but one continuation, that as well."""
    only_one = pl.when(pl.col("continuations").list.len() == 1).then(pl.col("continuations").list.first())
    return pl.concat_list("context", only_one.fill_null([]))


def request_starts(tokens: pl.DataFrame) -> npt.NDArray[np.int64]:
    """The first row of each request: labels and last tokens after the same context are one request.

    Args:
        tokens: schemas.TOKENS in prefix order, so that equal contexts are neighbours.
    """
    if tokens.is_empty():
        return np.empty(0, np.int64)
    joins = tokens["ask"].is_in(["labels", "last_tokens"]).to_numpy()
    context = tokens["context"]
    same = (shared_prefix_lengths(*ragged(context)) == context.list.len().to_numpy()) & (
        context.list.len() == context.list.len().shift(1)
    ).fill_null(False).to_numpy()
    same[1:] &= joins[1:] & joins[:-1]
    same[0] = False
    return np.flatnonzero(~same)


def n_requests(tokens: pl.DataFrame) -> int:
    """How many requests these rows make; what progress and totals count as prompts."""
    return len(request_starts(tokens))


def engine_requests(tokens: pl.DataFrame) -> list[ContinuationRequest]:
    """One request for each context, with the continuations of all its rows in their order."""
    contexts, continuations = tokens["context"].to_list(), tokens["continuations"].to_list()
    bounds = pairwise([*request_starts(tokens).tolist(), tokens.height])
    return [
        ContinuationRequest(contexts[start], [each for row in continuations[start:end] for each in row])
        for start, end in bounds
    ]


def score_frame(tokens: pl.DataFrame, answers: Sequence[list[list[float]]]) -> pl.DataFrame:
    """Token log-probabilities, one answer a request of `tokens`, as schemas.TOKEN_SCORES.

    Raises ScoreError when a sum is not finite.
    """
    flat = iter([continuation for answer in answers for continuation in answer])
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
    return f"distances-{method}.arrow"


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

    def end_shard(self, sha256: str, prompts: int) -> ShardRecord:
        self.prompts += prompts
        spent = {key: count - self.shard_counts[key] for key, count in self.counts().items()}
        elapsed_s = round(time.monotonic() - self.shard_started, 3)
        return ShardRecord(sha256=sha256, prompts=prompts, **spent, elapsed_s=elapsed_s)

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


def _with_states(shard: pl.DataFrame, clock: _Clock) -> Stage[pl.DataFrame]:
    yield clock.progress()
    states = clock.engine.hidden_states(shard["context"].to_list())
    flat = pl.Series(states, dtype=pl.Array(pl.Float32, states.shape[1]))
    frame = pl.DataFrame({"token_id": shard["token_id"], "hidden_state": flat}).cast(TOKEN_STATES)
    require_finite_states(frame.with_columns(shard["prompt_id"]))
    return frame


def _append(table: ScoreTable, name: str, frame: pl.DataFrame, clock: _Clock, n_prompts: int) -> ScoreTable:
    sha256 = shards.write_shard(table.folder / name, frame)
    entry = clock.end_shard(sha256, n_prompts)
    return table.with_manifest(replace(table.manifest, shards=table.manifest.shards | {name: entry}))
