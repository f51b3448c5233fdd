"""The prompts of a store as token ids, once per tokenizer, in prefix order, with the floor of tokens to compute."""

from collections.abc import Collection
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from evaluator.config import LabelBoundary
from evaluator.errors import StoreError
from evaluator.files import MANIFEST, fingerprint, read_record, source_fingerprint, write_record
from evaluator.progress import Progress, Stage
from evaluator.schemas import TOKENS, Definition
from evaluator.store import shards
from evaluator.store.prefix_order import block_floor, prefix_order, token_floor
from evaluator.store.prompt_store import ROWS_PER_SHARD, PromptStore
from evaluator.tokens.boundary import tokenize_prompts
from evaluator.tokens.tokenizer import TextTokenizer

PROMPTS_PER_BATCH = 2_048
BLOCK_SIZES = (16, 32, 128)
"""Prefix-cache blocks the manifest states a floor for: vLLM's on GPU, ours on CPU, vLLM's default on CPU."""


@dataclass(frozen=True, kw_only=True)
class TokenTotals:
    """How many tokens a store comes to, and the floors: what must be computed when nothing is computed twice."""

    request_tokens: int  # repeated prompts included
    tokens: int  # each prompt once
    floor_tokens: int
    block_floor_tokens: dict[str, int]  # size of a block -> the floor where whole blocks are shared


@dataclass(frozen=True, kw_only=True)
class TokenManifest:
    """manifest.json of a folder of tokens."""

    tokenizer: str  # fingerprint of its files
    label_boundary: LabelBoundary
    shards: dict[str, str]  # file -> SHA-256
    counts: TokenTotals


@dataclass(frozen=True)
class TokenTable:
    """Tokens on disk, whole."""

    folder: Path
    manifest: TokenManifest

    @property
    def fingerprint(self) -> str:
        """Digest of the rows themselves: equal tokens have equal ones, whichever store they are of."""
        return fingerprint(list(self.manifest.shards.values()))

    def tokens(self) -> pl.LazyFrame:
        """schemas.TOKENS, in prefix order."""
        return shards.scan_shards(self.folder, list(self.manifest.shards), TOKENS)


def tokenise_store(
    store: PromptStore,
    tokenizer: TextTokenizer,
    tokenizer_fingerprint: str,
    boundary: LabelBoundary,
    definitions: Collection[Definition],
) -> Stage[TokenTable]:
    """Tokenise the store for this tokenizer and label boundary, or find that it was done before.

    Args:
        store: prompts to tokenise.
        tokenizer, tokenizer_fingerprint: the model's; the digest of its files.
        boundary: where a label begins.
        definitions: that the scores are measured under; `released` also scores the last token of labels of several.
    """
    last_tokens = "released" in definitions
    code = source_fingerprint("tokens", "store/prefix_order.py")
    folder = store.folder / f"tokens-{fingerprint(tokenizer_fingerprint, boundary, last_tokens, code)}"
    if (found := open_tokens(folder)) is not None:
        return found
    prompts = store.prompts().collect()
    batches = []
    for start in range(0, prompts.height, PROMPTS_PER_BATCH):
        yield Progress(stage="Tokenising", done=start, total=prompts.height, unit="prompts")
        batches.append(tokenise(tokenizer, prompts.slice(start, PROMPTS_PER_BATCH), boundary))
    yield Progress(stage="Tokenising", done=prompts.height, total=prompts.height, unit="prompts")
    tokens = pl.concat(batches, rechunk=True)
    if last_tokens:
        tokens = with_last_tokens(tokens)
    tokens = tokens[prefix_order(*ragged(tokens["context"]))]
    counts = count_tokens(store.requests(), tokens)
    manifest = TokenManifest(
        tokenizer=tokenizer_fingerprint,
        label_boundary=boundary,
        shards=shards.write_shards(folder, "tokens", tokens, rows=ROWS_PER_SHARD),
        counts=counts,
    )
    write_record(folder / MANIFEST, manifest)
    return TokenTable(folder, manifest)


def count_tokens(requests: pl.LazyFrame, tokens: pl.DataFrame) -> TokenTotals:
    """Count the tokens of all requests and of the distinct prompts, and the floors."""
    lengths = (
        tokens.lazy()
        .filter(pl.col("ask") != "last_tokens")  # the same context once more
        .select("prompt_id", n=pl.col("context").list.len().cast(pl.Int64))
    )
    # Hidden states come from a pass of their own, which shares nothing with that of the log-likelihoods.
    for_states = pl.col("ask") == "state"
    passes = [_in_prefix_order(fed_rows(rows)) for rows in (tokens.filter(~for_states), tokens.filter(for_states))]
    return TokenTotals(
        request_tokens=requests.join(lengths, on="prompt_id").select(pl.col("n").sum()).collect().item(),
        tokens=lengths.select(pl.col("n").sum()).collect().item(),
        floor_tokens=sum(token_floor(*ragged(fed)) for fed in passes),
        block_floor_tokens={str(size): sum(block_floor(*ragged(fed), size) for fed in passes) for size in BLOCK_SIZES},
    )


def _in_prefix_order(rows: pl.Series) -> pl.Series:
    return rows.gather(prefix_order(*ragged(rows)))


def fed_rows(tokens: pl.DataFrame) -> pl.Series:
    """List[i32]: what a model must see, each context and, before a continuation's later tokens, the context with them.

    The last token of a continuation is predicted and never fed.
    """
    stem = pl.col("continuations").list.head(pl.col("continuations").list.len() - 1)
    stems = tokens.lazy().explode("continuations").with_columns(stem=stem).filter(pl.col("stem").list.len() > 0)
    with_stems = stems.select(context=pl.concat_list("context", "stem"))
    return pl.concat([tokens.lazy().select("context"), with_stems]).unique().collect()["context"]


def ragged(rows: pl.Series) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """A List[i32] column as flat values and offsets, without a copy."""
    column = rows.rechunk().to_arrow()
    return column.values.to_numpy(), column.offsets.to_numpy()


def tokenise(tokenizer: TextTokenizer, prompts: pl.DataFrame, boundary: LabelBoundary) -> pl.DataFrame:
    """schemas.PROMPTS to schemas.TOKENS, row by row in the same order."""
    rows = tokenize_prompts(
        tokenizer, prompts["prompt"].to_list(), prompts["ask"].to_list(), prompts["continuations"].to_list(), boundary
    )
    columns = {"prompt_id": prompts["prompt_id"], "ask": prompts["ask"], "context": pl.from_arrow(rows.contexts)}
    return with_token_ids(pl.DataFrame(columns | {"continuations": pl.from_arrow(rows.continuations)}))


def with_last_tokens(tokens: pl.DataFrame) -> pl.DataFrame:
    """Add a row for the last tokens of labels, right after the prompt, where any label has several tokens.

    Where all have one, their log-likelihoods say the same.
    """
    n_tokens = pl.col("continuations").list.eval(pl.element().list.len()).list.max()
    last = pl.col("continuations").list.eval(pl.element().list.tail(1))
    rows = tokens.filter(pl.col("ask") == "labels", n_tokens > 1).with_columns(
        ask=pl.lit("last_tokens"), continuations=last
    )
    return pl.concat([tokens, with_token_ids(rows.drop("token_id"))])


def with_token_ids(rows: pl.DataFrame) -> pl.DataFrame:
    """Add `token_id`, a digest of what is computed and of its tokens. Returns schemas.TOKENS."""
    sizes = pl.col("continuations").list.eval(pl.element().list.len().cast(pl.Int32))
    flat = pl.concat_list(
        pl.col("context").list.len().cast(pl.Int32),
        "context",
        pl.col("continuations").list.len().cast(pl.Int32),
        sizes,
        pl.col("continuations").list.eval(pl.element().explode()),
    )
    values, offsets = ragged(rows.select(flat).to_series())
    content, width = np.ascontiguousarray(values).tobytes(), values.itemsize
    ids = [
        blake2b(content[start * width : end * width], digest_size=16, person=ask.encode()).hexdigest()
        for ask, start, end in zip(rows["ask"].to_list(), offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
    ]
    return rows.with_columns(token_id=pl.Series(ids, dtype=pl.String)).select(
        pl.col(name).cast(dtype) for name, dtype in TOKENS.items()
    )


def open_tokens(folder: Path) -> TokenTable | None:
    """The tokens in this folder, or None when there are none or a shard of them is missing or changed."""
    manifest = read_record(folder / MANIFEST, TokenManifest)
    if manifest is None or not shards.intact(folder, manifest.shards):
        return None
    return TokenTable(folder, manifest)


def require_tokens(folder: Path) -> TokenTable:
    """As open_tokens. Raises StoreError where there are no whole tokens."""
    table = open_tokens(folder)
    if table is None:
        raise StoreError(f"{folder} holds no whole tokens. Run `evaluator score` for this output folder again.")
    return table
