"""The prompts of a store as token ids, once per tokenizer, in prefix order, with the floor of tokens to compute."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from evaluator.config import LabelBoundary
from evaluator.files import fingerprint, read_json, write_json
from evaluator.models.source import ModelSource
from evaluator.progress import Progress, Stage
from evaluator.run.build import ROWS_PER_SHARD, PromptStore
from evaluator.schemas import TOKENS
from evaluator.store import shards
from evaluator.store.prefix_order import block_floor, prefix_order, token_floor
from evaluator.tokens.boundary import tokenize_prompts
from evaluator.tokens.tokenizer import TextTokenizer

PROMPTS_PER_BATCH = 2_048
BLOCK_SIZES = (16, 32, 128)
"""Prefix-cache blocks the manifest states a floor for: vLLM's on GPU, ours on CPU, vLLM's default on CPU."""


@dataclass(frozen=True)
class TokenTable:
    """Tokens on disk, whole."""

    folder: Path
    manifest: dict[str, Any]

    @property
    def fingerprint(self) -> str:
        return self.folder.name

    def tokens(self) -> pl.LazyFrame:
        """schemas.TOKENS, in prefix order."""
        return shards.scan_shards(self.folder, list(self.manifest["shards"]), TOKENS)

    def counts(self, block_tokens: int | None) -> dict[str, Any]:
        """What a report says of the tokens; the block floor is that of the engine's blocks, if it has any."""
        floors = self.manifest["block_floor_tokens"]
        counts = {name: self.manifest[name] for name in ("request_tokens", "tokens", "floor_tokens")}
        return counts | {"block_tokens": block_tokens, "block_floor_tokens": floors.get(str(block_tokens))}


def tokenise_store(store: PromptStore, source: ModelSource, boundary: LabelBoundary) -> Stage[TokenTable]:
    """Tokenise the store for this tokenizer and label boundary, or find that it was done before."""
    tokenizer_fingerprint = source.tokenizer_fingerprint
    folder = store.folder / f"tokens-{fingerprint(tokenizer_fingerprint, boundary)}"
    if (found := open_tokens(folder)) is not None:
        return found
    prompts = store.prompts().collect()
    tokenizer = source.tokenizer
    batches = []
    for start in range(0, prompts.height, PROMPTS_PER_BATCH):
        yield Progress(stage="Tokenising", done=start, total=prompts.height, unit="prompts")
        batches.append(tokenise(tokenizer, prompts.slice(start, PROMPTS_PER_BATCH), boundary))
    yield Progress(stage="Tokenising", done=prompts.height, total=prompts.height, unit="prompts")
    tokens = pl.concat(batches, rechunk=True)
    tokens = tokens[prefix_order(*ragged(tokens["context"]))]
    manifest = {
        "tokenizer": tokenizer_fingerprint,
        "label_boundary": boundary,
        "shards": shards.write_shards(folder, "tokens", tokens, rows=ROWS_PER_SHARD),
        **count_tokens(store.requests(), tokens),
    }
    write_json(folder / shards.MANIFEST, manifest)
    return TokenTable(folder, manifest)


def count_tokens(requests: pl.LazyFrame, tokens: pl.DataFrame) -> dict[str, Any]:
    """Tokens of all requests, of the distinct prompts, and the floors: what must be computed when nothing is twice."""
    lengths = tokens.lazy().select("prompt_id", n=pl.col("context").list.len().cast(pl.Int64))
    # Hidden states come from a pass of their own, which shares nothing with that of the log-likelihoods.
    for_states = pl.col("ask") == "state"
    passes = [_in_prefix_order(fed_rows(rows)) for rows in (tokens.filter(~for_states), tokens.filter(for_states))]
    return {
        "request_tokens": requests.join(lengths, on="prompt_id").select(pl.col("n").sum()).collect().item(),
        "tokens": lengths.select(pl.col("n").sum()).collect().item(),
        "floor_tokens": sum(token_floor(*ragged(fed)) for fed in passes),
        "block_floor_tokens": {
            str(size): sum(block_floor(*ragged(fed), size) for fed in passes) for size in BLOCK_SIZES
        },
    }


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
    prompt, ask, continuations = (prompts[name].to_list() for name in ("prompt", "ask", "continuations"))
    rows = tokenize_prompts(tokenizer, prompt, ask, continuations, boundary)
    columns = {**prompts.select("prompt_id", "ask").to_dict(), "context": pl.from_arrow(rows.contexts)}
    return pl.DataFrame(columns | {"continuations": pl.from_arrow(rows.continuations)}, schema=TOKENS)


def open_tokens(folder: Path) -> TokenTable | None:
    """The tokens in this folder, or None when there are none or a shard of them is missing or changed."""
    manifest = read_json(folder / shards.MANIFEST)
    if manifest is None or not shards.intact(folder, manifest["shards"]):
        return None
    return TokenTable(folder, manifest)
