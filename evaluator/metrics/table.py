"""Build the metrics table of a run from its predictions: a row for each dataset, method, metric and definition."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import polars as pl

from evaluator.errors import MetricError
from evaluator.metrics.debiased import debiased, with_estimates
from evaluator.metrics.diagnostic import Diagnostic
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
from evaluator.metrics.per_request import (
    DEFINITIONS,
    DIAGNOSED_COLUMNS,
    GROUP,
    by_group,
    measured_groups,
    prediction_groups,
)
from evaluator.metrics.registry import METRICS
from evaluator.metrics.score_decomposition import score_parts
from evaluator.metrics.values import Measured, metric_values
from evaluator.schemas import MEAN_OVER_DATASETS, METRICS_KEY
from evaluator.schemas import METRICS as METRICS_SCHEMA

MEASURED = {name: pl.Float64() for name in Measured._fields if name not in ("interval", "bins", "over")}


def metrics_table(
    classified: pl.LazyFrame | pl.DataFrame,
    predictions: pl.LazyFrame | pl.DataFrame | None = None,
    diagnostics: Iterable[Diagnostic] = (),
    draws: Mapping[str, str] | None = None,
) -> pl.DataFrame:
    """Measure every metric of every dataset and method, and the plain mean over datasets, with 95% intervals.

    Rows of accuracy also have the baselines of guessing and the test against it (guessing.py).

    Args:
        classified: schema PREDICTIONS, of classification parts. Predictions of definition "paper" are measured under
            "paper", those of "released" under "released" and "published"; a definition without predictions has no rows.
        predictions: schema PREDICTIONS, of all parts that diagnostics measure.
        diagnostics: what to measure of `predictions`; never under "published".
        draws: method -> what is drawn once for all queries, so that its intervals do not cover it.

    Returns:
        schema METRICS, sorted by METRICS_KEY. A dataset that is absent is left out of the mean, never counted as 0;
        n_queries of the mean says how many queries it is over.

    Raises:
        MetricError: no predictions at all, rows that the definition does not accept, or rows without prompt_id.
    """
    rows = [row for frame in by_group(classified) for row in _classification_rows(frame)]
    if predictions is not None:
        measures = list(diagnostics)
        diagnosed = {diagnostic.part for diagnostic in measures}
        frames = by_group(predictions, DIAGNOSED_COLUMNS, diagnosed)
        rows += [row for frame in frames for row in _diagnostic_rows(frame, measures)]
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


def _classification_rows(frame: pl.DataFrame) -> Iterator[dict[str, object]]:
    tries = {tuple(key): count for *key, count in prompts_tried(frame, [*GROUP, "definition"]).rows()}
    for definition, rules in DEFINITIONS.items():
        for group in measured_groups(frame, definition):
            tries_of_group = tries[(*(group.key[name] for name in GROUP), rules.predictions)]
            measured = metric_values(group.requests, group.n_labels, METRICS)
            measured |= score_parts(group.requests, group.n_labels)
            yield from _rows(group.key, group.requests["query_id"], measured, guesses(group, tries_of_group))


def _diagnostic_rows(frame: pl.DataFrame, diagnostics: Sequence[Diagnostic]) -> Iterator[dict[str, object]]:
    for definition in ("paper", "released"):
        for group in prediction_groups(frame, definition):
            for diagnostic in diagnostics:
                if diagnostic.part == group.key["part"]:
                    yield from _rows(group.key, group.rows["query_id"], diagnostic.measure(group), None)


def _rows(
    key: Mapping[str, str], queries: pl.Series, measured: Mapping[str, Measured], guessed: Mapping[str, object] | None
) -> Iterator[dict[str, object]]:
    """Yield a row for each metric, without intervals; `queries` holds the query of each request."""
    sizes = {"n_queries": queries.n_unique(), "n_requests": len(queries)}
    for name, values in measured.items():
        baseline = guessed if guessed and name == "accuracy" else dict.fromkeys(GUESSES)
        yield {**key, **sizes, "metric": name, **values._asdict(), **baseline}


def _given(draws: Mapping[str, str]) -> pl.Expr:
    """Return what the interval of a row takes as it is: the template, unless others are counted, and the method's."""
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
