"""Which rows a folder of scores computes, and in which shards.

A plan states which shards of other folders already hold scores of some rows, and cuts the remaining rows into shards.
The plan is written before the engine is used, and a shard is a pure function of its rows: its rows depend
only on the tokens and the plan, and an engine carries nothing from one call to the next. So a run that was
killed and restarted writes the same bytes, also on another number of replicas.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import polars as pl

from evaluator.arrays import Ints
from evaluator.files.digests import list_fingerprint
from evaluator.files.json_files import MANIFEST, read_manifest
from evaluator.schemas import TOKENS
from evaluator.scores.table import Kind, PlanKey, PlanRecord, ScoreManifest, ScoreTable
from evaluator.store import changed, id_numbers, scan_arrow
from evaluator.tokens.rows import TokenRows, ragged
from evaluator_kernels.shared_prefix import shared_prefix_lengths

# Forward passes of a shard: few, so that a kill loses little; enough, so that an empty cache at its beginning and a
# step that is not full at its end cost little.
STEPS_PER_SHARD = 64
# With several replicas, a shard takes this part of what each has left, so that all end at about the same time (guided
# self-scheduling, Polychronopoulos and Kuck 1987), but never fewer forward passes than the second number.
PART_OF_THE_REST = 1 / 2
MIN_STEPS_PER_SHARD = 4

SHARD_CUT_WINDOW = 0.75  # a shard may close in the last quarter of its size, where the shared prefix is shortest


class Shard(NamedTuple):
    """Rows that are computed together."""

    first: int
    n_rows: int
    computed_tokens: int  # without tokens that an earlier request of the plan has computed


@dataclass(frozen=True)
class Requests:
    """The requests that an engine gets for some rows; arrays are int64 of [n_requests]."""

    starts_at: Ints  # first row; rows of one request stay together
    fed: Ints  # tokens: context, and continuations without their last tokens
    shared: Ints  # tokens in common with the request before
    n_rows: int

    def __len__(self) -> int:
        return len(self.starts_at)

    @property
    def longest(self) -> int:
        """Tokens of the longest context with its longest continuation, or more: the length that an engine must take."""
        return int(self.fed.max(initial=0)) + 1

    def computed(self, *, shares_prefixes: bool) -> Ints:
        """Return the tokens that no earlier request has computed; at least the last token is computed."""
        return np.maximum(self.fed - self.shared, 1) if shares_prefixes else self.fed


@dataclass(frozen=True)
class Plan:
    """The rows of one set that remain to be computed."""

    key: PlanKey
    record: PlanRecord
    rows: TokenRows  # without rows of reused shards, each token_id once, in prefix order
    requests: Requests  # of these rows

    def shards(self) -> dict[str, Shard]:
        """Return the shards by name."""
        record = self.record
        shards = cut_shards(
            self.requests,
            shard_tokens=record.shard_tokens,
            min_shard_tokens=record.min_shard_tokens,
            n_replicas=record.n_replicas,
            shares_prefixes=record.shares_prefixes,
        )
        return {f"{self.key}-{number:05d}.arrow": shard for number, shard in enumerate(shards)}


def plan_rows(tokens: TokenRows, table: ScoreTable, kind: Kind) -> Plan:
    """Plan how these rows get their scores: as planned before, or from all shards of the model and engine.

    Nothing is written. A plan that is not in the manifest has no shard size yet. Where scores that a plan reused are
    lost, the rows are planned anew under another key, so that the shards of both have different names.

    Args:
        tokens: rows to get scores for.
        table: scores of these rows.
        kind: what is computed.
    """
    ids = tokens.column(id_numbers("token_id"))
    is_first = ids.is_first_distinct()
    rows, ids = tokens.where(is_first.to_numpy()), ids.filter(is_first)
    key = PlanKey(kind, list_fingerprint(rows.columns(pl.col("token_id")))[:8])
    earlier = next((each for each in map(PlanKey.parse, table.manifest.plans) if each.has_rows_of(key)), None)
    if earlier:
        planned = table.manifest.plans[str(earlier)]
        reused, missing = _reuse(rows, ids, table, planned.reused)
        if reused.height == planned.expected_rows:
            return Plan(earlier, planned, missing, find_requests(missing))
        key = earlier._replace(version=earlier.version + 1)
    files = _other_shards(table, key)
    reused, missing = _reuse(rows, ids, table, files)
    requests = find_requests(missing)
    record = PlanRecord(
        reused={name: files[name] for name in reused["file"].cast(pl.String).unique().sort()},
        prompts=len(requests),
        # A prompt that lacks one of its rows is requested again, so it counts as scored by this plan.
        reused_prompts=len(find_requests(rows)) - len(requests) if reused.height else 0,
        reused_rows=reused.height,
        shard_tokens=0,
        shares_prefixes=False,
    )
    return Plan(key, record, missing, requests)


def _reuse(
    rows: TokenRows, ids: pl.Series, table: ScoreTable, files: Collection[str]
) -> tuple[pl.DataFrame, TokenRows]:
    """Return the ids of rows that files hold, each with the first such file by name, and the rows that none holds."""
    names = sorted(files)
    kind = pl.Enum(names)  # a number a row in memory, not a path
    scored = [pl.LazyFrame(schema={"token_id": pl.Int128(), "file": kind})]
    for name in names:
        shard = scan_arrow(table.folder.parent / name)
        scored.append(shard.select(id_numbers("token_id"), file=pl.lit(name, kind)))
    held = pl.concat(scored).unique("token_id", keep="first", maintain_order=True)
    reused = ids.to_frame().lazy().join(held, on="token_id").collect()
    return reused, rows.where(~ids.is_in(reused["token_id"].implode()).to_numpy()) if reused.height else rows


def _other_shards(table: ScoreTable, key: PlanKey) -> dict[str, str]:
    """Return the intact shards of this kind by the same model and engine in other plans: path -> SHA-256.

    Folders are read in the order of their names, so that a plan does not depend on file times.
    """
    others: dict[str, str] = {}
    for path in sorted(table.folder.parent.glob(f"*/{MANIFEST}")):
        in_table = path.parent == table.folder  # verified when the table was opened
        manifest = table.manifest if in_table else read_manifest(path, ScoreManifest)
        shards_here = sorted(manifest.shards.items()) if manifest else []
        fitting = {name: shard.sha256 for name, shard in shards_here if name.startswith(key.kind)}
        left_out = set(filter(key.names, fitting)) if in_table else {*changed(path.parent, fitting)}
        others |= {f"{path.parent.name}/{name}": digest for name, digest in fitting.items() if name not in left_out}
    return others


def cut_shards(
    requests: Requests, *, shard_tokens: int, min_shard_tokens: int = 1, n_replicas: int = 1, shares_prefixes: bool
) -> list[Shard]:
    """Cut requests into shards of `shard_tokens` computed tokens; for several replicas smaller towards the end.

    No request begins after the first so many computed tokens of its shard; with shared prefixes, tokens that a
    request shares with the previous one are not computed. A shard ends in its last quarter, at the request that shares
    least with the previous one: each shard begins with an empty cache, so a prefix that is cut is computed twice.
    """
    if not len(requests):
        return []
    computed = requests.computed(shares_prefixes=shares_prefixes)
    before = computed.cumsum() - computed  # tokens of all earlier requests
    sizes = np.full(len(requests), shard_tokens)  # of a shard that begins with each request
    if n_replicas > 1:
        part = (computed.sum() - before) * PART_OF_THE_REST / n_replicas
        sizes = np.clip(part, min(min_shard_tokens, shard_tokens), shard_tokens)

    def first_after(tokens: float) -> int:
        """Return the first request before which there are so many tokens, or more."""
        return int(np.searchsorted(before, math.ceil(tokens)))  # NumPy would make floats of all numbers to find one

    starts = [0]  # first request of each shard
    while (full := first_after(before[starts[-1]] + sizes[starts[-1]])) < len(requests):
        late = first_after(before[starts[-1]] + SHARD_CUT_WINDOW * sizes[starts[-1]])
        # Of the requests in the last quarter of the shard, the one that shares least begins the next shard.
        candidates = slice(max(late, starts[-1] + 1), full + 1)
        starts.append(candidates.start + int(requests.shared[candidates].argmin()))
    computed_tokens = np.add.reduceat(computed, starts).tolist()
    bounds = pairwise([*requests.starts_at[starts].tolist(), requests.n_rows])
    return [Shard(start, end - start, size) for (start, end), size in zip(bounds, computed_tokens, strict=True)]


def find_requests(tokens: TokenRows) -> Requests:
    """Return the requests of some rows, which are read shard by shard: all token ids would take too much memory.

    Each shard is read after the last row of the shard before it, because a request may go on from there.
    """
    continuations = pl.col("continuations")
    stem_tokens = continuations.list.eval(pl.element().list.len() - 1).list.sum().cast(pl.Int64)
    # The tokens fed first for each row: its context, and its continuation if it has exactly one.
    only_one = pl.when(continuations.list.len() == 1).then(continuations.list.first()).fill_null([])
    fed_first = pl.concat_list("context", only_one)
    nothing = np.empty(0, np.int64)
    starts_at, contexts, shared, stems = [nothing], [nothing], [nothing], [nothing]
    n_rows, above = 0, TOKENS.to_frame()
    for rows in tokens.frames():
        frame = pl.concat([above, rows])
        starts = request_starts(frame)[above.height :]  # the row above always begins a request of the frame
        starts_at.append(n_rows + starts - above.height)
        contexts.append(frame["context"].list.len().cast(pl.Int64).to_numpy()[starts])
        shared.append(shared_prefix_lengths(*ragged(frame.select(fed_first).to_series()))[starts].astype(np.int64))
        stems.append(rows.select(stem_tokens).to_series().to_numpy())
        n_rows, above = n_rows + rows.height, rows.tail(1)
    first_rows = np.concatenate(starts_at)
    stem_sums = np.add.reduceat(np.concatenate(stems), first_rows) if n_rows else nothing
    return Requests(first_rows, np.concatenate(contexts) + stem_sums, np.concatenate(shared), n_rows)


def request_starts(tokens: pl.DataFrame) -> Ints:
    """Return the first row of each request: labels and last tokens after the same context form one request.

    Args:
        tokens: schemas.TOKENS in prefix order, so that equal contexts are neighbours.
    """
    context, joins = pl.col("context"), pl.col("ask").is_in(["labels", "last_tokens"])
    goes_on = (context == context.shift()) & joins & joins.shift()
    return tokens.select((~goes_on.fill_null(False)).arg_true().cast(pl.Int64)).to_series().to_numpy()
