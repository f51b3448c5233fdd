"""Measure what should not matter: how far answers change with the order of options, wording, negation and more.

A query is answered as it is (template 0) and in variations. No measure but the accuracies needs true options.
"""

from functools import partial

import polars as pl

from evaluator.decisions.answers import NO, YES
from evaluator.metrics.classification import Measured, mean_metric, metric_values
from evaluator.metrics.groups import Diagnostic, PredictionGroup
from evaluator.suites.decide.prompts import AMONG, MAX_ORDERS, NEGATION, ORDER, SPACING, WORDING, default_order

FLIPS, DISTANCE, ACCURACY, FIRST = "flips", "distance", "accuracy", "first"
"""Measures, in the names of metrics after the part: `order_flips`."""


def variation_effect(group: PredictionGroup, part: str) -> dict[str, Measured]:
    """Measure a part of VARIED, with intervals over queries.

    PART_flips is the share of variations with another answer than the question as it is, PART_distance the mean total
    variation distance between their probabilities; both are in [0, 1]. PART_accuracy is the accuracy over all
    variations, of questions with true options. order_first is the share of answers that name the option shown first:
    1/k for k options where order does not matter.
    """
    measured = metric_values(
        changes(group.rows).rename(lambda name: f"{part}_{name}" if name in (FLIPS, DISTANCE) else name),
        group.n_labels,
        {f"{part}_{name}": mean_metric(f"{part}_{name}") for name in (FLIPS, DISTANCE)},
    )
    if group.rows["gold"].null_count() == 0:
        right = group.rows.select(
            "query_id", (pl.col("pred") == pl.col("gold")).cast(pl.Float64).alias(f"{part}_{ACCURACY}")
        )
        measured |= metric_values(right, group.n_labels, {f"{part}_{ACCURACY}": mean_metric(f"{part}_{ACCURACY}")})
    if part == ORDER and group.n_labels <= MAX_ORDERS:
        first = default_order("yes-no" if group.label_names == [NO, YES] else "choice", group.n_labels)
        shown_first = pl.col("template").replace_strict(dict(enumerate(first)), return_dtype=pl.Int64)
        named = group.rows.select("query_id", (pl.col("pred") == shown_first).cast(pl.Float64).alias(f"{part}_{FIRST}"))
        measured |= metric_values(named, group.n_labels, {f"{part}_{FIRST}": mean_metric(f"{part}_{FIRST}")})
    return measured


def changes(rows: pl.DataFrame) -> pl.DataFrame:
    """Return query_id, template, flips (0 or 1) and distance of each variation against template 0 of its query.

    Args:
        rows: query_id, template, pred and label_probs.
    """
    plain = rows.filter(template=0).select("query_id", plain="label_probs", plain_pred="pred")
    varied = rows.filter(pl.col("template") > 0).join(plain, on="query_id", maintain_order="left")
    gaps = (pl.col("label_probs") - pl.col("plain")).list.eval(pl.element().abs()).list.sum()
    return varied.select(
        "query_id",
        "template",
        flips=(pl.col("pred") != pl.col("plain_pred")).cast(pl.Float64),
        distance=(gaps / 2).clip(0.0, 1.0),
    )


TITLES = {
    ORDER: "Order of options",
    WORDING: "Wording",
    NEGATION: "Negation",
    SPACING: "Spaces and case",
    AMONG: "Other questions before it",
}
"""Part -> what changes in it."""

DIAGNOSTICS = tuple(
    Diagnostic(
        part=part,
        measure=partial(variation_effect, part=part),
        metric=f"{part}_{FLIPS}",
        title=f"{title}: other answers",
        lower_is_better=True,
        titles={
            f"{part}_{DISTANCE}": f"{title}: distance of probabilities",
            f"{part}_{ACCURACY}": f"{title}: accuracy over all variations",
        }
        | ({f"{ORDER}_{FIRST}": f"{title}: answers that name the first"} if part == ORDER else {}),
    )
    for part, title in TITLES.items()
)
"""What should not matter, part by part."""
