"""Check that all repeated answers are present before they are compared."""

from evaluator.errors import MetricError
from evaluator.metrics.per_request import PredictionGroup


def require_complete_grid(group: PredictionGroup, column: str, what: str) -> None:
    """Raise MetricError unless every query has equally many answers with each value of `column`.

    There must be two values or more; `what` is their plural name in the message.
    """
    cells = group.rows.group_by("query_id", column).len()
    n_values, n_queries = cells[column].n_unique(), cells["query_id"].n_unique()
    if n_values < 2:
        raise MetricError(
            f"{group.where}: answers are compared over {what}, but there is only one. Build at least two."
        )
    if cells.height < n_values * n_queries or cells["len"].n_unique() > 1:
        raise MetricError(
            f"{group.where}: every query must be answered equally often with each of the {n_values} {what}, but of "
            f"{n_values * n_queries} pairs {cells.height} are present, with {sorted(set(cells['len']))} answers. "
            "Measure complete parts."
        )
