"""Tables of a measured run: metrics, metrics at each level of a varied factor, reliability diagrams and confusion."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import polars as pl

from evaluator.metrics.calibration_interval import reduced_bias, with_estimates
from evaluator.metrics.classification import BIN_EDGES, N_BINS, Measured
from evaluator.metrics.groups import GROUP, MeasuredGroup
from evaluator.metrics.guessing import GUESSES, MEAN, mean_guesses, with_baselines, with_tests_of_run
from evaluator.metrics.intervals import mean_of_intervals, with_intervals
from evaluator.schemas import (
    CONFUSION,
    CONFUSION_KEY,
    GROUP_METRICS,
    GROUP_METRICS_KEY,
    MEAN_OVER_DATASETS,
    METRICS,
    METRICS_KEY,
    RELIABILITY,
    RELIABILITY_KEY,
)

_NUMBERS = {name: pl.Float64() for name in Measured._fields if name not in ("interval", "bins", "over")}
_MEAN = {"dataset": pl.lit(MEAN_OVER_DATASETS)}


def metrics_table(groups: Iterable[MeasuredGroup], draws: Mapping[str, str] | None = None) -> pl.DataFrame:
    """Return every metric of every dataset and method, and the plain mean over datasets, with 95% intervals.

    Rows of accuracy also have the baselines of guessing and the test against it (guessing.py).

    Args:
        groups: as from groups.measured_groups, one or more.
        draws: method -> what is drawn once for all queries, so that its intervals do not cover it.

    Returns:
        schema METRICS, sorted by METRICS_KEY. A dataset that is absent is left out of the mean, never counted as 0;
        n_queries of the mean says how many queries it is over.
    """
    rows = [row for group in groups for row in _rows(group)]
    estimates = reduced_bias(rows)
    plain = [{name: value for name, value in row.items() if name != "bins"} for row in rows]
    frame = pl.DataFrame(plain, infer_schema_length=None, schema_overrides={**_NUMBERS, **GUESSES})
    datasets = with_intervals(frame.with_columns(ci_over="over", ci_given=_given(draws or {})))
    parts = [with_estimates(with_baselines(part), estimates) for part in (datasets, _mean_over_datasets(datasets))]
    return with_tests_of_run(*parts).select(METRICS.names()).cast(METRICS).sort(METRICS_KEY)


def _rows(group: MeasuredGroup) -> Iterator[dict[str, object]]:
    """Yield a row for each metric, without intervals."""
    for name, values in group.measured.items():
        guessed = group.guesses if group.guesses and name == "accuracy" else dict.fromkeys(GUESSES)
        yield {**group.key, **group.sizes, "metric": name, **values._asdict(), **guessed}


def _given(draws: Mapping[str, str]) -> pl.Expr:
    """Name the factors that the interval of a row holds fixed: the template, unless it is sampled, and the method's."""
    template = pl.when(~pl.col("over").str.contains("templates")).then(pl.lit("template"))
    named = {method: factor for method, factor in draws.items() if factor}
    drawn = pl.col("method").replace_strict(named, default=None, return_dtype=pl.String)
    both = pl.concat_str(template, drawn, separator=", ", ignore_nulls=True)
    return pl.when(both != "").then(both)


def _mean_over_datasets(datasets: pl.DataFrame) -> pl.DataFrame:
    by_mean = datasets.sort("dataset").group_by(MEAN)
    same = [pl.col("ci_over", "ci_given").first(), pl.col("n_queries", "n_requests").sum()]
    return by_mean.agg(*same, **mean_of_intervals(), **mean_guesses()).with_columns(**_MEAN)


def group_metrics_table(groups: Iterable[MeasuredGroup]) -> pl.DataFrame:
    """Return METRICS at each noise rate, with each template, after each demonstration set, and means over datasets.

    Values by noise rate and by template are over all demonstration sets, which are drawn for each query: sets with the
    same number contain different demonstrations.

    Returns schema GROUP_METRICS, sorted by its key.
    """
    datasets = pl.concat([GROUP_METRICS.to_frame(), *(frame for group in groups for frame in group.variations)])
    key_of_mean = [column for column in GROUP_METRICS_KEY if column != "dataset"]
    means = datasets.sort("dataset").group_by(key_of_mean).agg(pl.col("value").mean(), pl.col("n_requests").sum())
    return pl.concat([datasets, means.with_columns(**_MEAN).select(datasets.columns)]).sort(GROUP_METRICS_KEY)


def reliability_table(groups: Iterable[MeasuredGroup]) -> pl.DataFrame:
    """Return accuracy and mean confidence in each bin of the expected calibration error, under "paper".

    Returns RELIABILITY, sorted by its key: all ten bins of each dataset and method.
    """
    bins = pl.DataFrame({"bin": range(N_BINS), "bin_low": BIN_EDGES[:-1], "bin_high": BIN_EDGES[1:]})
    n = pl.col("n_requests")
    means = {"mean_confidence": pl.col("confidence") / n, "accuracy": pl.col("correct") / n}
    tables = [
        bins.join(group.bins.with_columns(**means), on="bin", how="left").with_columns(n.fill_null(0), **_key(group))
        for group in groups
        if group.bins is not None and group.key["definition"] == "paper"
    ]
    return _stacked(tables, RELIABILITY, RELIABILITY_KEY)


def confusion_table(groups: Iterable[MeasuredGroup]) -> pl.DataFrame:
    """Return the number of requests for each pair of gold and predicted label, under "paper".

    Returns CONFUSION, sorted by its key: all pairs of each dataset and method.
    """
    tables = []
    for group in groups:
        if group.confusion is not None and group.key["definition"] == "paper":
            labels = pl.DataFrame({"gold": range(group.n_labels)})
            pairs = labels.join(labels.rename({"gold": "pred"}), how="cross")
            counted = pairs.join(group.confusion, on=["gold", "pred"], how="left")
            tables.append(counted.with_columns(pl.col("n_requests").fill_null(0), **_key(group)))
    return _stacked(tables, CONFUSION, CONFUSION_KEY)


def _key(group: MeasuredGroup) -> dict[str, pl.Expr]:
    return {column: pl.lit(group.key[column]) for column in GROUP}


def _stacked(tables: Sequence[pl.DataFrame], schema: pl.Schema, key: list[str]) -> pl.DataFrame:
    return pl.concat([schema.to_frame(), *(table.select(schema.names()).cast(schema) for table in tables)]).sort(key)
