"""Build prompts whose query has no content, and measure which labels a model prefers independently of the query.

Without bias these measures are at the end of their range. The mean entropy (`paper`) is a mean over requests and has no
sampling bias. Sampling noise moves the entropy of the mean (`released`) and the divergence in one direction only;
metrics.intervals removes this bias, and their intervals are around the limit for infinitely many requests.

Source: Cho & Inoue 2025, section 3.3.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl

from evaluator.arrays import Floats
from evaluator.config import RunConfig
from evaluator.datasets.base import ClassificationDataset
from evaluator.metrics.classification import (
    N_REQUESTS,
    Measured,
    Metric,
    label_matrix,
    metric_values,
    passes_released_check,
    require_gold,
    sum_in_order,
)
from evaluator.metrics.groups import PredictionGroup
from evaluator.metrics.intervals import freedom
from evaluator.prompts.method_prompts import domain_queries, empty_queries
from evaluator.prompts.rows import benchmark_plan, normal_requests, of_parts, requests
from evaluator.schemas import ABSENT_LABELS

N_WORDS = 128
"""Number of words of a domain query, as in the toolkit; the paper does not give it."""


def bias_requests(dataset: ClassificationDataset, config: RunConfig) -> Iterator[pl.DataFrame]:
    """Yield the prompts of StaICC-Normal with their queries replaced by empty queries and by domain queries.

    Rows keep position, query_id and gold of the replaced query. Domain queries are random words of the calibration
    split, under `released` of the demonstration split. The part `normal` has the unchanged prompts, on which the
    empirical bias is measured; it is left out if the run includes staicc-normal, which has the same rows.
    """
    plan = benchmark_plan(dataset, n_shots=config.n_shots)
    n_prompts = len(plan.query_id)
    definition = config.prompt_definition
    split, rows = "calibration", dataset.calibration
    if definition == "released":
        split, rows = "demonstration", dataset.demonstration
    source = f"{dataset.name}: the {split} split"
    words = domain_queries(rows, n_queries=n_prompts, n_words=N_WORDS, definition=definition, source_name=source)
    contentless = {"contextual": empty_queries(n_prompts, len(dataset.text_fields)), "domain": words}
    n_queries = config.n_queries
    parts = {part: requests(dataset, plan, queries=texts, n_queries=n_queries) for part, texts in contentless.items()}
    if "staicc-normal" not in config.suites:
        parts["normal"] = normal_requests(dataset, n_shots=config.n_shots, n_queries=n_queries)
    return of_parts(parts)


def prior_bias(group: PredictionGroup) -> dict[str, Measured]:
    """Measure contextual_bias or domain_bias: the confidence of a model on queries without content, in nats.

    paper: minus the mean entropy of label_probs, from -log(number of labels), no bias, to 0.
    released: the entropy of the mean of label_probs, positive, so that more is *less* bias; the mean first goes through
    a softmax unless its entries add up to exactly 1. Opposite preferences of different prompts cancel out.

    Raises MetricError for rows that the definition does not accept.

    Sources: Cho & Inoue 2025, section 3.3, equation 2; StaICC 0.1.1, util/functional.py, bias_mean_entropy_metric.
    """
    matrix = label_matrix(group.rows, group.n_labels, group.definition, group.where)
    requests = group.rows.select("query_id").hstack(matrix)
    name = f"{group.key['part']}_bias"
    if group.definition == "paper":
        return metric_values(requests, group.n_labels, {name: MEAN_ENTROPY})
    measured = metric_values(requests, group.n_labels, {name: _entropy_of_mean(softmaxed=_is_softmaxed(matrix))})
    uniform = np.full(group.n_labels, 1 / group.n_labels)
    return {name: measured[name]._replace(bias_freedom=freedom(_by_query(requests, matrix.columns), uniform))}


def empirical_bias(group: PredictionGroup) -> dict[str, Measured]:
    """Measure empirical_bias: KL divergence of the mean of label_probs from the shares of the gold labels, in nats.

    paper: a label of no probability adds 0; a label that no query has, but that is given probability, makes it
    infinite (absent_labels names it), and so is the mean over datasets.
    released: the same where every label has both, otherwise NaN: the toolkit divides by zero or takes the logarithm
    of 0.

    Raises MetricError for rows that the definition does not accept, and gold labels outside the label space.

    Sources: Cho & Inoue 2025, section 3.3, equation 3; StaICC 0.1.1, util/functional.py, post_bias_dl_metric.
    """
    labels = range(group.n_labels)
    require_gold(group.rows["gold"], group.n_labels, group.where)
    matrix = label_matrix(group.rows, group.n_labels, group.definition, group.where)
    requests = group.rows.select("query_id", "gold").hstack(matrix)
    metric = DIVERGENCE if group.definition == "paper" else RELEASED_DIVERGENCE
    measured = metric_values(requests, group.n_labels, {"empirical_bias": metric})
    differences = [(pl.col(f"p{label}") - (pl.col("gold") == label)).alias(f"d{label}") for label in labels]
    errors = _by_query(requests.with_columns(differences), [f"d{label}" for label in labels])
    of_gold = np.bincount(requests["gold"].to_numpy(), minlength=group.n_labels)
    of_probs = matrix.sum().to_numpy()[0]
    scale = (of_probs / requests.height + of_gold / requests.height) / 2
    return {"empirical_bias": measured["empirical_bias"]._replace(bias_freedom=freedom(errors, scale))}


def absent_labels(group: PredictionGroup) -> pl.DataFrame:
    """Return the labels that no query of a group has, but that its method gives probability.

    Because of them the empirical bias is infinite, or NaN under `released`. Returns ABSENT_LABELS.
    """
    probs, present, rows = group.rows["label_probs"], {*group.rows["gold"]}, []
    for label, name in enumerate(group.label_names):
        if label not in present:
            # The sum of a list adds row after row; several threads add that of a column, and its last digit varies.
            mean = probs.list.get(label).implode().list.sum().item() / group.rows.height
            rows.append(group.key | {"label_name": name, "mean_probability": mean})
    return pl.DataFrame(rows, schema=ABSENT_LABELS).filter(pl.col("mean_probability") > 0)


def _by_query(requests: pl.DataFrame, columns: Sequence[str]) -> Floats:
    """Return the means of the columns for each query, [query, column]."""
    means = requests.group_by("query_id", maintain_order=True).agg(pl.col(columns).mean())
    return means.select(columns).to_numpy()


def _is_softmaxed(matrix: pl.DataFrame) -> bool:
    # Sum row after row, as in the toolkit: the last digit decides whether the mean adds up to exactly 1.
    mean = np.cumsum(matrix.to_numpy(), axis=0)[-1] / matrix.height
    return not passes_released_check(pl.DataFrame(mean[None, :], schema=matrix.columns))


def _entropy(probs: list[pl.Expr]) -> pl.Expr:
    return 0 - sum_in_order(pl.when(p > 0).then(p * p.log()).otherwise(0.0) for p in probs)  # 0, never -0


def _means(n_labels: int) -> list[pl.Expr]:
    return [pl.col(f"p{label}") / pl.col("n") for label in range(n_labels)]


MEAN_ENTROPY = Metric(
    statistics=lambda n_labels: N_REQUESTS | {"entropy": _entropy([pl.col(f"p{label}") for label in range(n_labels)])},
    value=lambda _n_labels: 0 - pl.col("entropy") / pl.col("n"),
    interval="symmetric",
    limits=lambda n_labels: (-math.log(n_labels), 0.0),
)


def _probability_sums(n_labels: int) -> dict[str, pl.Expr]:
    return N_REQUESTS | {f"p{label}": pl.col(f"p{label}") for label in range(n_labels)}


def _entropy_of_mean(*, softmaxed: bool) -> Metric:
    def value(n_labels: int) -> pl.Expr:
        means = _means(n_labels)
        if softmaxed:
            weights = [mean.exp() for mean in means]
            means = [weight / sum_in_order(weights) for weight in weights]
        return _entropy(means)

    return Metric(
        statistics=_probability_sums,
        value=value,
        interval="distance",
        limits=lambda n_labels: (0.0, math.log(n_labels)),
    )


def _divergence(*, released: bool) -> Metric:
    """Define the KL divergence of the mean probabilities from the shares of the gold labels."""

    def term(mean: pl.Expr, share: pl.Expr) -> pl.Expr:
        # Under `paper` x / 0 is infinite, and a label of no probability adds 0; under `released` both are NaN.
        is_defined = (mean > 0) & (share > 0) if released else mean > 0
        return pl.when(is_defined).then(mean * (mean / share).log()).otherwise(math.nan if released else 0.0)

    def value(n_labels: int) -> pl.Expr:
        shares = [pl.col(f"gold_{label}") / pl.col("n") for label in range(n_labels)]
        return sum_in_order(map(term, _means(n_labels), shares))

    def statistics(n_labels: int) -> dict[str, pl.Expr]:
        return _probability_sums(n_labels) | {f"gold_{label}": pl.col("gold") == label for label in range(n_labels)}

    return Metric(statistics=statistics, value=value, interval="distance", limits=lambda _n_labels: (0.0, math.inf))


DIVERGENCE, RELEASED_DIVERGENCE = _divergence(released=False), _divergence(released=True)
