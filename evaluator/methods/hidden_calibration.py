"""Hidden calibration: predict the label whose training prompts' mean hidden state is nearest to the query's."""

import polars as pl

from evaluator.methods.base import Method, ScoredRequests
from evaluator.methods.training_states import (
    ROW,
    DatasetStates,
    centroid_probs,
    class_weights,
    dataset_states,
    label_distances,
    labelled_examples,
    state_requests,
)
from evaluator.schemas import Definition


def label_probs(scored: ScoredRequests, definition: Definition) -> pl.LazyFrame:
    """Return the softmax over labels of minus the Euclidean distance to each class's centroid in the last hidden state.

    Source: Cho et al. 2024 (arXiv 2406.16535, abstract), "the nearest centroid classifier on the LM's last hidden
    states". The paper predicts labels without probabilities; the softmax is the toolkit's (standard_calibration.py).
    `paper` and `released` differ only where the training prompts lack a class (training_states.centroid_probs).
    """
    frames = [
        states.queries.select(ROW).with_columns(distances=centroid_distances(states))
        for states in dataset_states(scored)
    ]
    return centroid_probs(scored, pl.concat(frames).lazy(), definition)


def centroid_distances(states: DatasetStates) -> pl.Series:
    """Return Euclidean distances from each query to each class's centroid, List[f64]; null for a class without one."""
    from scipy.spatial.distance import cdist  # imported here, because listing the methods should not load SciPy

    centroids = class_weights(states) @ states.anchors
    return label_distances(states, cdist(states.states, centroids))


HIDDEN_CALIBRATION = Method(
    summary="The label whose training prompts have, on average, the hidden state nearest to the query's.",
    label_probs=label_probs,
    drawn_once="training prompts",
    requests=state_requests,
    part_kinds=("classification",),
    needs_states=True,
    labelled_examples=labelled_examples,
)
