"""Read and write scores on disk, and check prompts before scoring and scores before measuring.

    scores/<model and engine>/<rows>/manifest.json and shards

Each set of rows that a run needs has a folder below the folder of its model and engine. plan.py plans which rows a
folder computes, and compute.py computes them.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, NamedTuple

import polars as pl

from evaluator import schemas
from evaluator.errors import PromptTooLongError, ScoreError, VocabularyError
from evaluator.files.json_files import MANIFEST, read_manifest, write_record
from evaluator.record import EngineRecord
from evaluator.schemas import PROMPTS_KEY
from evaluator.store import changed, scan_arrow
from evaluator.tokens.tokenizer import TextTokenizer

logger = logging.getLogger(__name__)


def require_finite(rows: pl.DataFrame, numbers: str, what: str) -> None:
    """Raise ScoreError, naming the first prompt, if a list in a column has a null, NaN or infinite entry.

    Args:
        rows: frame with prompt_id and the column.
        numbers: name of the column of lists.
        what: words for such an entry in the message: "a hidden state that is not finite".
    """
    bad = rows.filter(~pl.col(numbers).list.eval(pl.element().is_finite().fill_null(False)).list.all())
    if not bad.is_empty():
        raise ScoreError(
            f"{bad.height} of {rows.height} prompts have {what}; the first is prompt {bad['prompt_id'][0]}. The model "
            "overflows or is damaged: check its weights, or try --dtype float32."
        )


def require_complete(requests: pl.LazyFrame, prompts: pl.LazyFrame, scores: pl.LazyFrame) -> None:
    """Raise ScoreError unless every prompt has exactly one row of scores, with one number for each continuation.

    Args:
        requests: schemas.REQUESTS of these prompts, for messages.
        prompts: schemas.PROMPTS with ask "labels" or "text".
        scores: schemas.SCORES.
    """
    repeated = scores.group_by("prompt_id").len().filter(pl.col("len") > 1).collect(engine="streaming")
    if not repeated.is_empty():
        raise ScoreError(
            f"{repeated.height} prompts have several scores; the first is {repeated['prompt_id'].sort()[0]}. "
            "The score folder is damaged: remove it and run `evaluator score` again."
        )
    # A prompt with ask "text" has one log-likelihood, any other prompt one for each continuation.
    n_continuations = pl.when(pl.col("ask") == "text").then(1).otherwise(pl.col("continuations").list.len())
    found = scores.select("prompt_id", n_scores=pl.col("label_log_likelihoods").list.len())
    joined = prompts.select("prompt_id", "ask", "continuations").join(found, on=PROMPTS_KEY, how="left")
    wrong = joined.filter(pl.col("n_scores").ne_missing(n_continuations)).collect(engine="streaming")
    if wrong.is_empty():
        return
    rows = requests.join(wrong.lazy(), on=PROMPTS_KEY).sort(schemas.REQUESTS_KEY).collect()
    unscored = rows.filter(pl.col("n_scores").is_null())
    if not unscored.is_empty():
        raise _missing(unscored, requests, prompts, "requests have no score")
    first = rows.row(0, named=True)
    raise ScoreError(
        f"{first['dataset']}, position {first['position']}: {first['n_scores']} scores for the "
        f"{len(first['continuations'])} labels {first['continuations']}. The scores belong to another store."
    )


def warn_if_equal(scores: pl.LazyFrame) -> None:
    """Log a warning if the label log-likelihoods are the same for all prompts, so that they do not depend on the text.

    Prompts are compared only if their labels have equal numbers of tokens: even if all tokens had one log-probability,
    labels of other lengths would differ. Imported answers without probabilities have infinite log-likelihoods, may all
    name one label, and are ignored.

    Args:
        scores: schemas.SCORES.
    """
    labels = pl.col("label_log_likelihoods")
    several = scores.filter(labels.list.len() > 1, labels.list.min().is_finite())
    counts = several.group_by("label_token_counts").agg(pl.len().alias("n"), distinct=labels.hash().n_unique())
    sizes = counts.select(pl.col("n").max(), pl.col("distinct").max()).collect(engine="streaming").row(0, named=True)
    if sizes["distinct"] == 1 and sizes["n"] > 1:
        logger.warning(
            "All prompts have the same log-likelihoods of their labels, whatever they say: the server or the model "
            "does not read them. No number of this run means anything."
        )


def require_states(requests: pl.LazyFrame, prompts: pl.LazyFrame, states: pl.LazyFrame) -> None:
    """Raise ScoreError unless every prompt has a hidden state.

    Args:
        requests: schemas.REQUESTS of these prompts, for messages.
        prompts: schemas.PROMPTS with ask "state".
        states: schemas.HIDDEN_STATES.
    """
    missing = prompts.select("prompt_id").join(states, on=PROMPTS_KEY, how="anti").collect(engine="streaming")
    if not missing.is_empty():
        rows = requests.join(missing.lazy(), on=PROMPTS_KEY, how="semi").sort(schemas.REQUESTS_KEY).collect()
        raise _missing(rows, requests, prompts, "hidden states are missing")


def _missing(rows: pl.DataFrame, requests: pl.LazyFrame, prompts: pl.LazyFrame, what: str) -> ScoreError:
    """Return the error about requests, `rows`, whose prompts have no score or hidden state."""
    n = requests.join(prompts, on=PROMPTS_KEY, how="semi").select(pl.len()).collect().item()
    place = ", ".join(rows.select("suite", "part", "dataset").row(0))
    return ScoreError(
        f"{rows.height} of {n} {what}; the first is {place}, position {rows['position'][0]}. Finish with "
        "`evaluator score`."
    )


def longest_tokens() -> pl.Expr:
    """Return the number of tokens of a row of schemas.TOKENS: its context plus its longest continuation.

    A row with ask "state" has no continuation and counts one more token, because vLLM always samples a token.
    """
    continuation = pl.col("continuations").list.eval(pl.element().list.len()).list.max()
    return pl.col("context").list.len() + continuation.fill_null(pl.when(pl.col("ask") == "state").then(1).otherwise(0))


def check_prompt_lengths(tokens: pl.LazyFrame, prompts: pl.LazyFrame, context_length: int | None) -> None:
    """Raise PromptTooLongError, listing the longest prompts, if a prompt and its longest label exceed the context.

    Args:
        tokens: schemas.TOKENS of a store.
        prompts: schemas.PROMPTS of the same store.
        context_length: the model's context length in tokens; None: no limit.
    """
    if context_length is None:
        return
    lengths = tokens.filter(pl.col("ask") != "last_tokens").select("prompt_id", n=longest_tokens())
    over = lengths.filter(pl.col("n") > context_length).collect(engine="streaming")
    if over.is_empty():
        return
    too_long = over.lazy().join(prompts, on=PROMPTS_KEY).sort("n", "prompt").collect()
    listed = "".join(f"\n  {row['n']} tokens: {row['prompt'][:60]!r}..." for row in too_long.tail(3).to_dicts())
    n_prompts = prompts.select(pl.len()).collect().item()
    raise PromptTooLongError(
        f"{too_long.height} of {n_prompts} prompts with their labels are longer than the model's context of "
        f"{context_length} tokens, and prompts are never truncated. The longest:{listed}\n"
        "Use fewer demonstrations (--shots), leave out the dataset (--datasets), or choose a model with a longer "
        "context; some have one with --engine transformers (docs/models.md)."
    )


def check_vocabulary(tokens: pl.LazyFrame, prompts: pl.LazyFrame, tokenizer: TextTokenizer, vocab_size: int) -> None:
    """Raise VocabularyError, naming the first prompt and token, if a token id is outside the model's embedding.

    Args:
        tokens: schemas.TOKENS of a store.
        prompts: schemas.PROMPTS of the same store.
        tokenizer: the model's tokenizer, for the message.
        vocab_size: number of rows of the model's embedding.
    """
    largest = pl.max_horizontal(
        pl.col("context").list.max(), pl.col("continuations").list.eval(pl.element().list.max()).list.max()
    )
    past = tokens.select("prompt_id", n=largest).filter(pl.col("n") >= vocab_size).collect(engine="streaming")
    if past.is_empty():
        return
    first = past.lazy().join(prompts, on=PROMPTS_KEY).sort("prompt").head(1).collect().row(0, named=True)
    raise VocabularyError(
        f"{past['prompt_id'].n_unique():,} prompts have tokens that the model has no embedding for: "
        f"{tokenizer.pieces([first['n']])[0]!r} is token {first['n']:,}, and the embedding has {vocab_size:,} rows. "
        f"The first prompt begins {first['prompt'][:60]!r}, its labels are {first['continuations']}. Use the "
        "tokenizer that belongs to the model, or resize its embedding; or leave out the dataset (--datasets)."
    )


Kind = Literal["scores", "states"]
"""Content of a shard: log-likelihoods or hidden states. Names of plans and shards begin with this word."""


class PlanKey(NamedTuple):
    """The key of a plan in a manifest, "KIND-ROWS" or "KIND-ROWS.VERSION"; the names of its shards begin with it."""

    kind: Kind
    rows: str  # digest of the token ids of the planned rows
    version: int = 0  # increased by one when reused scores are lost and the same rows are planned again

    @classmethod
    def parse(cls, text: str) -> "PlanKey":
        """Return the key from its text in a manifest."""
        kind, _, rest = text.partition("-")
        rows, _, version = rest.partition(".")
        return cls("states" if kind == "states" else "scores", rows, int(version or 0))

    def __str__(self) -> str:
        return f"{self.kind}-{self.rows}" + (f".{self.version}" if self.version else "")

    def has_rows_of(self, other: "PlanKey") -> bool:
        """Return whether both keys belong to plans for the same kind and rows."""
        return self[:2] == other[:2]

    def names(self, shard: str) -> bool:
        """Return whether `shard` is the file name of a shard of this plan."""
        return shard.startswith(f"{self}-")


SCHEMAS: dict[str, pl.Schema] = {"scores": schemas.TOKEN_SCORES, "states": schemas.TOKEN_STATES}


@dataclass(frozen=True, kw_only=True)
class ShardRecord:
    """One finished shard, with its tokens and time."""

    sha256: str
    prompts: int
    prompt_tokens: int
    cached_tokens: int
    elapsed_s: float
    finished_s: float = 0.0  # time in seconds since 1970; 0 for imported answers
    replica: int = 0  # number of the replica that computed the shard


@dataclass(frozen=True, kw_only=True)
class PlanRecord:
    """The sources of the scores of a set of rows: shards of earlier runs, and new shards."""

    reused: dict[str, str]  # path of a reused shard below the folder of the model and engine -> SHA-256
    prompts: int  # number of prompts that this plan scores; reused_prompts are not among them
    reused_prompts: int  # number of prompts whose rows are all in reused shards
    shard_tokens: int  # computed tokens of a shard; 0 in a plan that is not written yet
    shares_prefixes: bool  # whether the engine computes a shared prefix only once
    min_shard_tokens: int = 1  # minimum with several replicas, for which shards get smaller towards the end
    n_replicas: int = 1  # number of replicas for which the shards were cut
    reused_rows: int = 0  # number of rows in reused shards; if some are lost, the plan is replaced


@dataclass(frozen=True, kw_only=True)
class ScoreManifest:
    """The content of manifest.json in a folder of scores."""

    engine: EngineRecord | None = None  # None: all rows have scores from earlier runs
    plans: dict[str, PlanRecord] = field(default_factory=dict)  # text of a PlanKey -> plan
    shards: dict[str, ShardRecord] = field(default_factory=dict)  # file name -> finished shard of this folder
    distances: dict[str, str] = field(default_factory=dict)  # method -> SHA-256 of its file of label distances

    @property
    def reused(self) -> dict[str, str]:
        """Return the shards that any plan reuses: path below the folder of the model and engine -> SHA-256."""
        return {name: sha256 for plan in self.plans.values() for name, sha256 in plan.reused.items()}

    def shards_of(self, plans: Iterable[PlanKey]) -> list[ShardRecord]:
        """Return the records of the shards that these plans have written."""
        keys = list(plans)
        return [shard for name, shard in self.shards.items() if any(key.names(name) for key in keys)]

    @property
    def counted_shards(self) -> list[ShardRecord]:
        """Return the shards whose prompts, tokens and time count.

        Shards of a replaced plan do not count, because the newer plan reuses them.
        """
        return self.shards_of(map(PlanKey.parse, self.plans))

    @property
    def written(self) -> dict[str, str]:
        """Return the files in this folder: name -> SHA-256."""
        shards = {name: shard.sha256 for name, shard in self.shards.items()}
        return shards | {distances_file(method): sha256 for method, sha256 in self.distances.items()}


@dataclass(frozen=True)
class ScoreTable:
    """The folder of scores of a set of rows. Shards are verified when the table is opened (open_scores).

    The table is complete once all shards of its plans are finished.
    """

    folder: Path
    manifest: ScoreManifest

    @property
    def name(self) -> str:
        """Return the path of the folder below scores/."""
        return f"{self.folder.parent.name}/{self.folder.name}"

    def read(self, kind: Kind) -> pl.LazyFrame:
        """Return TOKEN_SCORES or TOKEN_STATES from all finished and reused shards, each token_id once."""
        plans = [plan for key, plan in self.manifest.plans.items() if key.startswith(kind)]
        written = [self.folder / name for name in sorted(self.manifest.shards) if name.startswith(kind)]
        reused = [self.folder.parent / name for name in sorted({name for plan in plans for name in plan.reused})]
        if not written + reused:
            return pl.LazyFrame(schema=SCHEMAS[kind])
        rows = scan_arrow(*written, *reused)
        return rows.unique("token_id", keep="first", maintain_order=True) if reused else rows

    def files(self) -> dict[str, str]:
        """Return all files that these scores are read from: path below scores/ -> SHA-256."""
        reused = {f"{self.folder.parent.name}/{name}": sha256 for name, sha256 in self.manifest.reused.items()}
        written = {f"{self.name}/{name}": sha256 for name, sha256 in self.manifest.written.items()}
        return dict(sorted((reused | written).items()))

    def distances(self) -> pl.LazyFrame:
        """Return schemas.LABEL_DISTANCES of all methods with a file of distances."""
        files = [self.folder / distances_file(method) for method in sorted(self.manifest.distances)]
        return pl.concat([pl.LazyFrame(schema=schemas.LABEL_DISTANCES), *map(scan_arrow, files)])

    def write_manifest(self, manifest: ScoreManifest) -> "ScoreTable":
        """Write the manifest, and return the table with this manifest."""
        write_record(self.folder / MANIFEST, manifest)
        return ScoreTable(self.folder, manifest)


def open_scores(folder: Path) -> ScoreTable:
    """Open the scores in a folder, without shards that are missing or changed; without scores, an empty table.

    Missing or changed shards that a plan reuses are removed from the plan, so that plan_rows plans its rows again.
    """
    manifest = read_manifest(folder / MANIFEST, ScoreManifest) or ScoreManifest()
    lost = {*changed(folder, manifest.written)}
    lost_elsewhere = {*changed(folder.parent, manifest.reused)}
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
    """Return schemas.SCORES of the prompts in `tokens` that have token scores, in no particular order.

    Args:
        tokens: schemas.TOKENS.
        token_scores: schemas.TOKEN_SCORES.
    """
    ids = tokens.filter(pl.col("ask") != "state").select("prompt_id", "token_id", "ask")
    rows = token_scores.join(ids, on="token_id")
    whole = rows.filter(pl.col("ask") != "last_tokens")
    last = rows.filter(pl.col("ask") == "last_tokens").select("prompt_id", last_token_log_probs="log_likelihoods")
    # If all labels have one token, there is no row of last tokens, because the log-likelihoods are the same numbers.
    one_token_each = (pl.col("ask") == "labels") & (pl.col("token_counts").list.max() == 1)
    same = pl.when(one_token_each).then(pl.col("log_likelihoods"))
    scores = whole.join(last, on="prompt_id", how="left").select(
        "prompt_id",
        label_log_likelihoods="log_likelihoods",
        last_token_log_probs=pl.coalesce("last_token_log_probs", same),
        label_token_counts="token_counts",
    )
    return scores.cast(schemas.SCORES)


def prompt_states(tokens: pl.LazyFrame, token_states: pl.LazyFrame) -> pl.LazyFrame:
    """Return schemas.HIDDEN_STATES of the prompts in `tokens` that have states, in no particular order.

    Args:
        tokens: schemas.TOKENS.
        token_states: schemas.TOKEN_STATES.
    """
    rows = tokens.filter(pl.col("ask") == "state").select("prompt_id", "token_id")
    return token_states.join(rows, on="token_id").select(schemas.HIDDEN_STATES.names())
