"""Which demonstrations are chosen by PVI: measured training rows of a dataset go in, demonstration sets come out.

Lu et al. 2023, section 5.6: "based on in-context PVI estimates obtained using one set of randomly selected exemplars,
we selected the most challenging training instance from each category". Sets come in blocks as those of
pvi_demonstrations.py do.
"""

import random
from collections.abc import Sequence

import polars as pl

from evaluator.datasets.base import ClassificationDataset
from evaluator.errors import DatasetError, TemplateError
from evaluator.suites.in_context_pvi.demonstration_sets import (
    DemonstrationSet,
    demonstration_sets,
    in_blocks,
    with_texts,
)
from evaluator.suites.in_context_pvi.options import PviOptions
from evaluator.suites.in_context_pvi.prompts import as_queries, shown_by
from evaluator.suites.in_context_pvi.query_schema import PVI_CANDIDATES
from evaluator.suites.in_context_pvi.schema import PviOrder


def first_sets(dataset: ClassificationDataset, pvi: PviOptions) -> list[DemonstrationSet]:
    """Return set 0 of each number of shots, behind which training rows are asked. Raises as demonstration_sets does."""
    return [each for each in demonstration_sets(dataset, pvi) if each.number == 0]


def candidates(dataset: ClassificationDataset, pvi: PviOptions) -> pl.DataFrame:
    """Return the training rows that demonstrations are chosen among, as as_queries gives them.

    The first `training_queries` of the demonstration split, without those whose inputs are a query's: a query must not
    stand before itself. Raises DatasetError where the dataset has no training rows.
    """
    if dataset.demonstration.is_empty():
        raise DatasetError(
            f"{dataset.name} has no training rows to choose demonstrations among: with --demonstrations published all "
            "rows of a lone table are asked. Put a table of training rows beside it, take --demonstrations random, or "
            "leave out the methods that choose by PVI (--methods)."
        )
    asked = as_queries(dataset, dataset.test)["inputs"]
    rows = as_queries(dataset, dataset.demonstration.head(pvi.training_queries))
    return rows.filter(~pl.col("inputs").is_in(asked.implode()))


def pvi_candidates(dataset: ClassificationDataset, pvi: PviOptions) -> pl.DataFrame:
    """Return query_schema.PVI_CANDIDATES of a dataset. Raises as candidates does."""
    rows = candidates(dataset, pvi).rename({"query_id": "training_row"})
    whole = rows.with_columns(n_training=pl.lit(dataset.demonstration.height))
    return whole.select(pl.col(name).cast(dtype) for name, dtype in PVI_CANDIDATES.items())


def candidates_behind(dataset: ClassificationDataset, pvi: PviOptions, first: DemonstrationSet) -> pl.DataFrame:
    """Return the candidates that are not among the set's demonstrations.

    Raises TemplateError, naming the label, where they are too few for all sets of this many shots; DatasetError as
    candidates does.
    """
    rows = candidates(dataset, pvi).filter(~shown_by([first]))
    _require_enough(dataset, _by_label(rows, dataset), pvi, first.n_shots)
    return rows


def ranked_sets(
    dataset: ClassificationDataset, measured: pl.DataFrame, order: PviOrder, n_shots: int, pvi: PviOptions
) -> list[DemonstrationSet]:
    """Build set 0 of the first by PVI of each label, set 1 of the next, and so on; the paper has set 0 of the hardest.

    Args:
        measured: as for demonstrations_by_pvi, under one set of `n_shots`.

    Raises TemplateError, naming the label, where too few have a finite PVI.
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
    """Return the rows of each label by their PVI, the first to take first.

    Hardest is the lowest PVI; `middle` begins at the median of the label and goes outwards, the harder of two first.
    Equal PVIs come by row. Rows without a finite PVI cannot be ranked and are left out.

    Args:
        pvi: columns query_id (rows of the demonstration split), gold and pvi_bits.
    """
    place, bits = pl.col("place"), pl.col("pvi_bits")
    ranked = (
        pvi.filter(bits.is_finite())
        .sort(-bits if order == "easiest" else bits, "query_id")
        .with_columns(place=pl.int_range(pl.len()).over("gold"), n=pl.len().cast(pl.Int64).over("gold"))
        .sort((2 * place - (pl.col("n") - 1)).abs() if order == "middle" else place, "place")
    )
    return [ranked.filter(gold=label)["query_id"].to_list() for label in range(n_labels)]


def _by_label(rows: pl.DataFrame, dataset: ClassificationDataset) -> list[list[int]]:
    return [rows.filter(gold=label)["query_id"].to_list() for label in range(len(dataset.verbalizer.label_names))]


def _require_enough(
    dataset: ClassificationDataset, by_label: Sequence[Sequence[int]], pvi: PviOptions, n_shots: int
) -> int:
    """Return how many rows of each label a set takes."""
    names = dataset.verbalizer.label_names
    per_label = -(-n_shots // len(names))
    for name, rows in zip(names, by_label, strict=True):
        if len(rows) < pvi.sets * per_label:
            raise TemplateError(
                f"{dataset.name}: {pvi.sets} sets of {n_shots} demonstrations by PVI take {pvi.sets * per_label} rows "
                f"labelled {name!r}, and there are {len(rows)} to choose among, of the first {pvi.training_queries} "
                "training rows. Ask for fewer --sets or --shots, or more --training-queries."
            )
    return per_label
