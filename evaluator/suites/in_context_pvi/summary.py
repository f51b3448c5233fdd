"""What PVI says of a run: queries with their PVI go in, accuracies by PVI and V-information come out, one row a run.

Lu et al. 2023, section 5: accuracy in the lowest and highest fifth and half of queries by PVI, mean PVI of right and of
wrong predictions. V-information is the mean PVI (Ethayarajh et al. 2022, arXiv 2110.08420).
"""

import polars as pl

from evaluator.metrics.intervals import with_intervals
from evaluator.suites.in_context_pvi.schema import PVI_RUN, PVI_SUMMARY, PVI_SUMMARY_KEY
from evaluator.suites.in_context_pvi.threshold import thresholds

SHARES = {"fifth": 5, "half": 2}
"""Name -> how many such parts there are."""


def summary_table(pvi: pl.DataFrame, judged: pl.DataFrame) -> pl.DataFrame:
    """schemas.pvi.PVI_SUMMARY of each run, sorted by its key.

    The lowest fifth of n queries are the floor(n / 5) of lowest PVI, and at least one. Where queries tie at its border
    and there is room for some of them only, each counts in part: the accuracy is what drawing among them gives on
    average. The published code takes what lies strictly beyond a quantile, which ties can leave empty.

    Args:
        pvi: schemas.pvi.PVI.
        judged: judged_queries of it.
    """
    counts = pvi.group_by(PVI_RUN).agg(
        n_queries=pl.len(),
        n_missing=pl.col("pvi_bits").null_count(),
        n_unpredicted=pl.col("correct").null_count(),
        accuracy=pl.col("correct").mean(),
    )
    measured = judged.group_by(PVI_RUN, maintain_order=True).agg(**_by_correctness(), **_by_rank())
    tables = (measured, _v_information(pvi), thresholds(judged))
    for table in tables:
        counts = counts.join(table, on=PVI_RUN, how="left")
    return counts.select(PVI_SUMMARY.names()).cast(PVI_SUMMARY).sort(PVI_SUMMARY_KEY)


def judged_queries(pvi: pl.DataFrame) -> pl.DataFrame:
    """The queries that have both a PVI and a prediction, from the lowest PVI of each run up."""
    return pvi.filter(pl.col("pvi_bits").is_not_null(), pl.col("correct").is_not_null()).sort(*PVI_RUN, "pvi_bits")


def _by_correctness() -> dict[str, pl.Expr]:
    value, correct = pl.col("pvi_bits"), pl.col("correct")
    return {"right_pvi": value.filter(correct).mean(), "wrong_pvi": value.filter(~correct).mean()}


def _by_rank() -> dict[str, pl.Expr]:
    found = {}
    for name, parts in SHARES.items():
        size = (pl.len().cast(pl.Int64) // parts).clip(lower_bound=1)
        for end, value in (("lowest", pl.col("pvi_bits")), ("highest", -pl.col("pvi_bits").reverse())):
            correct = pl.col("correct").reverse() if end == "highest" else pl.col("correct")
            border = value.get(size - 1)
            inside, at = value < border, value == border
            room = size - inside.sum()
            right = correct.filter(inside).sum() + room * correct.filter(at).mean()
            found[f"{end}_{name}_accuracy"] = right / size
            found[f"{end}_{name}_tied"] = pl.when(at.sum() > room).then(at.sum()).otherwise(0)
    return found


def _v_information(pvi: pl.DataFrame) -> pl.DataFrame:
    """v_information, ci_low and ci_high: a mean over independent queries, with Student's interval."""
    known = pvi.filter(pl.col("pvi_bits").is_not_null())
    n, value = pl.len(), pl.col("pvi_bits")
    means = known.group_by(PVI_RUN, maintain_order=True).agg(
        value=value.mean(),
        standard_error=value.std() / n.sqrt(),
        degrees_of_freedom=(n.cast(pl.Float64) - 1),
        n_queries=n.cast(pl.Float64),
    )
    bounds = means.with_columns(
        interval=pl.lit("symmetric"), lowest=pl.lit(-float("inf")), highest=pl.lit(float("inf"))
    )
    return with_intervals(bounds).select(*PVI_RUN, "ci_low", "ci_high", v_information="value")
