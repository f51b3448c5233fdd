"""Inference methods that use hidden states, to compare prompts or to choose demonstrations.

Hidden calibration predicts the label whose labelled training prompts have the nearest mean hidden state.

k-NN prompting predicts the label whose training prompts have the nearest next-token distributions over the whole
vocabulary. These distributions follow from the hidden state and the LM head, so distances are computed while the head
is loaded, and label probabilities are later computed from distances.

A label space can have classes without training prompts (missing_classes); centroid_probs describes how they are
treated.

TopK and self-adaptive ICL show a query the demonstrations whose hidden states are nearest to that of the query.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import chain, islice, permutations
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from evaluator.arrays import Floats, Ints
from evaluator.config import Definition
from evaluator.datasets.lcg import SEED
from evaluator.errors import TemplateError
from evaluator.methods import base
from evaluator.prompts.demonstrations import demonstration_sequences
from evaluator.prompts.method_prompts import N_SAMPLES, training_draws, training_requests
from evaluator.prompts.rows import ASKS_STATE, NO_SPANS, PromptPlan, asks_labels, requests
from evaluator.schemas import LABEL_DISTANCES, MISSING_CLASSES_KEY

if TYPE_CHECKING:
    import torch

QUERY_STATES, TRAINING_STATES = "query_states", "training_states"
ROW = ["suite", "dataset", "position"]
"""Columns that identify a request of a part."""


class DatasetStates(NamedTuple):
    """Hidden states of the queries and training prompts of one dataset in one suite."""

    queries: pl.DataFrame  # ROW and prompt_id, one row for each query prompt
    states: Floats  # [queries, hidden size], hidden states of query prompts
    anchors: Floats  # [training prompts, hidden size], hidden states of training prompts
    labels: Ints  # [training prompts], gold labels of their queries
    n_labels: int  # size of the label space


def labelled_prompts(context: base.MethodContext, part: str) -> pl.DataFrame:
    """Return requests for 128 training prompts with their true labels as `gold`.

    Demonstrations and query of a training prompt are rows of the calibration split (prompts.method_prompts); query_id
    is null, because the query is not a row of the test split. Raises DatasetError if the calibration split is empty.
    """
    dataset = context.classification
    shown, asked = np.split(training_draws(dataset, n_draws=context.config.n_shots + 1), [-1], axis=1)
    # With few rows, as in users' tables, draws often show the query itself: show the next row instead.
    if dataset.own_demonstrations:
        shown = (shown + (shown == asked)) % dataset.calibration.height
    queries = dataset.calibration[asked[:, 0]]
    rows = training_requests(dataset, part=part, queries=queries["texts"], demonstration_ids=shown)
    return rows.with_columns(gold=queries["gold"])


def state_requests(context: base.MethodContext) -> Iterator[pl.DataFrame]:
    """Yield requests for the hidden states of the queries' prompts, then of the training prompts."""
    queries = (rows.with_columns(part=pl.lit(QUERY_STATES)) for rows in context.frames())
    for rows in chain(queries, [labelled_prompts(context, TRAINING_STATES)]):
        yield rows.with_columns(**ASKS_STATE).select(context.columns)


def labelled_examples(n_shots: int) -> int:
    """Return the number of labelled examples in training prompts: 128 prompts of n_shots demonstrations and a query."""
    return N_SAMPLES * (n_shots + 1)


def dataset_states(scored: base.ScoredRequests) -> Iterator[DatasetStates]:
    """Yield the hidden states of state_requests, for one dataset of one suite at a time."""
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
    return np.asarray(states.list.to_array(states.list.len()[0]), dtype=np.float64)


def class_weights(states: DatasetStates) -> Floats:
    """Return the weights of training prompts in the mean of each class, shape [classes present, training prompts]."""
    is_member = states.labels == np.unique(states.labels)[:, None]
    return np.asarray(is_member / is_member.sum(axis=1, keepdims=True))


def label_distances(states: DatasetStates, present: Floats) -> pl.Series:
    """Return distances to the classes present as List[f64] over the whole label space, null for a missing class.

    Args:
        states: hidden states of the dataset.
        present: distances, [queries, classes present].
    """
    distances = np.full((len(present), states.n_labels), np.nan)
    distances[:, np.unique(states.labels)] = present
    return pl.Series(distances).arr.to_list().list.eval(pl.element().fill_nan(None))


def centroid_probs(scored: base.ScoredRequests, distances: pl.LazyFrame, definition: Definition) -> pl.LazyFrame:
    """Return queries with `label_probs` = softmax(-distance), which equals the toolkit's softmax(d_0 - d_i).

    A class without training prompts has no centroid. Under `paper` its probability is zero. Under `released`, as in the
    toolkit (standard_calibration.py), all queries of that dataset get vanilla's probabilities instead.
    missing_classes names these classes.

    Args:
        scored: scored requests of a run.
        distances: ROW with `distances`, List[f64] in label-space order, null for a missing class.
        definition: "paper" or "released".
    """
    closeness = pl.col("distances").list.eval(-pl.element().fill_null(float("inf")))
    return with_label_probs(scored, distances.select(*ROW, label_probs=base.softmax(closeness)), definition)


def with_label_probs(scored: base.ScoredRequests, probs: pl.LazyFrame, definition: Definition) -> pl.LazyFrame:
    """Return the queries with `label_probs` from `probs`.

    Under `released`, queries of datasets with a class without training prompts get vanilla's probabilities.

    Args:
        scored: scored requests of a run.
        probs: ROW with `label_probs`.
        definition: "paper" or "released".
    """
    queries = scored.queries.join(probs, on=ROW, how="left", maintain_order="left")
    if definition == "paper":
        return queries
    incomplete = _missing(scored).select("suite", "dataset", fallback=True).unique()
    vanilla = base.softmax(base.label_score(definition))
    marked = queries.join(incomplete, on=["suite", "dataset"], how="left", maintain_order="left")
    return marked.with_columns(label_probs=pl.when("fallback").then(vanilla).otherwise("label_probs")).drop("fallback")


def missing_classes(scored: base.ScoredRequests, methods: Mapping[str, base.Method]) -> pl.DataFrame:
    """Return the labels without training prompts, as schemas.MISSING_CLASSES, for the report.

    Args:
        scored: scored requests of a run.
        methods: name -> method of the run; only methods that request states of training prompts have rows.
    """
    affected = [name for name, method in methods.items() if method.prompts.requests is state_requests]
    missing = _missing(scored).select("dataset", "label").unique()
    named = missing.with_columns(method=pl.lit(affected, pl.List(pl.String))).explode("method").drop_nulls()
    return named.select(MISSING_CLASSES_KEY).sort(MISSING_CLASSES_KEY).collect()


def _missing(scored: base.ScoredRequests) -> pl.LazyFrame:
    """Return suite, dataset and label of the labels without training prompts."""
    shown = scored.states.filter(part=TRAINING_STATES).select("suite", "dataset", "label_names", "gold").unique()
    label = pl.col("label_names").list.get(pl.col("gold"))
    spaces = shown.select("suite", "dataset", label="label_names").unique().explode("label")
    return spaces.join(shown.with_columns(label=label), on=["suite", "dataset", "label"], how="anti")


def hidden_calibration_probs(scored: base.ScoredRequests, definition: Definition) -> pl.LazyFrame:
    """Return queries with the softmax over labels of minus the distance to the class centroids.

    The distance is the Euclidean distance between last hidden states; a centroid is the mean of a class's states.

    Source: Cho et al. 2024 (arXiv 2406.16535, abstract), "the nearest centroid classifier on the LM's last hidden
    states". The paper predicts labels without probabilities; the softmax is the toolkit's (standard_calibration.py).
    `paper` and `released` differ only where the training prompts lack a class (centroid_probs).
    """
    from scipy.spatial.distance import cdist  # imported here, because listing the methods should not load SciPy

    frames = []
    for states in dataset_states(scored):
        distances = label_distances(states, cdist(states.states, class_weights(states) @ states.anchors))
        frames.append(states.queries.select(ROW).with_columns(distances=distances))
    return centroid_probs(scored, pl.concat(frames).lazy(), definition)


HIDDEN_CALIBRATION = base.Method(
    summary="The label whose training prompts have, on average, the hidden state nearest to the query's.",
    label_probs=hidden_calibration_probs,
    prompts=base.MethodPrompts(requests=state_requests, need_states=True),
    part_kinds=("classification",),
    drawn_once="training prompts",
    labelled_examples=labelled_examples,
)


CENTROID, NEIGHBOURS = "knn_centroid", "knn_neighbours"
N_NEIGHBOURS = 3
_VOCABULARY_ROWS = 16_384  # number of rows of the LM head that are converted to float64 at a time


def centroid_label_probs(scored: base.ScoredRequests, definition: Definition) -> pl.LazyFrame:
    """Return queries with the softmax over labels of minus the distance to each class's mean distribution.

    Source: Cho & Inoue 2025, appendix B.2, "the centroid form of k-NN" of Xu et al. 2023 (arXiv 2303.13824); Xu et al.
    use the nearest prompts (neighbour_label_probs). The softmax is the toolkit's. The distance is KL(centroid || query)
    in nats under `paper`, the Euclidean distance of raw logits under `released` (standard_calibration.py,
    knn_prompt_centroid).
    """
    return centroid_probs(scored, _distances_of(scored, CENTROID, definition), definition)


def neighbour_label_probs(scored: base.ScoredRequests, definition: Definition) -> pl.LazyFrame:
    """Return queries with the share of each label among the three nearest training prompts.

    Among equal distances the training prompt of the lower position is nearer.

    Source: Xu et al. 2023, with KL(anchor || query) in nats over the whole vocabulary, and three neighbours as in their
    released script (github.com/BenfengXu/KNNPrompting). Among labels with equal votes the first of the label space is
    predicted, as in that script and in the toolkit. `released` (standard_calibration.py, knn_prompt) uses distances of
    raw logits and the softmax of the counts, so that no probability exceeds e^3 / (e^3 + n_labels - 1).
    """
    # Gold labels of the training prompts of each dataset, in order of position, as the distances are.
    training = scored.states.filter(part=TRAINING_STATES).sort(ROW).group_by("suite", "dataset", maintain_order=True)
    labels = training.agg("gold", n_labels=pl.col("label_names").first().list.len())
    rows = _distances_of(scored, NEIGHBOURS, definition).join(labels, on=["suite", "dataset"]).sort(ROW).collect()
    by_dataset = rows.partition_by("suite", "dataset", maintain_order=True)
    votes = pl.concat(frame.select(ROW).with_columns(votes=_votes(frame)) for frame in by_dataset)
    probs = base.softmax(pl.col("votes")) if definition == "released" else pl.col("votes") / N_NEIGHBOURS
    return with_label_probs(scored, votes.lazy().select(*ROW, label_probs=probs), definition)


def vocabulary_distances(scored: base.ScoredRequests, head: "torch.Tensor", method: str) -> pl.DataFrame:
    """Return schemas.LABEL_DISTANCES between next-token distributions (`paper`) and raw logits (`released`).

    Args:
        scored: scored requests of a run.
        head: LM head, [vocabulary, hidden size]; KL divergences are computed on its device.
        method: CENTROID: distances to the mean of each class, null for a class without training prompts. NEIGHBOURS:
            distances to each training prompt, in order of position.

    Raises TemplateError if two datasets have a query with the same prompt, because their training prompts differ.
    """
    from scipy.spatial.distance import cdist  # imported here, because listing the methods should not load SciPy

    to_logits = logit_map(head)
    tables = []
    for states in dataset_states(scored):
        weights = class_weights(states) if method == CENTROID else np.eye(len(states.anchors))
        by_definition = {
            "paper": divergences(states, weights, head),
            "released": cdist(states.states @ to_logits, weights @ states.anchors @ to_logits),
        }
        for definition, found in by_definition.items():
            distances = label_distances(states, found) if method == CENTROID else pl.Series(found).arr.to_list()
            about = {"method": pl.lit(method), "definition": pl.lit(definition)}
            tables.append(states.queries.select("dataset", **about, prompt_id="prompt_id", distances=distances))
    # A dataset has the same prompt in several suites, and twice for a query without demonstrations.
    distinct = pl.concat(tables).unique(["dataset", "definition", "prompt_id"], keep="first", maintain_order=True)
    table = distinct.drop("dataset").cast(LABEL_DISTANCES)
    if table.select("definition", "prompt_id").is_duplicated().any():
        raise TemplateError(
            "k-NN prompting: two datasets have a query with the same prompt, and each has its own training prompts. "
            "Evaluate these datasets in different commands, or with demonstrations (--shots)."
        )
    return table


def divergences(states: DatasetStates, weights: Floats, head: "torch.Tensor") -> Floats:
    """Return KL(c || q) in nats, [queries, rows of weights].

    q is a query's next-token distribution, c the mean of training prompts' distributions with one row of weights.

    Args:
        states: hidden states of the dataset.
        weights: [distributions c, training prompts].
        head: LM head, [vocabulary, hidden size].
    """
    import torch

    from evaluator_kernels import label_head

    arrays = (states.states, states.anchors, weights)
    queries, anchors, mean = (torch.from_numpy(array).to(head.device, torch.float32) for array in arrays)
    return np.asarray(label_head.centroid_divergences(queries, anchors, mean, head).double().cpu())


def logit_map(head: "torch.Tensor") -> Floats:
    """Return a matrix B, [hidden size, hidden size], float64: h B and c B have the Euclidean distance of the logits.

    Logits are linear in the hidden state: |W h - W c|^2 = (h - c)^T G (h - c) with G = W^T W = B B^T. So distances of
    logits need no array with an axis of the vocabulary's length.

    Args:
        head: LM head W, [vocabulary, hidden size].
    """
    import torch

    gram = torch.zeros((head.shape[1], head.shape[1]), dtype=torch.float64, device=head.device)
    for rows in head.split(_VOCABULARY_ROWS):
        gram += rows.double().T @ rows.double()
    scales, directions = torch.linalg.eigh(gram)
    return np.asarray((directions * scales.clamp(min=0).sqrt()).cpu())


def _distances_of(scored: base.ScoredRequests, method: str, definition: Definition) -> pl.LazyFrame:
    """Return ROW and `distances` of every query, by one method under one definition."""
    distances = scored.distances.filter(method=method, definition=definition).select("prompt_id", "distances")
    queries = scored.states.filter(part=QUERY_STATES).select(*ROW, "prompt_id")
    return queries.join(distances, on="prompt_id").drop("prompt_id")


def _votes(rows: pl.DataFrame) -> pl.Series:
    """Count the labels of the nearest training prompts: List[f64] in label-space order.

    Args:
        rows: queries of one dataset, with `distances`, and `gold`, the labels of all training prompts.
    """
    labels = rows["gold"][0].to_numpy()
    distances = rows["distances"].list.to_array(len(labels)).to_numpy()
    nearest = labels[distances.argsort(axis=1, kind="stable")[:, :N_NEIGHBOURS]]  # [queries, N_NEIGHBOURS]
    votes = (nearest[:, :, None] == np.arange(rows["n_labels"][0])).sum(axis=1)  # [queries, n_labels]
    return pl.Series(votes.astype(np.float64)).arr.to_list()


KNN_CENTROID = replace(
    HIDDEN_CALIBRATION,
    summary="The label whose training prompts have, on average, the next-token distribution nearest to the query's.",
    label_probs=centroid_label_probs,
    distances=partial(vocabulary_distances, method=CENTROID),
)

KNN_NEIGHBOURS = replace(
    KNN_CENTROID,
    summary="The label of most of the three training prompts with the next-token distributions nearest to the query's.",
    label_probs=neighbour_label_probs,
    distances=partial(vocabulary_distances, method=NEIGHBOURS),
)


DEMONSTRATION_TEXTS, QUERY_TEXTS = "demonstration_texts", "query_texts"
TOPK_PART, SA_ICL_PART = "topk", "sa_icl"
N_ORDERINGS = 10  # maximum number of orderings that self-adaptive ICL tries for a query
RELEASED_POOL = 512  # the toolkit chooses among the first 512 rows of the demonstration split (prompt_template_edit.py)

_QUERY = ["suite", "dataset", "query_id"]


def text_requests(context: base.MethodContext, n_nearest: int) -> Iterator[pl.DataFrame]:
    """Yield a frame of requests for the hidden states of the texts of candidate demonstrations and of queries.

    `training_row` is the row of a demonstration, `query_id` the row of a query. Several text fields are joined by a
    space; the toolkit accepts only datasets of one field. A demonstration without text has no request and is never
    chosen. The toolkit differs: if the tokenizer adds no BOS token, it catches the error for an empty text and drops
    the text, so that all later indices are off by one.

    Raises TemplateError, before prompts are scored, if fewer than `n_nearest` demonstrations have a text.
    """
    dataset = context.classification
    pool = dataset.demonstration
    if context.config.prompt_definition == "released":
        pool = pool.head(RELEASED_POOL)
    demonstrations = _texts(pool).filter(pl.col("prompt") != "")
    if demonstrations.height < n_nearest:
        raise TemplateError(
            f"{context.config.n_shots} shots need the {n_nearest} nearest demonstrations of {dataset.name}, but "
            f"{demonstrations.height} can be chosen from. Choose smaller --shots."
        )
    query_ids = context.rows.select(pl.col("query_id").unique().sort()).collect()["query_id"]
    position, gold = pl.col("position"), pl.lit(dataset.test["gold"].gather(query_ids))
    shared = {**base.NO_QUERY, **asks_labels(dataset), **ASKS_STATE, "spans": NO_SPANS}
    parts = [
        demonstrations.with_columns(**shared | {"part": pl.lit(DEMONSTRATION_TEXTS), "training_row": position}),
        _texts(dataset.test)[query_ids].with_columns(
            **shared | {"part": pl.lit(QUERY_TEXTS), "query_id": position, "gold": gold}
        ),
    ]
    yield pl.concat(parts, how="vertical_relaxed").select(context.columns)


def nearest_demonstrations(
    context: base.MethodContext, scored: base.ScoredRequests, n_nearest: int
) -> tuple[Ints, Ints]:
    """Return the nearest demonstrations of each query, by Euclidean distance of last hidden states in float64.

    Returns:
        Rows of the test split, [n_queries], ascending; and rows of the demonstration split, [n_queries, n_nearest],
        nearest first, the lower row first among equal distances.
    """
    from scipy.spatial.distance import cdist  # imported here, because listing the methods should not load SciPy

    states = scored.states.filter(dataset=context.classification.name)
    demonstrations = _states_by_row(states, DEMONSTRATION_TEXTS, "training_row")
    queries = _states_by_row(states, QUERY_TEXTS, "query_id")
    assert demonstrations.height >= n_nearest, "text_requests checked it"
    # Not computed by a matrix product, whose rounding depends on a row's position: equal texts would not tie.
    distances = cdist(state_array(queries), state_array(demonstrations))
    order = distances.argsort(axis=1, kind="stable")[:, :n_nearest]
    return queries["query_id"].to_numpy(), demonstrations["training_row"].to_numpy()[order]


def retrieved_requests(context: base.MethodContext, part: str, plan: PromptPlan) -> Iterator[pl.DataFrame]:
    """Yield the requests of a plan with the method's `part`."""
    for rows in requests(context.classification, plan):
        yield rows.with_columns(part=pl.lit(part)).select(context.columns)


def _texts(split: pl.DataFrame) -> pl.DataFrame:
    return split.select(position=pl.int_range(pl.len()), prompt=pl.col("texts").list.join(" "))


def _states_by_row(states: pl.LazyFrame, part: str, row: str) -> pl.DataFrame:
    # The requests are the same in every suite.
    return states.filter(part=part).select(row, "hidden_state").unique(row).sort(row).collect()


def topk_follow_up(context: base.MethodContext, scored: base.ScoredRequests) -> Iterator[pl.DataFrame]:
    """Yield one request for each query, after its nearest demonstrations, nearest first.

    (StaICC-Normal itself has two requests for each query.)

    Source: Liu et al. 2022 (arXiv 2101.06804), with the hidden states of the model that is evaluated in place of a
    sentence encoder's, as in the toolkit (prompt_template_edit.py, SA_ICL). Under `paper` demonstrations are
    chosen from the whole demonstration split, under `released` from its first 512 rows.
    """
    query_id, demonstration_ids = nearest_demonstrations(context, scored, context.config.n_shots)
    plan = PromptPlan(demonstration_set=np.zeros_like(query_id), query_id=query_id, demonstration_ids=demonstration_ids)
    yield from retrieved_requests(context, TOPK_PART, plan)


TOPK = base.Method(
    summary="Vanilla after the demonstrations whose hidden states are nearest to the query's.",
    label_probs=base.softmax_of(base.label_score, TOPK_PART),
    prompts=base.MethodPrompts(
        requests=lambda context: text_requests(context, context.config.n_shots),
        follow_up=topk_follow_up,
        need_states=True,
        differ=True,
    ),
    part_kinds=("classification",),
    labelled_examples=lambda _n_shots: math.inf,
)


def lowest_entropy_probs(scored: base.ScoredRequests, definition: Definition) -> pl.LazyFrame:
    """Return one row for each query, with vanilla's label probabilities after the ordering of lowest entropy.

    The first of equal orderings is chosen. `prompt_id` is the id of the chosen prompt. Up to ten prompts are scored,
    but the choice does not use gold labels, so a query's answer counts as one try, not as the best of ten.

    Source: Wu et al. 2023 (arXiv 2212.10375) as Cho & Inoue 2025 use it, by the entropy of the label
    probabilities. The toolkit's function (functional.py, entropy) applies another softmax to rows whose sum differs
    from one by rounding.
    """
    probs = base.softmax(base.label_score(definition))
    rows = scored.rows.filter(part=SA_ICL_PART).sort(*_QUERY, "ordering").with_columns(label_probs=probs)
    lowest_entropy = entropy_nats(pl.col("label_probs")).arg_min().over(_QUERY)
    return rows.filter(pl.int_range(pl.len()).over(_QUERY) == lowest_entropy).with_columns(position="query_id")


def entropy_nats(probs: pl.Expr) -> pl.Expr:
    """Return the Shannon entropy of each list of probabilities, nats; 0 log 0 is 0."""
    p = pl.element()
    return -probs.list.eval(pl.when(p > 0).then(p * p.log()).otherwise(0.0)).list.sum()


def sa_icl_follow_up(context: base.MethodContext, scored: base.ScoredRequests) -> Iterator[pl.DataFrame]:
    """Yield requests for each query after up to ten sequences of n_shots of its n_shots + 1 nearest demonstrations.

    The toolkit does this for n_shots = 4. `position` is 10 * query_id + ordering.
    """
    n_shots = context.config.n_shots
    asked, nearest = nearest_demonstrations(context, scored, n_shots + 1)
    ranks = orderings(n_shots, context.config.prompt_definition)
    # A request for each pair of a query and an ordering.
    query, ordering = (index.ravel() for index in np.indices((len(asked), len(ranks))))
    ids = nearest[query[:, None], ranks[ordering]]
    plan = PromptPlan(demonstration_set=ordering, query_id=asked[query], demonstration_ids=ids)
    for rows in retrieved_requests(context, SA_ICL_PART, plan):
        position = pl.col("query_id") * N_ORDERINGS + pl.col("demonstration_set")
        yield rows.with_columns(ordering="demonstration_set", position=position, demonstration_set=pl.lit(0, pl.Int64))


def orderings(n_shots: int, definition: Definition) -> Ints:
    """Return sequences of n_shots of the n_shots + 1 nearest demonstrations, the same for every query.

    `paper`: different sequences, drawn at random with the seed. `released`: the first sequences in lexicographic order,
    because the toolkit shuffles a copy and drops it (prompt_template_edit.py); with four shots the nearest
    demonstration is always first in the prompt.

    Returns:
        Ranks by distance, 0 for the nearest, [N_ORDERINGS, n_shots]; fewer rows if fewer sequences exist.
    """
    if definition == "paper":
        return demonstration_sequences(n_pool=n_shots + 1, n_shots=n_shots, n_sequences=N_ORDERINGS, seed=SEED)
    first = list(islice(permutations(range(n_shots + 1), n_shots), N_ORDERINGS))
    return np.array(first, np.int64).reshape(len(first), n_shots)


SA_ICL = replace(
    TOPK,
    summary="Vanilla after the ordering of the nearest demonstrations with the lowest entropy.",
    label_probs=lowest_entropy_probs,
    prompts=replace(
        TOPK.prompts,
        requests=lambda context: text_requests(context, context.config.n_shots + 1),
        follow_up=sa_icl_follow_up,
    ),
)
