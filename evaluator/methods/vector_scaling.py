"""Vector scaling: scale and shift the log-probability of each label, as labelled training prompts ask for.

Not one of StaICC's methods. Batch, contextual and domain calibration only shift labels; a scale below 0 reverses what
the model says of a label.
"""

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
