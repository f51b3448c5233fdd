"""Token tables: the prompts of a store as token ids, in prefix order, with token counts; one table per tokenizer."""

from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from hashlib import blake2b
from pathlib import Path

import numpy as np
import polars as pl

from evaluator.config import Definition, LabelBoundary
from evaluator.errors import StoreError
from evaluator.files.digests import fingerprint, source_fingerprint
from evaluator.files.json_files import MANIFEST, read_manifest, write_record
from evaluator.progress import Progress, Stage
from evaluator.record import ChatRecord
from evaluator.schemas import PROMPTS, TOKENS
from evaluator.store import ROWS_PER_SHARD, PromptStore, changed, kept, scan_shards, write_shards
from evaluator.tokens.boundary import TextFault, TextFaults, tokenise_prompts, tokens_around
from evaluator.tokens.chat import ChatForm, chat_texts
from evaluator.tokens.rows import TokenRows, TokenTotals, count_tokens, ragged
from evaluator.tokens.tokenizer import TextTokenizer

PROMPTS_PER_BATCH = 2_048
CHARACTERS_PER_BATCH = 2**25  # of prompts, each once by itself and once with each label: 10 million tokens or so


@dataclass(frozen=True, kw_only=True)
class TokenManifest:
    """Content of manifest.json in the folder of a token table."""

    tokenizer: str  # fingerprint of the tokenizer's files
    label_boundary: LabelBoundary
    shards: dict[str, str]  # file -> SHA-256
    counts: TokenTotals
    chat: ChatRecord | None = None  # None: plain prompts
    faults: list[TextFault] = field(default_factory=list)  # first difference of each kind between texts and tokens


@dataclass(frozen=True)
class TokenTable:
    """A complete token table on disk."""

    folder: Path
    manifest: TokenManifest

    @property
    def fingerprint(self) -> str:
        """Return the digest of the rows, which is equal for equal tokens of any store."""
        return rows_fingerprint(self.manifest.shards)

    @cached_property
    def tokens(self) -> pl.LazyFrame:
        """Return a scan of the rows: schemas.TOKENS, in prefix order."""
        return scan_shards(self.folder, list(self.manifest.shards), TOKENS)

    def rows(self) -> TokenRows:
        """Return the same rows as TokenRows, which are read piece by piece."""
        return TokenRows(self.tokens)


def rows_fingerprint(shard_digests: Mapping[str, str]) -> str:
    """Return the digest of a token table's rows, which is also the name of the folders with their scores.

    Args:
        shard_digests: file -> SHA-256, as the manifest lists them.
    """
    return fingerprint(list(shard_digests.values()))


def tokenise_store(
    store: PromptStore,
    tokenizer: TextTokenizer,
    tokenizer_fingerprint: str,
    boundary: LabelBoundary,
    definitions: Collection[Definition],
    chat: ChatForm | None = None,
) -> Stage[TokenTable]:
    """Tokenise a store and write the token table, or open the table if it exists already.

    Args:
        store: prompts to tokenise.
        tokenizer: tokenizer of the model.
        tokenizer_fingerprint: digest of the tokenizer's files.
        boundary: where a label begins.
        definitions: sources of the formulas that are measured; `released` adds rows for the last tokens of labels of
            several tokens.
        chat: chat template for the prompts; None for plain prompts.
    """
    last_tokens = "released" in definitions
    code = source_fingerprint("tokens")
    form = [] if chat is None else [{"chat": chat.fingerprint}]
    name = fingerprint(tokenizer_fingerprint, boundary, last_tokens, code, *store.left_out, *form)
    folder = store.folder / f"tokens-{name}"
    if (existing := open_tokens(folder)) is not None:
        return existing
    faults = TextFaults(tokenizer)
    with ExitStack() as files:
        tokens_of = partial(tokenise, tokenizer, boundary=boundary, chat=chat, faults=faults)
        rows = yield from _unsorted_tokens(store, tokens_of, files, last_tokens=last_tokens)
        tokens = files.enter_context(kept(in_prefix_order(rows), store.folder))
        manifest = TokenManifest(
            tokenizer=tokenizer_fingerprint,
            label_boundary=boundary,
            shards=write_shards(folder, "tokens", tokens, rows_per_shard=ROWS_PER_SHARD),
            counts=count_tokens(store.requests(), tokens, store.folder),
            chat=None if chat is None else replace(chat.record, example=chat_example(chat, store.prompts())),
            faults=faults.found,
        )
    write_record(folder / MANIFEST, manifest)
    return TokenTable(folder, manifest)


def _unsorted_tokens(
    store: PromptStore, tokens_of: Callable[[pl.DataFrame], pl.DataFrame], files: ExitStack, *, last_tokens: bool
) -> Stage[pl.LazyFrame]:
    """Tokenise a store shard by shard, each shard into a temporary file, and return a scan of all files."""
    total = store.prompts().select(pl.len()).collect().item()
    scans, done = [pl.LazyFrame(schema=TOKENS)], 0
    for prompts in store.prompts_by_shard():
        batches = []
        for rows in _batches(prompts):
            yield Progress(stage="Tokenising", done=done, total=total, unit="prompts")
            batches.append(tokens_of(rows))
            done += rows.height
        tokens = pl.concat([TOKENS.to_frame(), *batches])
        tokens = with_last_tokens(tokens) if last_tokens else tokens
        scans.append(files.enter_context(kept(tokens.lazy(), store.folder)))
    yield Progress(stage="Tokenising", done=total, total=total, unit="prompts")
    return pl.concat(scans)


def _batches(prompts: pl.DataFrame) -> list[pl.DataFrame]:
    """Split schemas.PROMPTS into batches that are tokenised at once, so that their tokens fit in memory."""
    characters = pl.col("prompt").str.len_chars().cast(pl.Int64) * (1 + pl.col("continuations").list.len())
    size = pl.max_horizontal(characters, CHARACTERS_PER_BATCH // PROMPTS_PER_BATCH)
    batch = prompts.select((size.cum_sum() - 1) // CHARACTERS_PER_BATCH).to_series()
    return prompts.with_columns(batch=batch).partition_by("batch", maintain_order=True, include_key=False)


def in_prefix_order(rows: pl.LazyFrame) -> pl.LazyFrame:
    """Sort rows of schemas.TOKENS by context; equal contexts keep their order, except that "last_tokens" come last."""
    return rows.with_row_index("row").sort("context", pl.col("ask") == "last_tokens", "row").drop("row")


def tokenise(
    tokenizer: TextTokenizer,
    prompts: pl.DataFrame,
    boundary: LabelBoundary,
    chat: ChatForm | None = None,
    faults: TextFaults | None = None,
) -> pl.DataFrame:
    """Tokenise rows of schemas.PROMPTS; return schemas.TOKENS in the same order.

    With a chat template, prompts with `spans` become conversations; other texts stay plain.

    Args:
        tokenizer: tokenizer of the model.
        prompts: schemas.PROMPTS.
        boundary: where a label begins.
        chat: chat template; None for plain prompts.
        faults: collects prompts whose tokens decode to another text.
    """
    numbered = prompts.with_row_index("row")
    asking, tables = pl.col("spans").is_not_null() & pl.lit(chat is not None), []
    for rows, form in ((numbered.filter(asking), chat), (numbered.filter(~asking), None)):
        if form is None:
            texts, continuations = rows["prompt"].to_list(), rows["continuations"].to_list()
        else:
            texts, continuations = chat_texts(form, rows)
        asks, is_plain = rows["ask"].to_list(), form is None  # a template writes the special tokens itself
        tokens = tokenise_prompts(tokenizer, texts, asks, continuations, boundary, special_tokens=is_plain)
        if faults is not None:
            n_front = tokens_around(tokenizer)[0] if is_plain else 0
            faults.add(rows, texts, continuations, tokens, n_front)
        columns = pl.Series("context", tokens.contexts), pl.Series("continuations", tokens.continuations)
        tables.append(rows.select("row", "prompt_id", "ask").with_columns(*columns))
    return with_token_ids(pl.concat(tables).sort("row"))


def chat_example(chat: ChatForm, prompts: pl.LazyFrame) -> str:
    """Return an example of a conversation, up to the end of its first label.

    It is the prompt of median length among the prompts with the most demonstrations; "" if none asks for labels.
    """
    sizes = prompts.select("ask", n=pl.col("spans").list.len(), n_chars=pl.col("prompt").str.len_chars())
    numbered = sizes.with_row_index("row").collect(engine="streaming")
    longest = numbered.filter(pl.col("n") == pl.col("n").max(), ask="labels").sort("n_chars")
    row = longest["row"].slice(longest.height // 2, 1)
    rows = chat_texts(chat, prompts.slice(row.item(), 1).collect() if len(row) else PROMPTS.to_frame())
    return "".join(text + labels[0] for text, labels in zip(*rows, strict=True))


def with_last_tokens(tokens: pl.DataFrame) -> pl.DataFrame:
    """Add to each prompt with a label of several tokens a row whose continuations are the last tokens of its labels.

    If all labels have one token, no row is needed: the log-likelihood of a label is that of its last token.
    """
    n_tokens = pl.col("continuations").list.eval(pl.element().list.len()).list.max()
    last = pl.col("continuations").list.eval(pl.element().list.tail(1))
    rows = tokens.filter(pl.col("ask") == "labels", n_tokens > 1).with_columns(
        ask=pl.lit("last_tokens"), continuations=last
    )
    return pl.concat([tokens, with_token_ids(rows.drop("token_id"))])


def with_token_ids(rows: pl.DataFrame) -> pl.DataFrame:
    """Add `token_id`, a digest of ask, context and continuations. Returns schemas.TOKENS."""
    # One flat row of numbers per request: lengths and tokens. With the lengths, different requests give different rows.
    sizes = pl.col("continuations").list.eval(pl.element().list.len().cast(pl.Int32))
    flat = pl.concat_list(
        pl.col("context").list.len().cast(pl.Int32),
        "context",
        pl.col("continuations").list.len().cast(pl.Int32),
        sizes,
        pl.col("continuations").list.eval(pl.element().explode()),
    )
    values, offsets = ragged(rows.select(flat).to_series())
    # Hash each row's bytes; `person` (personalisation of BLAKE2) gives another digest to another `ask`.
    content, width = np.ascontiguousarray(values).tobytes(), values.itemsize
    ids = [
        blake2b(content[start * width : end * width], digest_size=16, person=ask.encode()).hexdigest()
        for ask, start, end in zip(rows["ask"].to_list(), offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
    ]
    return rows.with_columns(token_id=pl.Series(ids, dtype=pl.String)).select(TOKENS.names()).cast(TOKENS)


def open_tokens(folder: Path) -> TokenTable | None:
    """Open the tokens in a folder; None if there are none or a shard is missing or changed."""
    manifest = read_manifest(folder / MANIFEST, TokenManifest)
    if manifest is None or changed(folder, manifest.shards):
        return None
    return TokenTable(folder, manifest)


def require_tokens(folder: Path, hint: str) -> TokenTable:
    """Open the tokens in a folder. Raises StoreError, ending in `hint`, if they are missing or incomplete."""
    table = open_tokens(folder)
    if table is None:
        raise StoreError(f"{folder} holds no complete tokens. {hint}")
    return table
