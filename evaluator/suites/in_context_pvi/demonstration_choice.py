"""Compare demonstrations chosen by PVI with the demonstration sets of the suite, and list chosen demonstrations.

Lu et al. 2023, section 5.6 and table 7, compare the hardest training instances with random demonstrations by accuracy.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from evaluator.arrays import Floats
from evaluator.methods.base import ScoredRequests
from evaluator.metrics.guessing import GUESSES, prompts_tried, with_baselines
from evaluator.metrics.intervals import two_way_standard_error, with_intervals
from evaluator.metrics.total_error import crossed_cells
from evaluator.random_baselines.significance import with_tests
from evaluator.statistics.paired import paired_interval
from evaluator.suites.base import declared
from evaluator.suites.in_context_pvi import schema
from evaluator.suites.in_context_pvi.prompts import INPUT, null_part

DEFINITION = "paper"
"""The definition of the PVI by which demonstrations are chosen and compared."""

_GROUP = ["dataset", "n_shots"]
_LIMITS: dict[str, tuple[float, float]] = {"accuracy": (-1.0, 1.0), "v_information": (-float("inf"), float("inf"))}


class Difference(NamedTuple):
    """A difference of means over the same queries, with its standard errors over queries, and over queries and sets."""

    value: float
    over_queries: float | None  # None with one query only
    over_queries_freedom: float  # degrees of freedom
    two_way: float | None  # None with one query or one reference set only
    two_way_freedom: float


def difference_from_draws(chosen: Floats, drawn: Floats) -> Difference:
    """Return mean(chosen) - mean(drawn) with two standard errors.

    Args:
        chosen: [Q, C], a value of each query after each chosen set.
        drawn: [Q, S], the same queries after sets that were drawn at random.

    The first standard error is over queries, for these sets. The difference of a query is d[q] = mean chosen[q, .] -
    mean drawn[q, .], and the standard error is that of a mean, SD(d) / sqrt(Q) (Miller 2024, "Adding Error Bars to
    Evals", paired differences).

    The second is over queries and sets, because other sets would give another difference. d[q, s] = mean chosen[q, .] -
    drawn[q, s] is a complete table with two random factors and the same mean; metrics.intervals.two_way_standard_error
    has the formula and its sources. The choice was made once, by PVI after drawn set 0, and another draw would have led
    to other chosen sets. A single choice does not tell by how much, so it counts as one more drawn set: the interval
    holds at least as often as it says if choices vary no more than drawn sets do (docs/coverage.md).
    """
    chosen_means = chosen.mean(axis=1)
    d = chosen_means - drawn.mean(axis=1)
    n_queries = len(d)
    over_queries = float(d.std(ddof=1)) / float(np.sqrt(n_queries)) if n_queries > 1 else None
    two_way = two_way_standard_error(chosen_means[:, None] - drawn, template_weight=1 + drawn.shape[1])
    return Difference(float(d.mean()), over_queries, n_queries - 1, *two_way)


def demonstrations_table(
    pvi: pl.DataFrame, n_labels: Mapping[str, int], training: pl.DataFrame, tries: pl.DataFrame
) -> pl.DataFrame:
    """Compare every source of demonstrations with the suite's sets: schema.PVI_DEMONSTRATIONS, sorted by its key.

    The best set is compared with guessing: the maximum random baseline is for as many tries as there are different sets
    (Yauney & Mimno 2024, section 3). The best sets of all rows are tested together.

    Args:
        pvi: schema.PVI.
        n_labels: dataset -> size of its label space.
        training: the result of training_counts.
        tries: the result of tries_by_source.
    """
    cases = pvi.filter(definition=DEFINITION).sort(*_GROUP).partition_by(_GROUP, as_dict=True, maintain_order=True)
    records = [
        {"dataset": dataset, "n_shots": n_shots, "label_counts": [n_labels[str(dataset)]]} | record
        for (dataset, n_shots), rows in cases.items()
        for record in _source_records(rows)
    ]
    if not records:
        return schema.PVI_DEMONSTRATIONS.to_frame()
    floats = {f"{name}_{field}": pl.Float64() for name in _LIMITS for field in Difference._fields}
    types = {**floats, **dict.fromkeys(_PAIRED, pl.Float64()), **GUESSES}
    rows = pl.DataFrame(records, infer_schema_length=None, schema_overrides=types).with_columns(
        definition=pl.lit(DEFINITION), chance=1 / pl.col("label_counts").list.first()
    )
    rows = rows.join(tries, on=[*_GROUP, "demonstrations"], how="left")
    # with_baselines judges the column `value` over `n_requests` queries.
    judged = with_baselines(rows.with_columns(value="best_accuracy", n_requests="n_queries")).drop("value")
    tested = with_tests(judged.with_columns(n_chosen_from="tries"))
    table = _with_intervals(tested).join(training, on=["dataset", "demonstrations", "n_shots"], how="left")
    return declared(table, schema.PVI_DEMONSTRATIONS, schema.PVI_DEMONSTRATIONS_KEY)


def tries_by_source(scored: ScoredRequests, source: str) -> pl.DataFrame:
    """Count the different prompts of a query: dataset, n_shots, demonstrations and tries of schema.PVI_DEMONSTRATIONS.

    Args:
        scored: of the suite pvi.
        source: where the suite's own demonstration sets come from.
    """
    parts = {source: INPUT} | {order: method for method, order in schema.CHOSEN.items()}
    rows = [
        scored.rows.filter(part=part).select(*_GROUP, "query_id", "prompt_id", demonstrations=pl.lit(name))
        for name, part in parts.items()
    ]
    return prompts_tried(pl.concat(rows).collect(), [*_GROUP, "demonstrations"])


def training_counts(measured: pl.DataFrame, candidates: pl.DataFrame) -> pl.DataFrame:
    """Count training rows: dataset, demonstrations, n_shots, n_candidates and n_training of schema.PVI_DEMONSTRATIONS.

    Args:
        measured: the result of chosen_demonstrations.training_pvi.
        candidates: schema.PVI_CANDIDATES.
    """
    counts = measured.group_by(_GROUP, maintain_order=True).agg(n_candidates=pl.col("pvi_bits").count())
    orders = pl.DataFrame({"demonstrations": schema.PVI_ORDERS})
    return counts.join(candidates.select("dataset", "n_training").unique(), on="dataset").join(orders, how="cross")


def chosen_table(scored: ScoredRequests, measured: pl.DataFrame, candidates: pl.DataFrame) -> pl.DataFrame:
    """List the demonstrations of every set that was chosen by PVI: schema.PVI_CHOSEN, sorted by its key.

    Args:
        scored: of the suite pvi.
        measured: the result of chosen_demonstrations.training_pvi.
        candidates: schema.PVI_CANDIDATES; if empty, nothing was chosen.
    """
    if candidates.is_empty():
        return schema.PVI_CHOSEN.to_frame()
    # Null prompts: one row for each chosen set, with the demonstrations of all its queries.
    sets = pl.concat(
        scored.rows.filter(part=null_part(method)).select(
            "dataset",
            "n_shots",
            "demonstration_set",
            demonstrations=pl.lit(order),
            training_row="demonstration_ids",
            place=pl.int_ranges(pl.col("demonstration_ids").list.len()),
        )
        for method, order in schema.CHOSEN.items()
    )
    rows = sets.explode("training_row", "place").collect()
    table = (
        rows.join(measured, on=[*_GROUP, "training_row"], how="left")
        .join(candidates, on=["dataset", "training_row"], how="left")
        .with_columns(definition=pl.lit(DEFINITION))
    )
    return declared(table, schema.PVI_CHOSEN, schema.PVI_CHOSEN_KEY)


def _source_records(rows: pl.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield a record for each source of one dataset and number of shots, without intervals and baselines."""
    sources = rows["demonstrations"].unique().sort().to_list()
    (reference,) = set(sources) - {*schema.PVI_ORDERS}  # the source of the suite's sets
    right, bits = (_values_by_set(rows, value) for value in ("correct", "pvi_bits"))
    n_rows = rows["query_id"].n_unique()
    for source in sources:
        n_queries, n_sets = right[source].shape
        is_reference = source == reference
        yield {
            "demonstrations": source,
            "n_sets": n_sets,
            "n_queries": n_queries,
            "n_unpredicted": n_rows - n_queries,
            "n_measured": len(bits[source]),
            "accuracy": _mean(right[source]),
            "v_information": _mean(bits[source]),
            "n_correct": int(right[source].sum(axis=0).max()) if n_queries else None,
            "best_accuracy": float(right[source].mean(axis=0).max()) if n_queries else None,
            **_difference("accuracy", right[source], right[reference], is_reference=is_reference),
            **dict(zip(_PAIRED, _paired_ends(right[source], right[reference], is_reference), strict=True)),
            **_difference("v_information", bits[source], bits[reference], is_reference=is_reference),
        }


_PAIRED = ("accuracy_low", "accuracy_high")


def _paired_ends(chosen: Floats, reference: Floats, is_reference: bool) -> tuple[float | None, float | None]:
    """Return the interval over queries of an accuracy difference, as all paired differences of accuracies have it."""
    return (None, None) if is_reference else paired_interval(chosen.mean(axis=1) - reference.mean(axis=1))


def _difference(name: str, chosen: Floats, reference: Floats, *, is_reference: bool) -> dict[str, float | None]:
    """Return the fields of Difference, prefixed by `name`; all None for the reference itself, and without queries."""
    difference = None if is_reference or not len(reference) else difference_from_draws(chosen, reference)
    return {f"{name}_{field}": getattr(difference, field, None) for field in Difference._fields}


def _values_by_set(rows: pl.DataFrame, value: str) -> dict[str, Floats]:
    """Return source -> [query, set] of the queries that have the value after every set of every source."""
    run = ["demonstrations", "demonstration_set"]
    runs = rows.select(run).unique().sort(run).with_row_index("run")
    cells, _ = crossed_cells(rows.join(runs, on=run), value, "run", None)
    by_source = runs.partition_by("demonstrations", as_dict=True)
    return {str(source): cells[:, own["run"].to_numpy(), 0] for (source,), own in by_source.items()}


def _mean(cells: Floats) -> float | None:
    return float(cells.mean()) if cells.size else None


def _with_intervals(rows: pl.DataFrame) -> pl.DataFrame:
    """Add the columns of each difference and of its two intervals."""
    for name, (lowest, highest) in _LIMITS.items():
        value = pl.col(f"{name}_value")
        rows = rows.with_columns(value.alias(f"{name}_difference"))
        # For accuracy: the columns accuracy_low and _high, then accuracy_two_way_low and _high.
        for kind, ends in (("over_queries", name), ("two_way", f"{name}_two_way")):
            if f"{ends}_low" in _PAIRED:
                continue
            estimates = rows.select(
                value=value,
                standard_error=f"{name}_{kind}",
                degrees_of_freedom=pl.col(f"{name}_{kind}_freedom").fill_null(0),
                n_queries=pl.col("n_queries" if name == "accuracy" else "n_measured").cast(pl.Float64),
                interval=pl.lit("symmetric"),
                lowest=pl.lit(lowest),
                highest=pl.lit(highest),
            )
            bounds = with_intervals(estimates).select(pl.col("ci_low", "ci_high"))
            rows = rows.with_columns(bounds["ci_low"].alias(f"{ends}_low"), bounds["ci_high"].alias(f"{ends}_high"))
    return rows
