"""The numbers that Yauney & Mimno 2024 print, next to the recomputed ones."""

from collections.abc import Iterator

import polars as pl

from evaluator.random_baselines.max_random import max_random_accuracy
from evaluator.reproductions.cells import CELL, JUDGED, PRINTED, printed_cells, printed_tables, with_verdicts
from evaluator.reproductions.yauney_mimno_2024.rules import RELEASED
from evaluator.reproductions.yauney_mimno_2024.tasks import STATED_PROMPTS

PUBLISHED_CELLS = pl.Schema(  # one row a number that the paper prints
    {
        **PRINTED,
        "recomputed": pl.Float64(),  # null where it is not in the data, or undefined
        **JUDGED,
    }
)

PREDICTORS = ("standard", "max")
SCORES = {"3": ("accuracy", "precision", "recall", "auroc", "aupr"), "4": ("auroc", "aupr")}
"""Table of held-out trials -> its scores, each for both predictors, after the share of trials above standard."""

SECTION_4 = "n = 100, two choices, best of 10"
"""Row of the sentence "A dataset of n = 100 examples has an expected max accuracy of 0.575 after only t = 10
evaluations."."""

TABLES = printed_tables("yauney_mimno_2024")

NOTES = {
    "2": "The results of models that were not quantised are not released.",
    "section 4": "By equation 8; the number in the text is not what the equation gives: unexplained.",
}
"""Table -> note on its cells that are not equal to the recomputed ones."""

Cell = tuple[str, str, str, float | None]


def judged_cells(experiments: pl.DataFrame, totals: pl.DataFrame, held_out: pl.DataFrame) -> pl.DataFrame:
    """Return PUBLISHED_CELLS, in the order of TABLES.

    Args:
        experiments, totals, held_out: PUBLISHED_EXPERIMENTS, PUBLISHED_TOTALS and PUBLISHED_HELD_OUT. Tables 3 and 4
            are scores of the authors' own verdicts, which held_out has from their files.
    """
    expected = float(max_random_accuracy(100, 0.5, 10))
    recomputed: list[Cell] = [("section 4", SECTION_4, "expected best accuracy", expected)]
    recomputed += [*_totals(totals), *_disagreements(experiments), *_held_out(held_out)]
    types = dict.fromkeys(CELL, pl.String()) | {"recomputed": pl.Float64()}
    cells = pl.DataFrame(recomputed, schema=types, orient="row").with_columns(input_reach=0.0)
    table, verdict = pl.col("table"), pl.col("verdict")
    note = table.replace_strict(NOTES, default="Unexplained.", return_dtype=pl.String)
    judged = with_verdicts(printed_cells(TABLES, decimals=2), cells)
    noted = judged.with_columns(note=pl.when((verdict == "differs") | (table == "2")).then(note))
    return noted.select(list(PUBLISHED_CELLS)).cast(PUBLISHED_CELLS)


def _totals(totals: pl.DataFrame) -> Iterator[Cell]:
    row = totals.filter(rules=RELEASED.name).row(0, named=True)
    names = ("n_experiments", "above_standard", "above_max", "disagreements", "flipped_share")
    for column, name in zip(TABLES[1].columns, names, strict=True):
        yield "section 5.1", "all", column, float(row[name])


def _disagreements(experiments: pl.DataFrame) -> Iterator[Cell]:
    counted = experiments.with_columns(between=pl.col("released_verdict") == "between")
    for group in (pl.col("dataset"), pl.format("{}, {}-shot", "model", "shots")):
        for row, n in (
            counted.group_by(group.alias("row"), maintain_order=True).agg(pl.col("between").sum()).iter_rows()
        ):
            yield "1", row, "disagreements", float(n)


def _held_out(held_out: pl.DataFrame) -> Iterator[Cell]:
    authors = held_out.filter(pl.col("predictor").is_in(PREDICTORS), splits="authors'", tries=STATED_PROMPTS)
    for table, over in (("3", ("model", "all")), ("4", ("dataset",))):
        for row in authors.filter(pl.col("over").is_in(over)).to_dicts():
            if row["predictor"] == PREDICTORS[0]:
                yield table, row["group"], "share above", row["held_out_share"]
            for score in SCORES[table]:
                yield table, row["group"], f"{score}, {row['predictor']}", row[score]
