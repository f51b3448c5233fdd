"""Plan which rows a folder of scores computes, and cut them into shards.

A plan names the shards of other folders that already have scores of some rows, and cuts the remaining rows into shards.
The plan is written before any prompt is scored. The rows of a shard depend only on the tokens and the plan, and an
engine keeps no state between calls. So a run that was killed and restarted writes the same bytes, also with another
number of replicas.
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

# Forward passes of a shard: few, so that a killed process loses little work; enough, so that the empty cache at the
# beginning and the partly filled last step cost little.
STEPS_PER_SHARD = 64
# With several replicas, the size of a shard is this fraction of the remaining work per replica, so that all replicas
# end at about the same time (guided self-scheduling, Polychronopoulos and Kuck 1987), but at least MIN_STEPS_PER_SHARD
# forward passes.
PART_OF_THE_REST = 1 / 2
MIN_STEPS_PER_SHARD = 4

SHARD_CUT_WINDOW = 0.75  # a shard ends after this fraction of its size, where the shared prefix is shortest


class Shard(NamedTuple):
    """Consecutive rows of a plan that are computed together."""

    first: int  # index of the first row
    n_rows: int
    computed_tokens: int  # tokens to compute, without prefixes shared with an earlier request of the plan


@dataclass(frozen=True)
class Requests:
    """Row ranges and token counts of the engine requests for some rows; arrays are int64, [n_requests]."""

    starts_at: Ints  # first row of each request; its rows are consecutive
    fed: Ints  # input tokens: those of the context, and of the continuations without their last tokens
    shared: Ints  # length of the prefix shared with the previous request, in tokens
    n_rows: int  # number of rows of all requests

    def __len__(self) -> int:
        return len(self.starts_at)

    @property
    def longest(self) -> int:
        """Return the sequence length that the engine must support, in tokens.

        It is an upper limit of the longest context with its longest continuation.
        """
        return int(self.fed.max(initial=0)) + 1

    def computed(self, *, shares_prefixes: bool) -> Ints:
        """Return the number of tokens to compute for each request, [n_requests].

        With shared prefixes these are the tokens after the shared prefix, but at least the last token.
        """
        return np.maximum(self.fed - self.shared, 1) if shares_prefixes else self.fed


@dataclass(frozen=True)
class Plan:
    """The rows of a set that remain to be computed."""

    key: PlanKey
    record: PlanRecord
    rows: TokenRows  # rows to compute: not in reused shards, each token_id once, in prefix order
    requests: Requests  # the engine requests of these rows

    def shards(self) -> dict[str, Shard]:
        """Return the shards: file name -> rows."""
        shards = cut_shards(self.requests, self.record)
        return {f"{self.key}-{number:05d}.arrow": shard for number, shard in enumerate(shards)}


def plan_rows(tokens: TokenRows, table: ScoreTable, kind: Kind) -> Plan:
    """Return the plan for the scores of some rows: the plan in the manifest, or a new one.

    A new plan reuses all finished shards of the same model and engine. It is not written, and its shard size is still
    0. If shards that an earlier plan reused are lost, the rows are planned again with a higher version of the key, so
    that the shards of both plans have different names.

    Args:
        tokens: rows that need scores.
        table: table of the scores of these rows.
        kind: "scores" or "states".
    """
    # Each token_id once. The key identifies the set of rows.
    ids = tokens.column(id_numbers("token_id"))
    is_first = ids.is_first_distinct()
    rows, ids = tokens.where(is_first.to_numpy()), ids.filter(is_first)
    key = PlanKey(kind, list_fingerprint(rows.columns(pl.col("token_id")))[:8])
    earlier = next((each for each in map(PlanKey.parse, table.manifest.plans) if each.has_rows_of(key)), None)
    # Use the earlier plan, unless shards that it reused are lost.
    if earlier:
        planned = table.manifest.plans[str(earlier)]
        reused, missing = _reuse(rows, ids, table, planned.reused)
        if reused.height == planned.reused_rows:
            return Plan(earlier, planned, missing, find_requests(missing))
        key = earlier._replace(version=earlier.version + 1)
    files = _other_shards(table, key)
    reused, missing = _reuse(rows, ids, table, files)
    requests = find_requests(missing)
    record = PlanRecord(
        reused={name: files[name] for name in reused["file"].cast(pl.String).unique().sort()},
        prompts=len(requests),
        # A request with a missing row is sent to the engine again, so it counts as scored by this plan.
        reused_prompts=len(find_requests(rows)) - len(requests) if reused.height else 0,
        reused_rows=reused.height,
        shard_tokens=0,
        shares_prefixes=False,
    )
    return Plan(key, record, missing, requests)


def _reuse(
    rows: TokenRows, ids: pl.Series, table: ScoreTable, files: Collection[str]
) -> tuple[pl.DataFrame, TokenRows]:
    """Split rows into those with scores in some shards and the others.

    Args:
        rows: the rows.
        ids: their token ids as numbers.
        table: its folder's parent is the folder of the model and engine.
        files: paths of shards below that folder.

    Returns:
        token_id and `file` of rows with scores, `file` being the first in order of names; and the other rows.
    """
    names = sorted(files)
    kind = pl.Enum(names)  # stored as a number in each row, not as a path
    scored = [pl.LazyFrame(schema={"token_id": pl.Int128(), "file": kind})]
    for name in names:
        shard = scan_arrow(table.folder.parent / name)
        scored.append(shard.select(id_numbers("token_id"), file=pl.lit(name, kind)))
    held = pl.concat(scored).unique("token_id", keep="first", maintain_order=True)
    reused = ids.to_frame().lazy().join(held, on="token_id").collect()
    return reused, rows.where(~ids.is_in(reused["token_id"].implode()).to_numpy()) if reused.height else rows


def _other_shards(table: ScoreTable, key: PlanKey) -> dict[str, str]:
    """Return the intact shards of the same model, engine and kind that belong to other plans: path -> SHA-256.

    Folders are read in the order of their names, so that a plan does not depend on file times.
    """
    others: dict[str, str] = {}
    for path in sorted(table.folder.parent.glob(f"*/{MANIFEST}")):
        in_table = path.parent == table.folder  # shards of this table were verified when it was opened
        manifest = table.manifest if in_table else read_manifest(path, ScoreManifest)
        shards_here = sorted(manifest.shards.items()) if manifest else []
        fitting = {name: shard.sha256 for name, shard in shards_here if name.startswith(key.kind)}
        left_out = set(filter(key.names, fitting)) if in_table else {*changed(path.parent, fitting)}
        others |= {f"{path.parent.name}/{name}": digest for name, digest in fitting.items() if name not in left_out}
    return others


def cut_shards(requests: Requests, plan: PlanRecord) -> list[Shard]:
    """Cut requests into shards of about plan.shard_tokens; with several replicas smaller towards the end.

    A shard ends in the last quarter of its size, before the request with the shortest shared prefix: every shard begins
    with an empty cache, so that a prefix shared across a cut is computed twice.

    Args:
        requests: the requests, in prefix order.
        plan: no request begins after `shard_tokens` computed tokens of its shard; with several replicas, a shard has at
            least `min_shard_tokens`.
    """
    if not len(requests):
        return []
    computed = requests.computed(shares_prefixes=plan.shares_prefixes)
    before = computed.cumsum() - computed  # computed tokens of all earlier requests
    sizes = np.full(len(requests), plan.shard_tokens)  # size of a shard, if it begins with this request
    if plan.n_replicas > 1:  # a fraction of the remaining tokens
        part = (computed.sum() - before) * PART_OF_THE_REST / plan.n_replicas
        sizes = np.clip(part, min(plan.min_shard_tokens, plan.shard_tokens), plan.shard_tokens)

    def first_after(tokens: float) -> int:
        """Return the index of the first request with at least `tokens` computed tokens before it."""
        return int(np.searchsorted(before, math.ceil(tokens)))  # ceil: for a float NumPy would convert all of `before`

    starts = [0]  # first request of each shard
    while (full := first_after(before[starts[-1]] + sizes[starts[-1]])) < len(requests):
        late = first_after(before[starts[-1]] + SHARD_CUT_WINDOW * sizes[starts[-1]])
        # Among the requests in the last quarter of the shard, that with the shortest shared prefix begins the next one.
        candidates = slice(max(late, starts[-1] + 1), full + 1)
        starts.append(candidates.start + int(requests.shared[candidates].argmin()))
    computed_tokens = np.add.reduceat(computed, starts).tolist()
    bounds = pairwise([*requests.starts_at[starts].tolist(), requests.n_rows])
    return [Shard(start, end - start, size) for (start, end), size in zip(bounds, computed_tokens, strict=True)]


def find_requests(tokens: TokenRows) -> Requests:
    """Return the engine requests of some rows.

    Rows are read frame by frame, because all token ids need too much memory. Each frame is read together with the last
    row of the previous frame, because a request may continue across the boundary.
    """
    counted, previous = list[pl.DataFrame](), TOKENS.to_frame()
    for rows in tokens.frames():
        counted.append(_row_counts(pl.concat([previous, rows])).tail(rows.height))
        previous = rows.tail(1)
    by_row = pl.concat(counted or [_row_counts(previous)]).with_row_index("row").cast(pl.Int64)
    first_rows = by_row.filter(is_first=1)
    starts_at, context, shared = (first_rows[name].to_numpy() for name in ("row", "context", "shared"))
    # A request's input is its context and the stems of all its continuations.
    fed = context + np.add.reduceat(by_row["stems"].to_numpy(), starts_at)
    return Requests(starts_at, fed, shared, by_row.height)


def _row_counts(tokens: pl.DataFrame) -> pl.DataFrame:
    """Count tokens of each row, and mark the first row of each request: context, stems, shared and is_first.

    Stems are the continuations without their last tokens, which are predicted and never fed. The context, with the
    continuation if there is exactly one, can be shared with the row above.
    """
    context, continuations = pl.col("context"), pl.col("continuations")
    only_one = pl.when(continuations.list.len() == 1).then(continuations.list.first()).fill_null([])
    shared = shared_prefix_lengths(*ragged(tokens.select(pl.concat_list(context, only_one)).to_series()))
    stems = continuations.list.eval(pl.element().list.len() - 1).list.sum()
    return tokens.select(context=context.list.len(), stems=stems, shared=pl.Series(shared), is_first=_begins_request())


def request_starts(tokens: pl.DataFrame) -> Ints:
    """Return the index of the first row of each engine request, [n_requests].

    Args:
        tokens: schemas.TOKENS in prefix order, so that equal contexts are neighbours.
    """
    return tokens.select(_begins_request().arg_true().cast(pl.Int64)).to_series().to_numpy()


def _begins_request() -> pl.Expr:
    """Return whether a row of schemas.TOKENS begins a request.

    Neighbouring rows for labels and for last tokens after the same context form one request.
    """
    context, joins = pl.col("context"), pl.col("ask").is_in(["labels", "last_tokens"])
    goes_on = (context == context.shift()) & joins & joins.shift()
    return ~goes_on.fill_null(False)
