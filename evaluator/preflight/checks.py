"""Check the prompts of a run before they are scored.

Checks cover labels and their tokens, classes of queries, demonstration sets, the first token of prompts, control tokens
in texts, and texts that tokenisation changes.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations, groupby
from operator import itemgetter
from typing import NamedTuple

import polars as pl

from evaluator.config import LabelBoundary
from evaluator.errors import plural
from evaluator.models.source import ModelSource
from evaluator.preflight.findings import MAJORITY_SHARE, finding, listed
from evaluator.record import FindingRecord
from evaluator.redaction import folded
from evaluator.schemas import PROMPTS_KEY
from evaluator.scores.table import longest_tokens
from evaluator.store import PromptStore, id_numbers
from evaluator.tokens.boundary import TextFault
from evaluator.tokens.chat import ChatForm

Tokens = list[int]
Test = Callable[[Tokens, Tokens], bool]


class LabelSpace(NamedTuple):
    """The labels of a label space, in order: texts and token ids."""

    texts: list[str]
    tokens: list[Tokens]


def prompt_kinds(store: PromptStore, tokens: pl.LazyFrame, boundary: LabelBoundary) -> pl.DataFrame:
    """Count the prompts of each dataset by their kind: whether they ask for labels, and which continuations they have.

    Args:
        store: requests and prompts.
        tokens: schemas.TOKENS of some of these prompts, one row for each prompt.
        boundary: where a label begins.

    Returns:
        One row for each kind, with the columns:
        dataset, is_of_labels (whether ask is "labels");
        texts, tokens: hashes of the continuations' texts and token ids;
        n_continuations, n_prompts;
        n_tokens: tokens of the longest prompt with its longest continuation;
        n_end_in_space: number of prompts that end in a space; 0 unless `boundary` is "separate";
        n_labels_end_in_space: number of prompts with a label that ends in white space;
        number: id of one of these prompts, as a number.
        Columns from tokens are null for prompts that are not in `tokens`.
    """
    # Ids and hashes are numbers, so that the join needs little memory.
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
    """Return dataset -> number of tokens of its longest prompt with its longest label.

    Args:
        kinds: result of prompt_kinds.
    """
    return dict(kinds.group_by("dataset").agg(pl.col("n_tokens").max()).drop_nulls().iter_rows())


def label_spaces(kinds: pl.DataFrame, store: PromptStore, tokens: pl.LazyFrame) -> dict[str, list[LabelSpace]]:
    """Return dataset -> its distinct label spaces, the most frequent first.

    Args:
        kinds, store, tokens: result of prompt_kinds for a store and tokens, which have the texts and tokens of labels.
    """
    # A single continuation is not a label space. `number` names one prompt that has the label space.
    found = kinds.lazy().filter("is_of_labels", pl.col("n_continuations") > 1).select("dataset", "number", "n_prompts")
    number = id_numbers("prompt_id").alias("number")
    rows = (
        found.join(store.prompts().select(number, texts="continuations"), on="number")
        .join(tokens.select(number, tokens="continuations"), on="number")
        .sort("dataset", "n_prompts", "texts", "tokens", descending=[False, True, False, False])
        .select("dataset", "texts", "tokens")
        .collect(engine="streaming")
    )
    return {
        dataset: [LabelSpace(*labels) for _, *labels in of_dataset]
        for dataset, of_dataset in groupby(rows.iter_rows(), key=itemgetter(0))
    }


def _begins(a: Tokens, b: Tokens) -> bool:
    return b[: len(a)] == a  # a is not longer than b; labels of equal tokens are refused where texts become tokens


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
"""Findings about two labels of a label space: name, test of their tokens, and text about the first pair found."""


def label_findings(dataset: str, spaces: list[LabelSpace]) -> Iterator[FindingRecord]:
    """Yield the findings of _PAIRS about the label spaces of a dataset, with the first pair as an example."""
    for name, test, text in _PAIRS:
        if pairs := [pair for space in spaces if (pair := _first_pair(space, test))]:
            where = f" (in {len(pairs):,} of {len(spaces):,} label spaces)" if len(spaces) > 1 else ""
            yield finding(name, text.format(*pairs[0], where), dataset)


def similar_label_findings(dataset: str, spaces: Iterable[Sequence[str]]) -> Iterator[FindingRecord]:
    """Yield a finding for the first two labels of a dataset that differ only in form (redaction.folded)."""
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
    """Yield a finding if all labels of a dataset are numbers with a fraction, as in tables with missing cells."""
    if all(re.fullmatch(r"-?[0-9]+\.[0-9]+", label) for label in labels):
        named = ",".join(f"{label}=NAME" for label in labels)
        text = f"The labels {', '.join(labels)} are numbers and say nothing of a text. Name them: --labels {named}."
        yield finding("numeric-labels", text, dataset)


def space_findings(kinds: pl.DataFrame) -> Iterator[FindingRecord]:
    """Yield findings about prompts that end in a space before a label, and about labels that end in white space.

    Args:
        kinds: result of prompt_kinds.
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
    """Return the texts of the first two labels whose tokens pass a test, with the shorter label first; or None."""
    labels = sorted(zip(space.tokens, space.texts, strict=True), key=lambda label: len(label[0]))
    return next(((a, b) for (ids_a, a), (ids_b, b) in combinations(labels, 2) if test(ids_a, ids_b)), None)


def first_token_findings(
    source: ModelSource, chat: ChatForm | None, store: PromptStore, tokens: pl.LazyFrame
) -> Iterator[FindingRecord]:
    """Yield findings about prompts that begin without the model's BOS token, or with two of them.

    Args:
        source: the model.
        chat: the chat template; None: plain prompts.
        store: the prompts.
        tokens: schemas.TOKENS of these prompts.
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
"""Kind of fault -> name and text of the finding."""


def fault_findings(faults: Sequence[TextFault], n_prompts: int, boundary: LabelBoundary) -> Iterator[FindingRecord]:
    """Yield a finding for each fault, that is, each kind of difference between texts and their tokens.

    Args:
        faults: faults found while the prompts were tokenised.
        n_prompts: number of prompts of the run.
        boundary: where a label begins.
    """
    other = "merged" if boundary == "separate" else "separate"
    for fault in faults:
        name, text = _FAULTS[fault.kind]
        n, tokens = f"{fault.n_prompts:,} of {n_prompts:,} prompts", " ".join(fault.tokens)
        yield finding(name, text.format(n=n, written=fault.written, read=fault.read, tokens=tokens, other=other))


def template_findings(source: ModelSource, chat: ChatForm | None) -> Iterator[FindingRecord]:
    """Yield findings about a chat template that is not used, or that begins answers with a thought."""
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


SHARES = (0.1, 0.25, 0.5)
"""Shares of queries that exactly one of two models answers correctly, for which detectable differences are computed."""


class Classes(NamedTuple):
    """Numbers of queries of a dataset."""

    n_queries: int
    by_label: dict[str, int]  # label -> number of queries; empty if queries have different label spaces


class SplitLabels(NamedTuple):
    """The labels of a dataset with one label space, as the checks need them."""

    names: tuple[str, ...]
    queried: frozenset[int]  # indices of labels that occur in the test split
    shown: pl.Series  # gold labels of the demonstration split, then of the test split: of rows that prompts may show


class Sets(NamedTuple):
    """Numbers of distinct demonstration sets of a dataset."""

    n_sets: int
    without_a_class: int  # number of sets that lack a label
    n_shots: int  # largest number of demonstrations in a set


class Examples(NamedTuple):
    """Labels, queries and demonstrations of a run, by dataset."""

    spaces: Mapping[str, list[LabelSpace]]  # distinct label spaces
    counted: Mapping[str, Classes]
    sets: Mapping[str, Sets]
    lengths: Mapping[str, int]  # tokens of the longest prompt with its longest label
    labels: Mapping[str, SplitLabels]  # of datasets with one label space, as the first suite converts them


Labels = Mapping[str, Mapping[str, SplitLabels]]
"""Suite -> dataset -> its labels, for datasets with one label space, as the suite converts them."""


def examples(store: PromptStore, labels: Labels, tokens: pl.LazyFrame, kinds: pl.DataFrame) -> Examples:
    """Collect what example_findings and the record of each dataset need."""
    sets: dict[str, Sets] = {}  # dataset -> demonstration sets, of the first suite that has some
    requests = store.requests()
    for suite, datasets in reversed([*labels.items()]):
        sets |= demonstration_sets(requests.filter(suite=suite), datasets)
    return Examples(
        spaces=label_spaces(kinds, store, tokens),
        counted=classes(requests),
        sets=sets,
        lengths=longest_prompts(kinds),
        labels={name: one for datasets in reversed([*labels.values()]) for name, one in datasets.items()},
    )


def classes(requests: pl.LazyFrame) -> dict[str, Classes]:
    """Count the distinct queries of each dataset by label.

    Args:
        requests: schemas.REQUESTS; requests without a query or a true label, and those of methods, are ignored.
    """
    rows = requests.filter(pl.col("query_id").is_not_null(), pl.col("gold").is_not_null(), pl.col("for_part").is_null())
    # Categorical: a number for each row in place of the dataset's name, as all queries are in memory.
    queries = rows.select(pl.col("dataset").cast(pl.Categorical), "query_id", "gold")
    of_query = queries.group_by("dataset", "query_id").agg(pl.col("gold").first())
    by_gold = of_query.group_by("dataset", "gold").len().with_columns(pl.col("dataset").cast(pl.String))
    golds = by_gold.collect(engine="streaming")
    spaces = rows.select("dataset", "label_names").unique().collect(engine="streaming")
    found = {}
    for (dataset,), group in sorted(golds.partition_by("dataset", as_dict=True).items()):
        label_names, counts = spaces.filter(dataset=dataset)["label_names"], dict[str, int]()
        if len(label_names) == 1:
            of_label = dict(group.select("gold", "len").iter_rows())
            counts = {name: of_label.get(label, 0) for label, name in enumerate(label_names[0])}
        found[str(dataset)] = Classes(int(group["len"].sum()), counts)
    return found


def demonstration_sets(requests: pl.LazyFrame, datasets: Mapping[str, SplitLabels]) -> dict[str, Sets]:
    """Count the distinct demonstration sets of each dataset, and the sets that lack a label.

    Args:
        requests: schemas.REQUESTS of one suite.
        datasets: name -> labels of the dataset, as the suite uses it.
    """
    found = {}
    for name, labels in datasets.items():
        # The label of each demonstration in a set.
        ids = pl.col("demonstration_ids")
        golds = dict(enumerate(labels.shown))
        gold = ids.list.eval(pl.element().replace_strict(golds, return_dtype=pl.Int64))
        # Ignore requests of methods, and requests whose query is a demonstration: they have no query_id.
        is_set = pl.col("for_part").is_null() & pl.col("query_id").is_not_null() & (ids.list.len() > 0)
        shown = requests.filter(is_set, dataset=name).select(
            set=ids.hash(), n_labels=gold.list.n_unique(), n_shots=ids.list.len()
        )
        # Sets are compared by their hashes, which need less memory.
        lacking = (pl.col("n_labels") < len(labels.names)).sum()
        sets = shown.unique("set").select(pl.len(), lacking=lacking, n_shots=pl.col("n_shots").max())
        n_sets, n_lacking, n_shots = sets.collect(engine="streaming").row(0)
        if n_sets:
            found[name] = Sets(n_sets, n_lacking, n_shots)
    return found


def detectable(n_queries: int) -> dict[str, float | None]:
    """Return share of SHARES -> smallest difference of two accuracies that is detected with 80% power.

    None: not even the largest difference that the share allows, which is the share itself, is detected.
    """
    from evaluator.statistics.paired import detectable_in_advance  # here, because SciPy is slow to import

    found = {share: detectable_in_advance(n_queries, share) for share in SHARES}
    return {str(share): None if difference >= share else round(difference, 4) for share, difference in found.items()}


def class_findings(dataset: str, counted: Classes, labels: SplitLabels | None) -> Iterator[FindingRecord]:
    """Yield the findings about the classes of a dataset's queries.

    Args:
        dataset: name of the dataset.
        counted: numbers of its queries.
        labels: its labels; None if it has no single label space.
    """
    absent = [repr(name) for label, name in enumerate(labels.names) if label not in labels.queried] if labels else []
    if absent:
        yield finding(
            "class-without-queries",
            f"No row of the test split has the label {listed(absent, 5)}, so recall and macro-F1 are undefined or 0 "
            "for it.",
            dataset,
        )
    undrawn = [repr(name) for name, n in counted.by_label.items() if not n and repr(name) not in absent]
    if undrawn:
        yield finding(
            "class-not-drawn",
            f"None of the {counted.n_queries:,} queries has the label {listed(undrawn, 5)}. Take more (--queries).",
            dataset,
        )
    most = max(counted.by_label.items(), key=lambda item: item[1], default=("", 0))
    if len(counted.by_label) > 1 and most[1] >= MAJORITY_SHARE * counted.n_queries:
        yield finding(
            "imbalanced-classes",
            f"{most[1] / counted.n_queries:.0%} of the queries are {most[0]!r}: whoever always answers so has this "
            "accuracy. Read macro-F1 next to it.",
            dataset,
        )


def set_finding(dataset: str, sets: Sets, n_labels: int) -> Iterator[FindingRecord]:
    """Yield a finding if some demonstration sets lack a label."""
    if sets.without_a_class:
        shots = plural(sets.n_shots, "demonstration")
        why = f": {shots} cannot show {n_labels} labels" if sets.n_shots < n_labels else ""
        yield finding(
            "demonstrations-lack-class",
            f"{sets.without_a_class:,} of {sets.n_sets:,} demonstration sets lack a label{why}.",
            dataset,
        )


def example_findings(examples: Examples, kinds: pl.DataFrame) -> Iterator[FindingRecord]:
    """Yield the findings about labels, classes and demonstration sets; `kinds` is the result of prompt_kinds."""
    for name, labels in examples.labels.items():
        yield from similar_label_findings(name, [labels.names])
        yield from numeric_label_findings(name, labels.names)
    for name, spaces in examples.spaces.items():
        yield from label_findings(name, spaces)
        if name not in examples.labels:
            yield from similar_label_findings(name, [space.texts for space in spaces])
    yield from space_findings(kinds)
    for name, counted in examples.counted.items():
        yield from class_findings(name, counted, examples.labels.get(name))
    for name, sets in examples.sets.items():
        yield from set_finding(name, sets, len(examples.labels[name].names))
