"""Compute in-context pointwise V-information, one PVI for each query and run, from scores of input and null prompts.

Lu et al. 2023, equation 1: C(x, y) = -log2 G[p](y) + log2 G[p'](y), where p' has the input after its demonstrations
and p is the same prompt with every input removed, those of demonstrations too.
"""

import math
from collections.abc import Callable

import polars as pl

from evaluator.errors import MetricError
from evaluator.methods.base import ScoredRequests
from evaluator.metrics.checks import require_gold
from evaluator.suites.in_context_pvi.chosen_demonstrations import CHOSEN, gain_nats, null_part
from evaluator.suites.in_context_pvi.options import PviSource
from evaluator.suites.in_context_pvi.prompts import INPUT, NULL
from evaluator.suites.in_context_pvi.released_scores import filtered_log_likelihoods
from evaluator.suites.in_context_pvi.schema import PVI, PVI_KEY, PviDefinition

_RUN = ["dataset", "n_shots", "demonstration_set"]


def pvi_table(scored: ScoredRequests, source: PviSource = "random") -> pl.DataFrame:
    """Compute the PVI of every query after every demonstration set, the suite's own and those chosen by PVI.

    Under `paper` log-likelihoods of the gold label are over the whole vocabulary, under `label_space` normalised over
    the labels, under `released` filtered by released_scores.py (no rows unless that method ran, or for chosen sets).
    PVI is their difference divided by ln 2, and under `released` the difference itself. It is null where one of the
    two is missing, NaN or infinite; both stay in their columns, and no row is dropped.

    Args:
        scored: of the suite pvi.
        source: where the suite's own demonstration sets come from.

    Returns:
        schema.PVI, sorted by its key.

    Raises:
        MetricError: a label space of one label, or gold labels outside it.
    """
    _require_labels(scored)
    own = [_pvi_of_part(scored, source, (INPUT, NULL), definition) for definition in _LOG_LIKELIHOODS]
    chosen = [
        _pvi_of_part(scored, order, (method, null_part(method)), definition)
        for method, order in CHOSEN.items()
        for definition in _LOG_LIKELIHOODS
        if definition != "released"
    ]
    return pl.concat([*own, *chosen]).collect().sort(PVI_KEY)


def _pvi_of_part(
    scored: ScoredRequests, demonstrations: str, parts: tuple[str, str], definition: PviDefinition
) -> pl.LazyFrame:
    """Compute the PVI of the queries of one part, given the part of their null prompts."""
    inputs, nulls = (_LOG_LIKELIHOODS[definition](scored, part) for part in parts)
    # One row for each label of each null prompt, to join by the gold label of a query.
    label = pl.int_ranges(pl.col("scores").list.len()).alias("gold")
    null_scores = nulls.select(*_RUN, label, given_null="scores").explode("gold", "given_null")
    gold_score = pl.col("scores").list.get(pl.col("gold"))
    predicted = inputs.with_columns(pred=_most_probable("scores"), given_input=gold_score)
    both = predicted.join(null_scores, on=[*_RUN, "gold"], how="left", validate="m:1")
    unit = 1.0 if definition == "released" else math.log(2)
    rows = both.with_columns(
        pvi_bits=gain_nats(pl.col("given_input"), pl.col("given_null")) / unit,
        correct=pl.col("pred") == pl.col("gold"),
        definition=pl.lit(definition),
        demonstrations=pl.lit(demonstrations),
    )
    return rows.select(pl.col(name).cast(dtype) for name, dtype in PVI.items())


def _most_probable(scores: str) -> pl.Expr:
    """Return the index of the highest score, the first of equals; null where one is missing or NaN, or all are -inf."""
    values = pl.col(scores)
    is_complete = values.list.drop_nulls().list.len() == values.list.len()
    # The sum is NaN if any term is.
    is_defined = is_complete & ~values.list.sum().is_nan() & values.list.max().is_finite()
    return pl.when(is_defined).then(values.list.arg_max())


def _whole_vocabulary(scored: ScoredRequests, part: str) -> pl.LazyFrame:
    return _scores(scored.part(part), "label_log_likelihoods")


def _label_space(scored: ScoredRequests, part: str) -> pl.LazyFrame:
    # Subtract the log of the sum over labels, computed relative to the highest term so that exp does not underflow.
    highest = pl.element().max()
    total = (pl.element() - highest).exp().sum().log() + highest
    return _whole_vocabulary(scored, part).with_columns(pl.col("scores").list.eval(pl.element() - total))


def _released(scored: ScoredRequests, part: str) -> pl.LazyFrame:
    """Return the filtered scores; no rows where the method pvi_released did not run."""
    return _scores(filtered_log_likelihoods(scored, part), "filtered")


def _scores(rows: pl.LazyFrame, column: str) -> pl.LazyFrame:
    return rows.select(*_RUN, "query_id", "gold", scores=column)


_LOG_LIKELIHOODS: dict[PviDefinition, Callable[[ScoredRequests, str], pl.LazyFrame]] = {
    "paper": _whole_vocabulary,
    "label_space": _label_space,
    "released": _released,
}
"""Definition -> function that returns dataset, n_shots, demonstration_set, query_id, gold and `scores` (one number a
label, in nats) of a part."""


def _require_labels(scored: ScoredRequests) -> None:
    rows = scored.part(INPUT).select("dataset", "gold", n_labels=pl.col("label_names").list.len()).collect()
    groups = rows.partition_by("dataset", "n_labels", as_dict=True, maintain_order=True)
    for (dataset, n_labels), group in groups.items():
        if int(n_labels) < 2:
            raise MetricError(
                f"{dataset} has {n_labels} label, and PVI needs two or more: with one label an input gives no "
                "information. Leave the dataset out (--datasets), or give all of its labels."
            )
        require_gold(group["gold"], int(n_labels), str(dataset))
