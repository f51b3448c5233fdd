"""Look at how labels are tokenised after their prompts.

Look at the tokens that are sent: the first of each prompt, control tokens in texts, and texts that are changed.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

import polars as pl

from evaluator.config import LabelBoundary
from evaluator.models.source import ModelSource
from evaluator.preflight.findings import finding
from evaluator.record import FindingRecord, LabelRecord
from evaluator.redaction import folded
from evaluator.schemas import PROMPTS_KEY
from evaluator.scores.table import longest_tokens
from evaluator.store import PromptStore, id_numbers
from evaluator.tokens.boundary import TextFault
from evaluator.tokens.chat import ChatForm
from evaluator.tokens.tokenizer import TextTokenizer

Tokens = list[int]
Test = Callable[[Tokens, Tokens], bool]


class LabelSpace(NamedTuple):
    """The labels of some prompts of a dataset, in order, and their tokens."""

    texts: list[str]
    tokens: list[Tokens]


def prompt_kinds(store: PromptStore, tokens: pl.LazyFrame, boundary: LabelBoundary) -> pl.DataFrame:
    """Count the prompts of each dataset by what they ask.

    Args:
        store: requests and prompts.
        tokens: schemas.TOKENS of some of these prompts, a row a prompt.
        boundary: where a label begins.

    Returns dataset, is_of_labels, texts and tokens (digests of the continuations), n_continuations, n_prompts, n_tokens
    (of the longest prompt with its longest continuation), n_end_in_space (prompts before a label),
    n_labels_end_in_space (prompts with such a label), and number, the id of one of these prompts. What tokens tell is
    null for other prompts.
    """
    # Ids and digests are numbers, so that little is joined.
    number, continuations = id_numbers("prompt_id").alias("number"), pl.col("continuations")
    ends = pl.col("prompt").str.contains(r"\s$") & ~pl.col("prompt").str.ends_with("\n") & (boundary == "separate")
    prompts = store.prompts().select(
        number,
        is_of_labels=pl.col("ask") == "labels",
        texts=continuations.hash(),
        n_end_in_space=ends,
        n_labels_end_in_space=continuations.list.eval(pl.element().str.contains(r"\s$")).list.any(),
    )
    tokenised = tokens.select(
        number,
        tokens=continuations.hash(),
        n_continuations=continuations.list.len(),
        n_tokens=longest_tokens(),
    )
    requests = store.requests().select(number, pl.col("dataset").cast(pl.Categorical)).unique()
    kind = ["dataset", "is_of_labels", "texts", "tokens", "n_continuations"]
    counts = [pl.col("n_tokens").max(), pl.col("number").min()]
    counts += [pl.col("n_prompts", "n_end_in_space", "n_labels_end_in_space").sum()]

    joined = prompts.join(tokenised, on="number", how="left").join(requests, on="number").with_columns(n_prompts=1)
    return joined.group_by(kind).agg(counts).with_columns(pl.col("dataset").cast(pl.String)).collect(engine="streaming")


def longest_prompts(kinds: pl.DataFrame) -> dict[str, int]:
    """Return the tokens of each dataset's longest prompt with its longest label, from prompt_kinds."""
    return dict(kinds.group_by("dataset").agg(pl.col("n_tokens").max()).drop_nulls().iter_rows())


def label_spaces(kinds: pl.DataFrame, store: PromptStore, tokens: pl.LazyFrame) -> dict[str, list[LabelSpace]]:
    """Return the different label spaces of each dataset; those of the most prompts come first.

    Args:
        kinds: prompt_kinds of the store and tokens.
        store, tokens: which have the texts and tokens of labels.
    """
    # A single continuation is no label space.
    found = kinds.lazy().filter("is_of_labels", pl.col("n_continuations") > 1).select("dataset", "number", "n_prompts")
    texts, ids = (
        rows.select(id_numbers("prompt_id").alias("number"), pl.col("continuations").alias(name)).join(
            found.select("number"), on="number", how="semi"
        )
        for name, rows in (("texts", store.prompts()), ("tokens", tokens))
    )
    rows = (
        found.join(texts, on="number")
        .join(ids, on="number")
        .sort("dataset", "n_prompts", "texts", "tokens", descending=[False, True, False, False])
        .select("dataset", "texts", "tokens")
        .collect(engine="streaming")
    )
    spaces: dict[str, list[LabelSpace]] = {}
    for dataset, labels, of_labels in rows.iter_rows():
        spaces.setdefault(dataset, []).append(LabelSpace(labels, of_labels))
    return spaces


def label_records(space: LabelSpace, tokenizer: TextTokenizer) -> list[LabelRecord]:
    """Return the labels of a space with their tokens."""
    return [
        LabelRecord(text=text, tokens=ids, pieces=tokenizer.pieces(ids))
        for text, ids in zip(space.texts, space.tokens, strict=True)
    ]


def _begins(a: Tokens, b: Tokens) -> bool:
    return len(a) < len(b) and b[: len(a)] == a


_PAIRS: Sequence[tuple[str, Test, str]] = (
    (
        "label-begins-label",
        _begins,
        "The tokens of {!r} are the beginning of those of {!r}{}, so the longer label is never more probable as a "
        "whole. Choose other label names, or a method that divides by length (per_token, per_byte).",
    ),
    (
        "first-token-shared",
        lambda a, b: a[0] == b[0] and not _begins(a, b),
        "The labels {!r} and {!r} begin with the same token{}: what comes after it tells them apart.",
    ),
)
"""Findings about two labels of a space: name, the test of their tokens, and the text about the first such pair."""


def label_findings(dataset: str, spaces: list[LabelSpace]) -> Iterator[FindingRecord]:
    """Yield the findings about the label spaces of a dataset, each kind with its first example."""
    for name, test, text in _PAIRS:
        if pairs := [pair for space in spaces if (pair := _first_pair(space, test))]:
            where = f" (in {len(pairs):,} of {len(spaces):,} label spaces)" if len(spaces) > 1 else ""
            yield finding(name, text.format(*pairs[0], where), dataset)


def similar_label_findings(dataset: str, spaces: Iterable[Sequence[str]]) -> Iterator[FindingRecord]:
    """Yield a finding for the first labels of a dataset that are equal once they are folded."""
    for space in spaces:
        seen: dict[str, str] = {}
        for label in dict.fromkeys(space):
            first = seen.setdefault(folded(label), label)
            if first != label:
                yield finding(
                    "similar-labels",
                    f"The labels {first!a} and {label!a} differ only in case, white space or forms of the same "
                    "characters, and are asked about as two. If they are one label, give both cells one name: "
                    '--labels FILE, a TOML file of cell = "name".',
                    dataset,
                )
                return


def numeric_label_findings(dataset: str, labels: Sequence[str]) -> Iterator[FindingRecord]:
    """Yield a finding if the labels of a dataset are numbers with a fraction, as tables with missing cells have."""
    if all(re.fullmatch(r"-?[0-9]+\.[0-9]+", label) for label in labels):
        named = ",".join(f"{label}=NAME" for label in labels)
        text = f"The labels {', '.join(labels)} are numbers and say nothing of a text. Name them: --labels {named}."
        yield finding("numeric-labels", text, dataset)


def space_findings(kinds: pl.DataFrame) -> Iterator[FindingRecord]:
    """Yield, for each dataset, its prompts that end in a space before a label, and its labels that end in one.

    Args:
        kinds: prompt_kinds.
    """
    counts = pl.col("n_end_in_space", "n_labels_end_in_space", "n_prompts").sum()
    by_dataset = kinds.filter("is_of_labels").group_by("dataset").agg(counts).sort("dataset")
    for dataset, n_ends, n_labels, n in by_dataset.iter_rows():
        if n_ends:
            yield finding(
                "trailing-space",
                f"{n_ends:,} of {n:,} prompts end in a space, which is a token of its own before the label. With "
                "--label-boundary merged it is part of the label's first token.",
                dataset,
            )
        if n_labels:
            yield finding("trailing-space", f"Labels of {n_labels:,} of {n:,} prompts end in white space.", dataset)


def _first_pair(space: LabelSpace, test: Test) -> tuple[str, str] | None:
    """Return the texts of the first two labels whose tokens pass a test, the shorter first."""
    labels = sorted(zip(space.tokens, space.texts, strict=True), key=lambda label: len(label[0]))
    return next(((a, b) for (ids_a, a), (ids_b, b) in combinations(labels, 2) if test(ids_a, ids_b)), None)


def first_token_findings(
    source: ModelSource, chat: ChatForm | None, store: PromptStore, tokens: pl.LazyFrame
) -> Iterator[FindingRecord]:
    """Yield findings about prompts that begin without the token that the model expects first, or with it twice.

    Args:
        source: the model.
        chat: its chat template, if prompts go through one.
        store: prompts.
        tokens: schemas.TOKENS of these prompts, as they are sent.
    """
    if source.bos is None:
        return
    first, second = (pl.col("context").list.get(place, null_on_oob=True) == source.bos for place in (0, 1))
    rows = tokens.select("prompt_id", lacks=~first, repeats=first & second.fill_null(False))
    n_lacking, n_repeating, n_rows = (
        rows.select(pl.col("lacks").sum(), pl.col("repeats").sum(), n=pl.len()).collect(engine="streaming").row(0)
    )
    bos = source.tokenizer.pieces([source.bos])[0]
    if n_lacking:
        lacking = rows.filter("lacks").join(store.prompts(), on=PROMPTS_KEY).select("prompt").sort("prompt").head(1)
        prompt = lacking.collect(engine="streaming").item()
        why = "which the chat template does not write" if chat else "which the tokenizer does not put there"
        yield finding(
            "missing-bos",
            f"{n_lacking:,} of {n_rows:,} prompts, the first {prompt[:40]!r}..., do not begin with {bos!r} (token "
            f"{source.bos}), the model's BOS, {why}. Models that were trained with it can lose much accuracy: "
            "--add-bos puts it there.",
        )
    if n_repeating:
        yield finding(
            "repeated-bos",
            f"{n_repeating:,} of {n_rows:,} prompts begin with {bos!r} (token {source.bos}) twice: the text itself "
            "begins with BOS, which the tokenizer adds. Remove it from the text.",
        )


_FAULTS = {
    "control token": (
        "control-tokens",
        "{n} contain control tokens in their own texts or labels; the first: {written!r}. The model reads {read!r} as "
        "the token of a conversation or of the end of a text, not as these letters. Remove or rewrite it in the data "
        "(--data) or in the label names (--labels).",
    ),
    "label": (
        "changed-labels",
        "In {n} a label is not what its tokens say: {written!r} becomes {read!r} (tokens {tokens}). Try "
        "--label-boundary {other}, or other label names (--labels).",
    ),
    "prompt": (
        "changed-prompts",
        "{n} are not what their tokens say: {written!r} becomes {read!r}. The tokenizer does not have these "
        "characters, or changes them: rewrite them in the data (--data), or choose a --model that reads them.",
    ),
}
"""Kind of fault -> the finding and its text."""


def fault_findings(faults: Sequence[TextFault], n_prompts: int, boundary: LabelBoundary) -> Iterator[FindingRecord]:
    """Yield a finding for each kind of difference between prompts and their tokens.

    Args:
        faults: found while the prompts were tokenised.
        n_prompts: of the run.
        boundary: where a label begins.
    """
    other = "merged" if boundary == "separate" else "separate"
    for fault in faults:
        name, text = _FAULTS[fault.kind]
        n, tokens = f"{fault.n_prompts:,} of {n_prompts:,} prompts", " ".join(fault.tokens)
        yield finding(name, text.format(n=n, written=fault.written, read=fault.read, tokens=tokens, other=other))


def template_findings(source: ModelSource, chat: ChatForm | None) -> Iterator[FindingRecord]:
    """Yield findings about a chat template that is not applied, or opens answers with a thought."""
    if chat is None and source.has_chat_template:
        yield finding(
            "chat-template-unused",
            "The model's tokenizer has a chat template; prompts are sent as plain text, as the benchmark defines them. "
            "--chat-template auto applies it.",
        )
    thought = chat.unwritten_thought() if chat else None
    if thought:
        yield finding(
            "unwritten-thought",
            f"The chat template opens an answer with {thought!r}. Labels are scored without it, or within a thought "
            "that has no end, and the model does not answer so. Name a --chat-template FILE that writes no thought, or "
            "an empty one before every answer.",
        )
