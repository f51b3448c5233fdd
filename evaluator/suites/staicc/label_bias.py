"""Build prompts whose query has no content, and measure which labels a model prefers whatever the query is.

A model without bias has the value at one end of the range of each measure. The mean entropy (`paper`) is a mean over
requests and has no sampling bias. The entropy of the mean (`released`) and the divergence have a sampling bias, because
noise moves them away from that end. metrics.intervals removes the bias: intervals are for the value at infinitely many
requests.

Source: Cho & Inoue 2025, section 3.3.
"""

import math
from collections.abc import Callable, Iterator

import numpy as np
import polars as pl
from scipy.special import entr

from evaluator.arrays import Floats
from evaluator.config import RunConfig
from evaluator.datasets.base import ClassificationDataset
from evaluator.metrics.classification import Measured, jackknifed, label_matrix, passes_released_check, require_gold
from evaluator.metrics.groups import PredictionGroup
from evaluator.metrics.intervals import freedom
from evaluator.prompts.method_prompts import domain_queries, empty_queries
from evaluator.prompts.rows import benchmark_plan, normal_requests, of_parts, requests
from evaluator.schemas import ABSENT_LABELS

N_WORDS = 128
"""Number of words of a domain query, as in the toolkit; the paper does not give it."""


def bias_requests(dataset: ClassificationDataset, config: RunConfig) -> Iterator[pl.DataFrame]:
    """Yield the prompts of StaICC-Normal with empty queries (part `contextual`) and with domain queries (`domain`).

    Domain queries are random words of the calibration split; under `released`, of the demonstration split. Rows keep
    position, query_id and gold of the replaced query. The part `normal` has the unchanged prompts, which the empirical
    bias needs; it is left out if the run has the suite staicc-normal, which has the same rows.
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

    paper: minus the mean entropy of label_probs; from -log(number of labels), which is no bias, to 0.
    released: the entropy of the mean of label_probs, so that a higher value is *less* bias. If the entries of the mean
    do not add up to exactly 1, a softmax is applied to them first. Opposite preferences of different prompts cancel.

    Raises MetricError for rows that the definition does not accept.

    Sources: Cho & Inoue 2025, section 3.3, equation 2; StaICC 0.1.1, util/functional.py, bias_mean_entropy_metric.
    """
    matrix = label_matrix(group.rows, group.n_labels, group.definition, group.where)
    name, probs, most = f"{group.key['part']}_bias", matrix.to_numpy(), math.log(group.n_labels)
    if group.definition == "paper":
        entropies = _sums_by_query(group, _entropy(probs)[:, None])
        left_out = _left_out(lambda sums: 0.0 - _means(sums)[..., 0], entropies)
        return {name: jackknifed(*left_out, "symmetric", (-most, 0.0))}
    # Sum row by row, as the toolkit does: the last digit decides whether the entries of the mean add up to exactly 1.
    mean = pl.DataFrame(np.cumsum(probs, axis=0)[-1:] / matrix.height, schema=matrix.columns)
    is_kept, sums = passes_released_check(mean), _sums_by_query(group, probs)

    def entropy_of_mean(sums: Floats) -> Floats:
        means = _means(sums)
        return _entropy(means if is_kept else np.exp(means) / np.exp(means).sum(axis=-1, keepdims=True))

    measured = jackknifed(*_left_out(entropy_of_mean, sums), "distance", (0.0, most))
    uniform = np.full(group.n_labels, 1 / group.n_labels)
    return {name: measured._replace(bias_freedom=freedom(_means(sums), uniform))}


def empirical_bias(group: PredictionGroup) -> dict[str, Measured]:
    """Measure empirical_bias: the KL divergence of the mean of label_probs from the shares of the gold labels, in nats.

    paper: a label with probability 0 adds 0. A label with positive probability that is no query's gold label makes the
    value infinite, and the mean over datasets too (absent_labels lists such labels).
    released: the same value if every label has positive probability and a query. Otherwise NaN, because the toolkit
    divides by 0 or takes the logarithm of 0.

    Raises MetricError for rows that the definition does not accept, and gold labels outside the label space.

    Sources: Cho & Inoue 2025, section 3.3, equation 3; StaICC 0.1.1, util/functional.py, post_bias_dl_metric.
    """
    require_gold(group.rows["gold"], group.n_labels, group.where)
    probs = label_matrix(group.rows, group.n_labels, group.definition, group.where).to_numpy()
    # For each query, sums over its requests: of the probabilities, then of the one-hot gold labels.
    sums = _sums_by_query(group, np.hstack([probs, np.eye(group.n_labels)[group.rows["gold"].to_numpy()]]))
    is_released = group.definition != "paper"

    def divergence(sums: Floats) -> Floats:
        means, shares = np.split(_means(sums), 2, axis=-1)
        # Under `paper` x / 0 is infinite, and a label with probability 0 adds 0; under `released` both cases are NaN.
        is_defined = (means > 0) & (shares > 0) if is_released else means > 0
        with np.errstate(divide="ignore", invalid="ignore"):
            terms = np.where(is_defined, means * np.log(means / shares), math.nan if is_released else 0.0)
        return np.asarray(terms.sum(axis=-1))

    measured = jackknifed(*_left_out(divergence, sums), "distance", (0.0, math.inf))
    # Degrees of freedom of a divergence whose true value is 0: by the noise of probabilities minus label shares.
    errors, halves = np.split(_means(sums), 2, axis=-1), np.split(_means(sums.sum(axis=0)), 2)
    degrees = freedom(errors[0] - errors[1], (halves[0] + halves[1]) / 2)
    return {"empirical_bias": measured._replace(bias_freedom=degrees)}


def absent_labels(group: PredictionGroup) -> pl.DataFrame:
    """Return ABSENT_LABELS: the labels that no query of a group has, but that have positive mean probability.

    Such a label makes the empirical bias infinite, or NaN under `released`.
    """
    probs, present, rows = group.rows["label_probs"], {*group.rows["gold"]}, []
    for label, name in enumerate(group.label_names):
        if label not in present:
            # As a list, whose sum is computed in row order. Threads sum a column, so that its last digit varies.
            mean = probs.list.get(label).implode().list.sum().item() / group.rows.height
            rows.append(group.key | {"label_name": name, "mean_probability": mean})
    return pl.DataFrame(rows, schema=ABSENT_LABELS).filter(pl.col("mean_probability") > 0)


def _sums_by_query(group: PredictionGroup, columns: Floats) -> Floats:
    """Return for each query its number of requests and the sums of the columns over them, [query, 1 + column]."""
    _, query = np.unique(group.rows["query_id"].to_numpy(), return_inverse=True)
    sums = np.zeros((query.max() + 1, 1 + columns.shape[1]))
    np.add.at(sums, query, np.insert(columns, 0, 1.0, axis=1))
    return sums


def _means(sums: Floats) -> Floats:
    with np.errstate(invalid="ignore"):  # 0 / 0 if the only query is left out
        return np.asarray(sums[..., 1:] / sums[..., :1])


def _entropy(probs: Floats) -> Floats:
    """Return the entropies, in nats, of distributions along the last axis."""
    return np.asarray(entr(np.maximum(probs, 0.0)).sum(axis=-1) + 0.0)  # + 0.0 makes -0.0 positive


def _left_out(value: Callable[[Floats], Floats], sums: Floats) -> tuple[float, Floats]:
    """Return the value of a function of sums over requests, and its values without each query in turn, [query].

    Args:
        value: function from sums [..., 1 + column] to values [...].
        sums: as returned by _sums_by_query.
    """
    total = sums.sum(axis=0)
    return float(value(total)), value(total - sums)
