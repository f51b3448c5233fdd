"""Request and collect the hidden states of labelled training prompts, for hidden calibration and k-NN prompting.

Requests are written for one dataset at a time; the scored states are returned as arrays by dataset. A label space can
have classes without training prompts (missing_classes); centroid_probs says how methods treat these.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
import polars as pl

from evaluator.arrays import Floats, Ints
from evaluator.methods.base import MethodContext, ScoredRequests, softmax
from evaluator.methods.vanilla import LABEL_SCORE
from evaluator.prompts.rows import ASKS_STATE
from evaluator.prompts.training_prompts import N_SAMPLES, training_requests, training_sample
from evaluator.schemas import Definition

QUERY_STATES, TRAINING_STATES = "query_states", "training_states"
ROW = ["suite", "dataset", "position"]
"""Columns that identify a request of a part."""

METHODS_WITH_TRAINING_PROMPTS = ("hidden_calibration", "knn_centroid", "knn_neighbours")


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


def state_requests(context: MethodContext) -> Iterator[pl.DataFrame]:
    """Yield requests for the states of the queries' prompts, and of the training prompts with their labels as `gold`.

    A training prompt is demonstrations and a query of the calibration split (prompts.training_prompts); its query_id is
    null, because it is not a row of the test split.
    """
    dataset = context.classification
    sample = training_sample(dataset, n_shots=context.config.n_shots)
    shown = dataset.calibration[sample.query_ids]
    training = training_requests(
        dataset, part=TRAINING_STATES, queries=shown["texts"], demonstration_ids=sample.demonstration_ids
    ).with_columns(gold=shown["gold"])
    queries = (rows.with_columns(part=pl.lit(QUERY_STATES)) for rows in context.frames())
    for rows in chain(queries, [training]):
        yield rows.with_columns(**ASKS_STATE).select(context.columns)


def labelled_examples(n_shots: int) -> int:
    """Return the number of labelled examples in training prompts: 128 prompts of k demonstrations and a query."""
    return N_SAMPLES * (n_shots + 1)


def dataset_states(scored: ScoredRequests) -> Iterator[DatasetStates]:
    """Yield the states of state_requests, dataset by dataset."""
    training = _by_dataset(scored, TRAINING_STATES)
    for key, queries in _by_dataset(scored, QUERY_STATES).items():
        yield DatasetStates(
            queries=queries.select(*ROW, "prompt_id"),
            states=state_array(queries),
            anchors=state_array(training[key]),
            labels=training[key]["gold"].to_numpy(),
            n_labels=len(queries["label_names"][0]),
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
    """Return the queries with `label_probs`: those of `probs`, or vanilla's under `released` where a class is missing.

    Args:
        probs: ROW with `label_probs`.
    """
    queries = scored.queries.join(probs, on=ROW, how="left", maintain_order="left")
    if definition == "paper":
        return queries
    incomplete = _missing(scored).select("suite", "dataset", fallback=True).unique()
    vanilla = softmax(pl.col(LABEL_SCORE[definition]))
    return (
        queries.join(incomplete, on=["suite", "dataset"], how="left", maintain_order="left")
        .with_columns(label_probs=pl.when("fallback").then(vanilla).otherwise("label_probs"))
        .drop("fallback")
    )


def missing_classes(scored: ScoredRequests, methods: Sequence[str]) -> pl.DataFrame:
    """Return the labels without training prompts, for the report: `dataset`, `method` and `label`, sorted.

    Args:
        methods: names of the methods of the run; those without training prompts give no rows.
    """
    affected = [name for name in METHODS_WITH_TRAINING_PROMPTS if name in methods]
    if not affected:
        return pl.DataFrame(schema=dict.fromkeys(("dataset", "method", "label"), pl.String()))
    missing = _missing(scored).select("dataset", "label").unique()
    named = missing.with_columns(method=pl.lit(affected, pl.List(pl.String))).explode("method").drop_nulls()
    return named.select("dataset", "method", "label").sort("dataset", "method", "label").collect()


def _missing(scored: ScoredRequests) -> pl.LazyFrame:
    shown = scored.states_of(TRAINING_STATES).select("suite", "dataset", "label_names", "gold").unique()
    label = pl.col("label_names").list.get(pl.col("gold"))
    spaces = shown.select("suite", "dataset", label="label_names").unique().explode("label")
    return spaces.join(shown.with_columns(label=label), on=["suite", "dataset", "label"], how="anti")


def _by_dataset(scored: ScoredRequests, part: str) -> dict[tuple[object, ...], pl.DataFrame]:
    rows = scored.states_of(part).sort(ROW).collect()
    return rows.partition_by("suite", "dataset", as_dict=True, maintain_order=True)
