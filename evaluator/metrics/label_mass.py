"""Label mass: how much of the whole vocabulary's probability the label set has. A metric of ours, not StaICC's.

It is the probability that the tokens after a prompt begin with those of any label, as they are scored. `paper`: the sum
of exp(label log-likelihood) over the labels that have no other label as a prefix. The tokens of different labels
exclude each other unless one begins with the other, as " yes" and " yes, indeed" do: the longer one then happens only
where the shorter one does, and adding both would count it twice, to more than 1 at worst. `released`: the sum of the
probabilities of the labels' last tokens right after the prompt, which always differ.

Only the tokens that are scored count. With --label-boundary separate, a label follows a prompt that ends in a token of
its own for the last space; a model that would write space and label as one token has little label mass there.

A query's label mass is the mean over its requests. Intervals of a quantile are between the order statistics that hold
it with at least 95% probability, whatever the distribution (as SciPy's quantile_test), or 0 and 1 where there are none.

Join the requests of a run with their texts and scores, one row a request: the table of single queries.
"""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.stats import binom

from evaluator.methods import REFERENCE_METHOD
from evaluator.methods.base import LABEL_SCORE, ScoredRequests
from evaluator.metrics.intervals import CONFIDENCE_LEVEL, mean_of_intervals
from evaluator.schemas import (
    MEAN_OVER_DATASETS,
    METRICS,
    METRICS_KEY,
    PREDICTIONS,
    PROMPTS_KEY,
    QUERIES,
    QUERIES_KEY,
    Definition,
)
from evaluator.store.tables import id_numbers, kept, slices

QUANTILES = {"label_mass_median": 0.5, "label_mass_5th_percentile": 0.05}
_DATASET = ["suite", "part", "dataset"]


def label_mass_metrics(scored: ScoredRequests, definitions: Sequence[Definition]) -> pl.DataFrame:
    """Return QUANTILES of the label mass over queries, of each part that methods answer, and their means over datasets.

    Returns schema METRICS, sorted by its key, with the method vanilla: the mass belongs to prompts, and methods differ
    in what they make of it. Parts without label scores under a definition have no rows for it.
    """
    parts = {name: part for name, part in scored.parts.items() if part.kind in ("classification", "diagnostic")}
    wanted = [name for name in LABEL_SCORE if name in definitions]
    asked = scored.rows.filter(pl.col("for_part").is_null(), pl.col("part").is_in(list(parts)))
    weighted = _with_weights(asked, scored.tokens)
    masses = weighted.select(*_DATASET, "query_id", **{name: _mass(name) for name in wanted})
    keys = asked.select(_DATASET).unique().sort(_DATASET).collect(engine="streaming")
    found: list[dict[str, object]] = []
    for key in keys.iter_rows(named=True):
        queries = _of_queries(masses.filter(**key).drop(_DATASET).collect().rechunk())
        for definition in wanted:
            of_definition = queries.filter(pl.col(definition).is_not_null()).select(definition, n=f"{definition} n")
            if definition in parts[key["part"]].definitions and of_definition.height:
                shared = key | {"definition": definition, "n_queries": of_definition.height}
                shared["n_requests"] = of_definition["n"].sum()
                found += [shared | row for row in _quantile_rows(of_definition[definition].to_numpy())]
    datasets = pl.DataFrame(found, schema=METRICS).with_columns(method=pl.lit(REFERENCE_METHOD))
    means = (
        datasets.group_by([column for column in METRICS_KEY if column != "dataset"], maintain_order=True)
        .agg(**mean_of_intervals(), n_queries=pl.col("n_queries").sum(), n_requests=pl.col("n_requests").sum())
        .with_columns(dataset=pl.lit(MEAN_OVER_DATASETS))
    )
    return pl.concat([datasets, means], how="diagonal").sort(METRICS_KEY)


def _of_queries(masses: pl.DataFrame) -> pl.DataFrame:
    """Return the mean over each query's requests, and their number, under each definition."""
    each = pl.exclude("query_id")
    by_query = masses.group_by("query_id", maintain_order=True)
    return by_query.agg(each.mean(), each.count().name.suffix(" n")).drop("query_id")


def _mass(definition: Definition) -> pl.Expr:
    """Return the label mass of a request; null without scores under the definition."""
    score = pl.col(LABEL_SCORE[definition])
    probs = score.list.eval(pl.element().exp())
    counted = pl.when(pl.col("weights").is_null()).then(probs).otherwise(probs * pl.col("weights"))
    mass = (counted if definition == "paper" else probs).list.sum().clip(0, 1)  # rounding can lead beyond 1
    return pl.when(score.is_not_null()).then(mass)


def _with_weights(asked: pl.LazyFrame, tokens: pl.LazyFrame) -> pl.LazyFrame:
    """Add `weights` to requests, one a label: 0 where another label's tokens begin this label's, else 1.

    Null where all of them are 1, as in most label spaces.
    """
    labels = tokens.filter(ask="labels").select(
        id_numbers("prompt_id"), "continuations", space=pl.col("continuations").hash()
    )
    # Label spaces repeat, so that each different one is looked at once.
    distinct = labels.group_by("space").agg(pl.col("continuations").first()).collect(engine="streaming")
    weights = {space: _prefix_weights(labels) for space, labels in distinct.iter_rows()}
    overlapping = {space: of_labels for space, of_labels in weights.items() if min(of_labels, default=1.0) == 0}
    columns = {"space": [*overlapping], "weights": [*overlapping.values()]}
    by_space = pl.LazyFrame(columns, schema={"space": pl.UInt64, "weights": pl.List(pl.Float64)})
    if not overlapping:
        return asked.with_columns(weights=pl.lit(None, pl.List(pl.Float64)))
    by_prompt = labels.select("space", number="prompt_id").join(by_space, on="space")
    numbered = asked.with_columns(number=id_numbers("prompt_id"))
    return numbered.join(by_prompt, on="number", how="left", maintain_order="left")


def _prefix_weights(labels: Sequence[Sequence[int]]) -> list[float]:
    """Return 0 for each label that begins with the tokens of another one, else 1."""
    return [0.0 if any(one != other and one[: len(other)] == other for other in labels) else 1.0 for one in labels]


def _quantile_rows(masses: npt.NDArray[np.float64]) -> Iterator[dict[str, object]]:
    for name, share in QUANTILES.items():
        low, high = quantile_interval(masses, share)
        yield {"metric": name, "value": float(np.quantile(masses, share)), "ci_low": low, "ci_high": high}


def quantile_interval(values: npt.NDArray[np.float64], share: float) -> tuple[float, float]:
    """Return a 95% interval of a quantile of numbers in [0, 1]: order statistics, 0 or 1 where a limit has none.

    The number of values at or below the true quantile is binomial, so the interval holds it with at least the stated
    probability (SciPy's quantile_test, which follows Conover 1999).
    """
    ordered, tail = np.sort(values), (1 - CONFIDENCE_LEVEL) / 2
    below, above = binom.ppf([tail, 1 - tail], len(values), share)
    low, high = math.ceil(below), math.floor(above) + 1
    return float(ordered[low - 1]) if low > 0 else 0.0, float(ordered[high - 1]) if high <= len(values) else 1.0


ROWS_JOINED = 131_072
"""Rows that are joined with their texts and scores at once; all texts and scores are read for each so many rows."""

assert {*QUERIES_KEY} < {*PREDICTIONS}, "answers say which query they are of"


def query_texts(prompts: pl.LazyFrame) -> pl.LazyFrame:
    """Return prompt_id and `query` of schemas.PROMPTS. The query is what follows the last demonstration."""
    start = pl.col("spans").list.last().struct.field("start").fill_null(0)
    return prompts.select("prompt_id", query=pl.col("prompt").str.slice(start).str.strip_chars())


def queries_table(
    scored: ScoredRequests, texts: pl.LazyFrame, predictions: pl.LazyFrame, folder: Path
) -> Iterator[pl.DataFrame]:
    """Yield schemas.QUERIES, sorted by its key, some rows at a time: every prompt that a method answered a query with.

    Args:
        scored: of the run.
        texts: query_texts of all its stores, where an id may be in several.
        predictions: schemas.PREDICTIONS.
        folder: for a temporary file.
    """
    columns = [*QUERIES_KEY, "n_wrong_labels", "gold", "label_names"]
    scores = scored.rows.select(*PROMPTS_KEY, "label_log_likelihoods")
    # Most methods answer the same prompts. Sorted first: rows are moved to disk by a sort, and not by `unique`.
    distinct = predictions.select(columns).sort(QUERIES_KEY).unique(QUERIES_KEY, keep="first", maintain_order=True)
    with kept(distinct, folder) as answers:
        for rows in slices(answers, ROWS_JOINED):
            # The ids of the slice are what a join holds: a join with all texts and scores would hold these.
            ids = rows.lazy().select(PROMPTS_KEY).unique()
            joined = rows
            for by_prompt in (texts, scores):
                found = by_prompt.join(ids, on=PROMPTS_KEY, how="semi").unique(PROMPTS_KEY, keep="any")
                joined = joined.join(
                    found.collect(engine="streaming"), on=PROMPTS_KEY, how="left", maintain_order="left"
                )
            yield joined.select(pl.col(name).cast(dtype) for name, dtype in QUERIES.items())
