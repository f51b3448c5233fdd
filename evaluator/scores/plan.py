"""Which rows a folder of scores computes, and in which shards.

A plan states which shards of other folders already hold scores of some rows, and cuts the remaining rows into shards.
The plan is written before the engine is used, and a shard is a pure function of its rows: which rows belong to it
depends on the tokens and the plan alone, and an engine carries nothing from one call to the next. So a run that was
killed and restarted writes the same bytes, also on another number of replicas.
"""

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from evaluator.files.digests import list_fingerprint
from evaluator.files.json_files import MANIFEST, read_manifest
from evaluator.files.whole import scan_arrow
from evaluator.scores.table import Kind, PlanRecord, ScoreManifest, ScoreTable
from evaluator.store import shards
from evaluator.store.ids import id_numbers
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
    computed_tokens: int  # those that no earlier request of the plan has computed


@dataclass(frozen=True)
class Plan:
    """The rows of one set that remain to be computed."""

    key: str
    record: PlanRecord
    rows: TokenRows  # without those that have scores in reused shards, each token_id once, in prefix order

    def shards(self) -> dict[str, Shard]:
        """Return the shards by name."""
        record = self.record
        return shard_plan(
            self.rows,
            self.key,
            shard_tokens=record.shard_tokens,
            min_shard_tokens=record.min_shard_tokens,
            n_replicas=record.n_replicas,
            shares_prefixes=record.shares_prefixes,
        )


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
    base = f"{kind}-{list_fingerprint(rows.columns(pl.col('token_id')))[:8]}"
    key = next((key for key in table.manifest.plans if is_of_rows(key, base)), base)
    if planned := table.manifest.plans.get(key):
        reused = _holders(ids, table, planned.reused)
        if reused.height == planned.expected_rows:
            return Plan(key, planned, _without(rows, ids, reused))
        _, _, n_lost = key.partition(".")
        key = f"{base}.{int(n_lost or 0) + 1}"
    files = _other_shards(table, kind, key)
    reused = _holders(ids, table, files)
    missing = _without(rows, ids, reused)
    n_missing = n_requests(missing)
    record = PlanRecord(
        reused={name: files[name] for name in reused["file"].cast(pl.String).unique().sort()},
        prompts=n_missing,
        # A prompt that lacks one of its rows is asked again, so it counts as scored by this plan.
        reused_prompts=n_requests(rows) - n_missing if reused.height else 0,
        reused_rows=reused.height,
        shard_tokens=0,
        shares_prefixes=False,
    )
    return Plan(key, record, missing)


def is_of_rows(key: str, base: str) -> bool:
    """Return whether a plan's key is that of these rows: the first, or one made after scores were lost."""
    return key.partition(".")[0] == base


def _holders(ids: pl.Series, table: ScoreTable, files: Collection[str]) -> pl.DataFrame:
    """Return which file holds which row, token_id and file: the first file by name where several hold it."""
    names = sorted(files)
    kind = pl.Enum(names)  # a number a row in memory, not a path
    holders = [
        scan_arrow(table.folder.parent / name).select(id_numbers("token_id"), file=pl.lit(name, kind)) for name in names
    ]
    scored = pl.concat([pl.LazyFrame(schema={"token_id": pl.Int128(), "file": kind}), *holders])
    return (
        ids.to_frame()
        .lazy()
        .join(scored.unique("token_id", keep="first", maintain_order=True), on="token_id")
        .collect()
    )


def _without(rows: TokenRows, ids: pl.Series, reused: pl.DataFrame) -> TokenRows:
    """Return the rows whose ids no file holds."""
    return rows.where(~ids.is_in(reused["token_id"].implode()).to_numpy()) if reused.height else rows


def _other_shards(table: ScoreTable, kind: Kind, key: str) -> dict[str, str]:
    """Return the model and engine's intact shards of this kind, without those of this plan: path -> SHA-256.

    Folders are read in the order of their names, so that a plan does not depend on file times.
    """
    others: dict[str, str] = {}
    for path in sorted(table.folder.parent.glob(f"*/{MANIFEST}")):
        in_table = path.parent == table.folder  # verified when the table was opened
        manifest = table.manifest if in_table else read_manifest(path, ScoreManifest)
        written = {name: shard.sha256 for name, shard in sorted(manifest.shards.items())} if manifest else {}
        fitting = {name: digest for name, digest in written.items() if name.startswith(kind)}
        of_plan = {name for name in fitting if name.startswith(f"{key}-")}
        left_out = of_plan if in_table else {*shards.changed(path.parent, fitting)}
        others |= {f"{path.parent.name}/{name}": digest for name, digest in fitting.items() if name not in left_out}
    return others


def shard_plan(
    tokens: TokenRows,
    name: str = "scores",
    *,
    shard_tokens: int,
    min_shard_tokens: int = 1,
    n_replicas: int = 1,
    shares_prefixes: bool,
) -> dict[str, Shard]:
    """Cut rows into shards, by name, of `shard_tokens` computed tokens; for several replicas smaller towards the end.

    No request begins after the first so many computed tokens of its shard; with shared prefixes, tokens that a
    request shares with the previous one are not computed. A shard ends in its last quarter, at the request that shares
    least with the previous one: each shard begins with an empty cache, so a prefix that is cut is computed twice.
    """
    if not tokens.height:
        return {}
    requests = _requests(tokens)
    starts_at, shared = requests.starts_at, requests.shared
    computed = requests.computed(shares_prefixes=shares_prefixes)
    before = computed.cumsum() - computed  # tokens of all earlier requests
    sizes = np.full(len(starts_at), shard_tokens)  # of a shard that begins with each request
    if n_replicas > 1:
        part = (computed.sum() - before) * PART_OF_THE_REST / n_replicas
        sizes = np.clip(part, min(min_shard_tokens, shard_tokens), shard_tokens)

    def first_after(tokens: float) -> int:
        """Return the first request before which there are so many tokens, or more."""
        return int(np.searchsorted(before, math.ceil(tokens)))  # NumPy would make floats of all numbers to find one

    starts = [0]  # first request of each shard
    while (full := first_after(before[starts[-1]] + sizes[starts[-1]])) < len(starts_at):
        late = first_after(before[starts[-1]] + SHARD_CUT_WINDOW * sizes[starts[-1]])
        # Of the requests in the last quarter of the shard, the one that shares least begins the next shard.
        candidates = slice(max(late, starts[-1] + 1), full + 1)
        starts.append(candidates.start + int(shared[candidates].argmin()))
    computed_tokens = np.add.reduceat(computed, starts).tolist()
    spans = pairwise([*starts_at[starts].tolist(), tokens.height])
    return {
        f"{name}-{number:05d}.arrow": Shard(start, end - start, size)
        for number, ((start, end), size) in enumerate(zip(spans, computed_tokens, strict=True))
    }


class _Requests(NamedTuple):
    """Each request of some rows: int64 of [n_requests] each."""

    starts_at: npt.NDArray[np.int64]  # its first row; rows of one request stay together
    fed: npt.NDArray[np.int64]  # tokens: its context, and its continuations without their last tokens
    shared: npt.NDArray[np.int64]  # tokens that it shares with the request before it

    def computed(self, *, shares_prefixes: bool) -> npt.NDArray[np.int64]:
        """Return the tokens that no earlier request has computed; at least the last token is computed."""
        return np.maximum(self.fed - self.shared, 1) if shares_prefixes else self.fed


def _requests(tokens: TokenRows) -> _Requests:
    stems = pl.col("continuations").list.eval(pl.element().list.len() - 1).list.sum().cast(pl.Int64)
    starts_at, lengths, shared, in_row = [], [], [], []
    n_rows = 0
    for frame, n_above, starts in _windows(tokens):
        starts_at.append(n_rows + starts - n_above)
        lengths.append(frame["context"].list.len().cast(pl.Int64).to_numpy()[starts])
        shared.append(shared_prefix_lengths(*ragged(frame.select(_fed_first()).to_series()))[starts])
        in_row.append(frame.select(stems).to_series().to_numpy()[n_above:])
        n_rows += frame.height - n_above
    first_rows = np.concatenate(starts_at)
    fed = np.concatenate(lengths) + np.add.reduceat(np.concatenate(in_row), first_rows)
    return _Requests(first_rows, fed, np.concatenate(shared).astype(np.int64))


class _Window(NamedTuple):
    """Rows of one shard, after the row above them if there is one."""

    frame: pl.DataFrame
    n_above: int  # 1, or 0 in the first shard
    starts: npt.NDArray[np.int64]  # rows of the frame that begin a request of this shard


def _windows(tokens: TokenRows) -> Iterator[_Window]:
    above: list[pl.DataFrame] = []
    for rows in tokens.frames():
        frame = pl.concat([*above, rows])
        yield _Window(frame, len(above), request_starts(frame)[len(above) :])
        above = [rows.tail(1)]


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


def n_requests(tokens: TokenRows) -> int:
    """Return the number of requests in these rows, which progress and totals count as prompts."""
    return sum(len(window.starts) for window in _windows(tokens))
