"""Compare the numbers that the paper prints with the recomputed ones."""

import polars as pl

from evaluator.random_baselines.max_random import max_random_accuracy
from evaluator.reproductions.yauney_mimno_2024.paper import PREDICTORS, SECTION_4, printed_cells
from evaluator.reproductions.yauney_mimno_2024.rules import RELEASED
from evaluator.reproductions.yauney_mimno_2024.schema import PUBLISHED_CELLS
from evaluator.reproductions.yauney_mimno_2024.tasks import STATED_PROMPTS

TOLERANCE = 1e-9
"""Floating-point error of a number halfway between two printed ones."""

NOT_RELEASED = "The results of models that were not quantised are not released."
EQUATION_8 = "By equation 8; the number in the text is not what the equation gives: unexplained."
UNEXPLAINED = "Unexplained."

Cells = list[tuple[str, str, str, float]]


def judged_cells(experiments: pl.DataFrame, totals: pl.DataFrame, held_out: pl.DataFrame) -> pl.DataFrame:
    """Return PUBLISHED_CELLS, in the order of paper.py.

    Args:
        experiments, totals, held_out: PUBLISHED_EXPERIMENTS, PUBLISHED_TOTALS and PUBLISHED_HELD_OUT. Tables 3 and 4
            are scores of the authors' own verdicts, which held_out has from their files.
    """
    expected = float(max_random_accuracy(100, 0.5, 10))
    recomputed: Cells = [("section 4", SECTION_4, "expected best accuracy", expected)]
    recomputed += _totals(totals) + _disagreements(experiments) + _held_out(held_out)
    types = dict.fromkeys(("table", "row", "column"), pl.String) | {"recomputed": pl.Float64}
    cells = printed_cells().join(
        pl.DataFrame(recomputed, schema=types, orient="row"),
        on=["table", "row", "column"],
        how="left",
        maintain_order="left",
    )
    difference = (pl.col("recomputed") - pl.col("published")).abs()
    verdict = (
        pl.when(pl.col("published").is_null())
        .then(pl.lit("not printed"))
        .when(pl.col("recomputed").is_null())
        .then(pl.lit("not in the data"))
        .when(difference <= 0.5 * pl.lit(10.0).pow(-pl.col("decimals")) + TOLERANCE)
        .then(pl.lit("equal"))
        .otherwise(pl.lit("differs"))
    )
    differs, is_table_2 = pl.col("verdict") == "differs", pl.col("table") == "2"
    note = (
        pl.when(is_table_2)
        .then(pl.lit(NOT_RELEASED))
        .when(differs & (pl.col("table") == "section 4"))
        .then(pl.lit(EQUATION_8))
        .when(differs)
        .then(pl.lit(UNEXPLAINED))
    )
    return (
        cells.with_columns(verdict=verdict).with_columns(note=note).select(list(PUBLISHED_CELLS)).cast(PUBLISHED_CELLS)
    )


def _totals(totals: pl.DataFrame) -> Cells:
    row = totals.filter(rules=RELEASED.name).row(0, named=True)
    names = {
        "experiments": "n_experiments",
        "above standard": "above_standard",
        "above max": "above_max",
        "disagreements": "disagreements",
        "share of above": "flipped_share",
    }
    return [("section 5.1", "all", column, float(row[name])) for column, name in names.items()]


def _disagreements(experiments: pl.DataFrame) -> Cells:
    counted = experiments.with_columns(between=pl.col("released_verdict") == "between")
    by_task = counted.group_by("dataset", maintain_order=True).agg(pl.col("between").sum())
    name = pl.format("{}, {}-shot", "model", "shots")
    by_model = counted.group_by(name.alias("name"), maintain_order=True).agg(pl.col("between").sum())
    return [("1", str(row), "disagreements", float(n)) for table in (by_task, by_model) for row, n in table.iter_rows()]


def _held_out(held_out: pl.DataFrame) -> Cells:
    cells: Cells = []
    authors = held_out.filter(pl.col("predictor").is_in(PREDICTORS), splits="authors'", tries=STATED_PROMPTS)
    for table, over, scores in (
        ("3", ("model", "all"), ("accuracy", "precision", "recall", "auroc", "aupr")),
        ("4", ("dataset",), ("auroc", "aupr")),
    ):
        for row in authors.filter(pl.col("over").is_in(over)).to_dicts():
            if row["predictor"] == PREDICTORS[0]:
                cells.append((table, row["group"], "share above", row["held_out_share"]))
            cells += [
                (table, row["group"], f"{score}, {row['predictor']}", row[score])
                for score in scores
                if row[score] is not None and row[score] == row[score]
            ]
    return cells
