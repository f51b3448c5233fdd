"""Choose demonstrations by the PVI of training rows, and classify the queries of the suite pvi after them.

Lu et al. 2023, section 5.6: "based on in-context PVI estimates obtained using one set of randomly selected exemplars,
we selected the most challenging training instance from each category". Here training rows are scored after set 0 of the
suite for each number of shots. Then as many sets are chosen by these scores as the suite has for that number of shots,
of the hardest, easiest or middle rows, and the queries are scored after the chosen sets. Sets are made of blocks, as in
demonstration_sets.py.
"""

import math
import random
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain

import polars as pl

from evaluator.datasets.base import ClassificationDataset
from evaluator.errors import DatasetError, TemplateError
from evaluator.methods.base import Method, MethodContext, MethodPrompts, ScoredRequests, label_score, softmax_of
from evaluator.prompts.rows import variations
from evaluator.suites.in_context_pvi.demonstration_sets import (
    DemonstrationSet,
    demonstration_sets,
    in_blocks,
    with_texts,
)
from evaluator.suites.in_context_pvi.options import PviOptions, resolved_options
from evaluator.suites.in_context_pvi.prompts import (
    NULL,
    as_queries,
    null_part,
    null_prompts,
    queries_after,
    shown_by,
)
from evaluator.suites.in_context_pvi.pvi import gain_nats
from evaluator.suites.in_context_pvi.schema import CHOSEN, PVI_CANDIDATES, PviOrder

TRAINING = "pvi_training"
"""The part with the prompts of training rows, numbered by `training_row`; it has no queries."""

_DESCRIPTIONS: dict[PviOrder, str] = {
    "hardest": "of the lowest PVI",
    "easiest": "of the highest PVI",
    "middle": "around the median PVI",
}


def requests(context: MethodContext) -> Iterator[pl.DataFrame]:
    """Build prompts of the candidate training rows after set 0 of each number of shots; equal for every order.

    `position` enumerates numbers of shots, then all training rows.

    Raises TemplateError or DatasetError, before anything is scored, where there are too few candidates.
    """
    dataset, pvi = context.classification, resolved_options(context.config)
    n_rows = dataset.demonstration.height
    numbered = {"training_row": pl.col("query_id"), "query_id": pl.lit(None, pl.Int64)}
    by_shots = (
        (
            numbered,
            queries_after(dataset, [first], candidates_for_set(dataset, pvi, first), part=TRAINING, n_rows=n_rows),
        )
        for first in first_sets(dataset, pvi)
    )
    for rows in variations(by_shots, n_rows):
        yield rows.select(context.columns)


def training_pvi(scored: ScoredRequests) -> pl.DataFrame:
    """Compute the PVI of training rows after set 0, over the whole vocabulary.

    Returns dataset, n_shots, training_row, gold and pvi_bits, which is null where it is not finite; sorted by the first
    three.
    """
    scores, gold = pl.col("label_log_likelihoods"), pl.col("gold")
    # Each number of shots has one null prompt after set 0.
    nulls = scored.rows.filter(part=NULL).filter(demonstration_set=0).select("dataset", "n_shots", null_scores=scores)
    bits = gain_nats(scores.list.get(gold), pl.col("null_scores").list.get(gold)) / math.log(2)
    return (
        scored.rows.filter(part=TRAINING)
        .join(nulls, on=["dataset", "n_shots"], how="left", validate="m:1")
        .select("dataset", "n_shots", "training_row", "gold", pvi_bits=bits)
        .sort("dataset", "n_shots", "training_row")
        .collect()
    )


def first_sets(dataset: ClassificationDataset, pvi: PviOptions) -> list[DemonstrationSet]:
    """Return set 0 of each number of shots, for training rows. Raises what demonstration_sets raises."""
    return [candidate for candidate in demonstration_sets(dataset, pvi) if candidate.number == 0]


def candidates(dataset: ClassificationDataset, pvi: PviOptions) -> pl.DataFrame:
    """Return the training rows from which demonstrations are chosen, as rows of as_queries.

    Candidates are the first `training_queries` rows of the demonstration split, minus rows with the same inputs as a
    query, which must not be its own demonstration. Raises DatasetError if the dataset has no training rows.
    """
    if dataset.demonstration.is_empty():
        raise DatasetError(
            f"{dataset.name} has no training rows to choose demonstrations from: with --demonstrations published all "
            "rows of a single table are queries. Add a table of training rows next to it, use --demonstrations random, "
            "or leave out the methods that choose by PVI (--methods)."
        )
    query_inputs = as_queries(dataset, dataset.test)["inputs"]
    rows = as_queries(dataset, dataset.demonstration.head(pvi.training_queries))
    return rows.filter(~pl.col("inputs").is_in(query_inputs.implode()))


def pvi_candidates(dataset: ClassificationDataset, pvi: PviOptions) -> pl.DataFrame:
    """Return schema.PVI_CANDIDATES of a dataset. Raises what candidates raises."""
    rows = candidates(dataset, pvi).rename({"query_id": "training_row"})
    table = rows.with_columns(n_training=pl.lit(dataset.demonstration.height))
    return table.select(PVI_CANDIDATES.names()).cast(PVI_CANDIDATES)


def candidates_for_set(dataset: ClassificationDataset, pvi: PviOptions, first: DemonstrationSet) -> pl.DataFrame:
    """Return the candidates that are not among the set's demonstrations.

    Raises TemplateError, naming the label, where there are too few for all sets of this many shots; DatasetError where
    the dataset has no training rows.
    """
    rows = candidates(dataset, pvi).filter(~shown_by([first]))
    labels = range(len(dataset.verbalizer.label_names))
    _require_enough(dataset, [rows.filter(gold=label)["query_id"].to_list() for label in labels], pvi, first.n_shots)
    return rows


def ranked_sets(
    dataset: ClassificationDataset, measured: pl.DataFrame, order: PviOrder, n_shots: int, pvi: PviOptions
) -> list[DemonstrationSet]:
    """Build set 0 of the first rows of each label in `order`, set 1 of the next ones, and so on.

    The paper has only set 0 of the hardest.

    Args:
        measured: as for demonstrations_by_pvi, with PVIs after one set of `n_shots`.

    Raises TemplateError, naming the label, where too few rows have a finite PVI.
    """
    ranked = demonstrations_by_pvi(measured, order=order, n_labels=len(dataset.verbalizer.label_names))
    per_label = _require_enough(dataset, ranked, pvi, n_shots)
    sets = []
    for number in range(pvi.sets):
        window = [rows[number * per_label : (number + 1) * per_label] for rows in ranked]
        draw = random.Random(f"demonstrations by PVI, set {number}, seed {pvi.seed}")
        sets.append(with_texts(dataset, number, in_blocks(window, n_shots, draw)))
    return sets


def demonstrations_by_pvi(pvi: pl.DataFrame, *, order: PviOrder, n_labels: int) -> list[list[int]]:
    """Return the rows of each label in the order in which they are chosen.

    Hardest is the lowest PVI; `middle` begins at the median of the label and goes outwards, the harder of two first.
    Rows of equal PVI are in order of their numbers. Rows without a finite PVI cannot be ranked and are left out.

    Args:
        pvi: columns query_id (rows of the demonstration split), gold and pvi_bits.
    """
    rank, bits = pl.col("rank"), pl.col("pvi_bits")
    ranked = (
        pvi.filter(bits.is_finite())
        .sort(-bits if order == "easiest" else bits, "query_id")
        .with_columns(rank=pl.int_range(pl.len()).over("gold"), n=pl.len().cast(pl.Int64).over("gold"))
        # 2 * rank - (n - 1) is twice the distance from the median rank.
        .sort((2 * rank - (pl.col("n") - 1)).abs() if order == "middle" else rank, "rank")
    )
    return [ranked.filter(gold=label)["query_id"].to_list() for label in range(n_labels)]


def _require_enough(
    dataset: ClassificationDataset, by_label: Sequence[Sequence[int]], pvi: PviOptions, n_shots: int
) -> int:
    """Count the rows of each label that a set needs; raise TemplateError if a label has too few for all sets."""
    names = dataset.verbalizer.label_names
    per_label = -(-n_shots // len(names))
    for name, rows in zip(names, by_label, strict=True):
        if len(rows) < pvi.sets * per_label:
            raise TemplateError(
                f"{dataset.name}: {pvi.sets} sets of {n_shots} demonstrations by PVI need {pvi.sets * per_label} rows "
                f"labelled {name!r}, and the first {pvi.training_queries} training rows have {len(rows)} to choose "
                "from. Choose fewer --sets or --shots, or more --training-queries."
            )
    return per_label


def _follow_up(
    context: MethodContext, scored: ScoredRequests, *, method: str, order: PviOrder
) -> Iterator[pl.DataFrame]:
    """Build prompts of the suite's queries after the chosen sets, and one null prompt for each set.

    Raises TemplateError if too few training rows of a label have a PVI.
    """
    dataset, pvi = context.classification, resolved_options(context.config)
    measured = training_pvi(scored).filter(dataset=dataset.name).rename({"training_row": "query_id"})
    sets = []
    for (n_shots,), rows in measured.partition_by("n_shots", as_dict=True, maintain_order=True).items():
        sets += ranked_sets(dataset, rows, order, int(n_shots), pvi)
    # Only the queries of the suite, which leaves out queries that are demonstrations.
    asked = context.rows.select(pl.col("query_id").unique()).collect()["query_id"]
    queries = as_queries(dataset, dataset.test).filter(pl.col("query_id").is_in(asked.implode()))
    inputs = queries_after(dataset, sets, queries, part=method, n_rows=dataset.test.height)
    for rows in chain(inputs, [null_prompts(dataset, sets, part=null_part(method))]):
        yield rows.select(context.columns)


CHOSEN_METHODS = {
    method: Method(
        summary=f"Vanilla after demonstrations {_DESCRIPTIONS[order]} of each label.",
        label_probs=softmax_of(label_score, method),
        prompts=MethodPrompts(requests=requests, follow_up=partial(_follow_up, method=method, order=order)),
        drawn_once="chosen demonstrations",
        part_kinds=("classification",),
        definitions=("paper",),
    )
    for method, order in CHOSEN.items()
}
