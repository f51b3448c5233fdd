"""Tokens of a run's prompts, of all or of a sample, and the datasets that cannot be scored."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import polars as pl

from evaluator.errors import LabelError, PromptTooLongError
from evaluator.progress import Stage
from evaluator.run.build import Built
from evaluator.run.resolved_models import ResolvedModel
from evaluator.run.tokenise import check_tokens, refusals, tokenise_scorable, tokens_of
from evaluator.schemas import TOKENS
from evaluator.store.prompt_store import PromptStore
from evaluator.tokens.counts import TokenTotals, count_tokens

SAMPLED = 8_192
"""Prompts of a sample, about."""

BLOCK = 256
"""Neighbouring prompts that are sampled together, so that what they share is seen."""

_CHOSEN = pl.Schema({"prompt_id": pl.String(), "n_bytes": pl.UInt32()})

BLOCK_TOKENS = "16"  # of the floor that estimates are made from: vLLM's prefix cache on a GPU


class Examined(NamedTuple):
    """The tokens of all prompts, or of a sample."""

    tokens: pl.LazyFrame  # schemas.TOKENS
    counts: TokenTotals  # of all prompts; estimates if it is a sample
    refused: Mapping[str, LabelError | PromptTooLongError]  # dataset that cannot be scored -> why


def examine(built: Built, resolved: ResolvedModel) -> Stage[Examined]:
    """Tokenise all prompts; the tokens stay in the store, where scoring finds them."""
    try:
        table, refused = yield from tokenise_scorable(built, built.store, resolved)
    except (LabelError, PromptTooLongError):
        refused = refusals(built, built.store, resolved)
        if not refused:
            raise
        nothing = TokenTotals(request_tokens=0, tokens=0, floor_tokens=0, block_floor_tokens={BLOCK_TOKENS: 0})
        return Examined(pl.LazyFrame(schema=TOKENS), nothing, refused)
    tokens = table.tokens().filter(pl.col("ask") != "last_tokens")
    return Examined(tokens, table.manifest.counts, refused)


@dataclass(frozen=True)
class _Sample(PromptStore):
    """Some of the prompts of a store."""

    chosen: pl.DataFrame = field(default_factory=pl.DataFrame)  # prompt_id

    def requests(self) -> pl.LazyFrame:
        return super().requests().join(self.chosen.lazy(), on="prompt_id", how="semi", maintain_order="left")

    def prompts(self) -> pl.LazyFrame:
        return super().prompts().join(self.chosen.lazy(), on="prompt_id", how="semi", maintain_order="left")


def _sample(store: PromptStore, prompts: pl.DataFrame) -> _Sample:
    return _Sample(
        store.folder, store.manifest, store.left_out, store.hint, store.verified, prompts.select("prompt_id")
    )


def examine_sample(built: Built, resolved: ResolvedModel) -> Examined:
    """Tokenise a sample: blocks of neighbours, a prompt of every label space, and the longest prompts.

    Counts are those of the blocks times the ratio of all bytes to their bytes.
    """
    store = built.store
    blocks, others = _chosen_prompts(store, resolved.source.context_length)
    sample = _sample(store, pl.concat([blocks, others]).unique("prompt_id"))
    tokens, refused = _tokens_of_sample(built, sample, resolved)
    in_blocks = tokens.join(blocks.select("prompt_id"), on="prompt_id", how="semi")
    counted = count_tokens(_sample(store, blocks).requests(), in_blocks)
    n_bytes = blocks.join(in_blocks.select("prompt_id"), on="prompt_id", how="semi")["n_bytes"].sum()
    kept = store.without(refused).prompts().select(pl.col("prompt").str.len_bytes().sum()).collect().item()
    return Examined(tokens.lazy(), _scaled(counted, kept / n_bytes if n_bytes else 0.0), refused)


def _chosen_prompts(store: PromptStore, context_length: int | None) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the blocks of a sample, and its other prompts: prompt_id and n_bytes. Reads the store shard by shard."""
    n_prompts = store.prompts().select(pl.len()).collect().item()
    n_blocks = SAMPLED // BLOCK
    # Blocks begin at equal distances in the order of texts, which is nearly that of the tokens.
    starts = [number * (n_prompts - BLOCK) // max(n_blocks - 1, 1) for number in range(n_blocks)]
    in_blocks = pl.DataFrame({"row": sorted({row for start in starts for row in range(start, start + BLOCK)})})
    blocks, spaces, longest, first = [], _LabelSpaces(store), [], 0
    for shard in store.prompts_by_shard():
        prompts = shard.with_columns(row=first + pl.int_range(pl.len()), n_bytes=pl.col("prompt").str.len_bytes())
        first += prompts.height
        blocks.append(prompts.join(in_blocks, on="row", how="semi", maintain_order="left").select(_CHOSEN.names()))
        spaces.add(prompts)
        longest.append(_longest(prompts, context_length))
    return pl.concat(blocks), pl.concat([spaces.first, _most_bytes(pl.concat(longest))])


def _tokens_of_sample(
    built: Built, sample: PromptStore, resolved: ResolvedModel
) -> tuple[pl.DataFrame, Mapping[str, LabelError | PromptTooLongError]]:
    """Return schemas.TOKENS of the datasets that can be scored, and the others with the reason."""
    try:
        tokens = tokens_of(sample, resolved)
        check_tokens(built, sample, tokens.lazy(), resolved.source)
        return tokens, {}
    except (LabelError, PromptTooLongError):
        refused = refusals(built, sample, resolved)
        return tokens_of(sample.without(refused), resolved), refused


class _LabelSpaces:
    """The first prompt of each label space of each dataset; of very many label spaces, some of them."""

    def __init__(self, store: PromptStore) -> None:
        self._store = store
        self._seen = pl.DataFrame(schema={"space": pl.UInt64})  # hashes
        self.first = pl.DataFrame(schema=_CHOSEN)

    def add(self, prompts: pl.DataFrame) -> None:
        """Add the prompts of a shard, with n_bytes."""
        datasets = self._store.requests().select("prompt_id", "dataset")
        datasets = datasets.join(prompts.lazy().select("prompt_id"), on="prompt_id", how="semi").unique("prompt_id")
        space = pl.concat_str("dataset", pl.col("continuations").list.join("\0"), separator="\0").hash()
        rows = prompts.join(datasets.collect(), on="prompt_id", maintain_order="left").with_columns(space=space)
        new = rows.unique("space", keep="first").join(self._seen, on="space", how="anti")
        self._seen = pl.concat([self._seen, new.select("space")])
        self.first = pl.concat([self.first, new.select(_CHOSEN.names())]).sort("prompt_id").head(SAMPLED // 4)


def _longest(prompts: pl.DataFrame, context_length: int | None) -> pl.DataFrame:
    """Return the prompts that can be too long: a token has a byte at least, so the others are not."""
    labels = pl.col("continuations").list.eval(pl.element().str.len_bytes()).list.max().fill_null(0)
    return _most_bytes(
        prompts.filter(pl.col("n_bytes") + labels + 8 > (context_length or 2**31)).select(_CHOSEN.names())
    )


def _most_bytes(prompts: pl.DataFrame) -> pl.DataFrame:
    return prompts.sort("n_bytes", "prompt_id", descending=[True, False]).head(SAMPLED // 4)


def _scaled(counts: TokenTotals, factor: float) -> TokenTotals:
    return TokenTotals(
        request_tokens=round(counts.request_tokens * factor),
        tokens=round(counts.tokens * factor),
        floor_tokens=round(counts.floor_tokens * factor),
        block_floor_tokens={size: round(floor * factor) for size, floor in counts.block_floor_tokens.items()},
    )
