"""Predict from the hidden states of labelled training prompts: hidden calibration, and the parts of k-NN prompting.

Requests are written for one dataset at a time; the scored states are returned as arrays by dataset. A label space can
have classes without training prompts (missing_classes); centroid_probs says how methods treat these.
"""

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import NamedTuple

import numpy as np
import polars as pl

from evaluator.arrays import Floats, Ints
from evaluator.methods.base import Method, MethodContext, MethodPrompts, ScoredRequests, label_score, softmax
from evaluator.prompts.method_prompts import N_SAMPLES, training_draws, training_requests
from evaluator.prompts.rows import ASKS_STATE
from evaluator.schemas import MISSING_CLASSES, MISSING_CLASSES_KEY, Definition

QUERY_STATES, TRAINING_STATES = "query_states", "training_states"
ROW = ["suite", "dataset", "position"]
"""Columns that identify a request of a part."""


class DatasetStates(NamedTuple):
    """Hidden states of the queries and training prompts of one dataset in one suite."""

    queries: pl.DataFrame  # ROW and prompt_id, one row a query prompt
    states: Floats  # [queries, hidden size]
    anchors: Floats  # [training prompts, hidden size]
    labels: Ints  # [training prompts], gold labels of their queries
    n_labels: int  # size of the label space

    @property
    def counts(self) -> Ints:
        """Count the training prompts of each class, [n_labels]."""
        return np.bincount(self.labels, minlength=self.n_labels)


def labelled_prompts(context: MethodContext, part: str) -> pl.DataFrame:
    """Return 128 training prompts of a calibration split with their labels as `gold`; DatasetError if it is empty.

    A training prompt is demonstrations and a query of the calibration split (prompts.method_prompts); its query_id is
    null, because it is not a row of the test split.
    """
    dataset = context.classification
    drawn = training_draws(dataset, n_draws=context.config.n_shots + 1)
    queries = dataset.calibration[drawn[:, -1]]
    rows = training_requests(dataset, part=part, queries=queries["texts"], demonstration_ids=drawn[:, :-1])
    return rows.with_columns(gold=queries["gold"])


def state_requests(context: MethodContext) -> Iterator[pl.DataFrame]:
    """Yield requests for the hidden states of the queries' prompts and of the training prompts."""
    training = labelled_prompts(context, TRAINING_STATES)
    queries = (rows.with_columns(part=pl.lit(QUERY_STATES)) for rows in context.frames())
    for rows in chain(queries, [training]):
        yield rows.with_columns(**ASKS_STATE).select(context.columns)


def labelled_examples(n_shots: int) -> int:
    """Return the number of labelled examples in training prompts: 128 prompts of k demonstrations and a query."""
    return N_SAMPLES * (n_shots + 1)


def dataset_states(scored: ScoredRequests) -> Iterator[DatasetStates]:
    """Yield the states of state_requests, of one dataset of one suite at a time."""
    queries = scored.states.filter(part=QUERY_STATES)
    for suite, dataset in queries.select("suite", "dataset").unique().sort("suite", "dataset").collect().iter_rows():
        rows, training = (
            scored.states.filter(suite=suite, dataset=dataset, part=part).sort(ROW).collect()
            for part in (QUERY_STATES, TRAINING_STATES)
        )
        yield DatasetStates(
            queries=rows.select(*ROW, "prompt_id"),
            states=state_array(rows),
            anchors=state_array(training),
            labels=training["gold"].to_numpy(),
            n_labels=len(rows["label_names"][0]),
        )


def state_array(rows: pl.DataFrame) -> Floats:
    """Return hidden states as an array, shape [rows, hidden size]."""
    states = rows["hidden_state"]
    array: Floats = states.list.to_array(states.list.len()[0]).to_numpy().astype(np.float64)
    return array


def class_weights(states: DatasetStates) -> Floats:
    """Return the weight of each training prompt in its class's mean, shape [classes present, training prompts]."""
    present = np.flatnonzero(states.counts)
    weights: Floats = (states.labels == present[:, None]) / states.counts[present, None]
    return weights


def label_distances(states: DatasetStates, present: Floats) -> pl.Series:
    """Return distances [queries, classes present] as List[f64] over the whole label space, null for a missing class."""
    distances = np.full((len(present), states.n_labels), np.nan)
    distances[:, np.flatnonzero(states.counts)] = present
    return (
        pl.Series(distances, dtype=pl.Array(pl.Float64, states.n_labels))
        .arr.to_list()
        .list.eval(pl.element().fill_nan(None))
    )


def centroid_probs(scored: ScoredRequests, distances: pl.LazyFrame, definition: Definition) -> pl.LazyFrame:
    """Return queries with `label_probs` = softmax(-distance), the toolkit's softmax(d_0 - d_i) in another form.

    A class without training prompts has no centroid. Under `paper` its probability is zero. Under `released`, as in the
    toolkit (standard_calibration.py), all queries of that dataset get vanilla's probabilities instead.
    missing_classes names these classes.

    Args:
        distances: ROW with `distances`, List[f64] in label-space order, null for a missing class.
    """
    to_all = pl.col("distances").list.eval(pl.element().fill_null(float("inf")))
    probs = distances.select(*ROW, label_probs=softmax(to_all.list.eval(-pl.element())))
    return with_label_probs(scored, probs, definition)


def with_label_probs(scored: ScoredRequests, probs: pl.LazyFrame, definition: Definition) -> pl.LazyFrame:
    """Return the queries with `label_probs` from `probs`, or vanilla's under `released` where a class is missing.

    Args:
        probs: ROW with `label_probs`.
    """
    queries = scored.queries.join(probs, on=ROW, how="left", maintain_order="left")
    if definition == "paper":
        return queries
    incomplete = _missing(scored).select("suite", "dataset", fallback=True).unique()
    vanilla = softmax(label_score(definition))
    return (
        queries.join(incomplete, on=["suite", "dataset"], how="left", maintain_order="left")
        .with_columns(label_probs=pl.when("fallback").then(vanilla).otherwise("label_probs"))
        .drop("fallback")
    )


def missing_classes(scored: ScoredRequests, methods: Mapping[str, Method]) -> pl.DataFrame:
    """Return the labels without training prompts, for the report (schemas.MISSING_CLASSES).

    Args:
        methods: of the run, by name; only a method that requests the states of training prompts gives rows.
    """
    affected = [name for name, method in methods.items() if method.prompts.requests is state_requests]
    if not affected:
        return MISSING_CLASSES.to_frame()
    missing = _missing(scored).select("dataset", "label").unique()
    named = missing.with_columns(method=pl.lit(affected, pl.List(pl.String))).explode("method").drop_nulls()
    return named.select(MISSING_CLASSES_KEY).sort(MISSING_CLASSES_KEY).collect()


def _missing(scored: ScoredRequests) -> pl.LazyFrame:
    training = scored.states.filter(part=TRAINING_STATES)
    shown = training.select("suite", "dataset", "label_names", "gold").unique()
    label = pl.col("label_names").list.get(pl.col("gold"))
    spaces = shown.select("suite", "dataset", label="label_names").unique().explode("label")
    return spaces.join(shown.with_columns(label=label), on=["suite", "dataset", "label"], how="anti")


def hidden_calibration_probs(scored: ScoredRequests, definition: Definition) -> pl.LazyFrame:
    """Return the softmax over labels of minus the Euclidean distance to each class's centroid in the last hidden state.

    Source: Cho et al. 2024 (arXiv 2406.16535, abstract), "the nearest centroid classifier on the LM's last hidden
    states". The paper predicts labels without probabilities; the softmax is the toolkit's (standard_calibration.py).
    `paper` and `released` differ only where the training prompts lack a class (centroid_probs).
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
    label_probs=hidden_calibration_probs,
    prompts=MethodPrompts(requests=state_requests, need_states=True),
    part_kinds=("classification",),
    drawn_once="training prompts",
    labelled_examples=labelled_examples,
)
