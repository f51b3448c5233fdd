"""Tell the page's table of queries which answers are right: any of the correct choices of a query is."""

import polars as pl

from evaluator.report.query_rows import RUN, QueryNumbers
from evaluator.report.section import MeasuredRun
from evaluator.suites.prompt_search.schema import SEARCH_EXAMPLES


def right_answers(run: MeasuredRun) -> QueryNumbers:
    """Return `is_right` of every answer."""
    query = ["dataset", "query_id"]
    correct = run.side_table("search_examples", SEARCH_EXAMPLES).lazy().select(*query, "correct")
    answers = run.scan("predictions").join(correct, on=query, how="left", maintain_order="left")
    is_right = pl.col("correct").list.contains(pl.col("pred"))
    return QueryNumbers((), answers.select(*RUN, *query, "method", is_right=is_right), is_right=True)
