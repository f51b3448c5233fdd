"""What an inference method is: how label scores become label probabilities."""

from collections.abc import Callable
from dataclasses import dataclass

import polars as pl

from evaluator.schemas import Definition


@dataclass(frozen=True, kw_only=True)
class ExtraRequests:
    """What a method asks a model besides a suite's requests, written into the same store under a part of its own.

    `rows` takes rows of one suite and dataset, as Suite.requests returns them, and returns rows of the same columns.
    """

    part: str
    rows: Callable[[pl.DataFrame], pl.DataFrame]


@dataclass(frozen=True, kw_only=True)
class Method:
    """An inference method.

    `label_probs` takes requests joined with their scores (schemas.REQUESTS and schemas.SCORES), those of its extra part
    included, and a definition, and returns the others with the column `label_probs`: List[f64] in label-space order,
    summing to one.
    """

    summary: str
    label_probs: Callable[[pl.LazyFrame, Definition], pl.LazyFrame]
    max_label_tokens: int | None = None  # the longest label it can score; None: any
    definitions: tuple[Definition, ...] = ("paper", "released")  # that it has scores for
    extra: ExtraRequests | None = None


def softmax(scores: pl.Expr) -> pl.Expr:
    """Normalise each list of log-likelihoods (nats) into probabilities; shape is kept."""
    scaled = (pl.element() - pl.element().max()).exp()
    return scores.list.eval(scaled / scaled.sum())
