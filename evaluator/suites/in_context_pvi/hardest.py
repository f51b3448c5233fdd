"""List the hardest queries, and queries whose label looks wrong, by their PVI over all runs of a dataset.

Lu et al. 2023, section 5.5 and tables 6 and 17 to 19, list the queries of lowest PVI in one run. Here PVI is the mean
over all runs of a dataset (demonstration sets times numbers of shots), so that one bad draw lists no query.
"""

import polars as pl

from evaluator.suites.in_context_pvi.query_schema import PVI_QUERIES_KEY
from evaluator.suites.in_context_pvi.schema import PVI_HARDEST, PVI_HARDEST_KEY, PVI_MISLABELLED, PVI_MISLABELLED_KEY

N_HARDEST = 20
"""Number of queries listed for each gold label."""

_QUERY = ["dataset", "definition", "query_id"]
_CLASS = ["dataset", "definition", "gold"]


def runs_of_queries(pvi: pl.DataFrame) -> pl.DataFrame:
    """Summarise the PVIs and predictions of each query and definition over all runs of its dataset.

    Args:
        pvi: schema.PVI, of demonstrations of one source.
    """
    value = pl.col("pvi_bits")
    in_order = pvi.sort(*_QUERY, "n_shots", "demonstration_set")  # because the order of terms decides the last digit
    return in_order.group_by(_QUERY, maintain_order=True).agg(
        pl.col("gold").first(),
        mean_pvi=value.mean(),
        highest_pvi=value.max(),
        n_runs=pl.len(),
        n_missing=value.null_count(),
        n_right=pl.col("correct").sum(),
        n_wrong=(~pl.col("correct")).sum(),
        n_predicted=pl.col("pred").count(),
        # Equal where every run that predicts a label predicts the same one.
        predicted=pl.col("pred").min(),
        highest_predicted=pl.col("pred").max(),
    )


def hardest_table(over_runs: pl.DataFrame, queries: pl.DataFrame) -> pl.DataFrame:
    """List the queries of lowest mean PVI of each gold label: schema.PVI_HARDEST, sorted by its key.

    Args:
        over_runs: the result of runs_of_queries.
        queries: query_schema.PVI_QUERIES; `row` and `text` are null for a query that is not in it.
    """
    means = over_runs.filter(pl.col("mean_pvi").is_not_null()).sort(*_CLASS, "mean_pvi", "query_id")
    ranked = means.with_columns(rank=pl.int_range(1, pl.len() + 1).over(_CLASS))
    listed = ranked.filter(pl.col("rank") <= N_HARDEST).join(_texts(queries), on=PVI_QUERIES_KEY, how="left")
    return listed.select(PVI_HARDEST.names()).cast(PVI_HARDEST).sort(PVI_HARDEST_KEY)


def mislabelled_table(over_runs: pl.DataFrame, queries: pl.DataFrame) -> pl.DataFrame:
    """List queries whose label is likely wrong, from the lowest mean PVI up: schema.PVI_MISLABELLED, sorted by its key.

    In every run of the dataset the PVI is below 0, so that the query makes its gold label less likely than no query
    does, and every run predicts the same other label. A query without a PVI in some run is not listed. The list is for
    inspection, not a verdict: a model can be wrong about one kind of query in every run.

    Args:
        over_runs, queries: as for hardest_table.
    """
    always_negative = (pl.col("highest_pvi") < 0) & (pl.col("n_missing") == 0)
    is_one_label = (pl.col("n_predicted") == pl.col("n_runs")) & (pl.col("predicted") == pl.col("highest_predicted"))
    always_another = (pl.col("n_wrong") == pl.col("n_runs")) & is_one_label
    means = over_runs.filter(always_negative, always_another).sort("mean_pvi", "query_id")
    ranked = means.with_columns(rank=pl.int_range(1, pl.len() + 1).over("dataset", "definition"))
    listed = ranked.join(_texts(queries), on=PVI_QUERIES_KEY, how="left")
    return listed.select(PVI_MISLABELLED.names()).cast(PVI_MISLABELLED).sort(PVI_MISLABELLED_KEY)


def _texts(queries: pl.DataFrame) -> pl.DataFrame:
    return queries.select(*PVI_QUERIES_KEY, "row", "text")
