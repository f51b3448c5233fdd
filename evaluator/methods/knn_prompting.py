"""k-NN prompting: predict the label whose training prompts' next-token distributions are nearest to the query's.

After every prompt the model predicts a distribution over the whole vocabulary. It follows from the hidden state and the
LM head, so distances are computed while the head is loaded, and label probabilities later need neither.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from evaluator.arrays import Floats
from evaluator.errors import TemplateError
from evaluator.methods.base import Method, MethodPrompts, ScoredRequests, softmax
from evaluator.methods.training_states import (
    QUERY_STATES,
    ROW,
    TRAINING_STATES,
    DatasetStates,
    centroid_probs,
    class_weights,
    dataset_states,
    label_distances,
    labelled_examples,
    state_requests,
    with_label_probs,
)
from evaluator.schemas import LABEL_DISTANCES, Definition

if TYPE_CHECKING:
    import torch

CENTROID, NEIGHBOURS = "knn_centroid", "knn_neighbours"
N_NEIGHBOURS = 3
_VOCABULARY_ROWS = 16_384  # rows of the head that are converted to float64 at a time


def centroid_label_probs(scored: ScoredRequests, definition: Definition) -> pl.LazyFrame:
    """Return the softmax over the label space of minus the distance to each class's mean distribution.

    Source: Cho & Inoue 2025, appendix B.2, "the centroid form of k-NN" of Xu et al. 2023 (arXiv 2303.13824), who
    themselves use the nearest prompts (neighbour_label_probs); the softmax is the toolkit's. The distance is
    KL(centroid || query) in nats under `paper`, the Euclidean distance of raw logits under `released`
    (standard_calibration.py, knn_prompt_centroid).
    """
    return centroid_probs(scored, _distances_of(scored, CENTROID, definition), definition)


def neighbour_label_probs(scored: ScoredRequests, definition: Definition) -> pl.LazyFrame:
    """Return the share of each label among the three nearest training prompts; of equal distances the lower position.

    Source: Xu et al. 2023, KL(anchor || query) in nats over the whole vocabulary, three neighbours in the released
    script (github.com/BenfengXu/KNNPrompting). Of labels with equally many votes the first of the label space is
    predicted, as in that script and in the toolkit. `released` (standard_calibration.py, knn_prompt) uses distances of
    raw logits and the softmax of the counts, so that no label ever gets more than e^3 / (e^3 + n_labels - 1).
    """
    training = scored.states.filter(part=TRAINING_STATES).sort(ROW).group_by("suite", "dataset", maintain_order=True)
    labels = training.agg("gold", n_labels=pl.col("label_names").first().list.len())
    rows = _distances_of(scored, NEIGHBOURS, definition).join(labels, on=["suite", "dataset"]).sort(ROW).collect()
    by_dataset = rows.partition_by("suite", "dataset", maintain_order=True)
    votes = pl.concat(frame.select(ROW).with_columns(votes=_votes(frame)) for frame in by_dataset)
    probs = softmax(pl.col("votes")) if definition == "released" else pl.col("votes") / N_NEIGHBOURS
    return with_label_probs(scored, votes.lazy().select(*ROW, label_probs=probs), definition)


def centroid_distances(scored: ScoredRequests, head: "torch.Tensor") -> pl.DataFrame:
    """Return schemas.LABEL_DISTANCES to each class's mean distribution (`paper`) or mean logits (`released`).

    Null for a class without training prompts.

    Args:
        head: LM head [vocabulary, hidden size]; distances are computed on its device.
    """
    to_logits = logit_map(head)
    tables = []
    for states in dataset_states(scored):
        weights = class_weights(states)
        paper = label_distances(states, divergences(states, weights, head))
        released = label_distances(states, logit_distances(states.states, weights @ states.anchors, to_logits))
        tables += [_table(CENTROID, "paper", states, paper), _table(CENTROID, "released", states, released)]
    return _one_row_per_prompt(tables)


def neighbour_distances(scored: ScoredRequests, head: "torch.Tensor") -> pl.DataFrame:
    """Return schemas.LABEL_DISTANCES to each training prompt, in order of position; arguments as centroid_distances."""
    to_logits = logit_map(head)
    tables = []
    for states in dataset_states(scored):
        paper = pl.Series(divergences(states, np.eye(len(states.anchors)), head)).arr.to_list()
        released = pl.Series(logit_distances(states.states, states.anchors, to_logits)).arr.to_list()
        tables += [_table(NEIGHBOURS, "paper", states, paper), _table(NEIGHBOURS, "released", states, released)]
    return _one_row_per_prompt(tables)


def divergences(states: DatasetStates, weights: Floats, head: "torch.Tensor") -> Floats:
    """Return KL(c || q) in nats [queries, rows of weights]; c is a weighted mean of training prompts' distributions."""
    import torch

    from evaluator_kernels import label_head

    queries, anchors, mean = (
        torch.from_numpy(array).to(head.device, torch.float32) for array in (states.states, states.anchors, weights)
    )
    distances: Floats = label_head.centroid_divergences(queries, anchors, mean, head).double().cpu().numpy()
    return distances


def logit_map(head: "torch.Tensor") -> Floats:
    """Return a matrix [hidden size, hidden size] that maps hidden states to points with the distances of their logits.

    Logits are linear in the hidden state: |W h - W c|^2 = (h - c)^T G (h - c) with G = W^T W = B B^T, so h B and c B
    have that Euclidean distance, and no array with a row of the vocabulary's length is needed. In float64.
    """
    import torch

    gram = torch.zeros((head.shape[1], head.shape[1]), dtype=torch.float64, device=head.device)
    for rows in head.split(_VOCABULARY_ROWS):
        gram += rows.double().T @ rows.double()
    scales, directions = torch.linalg.eigh(gram)
    mapped: Floats = (directions * scales.clamp(min=0).sqrt()).cpu().numpy()
    return mapped


def logit_distances(states: Floats, others: Floats, to_logits: Floats) -> Floats:
    """Return Euclidean distances of raw logits, [states, others]."""
    from scipy.spatial.distance import cdist  # imported here, because listing the methods should not load SciPy

    distances: Floats = cdist(states @ to_logits, others @ to_logits)
    return distances


def _table(method: str, definition: Definition, states: DatasetStates, distances: pl.Series) -> pl.DataFrame:
    """Return one row a distinct prompt; without demonstrations, both prompts of a query are the same."""
    rows = states.queries.select(
        method=pl.lit(method), definition=pl.lit(definition), prompt_id="prompt_id", distances=distances
    )
    return rows.unique("prompt_id", maintain_order=True).cast(LABEL_DISTANCES)


def _one_row_per_prompt(tables: list[pl.DataFrame]) -> pl.DataFrame:
    table = pl.concat(tables)
    if table.select("definition", "prompt_id").is_duplicated().any():
        raise TemplateError(
            "k-NN prompting: two datasets have a query with the same prompt, and each has its own training prompts. "
            "Evaluate these datasets in different commands, or with demonstrations (--shots)."
        )
    return table


def _distances_of(scored: ScoredRequests, method: str, definition: Definition) -> pl.LazyFrame:
    """Return ROW and `distances` of every query."""
    distances = scored.distances.filter(method=method, definition=definition).select("prompt_id", "distances")
    queries = scored.states.filter(part=QUERY_STATES).select(*ROW, "prompt_id")
    return queries.join(distances, on="prompt_id").drop("prompt_id")


def _votes(rows: pl.DataFrame) -> pl.Series:
    """Count the labels of the nearest training prompts, List[f64] in label-space order; rows are of one dataset."""
    labels = rows["gold"][0].to_numpy()
    distances = rows["distances"].list.to_array(len(labels)).to_numpy()
    nearest = labels[distances.argsort(axis=1, kind="stable")[:, :N_NEIGHBOURS]]
    votes = (nearest[:, :, None] == np.arange(rows["n_labels"][0])).sum(axis=1)
    return pl.Series(votes.astype(np.float64)).arr.to_list()


KNN_CENTROID = Method(
    summary="The label whose training prompts have, on average, the next-token distribution nearest to the query's.",
    label_probs=centroid_label_probs,
    prompts=MethodPrompts(requests=state_requests, need_states=True),
    distances=centroid_distances,
    part_kinds=("classification",),
    drawn_once="training prompts",
    labelled_examples=labelled_examples,
)

KNN_NEIGHBOURS = replace(
    KNN_CENTROID,
    summary="The label of most of the three training prompts with the next-token distributions nearest to the query's.",
    label_probs=neighbour_label_probs,
    distances=neighbour_distances,
)
