"""Build the metrics table of a run from its predictions: a row for each dataset, method, metric and definition."""

from collections.abc import Iterable, Iterator, Mapping

import polars as pl

from evaluator.errors import MetricError
from evaluator.metrics.debiased import debiased, with_estimates
from evaluator.metrics.diagnosed import DiagnosedGroup
from evaluator.metrics.guessing import (
    GUESSES,
    MEAN,
    guesses,
    mean_guesses,
    prompts_tried,
    with_baselines,
    with_tests_of_run,
)
from evaluator.metrics.intervals import mean_of_intervals, with_intervals
from evaluator.metrics.per_request import DEFINITIONS, GroupRows, by_group, measured_groups
from evaluator.metrics.registry import METRICS
from evaluator.metrics.score_decomposition import score_parts
from evaluator.metrics.values import Measured, metric_values
from evaluator.schemas import MEAN_OVER_DATASETS, METRICS_KEY
from evaluator.schemas import METRICS as METRICS_SCHEMA

MEASURED = {name: pl.Float64() for name in Measured._fields if name not in ("interval", "bins", "over")}


def metrics_table(
    classified: pl.LazyFrame | pl.DataFrame,
    diagnoses: Iterable[DiagnosedGroup] = (),
    draws: Mapping[str, str] | None = None,
) -> pl.DataFrame:
    """Measure every metric of every dataset and method, and the plain mean over datasets, with 95% intervals.

    Rows of accuracy also have the baselines of guessing and the test against it (guessing.py).

    Args:
        classified: schema PREDICTIONS, of classification parts. Predictions of definition "paper" are measured under
            "paper", those of "released" under "released" and "published"; a definition without predictions has no rows.
        diagnoses: what diagnostics measure of the run (diagnosed.py).
        draws: method -> what is drawn once for all queries, so that its intervals do not cover it.

    Returns:
        schema METRICS, sorted by METRICS_KEY. A dataset that is absent is left out of the mean, never counted as 0;
        n_queries of the mean says how many queries it is over.

    Raises:
        MetricError: no predictions at all, rows that the definition does not accept, or rows without prompt_id.
    """
    rows = [row for group in by_group(classified) for row in _classification_rows(group)]
    rows += [row for group in diagnoses for row in _rows(group.key, group.sizes, group.measured, None)]
    if not rows:
        present = classified.lazy().select(pl.col("definition").unique().sort()).collect().to_series().to_list()
        raise MetricError(
            f"There is nothing to measure: predictions are needed under 'paper' or 'released', got {present}."
        )
    estimates = debiased(rows)
    plain = [{name: value for name, value in row.items() if name != "bins"} for row in rows]
    frame = pl.DataFrame(plain, infer_schema_length=None, schema_overrides={**MEASURED, **GUESSES})
    datasets = with_intervals(frame.with_columns(ci_over="over", ci_given=_given(draws or {})))
    parts = [with_estimates(with_baselines(part), estimates) for part in (datasets, _mean_over_datasets(datasets))]
    table = with_tests_of_run(*parts)
    return table.select(METRICS_SCHEMA.names()).cast(METRICS_SCHEMA).sort(METRICS_KEY)


def _classification_rows(rows: GroupRows) -> Iterator[dict[str, object]]:
    tries = prompts_tried(rows.rows)["tries"].item()
    sizes = rows.sizes
    for definition in DEFINITIONS:
        for group in measured_groups(rows, definition):
            measured = metric_values(group.requests, group.n_labels, METRICS)
            measured |= score_parts(group.requests, group.n_labels)
            yield from _rows(group.key, sizes, measured, guesses(group, tries))


def _rows(
    key: Mapping[str, str],
    sizes: Mapping[str, int],
    measured: Mapping[str, Measured],
    guessed: Mapping[str, object] | None,
) -> Iterator[dict[str, object]]:
    """Yield a row for each metric, without intervals."""
    for name, values in measured.items():
        baseline = guessed if guessed and name == "accuracy" else dict.fromkeys(GUESSES)
        yield {**key, **sizes, "metric": name, **values._asdict(), **baseline}


def _given(draws: Mapping[str, str]) -> pl.Expr:
    """Name the factors that the interval of a row holds fixed: the template, unless it is sampled, and the method's."""
    template = pl.when(~pl.col("over").str.contains("templates")).then(pl.lit("template"))
    named = {method: what for method, what in draws.items() if what}
    drawn = pl.col("method").replace_strict(named, default=None, return_dtype=pl.String)
    both = pl.concat_str(template, drawn, separator=", ", ignore_nulls=True)
    return pl.when(both != "").then(both)


def _mean_over_datasets(datasets: pl.DataFrame) -> pl.DataFrame:
    return (
        datasets.sort("dataset")
        .group_by(MEAN)
        .agg(
            **mean_of_intervals(),
            **mean_guesses(),
            **{name: pl.col(name).first() for name in ("ci_over", "ci_given")},
            n_queries=pl.col("n_queries").sum(),
            n_requests=pl.col("n_requests").sum(),
        )
        .with_columns(dataset=pl.lit(MEAN_OVER_DATASETS))
    )
