"""Return the PVI of single queries for the page's table of queries."""

import polars as pl

from evaluator.methods import REFERENCE_METHOD
from evaluator.report.query_rows import NumberColumn, QueryNumbers
from evaluator.report.section import MeasuredRun
from evaluator.suites.in_context_pvi.report.views import DRAWN
from evaluator.suites.in_context_pvi.schema import CHOSEN, PVI_RUN

COLUMNS = (NumberColumn("rank", "Rank", 0, 5), NumberColumn("bits", "PVI", 3, 6.5))
NOTE = "PVI is in bits, and rank 1 is the lowest of its run, equal PVIs share a rank"


def pvi_numbers(run: MeasuredRun) -> QueryNumbers:
    """Return PVI in bits and its rank; rank 1 is the lowest PVI of a run, and equal ones share a rank."""
    methods = {order: method for method, order in CHOSEN.items()}
    pvi = run.scan("pvi").filter(definition=DRAWN)
    method = pl.col("demonstrations").replace_strict(methods, default=REFERENCE_METHOD)
    rank = pl.col("pvi_bits").rank("min").over(PVI_RUN)
    key = ("dataset", "n_shots", "demonstration_set", "query_id")
    return QueryNumbers(COLUMNS, pvi.select(*key, method=method, rank=rank, bits="pvi_bits"), note=NOTE)
