"""Look at how labels are tokenised after their prompts."""

from collections.abc import Callable, Iterator
from itertools import combinations
from typing import NamedTuple

import polars as pl

from evaluator.config import LabelBoundary
from evaluator.preflight.findings import finding
from evaluator.record import FindingRecord, LabelRecord
from evaluator.store.ids import bucket_by_bucket
from evaluator.store.prompt_store import PromptStore
from evaluator.tokens.tokenizer import TextTokenizer

Tokens = list[int]
Test = Callable[[Tokens, Tokens], bool]


class LabelSpace(NamedTuple):
    """The labels of some prompts of a dataset, in order, and their tokens."""

    texts: list[str]
    tokens: list[Tokens]


def label_spaces(store: PromptStore, tokens: pl.LazyFrame) -> dict[str, list[LabelSpace]]:
    """Return the different label spaces of each dataset; those of the most prompts come first.

    Args:
        store: requests and prompts.
        tokens: schemas.TOKENS of some of these prompts.
    """
    # A single continuation is no label space.
    several = tokens.filter(pl.col("ask") == "labels", pl.col("continuations").list.len() > 1)

    def counted(bucket: pl.Expr) -> pl.LazyFrame:
        return (
            several.filter(bucket)
            .select("prompt_id", tokens="continuations")
            .join(store.prompts().filter(bucket).select("prompt_id", texts="continuations"), on="prompt_id")
            .join(store.datasets_of_prompts(bucket), on="prompt_id")
            .group_by("dataset", "texts", "tokens")
            .agg(n=pl.len())
        )

    rows = (
        bucket_by_bucket(store.manifest.n_prompts, counted)
        .group_by("dataset", "texts", "tokens")
        .agg(pl.col("n").sum())
        .sort("dataset", "n", "texts", "tokens", descending=[False, True, False, False])
    )
    spaces: dict[str, list[LabelSpace]] = {}
    for dataset, texts, ids in rows.select("dataset", "texts", "tokens").iter_rows():
        spaces.setdefault(dataset, []).append(LabelSpace(texts, ids))
    return spaces


def label_records(space: LabelSpace, tokenizer: TextTokenizer) -> list[LabelRecord]:
    """Return the labels of a space with their tokens."""
    return [
        LabelRecord(text=text, tokens=ids, pieces=tokenizer.pieces(ids))
        for text, ids in zip(space.texts, space.tokens, strict=True)
    ]


def label_findings(dataset: str, spaces: list[LabelSpace]) -> Iterator[FindingRecord]:
    """Yield what is found in the label spaces of a dataset, each kind with its first example."""
    begins = [pair for space in spaces if (pair := _first_pair(space, _begins))]
    if begins:
        (short, long), where = begins[0], _in_spaces(len(begins), len(spaces))
        yield finding(
            "label-begins-label",
            f"The tokens of {short!r} are the beginning of those of {long!r}{where}, so the longer label is never more "
            "probable as a whole. Choose other label names, or a method that divides by length (per_token, per_byte).",
            dataset,
        )
    shared = [pair for space in spaces if (pair := _first_pair(space, _shares_first))]
    if shared:
        (a, b), where = shared[0], _in_spaces(len(shared), len(spaces))
        yield finding(
            "first-token-shared",
            f"The labels {a!r} and {b!r} begin with the same token{where}: what comes after it tells them apart.",
            dataset,
        )


def space_findings(store: PromptStore, boundary: LabelBoundary) -> Iterator[FindingRecord]:
    """Yield, for each dataset, its prompts that end in a space before a label, and its labels that end in one."""
    ends = pl.col("prompt").str.contains(r"\s$") & ~pl.col("prompt").str.ends_with("\n") & (boundary == "separate")
    labels = pl.col("continuations").list.eval(pl.element().str.contains(r"\s$")).list.any()

    def counted(bucket: pl.Expr) -> pl.LazyFrame:
        return (
            store.prompts()
            .filter(bucket, ask="labels")
            .select("prompt_id", ends=ends, labels=labels)
            .join(store.datasets_of_prompts(bucket), on="prompt_id")
            .group_by("dataset")
            .agg(pl.col("ends", "labels").sum(), n=pl.len())
        )

    by_dataset = bucket_by_bucket(store.manifest.n_prompts, counted).group_by("dataset").sum().sort("dataset")
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


def _begins(a: Tokens, b: Tokens) -> bool:
    return len(a) < len(b) and b[: len(a)] == a


def _shares_first(a: Tokens, b: Tokens) -> bool:
    return a[0] == b[0] and not _begins(a, b)


def _in_spaces(n: int, n_all: int) -> str:
    return f" (in {n:,} of {n_all:,} label spaces)" if n_all > 1 else ""
