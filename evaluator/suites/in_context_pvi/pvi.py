"""Compute in-context pointwise V-information, one PVI for each query and run, from scores of input and null prompts.

Lu et al. 2023, equation 1: C(x, y) = -log2 G[p](y) + log2 G[p'](y), where p' has the input after its demonstrations
and p is the same prompt with every input removed, also the inputs of demonstrations.
"""

import math

import polars as pl

from evaluator.errors import MetricError
from evaluator.methods.base import ScoredRequests
from evaluator.metrics.per_request import require_gold
from evaluator.suites.in_context_pvi.options import PviSource
from evaluator.suites.in_context_pvi.prompts import INPUT, NULL, null_part
from evaluator.suites.in_context_pvi.released_scores import drawn_labels, filtered_log_likelihoods
from evaluator.suites.in_context_pvi.schema import CHOSEN, PVI, PVI_DEFINITIONS, PVI_KEY, PviDefinition

_RUN = ["dataset", "n_shots", "demonstration_set"]


def pvi_table(scored: ScoredRequests, source: PviSource = "random", *, seed: int = 0) -> pl.DataFrame:
    """Compute the PVI of every query after every demonstration set, drawn, published or chosen by PVI.

    Under `paper` log-likelihoods of the gold label are over the whole vocabulary, under `label_space` normalised over
    the labels, under `released` filtered by released_scores.py; the latter has no rows for chosen sets, and none at all
    unless the method pvi_released ran. PVI is the difference of two log-likelihoods, in nats, and divided by ln 2 in
    bits. It is null if one of them is missing, NaN or infinite; both keep their values, and no row is dropped. The
    prediction is the most probable label, but under `released` the label whose token is drawn, as the notebook judges
    sampled texts.

    Args:
        scored: of the suite pvi.
        source: where the suite's demonstration sets come from.
        seed: of the predictions under `released`.

    Returns:
        schema.PVI, sorted by its key.

    Raises:
        MetricError: a label space of one label, or gold labels outside it.
    """
    _require_labels(scored)
    parts = {source: (INPUT, NULL)} | {order: (method, null_part(method)) for method, order in CHOSEN.items()}
    frames = [
        _pvi_of_part(scored, demonstrations, pair, definition, seed)
        for demonstrations, pair in parts.items()
        for definition in PVI_DEFINITIONS
        if definition != "released" or demonstrations == source
    ]
    return pl.concat(frames).collect().sort(PVI_KEY)


def gain_nats(given_input: pl.Expr, given_null: pl.Expr) -> pl.Expr:
    """Subtract log-likelihoods of a label in nats; null where one of the two is missing, NaN or infinite.

    Source: Lu et al. 2023, equation 1, before division by ln 2.
    """
    difference = given_input - given_null
    # The difference of two infinities is NaN or infinite, so that one check covers both.
    return pl.when(difference.is_finite()).then(difference)


def _pvi_of_part(
    scored: ScoredRequests, demonstrations: str, parts: tuple[str, str], definition: PviDefinition, seed: int
) -> pl.LazyFrame:
    """Compute the PVI of the queries of the first part, with the null prompts of the second."""
    inputs, nulls = (_log_likelihoods(scored, part, definition) for part in parts)
    # One row for each label of each null prompt, to join by the gold label of a query.
    label = pl.int_ranges(pl.col("scores").list.len()).alias("gold")
    null_scores = nulls.select(*_RUN, label, given_null="scores").explode("gold", "given_null")
    gold_score = pl.col("scores").list.get(pl.col("gold"))
    predicted = inputs.with_columns(
        pred=_most_probable("scores"), n_highest_labels=_n_highest("scores"), given_input=gold_score
    ).with_columns(correct=pl.col("pred") == pl.col("gold"))
    if definition == "released":
        drawn = drawn_labels(scored, parts[0], seed)
        right = pl.when("can_be_drawn").then((pl.col("drawn") == pl.col("gold")).fill_null(False))
        predicted = predicted.join(drawn, on=[*_RUN, "query_id"], how="left").with_columns(pred="drawn", correct=right)
    both = predicted.join(null_scores, on=[*_RUN, "gold"], how="left", validate="m:1")
    rows = both.with_columns(pvi_nats=gain_nats(pl.col("given_input"), pl.col("given_null"))).with_columns(
        pvi_bits=pl.col("pvi_nats") / math.log(2),
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


def _n_highest(scores: str) -> pl.Expr:
    """Count the labels that share the highest score; null where _most_probable is."""
    element = pl.element()
    n_highest = pl.col(scores).list.eval((element == element.max()).sum().cast(pl.Int64)).list.first()
    return pl.when(_most_probable(scores).is_not_null()).then(n_highest)


def _log_likelihoods(scored: ScoredRequests, part: str, definition: PviDefinition) -> pl.LazyFrame:
    """Return dataset, n_shots, demonstration_set, query_id, gold and `scores` of a part: one log-likelihood for each
    label, in nats. Under `released` there are no rows where the method pvi_released did not run."""
    rows, scores = scored.rows.filter(part=part), pl.col("label_log_likelihoods")
    if definition == "released":
        rows, scores = filtered_log_likelihoods(scored, part), pl.col("filtered")
    elif definition == "label_space":
        # Subtract the log of the sum over labels, computed relative to the highest term so that exp does not underflow.
        highest = pl.element().max()
        scores = scores.list.eval(pl.element() - ((pl.element() - highest).exp().sum().log() + highest))
    return rows.select(*_RUN, "query_id", "gold", scores=scores)


def _require_labels(scored: ScoredRequests) -> None:
    rows = scored.rows.filter(part=INPUT).select("dataset", "gold", n_labels=pl.col("label_names").list.len()).collect()
    groups = rows.partition_by("dataset", "n_labels", as_dict=True, maintain_order=True)
    for (dataset, n_labels), group in groups.items():
        if int(n_labels) < 2:
            raise MetricError(
                f"{dataset} has {n_labels} label, and PVI needs two or more: with one label an input gives no "
                "information. Leave the dataset out (--datasets), or give all of its labels."
            )
        require_gold(group["gold"], int(n_labels), str(dataset))
