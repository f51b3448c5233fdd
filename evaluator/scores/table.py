"""Scores on disk, stored by model and engine and by the tokens that they were computed from.

    scores/<model and engine>/<rows>/manifest.json and shards

Each set of rows that a run needs has a folder below the folder of its model and engine. plan.py plans which rows a
folder computes, and compute.py computes them.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, NamedTuple

import polars as pl

from evaluator.files.json_files import MANIFEST, read_manifest, write_record
from evaluator.files.whole import scan_arrow
from evaluator.record import EngineRecord
from evaluator.schemas import HIDDEN_STATES, LABEL_DISTANCES, SCORES, TOKEN_SCORES, TOKEN_STATES
from evaluator.store import shards

Kind = Literal["scores", "states"]
"""What a shard holds: log-likelihoods or hidden states. Names of plans and shards begin with it."""


class PlanKey(NamedTuple):
    """The key of a plan in a manifest, "KIND-ROWS" or "KIND-ROWS.VERSION"; the names of its shards begin with it."""

    kind: Kind
    rows: str  # digest of the ids of the planned rows
    version: int = 0  # raised by one when reused scores are lost and the same rows are planned again

    @classmethod
    def parse(cls, text: str) -> "PlanKey":
        """Return the key that a manifest writes as `text`."""
        kind, _, rest = text.partition("-")
        rows, _, version = rest.partition(".")
        return cls("states" if kind == "states" else "scores", rows, int(version or 0))

    def __str__(self) -> str:
        return f"{self.kind}-{self.rows}" + (f".{self.version}" if self.version else "")

    def has_rows_of(self, other: "PlanKey") -> bool:
        """Return whether both keys are of plans for the same rows."""
        return self[:2] == other[:2]

    def shard_name(self, number: int) -> str:
        """Return the file name of a shard."""
        return f"{self}-{number:05d}.arrow"

    def names(self, shard: str) -> bool:
        """Return whether a file name is that of a shard of the plan."""
        return shard.startswith(f"{self}-")


SCHEMAS: dict[str, pl.Schema] = {"scores": TOKEN_SCORES, "states": TOKEN_STATES}
TOKEN_COUNTS = ("prompt_tokens", "cached_tokens")


@dataclass(frozen=True, kw_only=True)
class ShardRecord:
    """One finished shard, with its tokens and time."""

    sha256: str
    prompts: int
    prompt_tokens: int
    cached_tokens: int
    elapsed_s: float
    finished_s: float = 0.0  # seconds since 1970; 0 if an earlier version wrote it
    replica: int = 0  # of the model, that computed it


@dataclass(frozen=True, kw_only=True)
class PlanRecord:
    """How one set of rows gets its scores: from shards of earlier runs and from new shards."""

    reused: dict[str, str]  # path below the folder of the model and engine -> SHA-256
    prompts: int  # scored by this plan; with those reused, each prompt counts once
    reused_prompts: int  # whose rows are all in reused shards
    shard_tokens: int
    shares_prefixes: bool
    min_shard_tokens: int = 1  # with several replicas, where shards are smaller towards the end
    n_replicas: int = 1  # for which the shards were cut
    reused_rows: int | None = None  # in reused shards; None: an earlier version counted them as reused_prompts

    @property
    def expected_rows(self) -> int:
        """Rows that the reused shards must hold for the plan to be complete."""
        return self.reused_prompts if self.reused_rows is None else self.reused_rows


@dataclass(frozen=True, kw_only=True)
class ScoreManifest:
    """manifest.json of one folder of scores."""

    engine: EngineRecord | None = None  # None: all rows have scores from earlier runs
    plans: dict[str, PlanRecord] = field(default_factory=dict)
    shards: dict[str, ShardRecord] = field(default_factory=dict)
    distances: dict[str, str] = field(default_factory=dict)  # method -> SHA-256 of its file

    @property
    def reused(self) -> dict[str, str]:
        """Shards that any plan reuses: path below the folder of the model and engine -> SHA-256."""
        return {name: sha256 for plan in self.plans.values() for name, sha256 in plan.reused.items()}

    def shards_of(self, plans: Iterable[PlanKey]) -> list[ShardRecord]:
        """Return the shards that these plans have written."""
        keys = list(plans)
        return [shard for name, shard in self.shards.items() if any(key.names(name) for key in keys)]

    @property
    def counted_shards(self) -> list[ShardRecord]:
        """Shards whose prompts, tokens and time count. Shards of a replaced plan do not: the newer plan reuses them."""
        return self.shards_of(map(PlanKey.parse, self.plans))

    @property
    def written(self) -> dict[str, str]:
        """Files in the folder itself: name -> SHA-256."""
        shards = {name: shard.sha256 for name, shard in self.shards.items()}
        return shards | {distances_file(method): sha256 for method, sha256 in self.distances.items()}


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
        written, reused = self._written(kind), self._reused(kind)
        if not written + reused:
            return pl.LazyFrame(schema=SCHEMAS[kind])
        rows = scan_arrow(*written, *reused)
        return rows.unique("token_id", keep="first", maintain_order=True) if reused else rows

    def _written(self, kind: Kind) -> list[Path]:
        return [self.folder / name for name in sorted(self.manifest.shards) if name.startswith(kind)]

    def _reused(self, kind: Kind) -> list[Path]:
        names = {name for key, plan in self.manifest.plans.items() if key.startswith(kind) for name in plan.reused}
        return [self.folder.parent / name for name in sorted(names)]

    def files(self) -> dict[str, str]:
        """Return every file that these scores are read from: path below scores/ -> SHA-256."""
        reused = {f"{self.folder.parent.name}/{name}": sha256 for name, sha256 in self.manifest.reused.items()}
        written = {f"{self.name}/{name}": sha256 for name, sha256 in self.manifest.written.items()}
        return dict(sorted((reused | written).items()))

    def distances(self) -> pl.LazyFrame:
        """Return schemas.LABEL_DISTANCES of all methods that have any."""
        files = [self.folder / distances_file(method) for method in sorted(self.manifest.distances)]
        return pl.concat([pl.LazyFrame(schema=LABEL_DISTANCES), *map(scan_arrow, files)])

    def totals(self) -> dict[str, int]:
        """Return prompts and tokens over all shards of this folder's plans, whichever process wrote them."""
        written = self.manifest.counted_shards
        total = {key: sum(getattr(shard, key) for shard in written) for key in ("prompts", *TOKEN_COUNTS)}
        total["reused_prompts"] = sum(plan.reused_prompts for plan in self.manifest.plans.values())
        return total

    def write_manifest(self, manifest: ScoreManifest) -> "ScoreTable":
        """Write the manifest and return the table with it."""
        write_record(self.folder / MANIFEST, manifest)
        return ScoreTable(self.folder, manifest)


def open_scores(folder: Path) -> ScoreTable:
    """Open the scores in a folder, leaving out shards that are missing or changed; without scores, an empty table.

    A plan stays without the reused shards that are missing or changed; their rows are planned again.
    """
    manifest = read_manifest(folder / MANIFEST, ScoreManifest) or ScoreManifest()
    lost = {*shards.changed(folder, manifest.written)}
    lost_elsewhere = {*shards.changed(folder.parent, manifest.reused)}
    kept = {name: shard for name, shard in manifest.shards.items() if name not in lost}
    plans = {
        key: replace(plan, reused={name: digest for name, digest in plan.reused.items() if name not in lost_elsewhere})
        for key, plan in manifest.plans.items()
    }
    distances = {method: digest for method, digest in manifest.distances.items() if distances_file(method) not in lost}
    return ScoreTable(folder, replace(manifest, plans=plans, shards=kept, distances=distances))


def distances_file(method: str) -> str:
    """Return the name of the file with a method's label distances."""
    return f"distances-{method}.arrow"


def prompt_scores(tokens: pl.LazyFrame, token_scores: pl.LazyFrame) -> pl.LazyFrame:
    """Return schemas.SCORES of the prompts in schemas.TOKENS that have schemas.TOKEN_SCORES, in no particular order."""
    ids = tokens.filter(pl.col("ask") != "state").select("prompt_id", "token_id", "ask")
    rows = token_scores.join(ids, on="token_id")
    whole = rows.filter(pl.col("ask") != "last_tokens")
    last = rows.filter(pl.col("ask") == "last_tokens").select("prompt_id", last_token_log_probs="log_likelihoods")
    # Labels of one token each have no row of last tokens: their log-likelihoods are the same numbers.
    one_token_each = (pl.col("ask") == "labels") & (pl.col("token_counts").list.max() == 1)
    same = pl.when(one_token_each).then(pl.col("log_likelihoods"))
    return (
        whole.join(last, on="prompt_id", how="left")
        .select(
            "prompt_id",
            label_log_likelihoods="log_likelihoods",
            last_token_log_probs=pl.coalesce("last_token_log_probs", same),
            label_token_counts="token_counts",
        )
        .select(pl.col(name).cast(dtype) for name, dtype in SCORES.items())
    )


def prompt_states(tokens: pl.LazyFrame, token_states: pl.LazyFrame) -> pl.LazyFrame:
    """Return schemas.HIDDEN_STATES of the prompts in schemas.TOKENS that have schemas.TOKEN_STATES, in no order."""
    rows = tokens.filter(pl.col("ask") == "state").select("prompt_id", "token_id")
    return token_states.join(rows, on="token_id").select(HIDDEN_STATES.names())
