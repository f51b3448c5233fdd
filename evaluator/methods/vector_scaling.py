"""Vector scaling: scale and shift the log-probability of each label, as labelled training prompts ask for.

Not one of StaICC's methods. Batch, contextual and domain calibration only shift labels; a scale below 0 reverses what
the model says of a label. Temperature scaling has one scale for all labels, fitted on other queries: it changes no
prediction, only how certain it is.
"""

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import polars as pl

from evaluator.arrays import Floats, Ints
from evaluator.methods.base import Method, MethodContext, MethodPrompts, ScoredRequests, label_score, softmax
from evaluator.methods.calibration import log_softmax
from evaluator.methods.training_states import labelled_examples, labelled_prompts
from evaluator.schemas import Definition

PART = "vector_scaling"
PENALTY = 1.0
"""Weight of the squared distance of scales from 1 and of shifts from 0, against the summed loss in nats: the change
that one training prompt's loss may outweigh. Without one, scales of separable prompts have no limit."""

_TASK = ["suite", "dataset"]


class Scaling(NamedTuple):
    """p(label) is proportional to exp(scale * log-probability + shift)."""

    scale: Floats  # [n_labels]
    shift: Floats  # [n_labels], nats


def label_probs(scored: ScoredRequests, definition: Definition) -> pl.LazyFrame:
    """Return the queries with the softmax of scale * log p + shift, both fitted on the training prompts of the dataset.

    Source: Guo et al. 2017, "On Calibration of Modern Neural Networks", section 4.2 (vector scaling), by maximum
    likelihood with a penalty of ours (PENALTY). Gundem et al. 2025 (arXiv 2505.23783) learn such maps of the same
    form from the demonstrations of a prompt alone, with other penalties; this is not their method.
    """
    log_probs = log_softmax(label_score(definition))
    training = (
        scored.rows.filter(part=PART).sort(*_TASK, "position").select(*_TASK, "gold", log_probs=log_probs).collect()
    )
    fitted = [
        {**dict(zip(_TASK, task, strict=True)), "scale": found.scale.tolist(), "shift": found.shift.tolist()}
        for task, rows in training.partition_by(_TASK, as_dict=True, maintain_order=True).items()
        for found in [fit(np.array(rows["log_probs"].to_list()), rows["gold"].to_numpy())]
    ]
    schema: Mapping[str, pl.DataType] = {
        **dict.fromkeys(_TASK, pl.String()),
        "scale": pl.List(pl.Float64()),
        "shift": pl.List(pl.Float64()),
    }
    scalings = pl.LazyFrame(fitted, schema=schema)
    queries = scored.queries.join(scalings, on=_TASK, how="left", maintain_order="left")
    scaled = pl.col("scale") * log_probs + pl.col("shift")
    return queries.with_columns(label_probs=softmax(scaled)).drop("scale", "shift")


def fit(log_probs: Floats, gold: Ints) -> Scaling:
    """Minimise the summed log loss of the true labels, in nats, plus PENALTY * (|scale - 1|^2 + |shift|^2) / 2.

    The function is strictly convex, so that there is one minimum.

    Args:
        log_probs: [n, n_labels], finite.
        gold: [n], indices of the true labels.
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
        excess = np.exp(log_p) - truth  # derivative by the scaled log-probabilities, [n, n_labels]
        gradient = np.concatenate([(excess * log_probs).sum(axis=0), excess.sum(axis=0)])
        loss = -log_p[np.arange(n), gold].sum() + PENALTY * change @ change / 2
        return float(loss), gradient + PENALTY * change

    found = minimize(loss_and_gradient, identity, jac=True, method="BFGS", options={"gtol": 1e-8}).x
    return Scaling(found[:n_labels], found[n_labels:])


def requests(context: MethodContext) -> Iterator[pl.DataFrame]:
    """Yield the training prompts of hidden calibration, asked for their labels; DatasetError if there are none."""
    yield labelled_prompts(context, PART).select(context.columns)


VECTOR_SCALING = Method(
    summary="Vanilla with a scale and a shift for each label, fitted on labelled prompts.",
    label_probs=label_probs,
    prompts=MethodPrompts(requests=requests),
    definitions=("paper",),
    part_kinds=("classification",),
    drawn_once="training prompts",
    labelled_examples=labelled_examples,
)


class Temperature(NamedTuple):
    """The temperature that label log-probabilities are divided by, with its 95% interval; above 1: overconfident."""

    value: float
    ci_low: float | None  # None where answers do not determine it: all right, all wrong, or a single group
    ci_high: float | None


MIN_SCALE, MAX_SCALE = 0.01, 100.0
"""Limits of 1 / temperature: answers that are all right, or all wrong, ask for infinite ones."""

N_FOLDS = 5


def fit_temperature(label_probs: pl.Series, gold: pl.Series, groups: Ints | None = None) -> Temperature:
    """Minimise the log loss of p(label)^(1/T), normalised, by Newton's method; rows may have different labels.

    A probability of 0 counts as half of the smallest other one. The interval is that of log T, from the variance of the
    gradient between groups (a sandwich estimate).

    Args:
        label_probs: lists [n] of probabilities.
        gold: [n], indices of the true labels.
        groups: [n], rows that are not independent; None: each is its own.

    Source: Guo et al. 2017, section 4.2 (temperature scaling).
    """
    from scipy.special import stdtrit  # here, because listing the methods should not load SciPy

    flat = label_probs.explode().to_numpy()
    smallest = flat[flat > 0].min(initial=1.0)
    log_probs = np.log(np.where(flat > 0, flat, smallest / 2))
    sizes = label_probs.list.len().to_numpy().astype(np.int64)
    starts = np.cumsum(sizes) - sizes
    of_gold = log_probs[starts + gold.to_numpy()]

    def gradient(scale: float) -> tuple[Floats, float]:
        """Return the derivative of each row's loss by the scale, [n], and the second derivative of their sum."""
        scaled = scale * log_probs
        weights = np.exp(scaled - np.repeat(np.maximum.reduceat(scaled, starts), sizes))
        total = np.add.reduceat(weights, starts)
        mean = np.add.reduceat(weights * log_probs, starts) / total
        square = np.add.reduceat(weights * log_probs**2, starts) / total
        return mean - of_gold, float((square - mean**2).sum())

    for end in (MAX_SCALE, MIN_SCALE):
        slope = float(gradient(end)[0].sum())
        if slope <= 1e-9 if end == MAX_SCALE else slope >= 0:
            return Temperature(1 / end, None, None)
    scale = 1.0
    for _ in range(100):
        slopes, curvature = gradient(scale)
        step = float(slopes.sum()) / max(curvature, 1e-12)
        previous, scale = scale, float(np.clip(scale - step, max(scale / 3, MIN_SCALE), min(scale * 3, MAX_SCALE)))
        if abs(scale - previous) < 1e-12 * scale:
            break
    slopes, curvature = gradient(scale)
    sums = slopes if groups is None else np.bincount(np.unique(groups, return_inverse=True)[1], slopes)
    n = len(sums)
    if n < 2 or curvature <= 0:
        return Temperature(1 / scale, None, None)
    error = math.sqrt(float(sums @ sums) * n / (n - 1)) / curvature / scale
    reach = math.exp(min(float(stdtrit(n - 1, 0.975)) * error, 700.0))
    return Temperature(1 / scale, 1 / scale / reach, reach / scale)


def tempered_label_probs(scored: ScoredRequests, definition: Definition) -> pl.LazyFrame:
    """Return the queries with the softmax of log p / T, where T is fitted on the other folds of the dataset's queries.

    Queries are in N_FOLDS folds, drawn with a fixed seed. The labels of the queries themselves are used, so that the
    numbers say what a temperature could do with as many labelled queries; a fold never sees its own.
    """
    log_probs = log_softmax(label_score(definition))
    queries = scored.queries.with_columns(label_probs=log_probs.list.eval(pl.element().exp())).collect()
    tables = []
    for rows in queries.partition_by(_TASK, maintain_order=True):
        query = rows["query_id"].rank("dense").to_numpy().astype(np.int64) - 1
        folds = np.random.default_rng(0).permutation(int(query.max()) + 1)[query] % N_FOLDS
        temperatures = np.ones(N_FOLDS)
        for fold in np.unique(folds):
            others = rows.filter(folds != fold).drop_nulls("gold")
            if others.height:
                temperatures[fold] = fit_temperature(others["label_probs"], others["gold"]).value
        tables.append(rows.with_columns(temperature=pl.Series(temperatures[folds])))
    tempered = pl.concat([queries.clear().with_columns(temperature=pl.lit(None, pl.Float64)), *tables]).lazy()
    scaled = log_probs / pl.col("temperature")
    return tempered.with_columns(label_probs=softmax(scaled)).drop("temperature")


TEMPERATURE_SCALING = Method(
    summary="Vanilla with one temperature a dataset, fitted on the labels of other queries.",
    label_probs=tempered_label_probs,
    definitions=("paper",),
    part_kinds=("classification",),
    labelled_examples=lambda _n_shots: math.inf,
    uses_gold=True,
)
