"""Define what an inference method is, and compute predictions with inference methods.

A method adds requests to a suite's requests, and computes label probabilities from scores. Predictions have one row for
each request, method and definition.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from evaluator.config import Definition, RunConfig, prompt_definition
from evaluator.datasets.base import AnyDataset, ClassificationDataset
from evaluator.errors import LabelError, plural
from evaluator.prompts.rows import NOT_VARIED, ROWS_PER_FRAME
from evaluator.record import PartKind, PartRecord
from evaluator.schemas import HIDDEN_STATES, LABEL_DISTANCES, PREDICTIONS, PREDICTIONS_KEY, REQUESTS, TOKENS
from evaluator.store import slices

if TYPE_CHECKING:
    import torch

LABEL_SCORE: dict[Definition, str] = {"paper": "label_log_likelihoods", "released": "last_token_log_probs"}
"""Definition -> column of schemas.SCORES from which label probabilities are computed."""

NO_QUERY: dict[str, pl.Expr] = {
    "query_id": pl.lit(None, pl.Int64),
    **NOT_VARIED,
    "n_shots": pl.lit(0, pl.Int64),
    "demonstration_ids": pl.lit([], pl.List(pl.Int64)),
    "gold": pl.lit(None, pl.Int64),
}
"""Values of the columns of a request without query and demonstrations."""


class MethodContext(NamedTuple):
    """The input of `MethodPrompts.requests`: one part of one suite and dataset."""

    dataset: AnyDataset
    requests: pl.LazyFrame  # the suite's requests of all parts; they need not fit into memory
    part: str  # the part to add requests for
    config: RunConfig

    @property
    def rows(self) -> pl.LazyFrame:
        """Return the requests of the part."""
        return self.requests.filter(part=self.part)

    @property
    def columns(self) -> list[str]:
        """Return the names of the columns of requests."""
        return self.requests.collect_schema().names()

    def frames(self) -> Iterator[pl.DataFrame]:
        """Yield the requests of the part in order, in frames of at most ROWS_PER_FRAME rows."""
        for rows in slices(self.requests, ROWS_PER_FRAME):
            in_part = rows.filter(part=self.part)
            if in_part.height:
                yield in_part

    @property
    def classification(self) -> ClassificationDataset:
        """Return the dataset, which must be that of a classification suite."""
        assert isinstance(self.dataset, ClassificationDataset), "classification parts have classification datasets"
        return self.dataset


@dataclass(frozen=True, kw_only=True)
class ScoredRequests:
    """Scores, hidden states and distances of all requests of a run."""

    rows: pl.LazyFrame  # schemas.REQUESTS joined with schemas.SCORES
    states: pl.LazyFrame = field(  # schemas.REQUESTS joined with schemas.HIDDEN_STATES
        default_factory=lambda: pl.LazyFrame(schema={**REQUESTS, **HIDDEN_STATES})
    )
    distances: pl.LazyFrame = field(default_factory=lambda: pl.LazyFrame(schema=LABEL_DISTANCES))
    # Tokens of the first round's prompts, which include all prompts of suites; empty in a table made by hand.
    tokens: pl.LazyFrame = field(default_factory=lambda: pl.LazyFrame(schema=TOKENS))
    parts: Mapping[str, PartRecord]  # name of a suite's part -> its kind and definitions
    answered_part: str = ""  # the part to predict

    @property
    def queries(self) -> pl.LazyFrame:
        """Return the scored requests of the part to predict."""
        return self.rows.filter(part=self.answered_part)

    def answering(self, part: str, dataset: str | None = None) -> "ScoredRequests":
        """Return the requests needed to predict one part, without requests that methods added for other parts.

        Args:
            part: the part to predict.
            dataset: the dataset to predict; None: all datasets.
        """
        others = [name for name, measured in self.parts.items() if name != part and measured.kind != "null"]
        is_needed = pl.col("for_part").is_null() | ~pl.col("for_part").is_in(others)
        if dataset is not None:
            is_needed &= pl.col("dataset") == dataset
        return replace(self, rows=self.rows.filter(is_needed), states=self.states.filter(is_needed), answered_part=part)


LabelProbs = Callable[[ScoredRequests, Definition], pl.LazyFrame]
"""Returns the requests of `answered_part` with the column `label_probs`: List[f64] in label-space order, sum one."""


@dataclass(frozen=True, kw_only=True)
class MethodPrompts:
    """The prompts that a method adds to a suite's prompts.

    Requests of a method have the columns of Suite.requests; their `part` is a name that the method chooses. Equal
    prompts are computed once, also if several methods or suites request them.
    """

    requests: Callable[[MethodContext], Iterable[pl.DataFrame]] | None = None
    """Yields the requests of the first round."""

    follow_up: Callable[[MethodContext, ScoredRequests], Iterable[pl.DataFrame]] | None = None
    """Yields the requests of the second round, which depend on the scores of the first round."""

    need_states: bool = False  # whether some requests are for hidden states
    differ: bool = False  # whether prompts depend on the definition, so that a run can measure only one definition


@dataclass(frozen=True, kw_only=True)
class Method:
    """An inference method: its summary, label probabilities, additional prompts and restrictions."""

    summary: str
    label_probs: LabelProbs
    prompts: MethodPrompts = MethodPrompts()

    distances: "Callable[[ScoredRequests, torch.Tensor], pl.DataFrame] | None" = None
    """Returns schemas.LABEL_DISTANCES from hidden states and the LM head [vocabulary, hidden size]."""

    part_kinds: tuple[PartKind, ...] = ("classification", "choice", "diagnostic")  # kinds of parts that it predicts
    definitions: tuple[Definition, ...] = ("paper", "released")  # definitions under which it has label probabilities
    max_label_tokens: int | None = None  # maximum number of tokens of a label; None: no limit
    uses_gold: bool = False  # whether it uses true labels of other queries: then it cannot classify new texts
    drawn_once: str = ""  # name of prompts drawn once for all queries: intervals over queries ignore this randomness

    labelled_examples: Callable[[int], float] = lambda _n_shots: 0
    """Returns the number of labelled examples that the method uses, from `n_shots`: those in training prompts, or
    infinity if it uses all labelled examples that there are."""


def softmax(scores: pl.Expr) -> pl.Expr:
    """Return the softmax of each list of log-likelihoods (nats): probabilities, in lists of the same length."""
    scaled = (pl.element() - pl.element().max()).exp()
    return scores.list.eval(scaled / scaled.sum())


def label_score(definition: Definition) -> pl.Expr:
    """Return the label scores that the method vanilla normalises: List[f64], nats.

    Under `paper` a score is the log-likelihood of all tokens of a label. Under `released` it is the log-probability of
    only the last token, directly after the prompt, as in the toolkit (`model_kernel.py`). The two differ only for
    labels of several tokens.
    """
    return pl.col(LABEL_SCORE[definition])


def softmax_of(score: Callable[[Definition], pl.Expr], part: str | None = None) -> LabelProbs:
    """Return a function for Method.label_probs that computes the softmax of a score over the label space.

    Args:
        score: definition -> expression over scored requests: List[f64] in label-space order, nats.
        part: name of the method's requests that answer the queries; None: the suite's requests do.
    """

    def label_probs(scored: ScoredRequests, definition: Definition) -> pl.LazyFrame:
        rows = scored.rows.filter(part=part or scored.answered_part)
        return rows.with_columns(label_probs=softmax(score(definition)))

    return label_probs


def scored_definitions(definitions: Sequence[Definition]) -> list[Definition]:
    """Return the definitions without `published`, whose scores are those of `released`; only its metrics differ."""
    return list(dict.fromkeys("released" if name == "published" else name for name in definitions))


def predict(scored: ScoredRequests, methods: Mapping[str, Method], definitions: Sequence[Definition]) -> pl.LazyFrame:
    """Return schemas.PREDICTIONS of each method under each definition, sorted by PREDICTIONS_KEY.

    Args:
        scored: scores of all requests of a run.
        methods: name -> method.
        definitions: definitions of the run. Only `paper` and `released` have predictions: `published` uses those of
            `released`.
    """
    tables = [
        method.label_probs(scored.answering(part), definition).with_columns(
            part=pl.lit(part), method=pl.lit(name), definition=pl.lit(definition)
        )
        for name, method in methods.items()
        for definition in measured_definitions(method, definitions)
        for part, about in scored.parts.items()
        if about.kind in method.part_kinds and about.kind != "null" and definition in about.definitions
    ]
    rows = pl.concat([pl.LazyFrame(schema=PREDICTIONS).drop("pred"), *tables], how="diagonal_relaxed")
    predictions = rows.with_columns(pred=pl.col("label_probs").list.arg_max())
    return predictions.select(pl.col(name).cast(dtype) for name, dtype in PREDICTIONS.items()).sort(PREDICTIONS_KEY)


def measured_definitions(method: Method, definitions: Sequence[Definition]) -> list[Definition]:
    """Return the requested definitions under which this method has label probabilities in a run."""
    possible = {prompt_definition(definitions)} if method.prompts.differ else {*method.definitions}
    return [name for name in scored_definitions(definitions) if name in possible and name in method.definitions]


def check_labels(
    methods: Mapping[str, Method], definitions: Sequence[Definition], tokens: pl.LazyFrame, prompts: pl.LazyFrame
) -> None:
    """Check, before prompts are scored, that every method and definition can score all labels.

    Args:
        methods, definitions: the methods and definitions of the run.
        tokens, prompts: schemas.TOKENS and schemas.PROMPTS of one store.

    Raises LabelError for a label with more tokens than a method allows and, under `released`, for labels of one label
    space that end in the same token.
    """
    limits = {name: method.max_label_tokens for name, method in methods.items() if method.max_label_tokens is not None}
    released = any("released" in method.definitions for method in methods.values())
    scores_last = released and "released" in scored_definitions(definitions)
    most = min(limits.values(), default=2**31)
    is_long = pl.col("continuations").list.eval(pl.element().list.len()).list.max() > most
    last = pl.col("continuations").list.eval(pl.element().list.last())
    is_alike = (last.list.n_unique() < last.list.len()) & scores_last
    # A single continuation, as in noisy channel, is not a label space.
    wrong = tokens.filter(pl.col("continuations").list.len() > 1, is_long | is_alike, ask="labels")
    if wrong.head(1).collect(engine="streaming").is_empty():
        return
    # Texts are joined only after a fault was found, because joins of all prompts need much memory.
    # One row for each label of each distinct label space: `space`, `label`, and its `tokens`.
    spaces = prompts.select("prompt_id", space="continuations")
    joined = wrong.select("prompt_id", tokens="continuations").join(spaces, on="prompt_id")
    distinct = joined.select("space", "tokens", label="space").unique().explode("label", "tokens")
    labels = distinct.sort("space", "label", maintain_order=True).collect(engine="streaming")
    for name, limit in limits.items():
        _refuse_long_labels(name, limit, labels)
    if scores_last:
        _refuse_equal_last_tokens(labels)


def _refuse_long_labels(method: str, limit: int, labels: pl.DataFrame) -> None:
    too_long = labels.filter(pl.col("tokens").list.len() > limit)
    if not too_long.is_empty():
        named = ", ".join(f"{row['label']!r} ({len(row['tokens'])} tokens)" for row in too_long.head(5).to_dicts())
        raise LabelError(
            f"The method {method} scores labels of at most {plural(limit, 'token')}, and this tokenizer makes "
            f"more of {named}. Choose other label names, or leave the method out (--methods)."
        )


def _refuse_equal_last_tokens(labels: pl.DataFrame) -> None:
    last = pl.col("tokens").list.last().alias("last")
    alike = labels.group_by("space", last, maintain_order=True).agg("label").filter(pl.col("label").list.len() > 1)
    if not alike.is_empty():
        space, _, (first, second, *_) = alike.row(0)
        raise LabelError(
            f"Labels {first!r} and {second!r} of {space} end in the same token, and the definitions `released` and "
            "`published` score the last token alone, so no score can tell them apart there. Take --definition paper, "
            "or other label names."
        )
