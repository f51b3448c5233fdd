"""Inference methods that calibrate label probabilities.

Contextual, domain and batch calibration divide label probabilities by their mean over prompts without a real query, or
over a batch of queries: they shift the log-probability of each label.

Vector scaling, which is not a method of StaICC, scales and shifts the log-probability of each label; both are fitted on
labelled training prompts. A scale below 0 reverses the model's order of a label's probabilities.

Temperature scaling has one scale for all labels, fitted on other queries. It changes no prediction, only the
probabilities.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import polars as pl

from evaluator.arrays import Floats, Ints
from evaluator.config import Definition
from evaluator.methods import base
from evaluator.methods.hidden_states import labelled_examples, labelled_prompts
from evaluator.prompts.method_prompts import N_SAMPLES, domain_queries, empty_queries, training_draws, training_requests
from evaluator.schemas import declare

CONTEXTUAL, DOMAIN = "contextual_calibration", "domain_calibration"
"""Names of the methods, and of the parts with their training prompts."""

N_WORDS = 64  # words of a domain query: "we fix the sample length to 64" (Cho & Inoue 2025, appendix B.2)
BATCH_SIZE = 128  # requests of a batch: "we fix the batch size to 128" (Cho & Inoue 2025, appendix B.2)
TOOLKIT_OFFSET = 1e-5  # initial value of the toolkit's sums of probabilities over training prompts

_TASK, _BATCH = ["suite", "dataset"], ["suite", "dataset", "batch"]


def log_softmax(scores: pl.Expr) -> pl.Expr:
    """Return the log-softmax of each list of log-likelihoods: log-probabilities, nats, in lists of the same length."""
    scaled = pl.element() - pl.element().max()
    return scores.list.eval(scaled - scaled.exp().sum().log())


def log_mean_label_probs(scored: pl.LazyFrame, by: Sequence[str], definition: Definition) -> pl.LazyFrame:
    """Return the log of the mean vanilla probability of each label in each group of requests.

    Computed in log space, so that a mean that float64 would round to zero stays finite.

    Args:
        scored: scored requests.
        by: columns that define the groups; the requests of a group share one label space.
        definition: definition of the label scores.

    Returns:
        The columns `by` and `log_mean`, List[f64] in label-space order, nats.
    """
    # One row for each request and label.
    labels, log_probs = pl.int_ranges(pl.col("label_names").list.len()), log_softmax(base.label_score(definition))
    each_label = scored.sort("position").select(*by, log_prob=log_probs, label=labels).explode("log_prob", "label")
    # log(mean(exp(log_prob))), with the largest log_prob subtracted before exp, so that not all terms underflow.
    largest, summed = pl.element().max(), (pl.element() - pl.element().max()).exp().sum()
    log_mean = pl.col("log_prob").list.eval(largest + (summed / pl.element().len()).log()).list.first()
    # Log-probabilities are collected into lists before the sum: Polars sums a list in order, but a group in parts that
    # depend on the number of cores, which would change the rounding.
    by_label = each_label.group_by(*by, "label", maintain_order=True).agg("log_prob").with_columns(log_mean=log_mean)
    return by_label.sort(*by, "label").group_by(by, maintain_order=True).agg("log_mean")


def calibrated(part: str) -> base.LabelProbs:
    """Return a function for Method.label_probs that divides label probabilities p by A, their mean in `part`.

    `paper`: p / A, normalised to sum one. `released` (`standard_calibration.py`): the softmax of p / A, where A is
    (1e-5 + sum of p over the training prompts) / 128. Both give the same order of labels but different probabilities.
    """

    def label_probs(scored: base.ScoredRequests, definition: Definition) -> pl.LazyFrame:
        means = log_mean_label_probs(scored.rows.filter(part=part), _TASK, definition)
        queries = scored.queries.join(means, on=_TASK, how="left", maintain_order="left")
        score = base.label_score(definition)
        scaled = score - pl.col("log_mean")
        if definition == "released":
            scaled = base.softmax(score) / pl.col("log_mean").list.eval(pl.element().exp() + TOOLKIT_OFFSET / N_SAMPLES)
        return queries.with_columns(label_probs=base.softmax(scaled)).drop("log_mean")

    return label_probs


def contextual_requests(context: base.MethodContext) -> Iterator[pl.DataFrame]:
    """Yield the training prompts of contextual calibration: empty queries after demonstrations.

    The demonstrations are rows of the calibration split. Raises DatasetError if this split is empty.

    Source: Zhao et al. 2021, "Calibrate Before Use": W = diag(p_cf)^-1. There p_cf is computed with the demonstrations
    of the calibrated prompt and three content-free inputs. Here, as in Cho & Inoue 2025 (appendix B.2), it is computed
    once for each dataset, from 128 prompts with other demonstrations of the task and empty inputs.
    """
    dataset = context.classification
    shown = training_draws(dataset, n_draws=context.config.n_shots)
    queries = empty_queries(N_SAMPLES, len(dataset.text_fields))
    yield training_requests(dataset, part=CONTEXTUAL, queries=queries, demonstration_ids=shown)


def domain_requests(context: base.MethodContext) -> Iterator[pl.DataFrame]:
    """Yield the training prompts of domain calibration: queries of random words after demonstrations.

    Words and demonstrations are from the calibration split. Raises DatasetError if this split is empty.

    Source: Fei et al. 2023, "Mitigating Label Biases for In-context Learning" (domain-context calibration). The
    formulas are those of contextual calibration. The number and length of the queries are from Cho & Inoue 2025,
    appendix B.2.
    """
    dataset = context.classification
    shown = training_draws(dataset, n_draws=context.config.n_shots)
    definition, source = context.config.prompt_definition, f"The calibration split of {dataset.name}"
    queries = domain_queries(
        dataset.calibration, n_queries=N_SAMPLES, n_words=N_WORDS, definition=definition, source_name=source
    )
    yield training_requests(dataset, part=DOMAIN, queries=queries, demonstration_ids=shown)


CONTEXTUAL_CALIBRATION = base.Method(
    summary="The label that the query makes likelier than no query does, by the largest factor.",
    label_probs=calibrated(CONTEXTUAL),
    prompts=base.MethodPrompts(requests=contextual_requests),
    part_kinds=("classification",),
    drawn_once="training prompts",
    labelled_examples=lambda n_shots: N_SAMPLES * n_shots,
)

DOMAIN_CALIBRATION = replace(
    CONTEXTUAL_CALIBRATION,
    summary="The label that the query makes likelier than random words of its kind do, by the largest factor.",
    label_probs=calibrated(DOMAIN),
    prompts=base.MethodPrompts(requests=domain_requests, differ=True),
)


def batch_calibrated(scored: base.ScoredRequests, definition: Definition) -> pl.LazyFrame:
    """Return queries with label probabilities calibrated by their mean over a batch.

    `paper` (Zhou et al. 2024, "Batch Calibration"): log-probabilities minus the log of the batch's mean probabilities,
    which is p / mean(p), normalised. `released` (`standard_calibration.py`): the softmax of p - mean(p), in which two
    probabilities differ at most by a factor of e^2, however confident the model is.

    A batch is 128 consecutive requests in the order of the benchmark: all queries with their first demonstration set,
    then all queries with the second. A run with fewer queries has other batches, and so other probabilities, than the
    full benchmark. The last batch may be smaller; the labels of a batch of one request get equal probabilities.
    """
    # Number the requests of a dataset from 0 and cut them into batches.
    index = pl.col("position").rank("ordinal").over("suite", "dataset").cast(pl.Int64) - 1
    queries = scored.queries.with_columns(batch=index // BATCH_SIZE)
    means = log_mean_label_probs(queries, _BATCH, definition)
    score = base.label_score(definition)
    shifted = score - pl.col("log_mean")
    if definition == "released":
        shifted = base.softmax(score) - pl.col("log_mean").list.eval(pl.element().exp())
    joined = queries.join(means, on=_BATCH, how="left", maintain_order="left")
    return joined.with_columns(label_probs=base.softmax(shifted)).drop("log_mean", "batch")


BATCH_CALIBRATION = base.Method(
    summary="The label that the query makes likelier than the queries of its batch do on average.",
    label_probs=batch_calibrated,
    part_kinds=("classification",),
)


SCALING = "vector_scaling"
PENALTY = 1.0
"""Weight of the squared distances of scales from 1 and of shifts from 0, relative to the summed loss in nats. Without a
penalty, scales grow without limit if the training prompts are separable."""


def scaled_label_probs(scored: base.ScoredRequests, definition: Definition) -> pl.LazyFrame:
    """Return queries with the softmax of scale * log p + shift, both fitted on the dataset's training prompts.

    Source: Guo et al. 2017, "On Calibration of Modern Neural Networks", section 4.2 (vector scaling), fitted by maximum
    likelihood with a penalty that is not in the paper (PENALTY). Gundem et al. 2025 (arXiv 2505.23783) learn maps of
    the same form only from the demonstrations of a prompt, with other penalties; this is not their method.
    """
    log_probs = log_softmax(base.label_score(definition))
    in_order = scored.rows.filter(part=SCALING).sort(*_TASK, "position")
    training = in_order.select(*_TASK, "gold", log_probs=log_probs).collect()
    fitted = []
    for task, rows in training.group_by(_TASK, maintain_order=True):
        scale, shift = fit_scaling(np.array(rows["log_probs"].to_list()), rows["gold"].to_numpy())
        fitted.append((*task, scale.tolist(), shift.tolist()))
    columns = declare(suite=pl.String(), dataset=pl.String(), scale=pl.List(pl.Float64()), shift=pl.List(pl.Float64()))
    scalings = pl.LazyFrame(fitted, columns, orient="row")
    queries = scored.queries.join(scalings, on=_TASK, how="left", maintain_order="left")
    scaled = pl.col("scale") * log_probs + pl.col("shift")
    return queries.with_columns(label_probs=base.softmax(scaled)).drop("scale", "shift")


def fit_scaling(log_probs: Floats, gold: Ints) -> tuple[Floats, Floats]:
    """Fit scale and shift of each label by penalised maximum likelihood.

    Minimises the summed log loss of the true labels, in nats, plus PENALTY * (|scale - 1|^2 + |shift|^2) / 2. This
    function is strictly convex, so its minimum is unique.

    Args:
        log_probs: [n, n_labels], finite.
        gold: [n], indices of the true labels.

    Returns:
        scale and shift (nats), each [n_labels]: p(label) is proportional to exp(scale * log-probability + shift).
    """
    from scipy.optimize import minimize  # here, because listing the methods should not load SciPy
    from scipy.special import log_softmax as normalised

    n, n_labels = log_probs.shape
    truth = np.eye(n_labels)[gold]
    identity = np.concatenate([np.ones(n_labels), np.zeros(n_labels)])

    def loss_and_gradient(parameters: Floats) -> tuple[float, Floats]:
        scale, shift = parameters[:n_labels], parameters[n_labels:]
        log_p = normalised(scale * log_probs + shift, axis=1)
        change = parameters - identity
        excess = np.exp(log_p) - truth  # derivative of the loss by scale * log_probs + shift, [n, n_labels]
        gradient = np.concatenate([(excess * log_probs).sum(axis=0), excess.sum(axis=0)])
        return float(-log_p[np.arange(n), gold].sum() + PENALTY * change @ change / 2), gradient + PENALTY * change

    found = minimize(loss_and_gradient, identity, jac=True, method="BFGS", options={"gtol": 1e-8}).x
    return found[:n_labels], found[n_labels:]


def scaling_requests(context: base.MethodContext) -> Iterator[pl.DataFrame]:
    """Yield the training prompts of hidden calibration as requests for label log-likelihoods.

    Raises DatasetError if the calibration split is empty.
    """
    yield labelled_prompts(context, SCALING).select(context.columns)


VECTOR_SCALING = base.Method(
    summary="Vanilla with a scale and a shift for each label, fitted on labelled prompts.",
    label_probs=scaled_label_probs,
    prompts=base.MethodPrompts(requests=scaling_requests),
    definitions=("paper",),
    part_kinds=("classification",),
    drawn_once="training prompts",
    labelled_examples=labelled_examples,
)


class Temperature(NamedTuple):
    """The divisor of label log-probabilities, with its 95% interval. Above 1: the model is overconfident."""

    value: float
    ci_low: float | None  # None if answers do not determine the interval: all right, all wrong, or a single group
    ci_high: float | None  # an end beyond the limits below is 0 or infinite


MIN_SCALE, MAX_SCALE = 0.01, 100.0
"""Limits of 1 / temperature: for answers that are all right or all wrong the loss has no finite minimum."""

N_FOLDS = 5  # folds of cross-fitted temperatures


def fit_temperature(label_probs: pl.Series, gold: pl.Series, groups: Ints | None = None) -> Temperature:
    """Fit the temperature T that minimises the log loss of p(label)^(1/T), normalised, by Newton's method.

    A probability of 0 counts as half of the smallest positive one, at most 0.005. The interval is computed for log T,
    from the variance of the gradient between groups (a sandwich estimate).

    Args:
        label_probs: List[f64], [n], label probabilities; rows may have different numbers of labels.
        gold: [n], indices of the true labels.
        groups: [n], group numbers; rows of one group are dependent. None: all rows are independent.

    Source: Guo et al. 2017, section 4.2 (temperature scaling).
    """
    from evaluator.statistics.selective import clustered_reach  # here, because listing methods should not load SciPy

    # All rows in one flat array, because their lengths may differ; row i begins at starts[i].
    flat = label_probs.explode().to_numpy()
    smallest = flat[flat > 0].min(initial=0.01)
    log_probs = np.log(np.where(flat > 0, flat, smallest / 2))
    sizes = label_probs.list.len().to_numpy().astype(np.int64)
    starts = np.cumsum(sizes) - sizes
    of_gold = log_probs[starts + gold.to_numpy()]

    def gradient(scale: float) -> tuple[Floats, float]:
        """Return the derivative of each row's loss by scale = 1 / T, [n], and the second derivative of their sum."""
        # Under the scaled probabilities of a row, these are the mean log-probability minus that of the true label, and
        # the variance of the log-probability.
        scaled = scale * log_probs
        weights = np.exp(scaled - np.repeat(np.maximum.reduceat(scaled, starts), sizes))
        total = np.add.reduceat(weights, starts)
        mean = np.add.reduceat(weights * log_probs, starts) / total
        square = np.add.reduceat(weights * log_probs**2, starts) / total
        return mean - of_gold, float((square - mean**2).sum())

    # The loss is convex. If it still falls at MAX_SCALE, or does not fall at MIN_SCALE, the minimum is at this limit.
    for end in (MAX_SCALE, MIN_SCALE):
        slope = float(gradient(end)[0].sum())
        if slope <= 1e-9 if end == MAX_SCALE else slope >= 0:
            return Temperature(1 / end, None, None)
    # Newton's method; a step changes the scale at most by a factor of 3.
    scale = 1.0
    for _ in range(100):
        slopes, curvature = gradient(scale)
        step = float(slopes.sum()) / max(curvature, 1e-12)
        previous, scale = scale, float(np.clip(scale - step, max(scale / 3, MIN_SCALE), min(scale * 3, MAX_SCALE)))
        if abs(scale - previous) < 1e-12 * scale:
            break
    slopes, curvature = gradient(scale)
    # Half-width of the interval of the summed slopes, which are 0 at the minimum; divided by the curvature it is the
    # half-width for the scale, and divided by the scale that for log T.
    reach = clustered_reach(slopes, groups) * len(slopes)
    if math.isinf(reach) or curvature <= 0:
        return Temperature(1 / scale, None, None)
    factor = math.exp(min(reach / curvature / scale, 700.0))
    low, high = 1 / scale / factor, factor / scale
    return Temperature(1 / scale, low if low * MAX_SCALE >= 1 else 0.0, high if high * MIN_SCALE <= 1 else math.inf)


def tempered_label_probs(scored: base.ScoredRequests, definition: Definition) -> pl.LazyFrame:
    """Return queries with the softmax of log p / T, where T is fitted on the other folds of the dataset's queries.

    Queries are assigned to N_FOLDS folds at random with a fixed seed. The fit uses true labels of test queries, never
    those of the same fold: results say what temperature scaling achieves with as many labelled queries.
    """
    log_probs = log_softmax(base.label_score(definition))
    queries = scored.queries.with_columns(label_probs=log_probs.list.eval(pl.element().exp())).collect()
    tables = []
    for rows in queries.partition_by(_TASK, maintain_order=True):
        # All requests of a query are in the same fold.
        query = rows["query_id"].rank("dense").to_numpy().astype(np.int64) - 1
        folds = np.random.default_rng(0).permutation(int(query.max()) + 1)[query] % N_FOLDS
        temperatures = np.ones(N_FOLDS)
        for fold in np.unique(folds):
            others = rows.filter(folds != fold).drop_nulls("gold")
            if others.height:
                temperatures[fold] = fit_temperature(others["label_probs"], others["gold"]).value
        tables.append(rows.with_columns(temperature=pl.Series(temperatures[folds])))
    tempered = pl.concat([queries.clear().with_columns(temperature=pl.lit(None, pl.Float64)), *tables]).lazy()
    return tempered.with_columns(label_probs=base.softmax(log_probs / pl.col("temperature"))).drop("temperature")


TEMPERATURE_SCALING = base.Method(
    summary="Vanilla with one temperature a dataset, fitted on the labels of other queries.",
    label_probs=tempered_label_probs,
    definitions=("paper",),
    part_kinds=("classification",),
    labelled_examples=lambda _n_shots: math.inf,
    uses_gold=True,
)
