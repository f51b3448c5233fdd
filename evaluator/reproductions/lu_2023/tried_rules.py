"""Try rules by which the printed cells of Lu et al. 2023 may have been computed, on the released results at hand.

Where the paper does not say which runs or correlations a cell is over, the rule in use was chosen because it gives the
printed cells: it is fitted to them. This table says of every rule that was tried how many cells of a row it gives.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import product

import numpy as np
import polars as pl

from evaluator.arrays import Bools, Floats
from evaluator.reproductions.cells import TOLERANCE
from evaluator.reproductions.lu_2023.data import CORRELATION, GPT3, MEANS, NOT_IN_PAPER, PRINTED_CELLS, PublishedResults
from evaluator.schemas import declare
from evaluator.statistics.correlation import correlation_p

PUBLISHED_TRIED = declare(  # one row a row of a printed table and a rule that was tried for it
    table=pl.String(),
    row=pl.String(),
    rule=pl.String(),  # which runs or correlations, and how they are read
    n=pl.Int64(),  # runs or correlations that the rule is over
    n_printed=pl.Int64(),  # printed cells of the row; in rules about p-values, the p-values that can be compared
    n_equal=pl.Int64(),  # printed cells that are equal, to the printed decimals
    equal_columns=pl.String(),  # which ones
    # The same of the other rows of the table, by the same rule; if it has several readings of pairs, by the best.
    n_printed_elsewhere=pl.Int64(),
    n_equal_elsewhere=pl.Int64(),
)

EVERY_RUN, MEAN_OVER_SETS = "every run", "mean over sets"
FIT = "p-values fit"  # how rules about p-values begin

ALONE = "every pair by itself"

PAIRS: dict[str, Callable[[Floats], float]] = {
    "mean over pairs": lambda pairs: float(pairs.mean()),
    "median over pairs": lambda pairs: float(np.median(pairs)),
    "lowest of the pairs": lambda pairs: float(pairs.min()),
    "highest of the pairs": lambda pairs: float(pairs.max()),
    "Fisher's z over pairs": lambda pairs: float(np.tanh(np.mean(np.arctanh(np.clip(pairs, -1 + 1e-15, 1 - 1e-15))))),
}
"""How the correlations of the pairs of demonstration sets become one number."""


def _decimals(cut: Callable[[Floats], Floats], n_decimals: int, r: Floats) -> Floats:
    return cut(r * 10.0**n_decimals) / 10.0**n_decimals


DIGITS: dict[str, Callable[[Floats], Floats]] = {
    "as released": lambda r: r,
    "absolute": np.abs,
    **{f"rounded to {n} decimals": partial(_decimals, np.round, n) for n in (1, 2, 3, 4)},
    **{f"cut to {n} decimals": partial(_decimals, np.trunc, n) for n in (1, 2, 3, 4)},
}
"""How the digits of a correlation are read."""

LIMITS: dict[str, Callable[[Floats, Floats], tuple[Bools, Bools]]] = {
    "r > 0.6 and r < 0.3": lambda r, _: (r > 0.6, r < 0.3),
    "r >= 0.6 and r <= 0.3": lambda r, _: (r >= 0.6, r <= 0.3),
    "r > 0.6 and r < 0.3 with p < 0.05": lambda r, p: (r > 0.6, (r < 0.3) & (p < 0.05)),
}
"""Which correlations are strong, and which are weak."""

MIN_P = 1e-250  # smaller p-values have lost digits or are 0

PRINTED: dict[tuple[object, ...], dict[str, tuple[float, int]]] = {
    key: {row["column"]: (row["published"], row["decimals"]) for row in rows.to_dicts()}
    for key, rows in PRINTED_CELLS.drop_nulls().partition_by("table", "row", as_dict=True).items()
}
"""Table and row -> column -> the printed number and its decimals."""

Row = tuple[str, str, str, int, int, int, str]  # of PUBLISHED_TRIED, without the last two columns


def tried_rules(results: PublishedResults) -> pl.DataFrame:
    """Return PUBLISHED_TRIED: table, row and rule, and how many printed cells of the row the rule gives."""
    rows = [*_run_rules(results.runs), *_correlation_rules(results)]
    rows += [*_exemplar_rules(results.runs), *_size_rules(results)]
    return _with_other_rows(pl.DataFrame(rows, schema=PUBLISHED_TRIED.names()[:7], orient="row")).cast(PUBLISHED_TRIED)


def _with_other_rows(tried: pl.DataFrame) -> pl.DataFrame:
    """Add how many printed cells the same rule gives in the other rows of its table."""
    readings = [f", {reading}" for reading in (*PAIRS, ALONE)]
    keyed = tried.with_columns(key=pl.col("rule").str.replace_many(readings, [""] * len(readings)))
    best = keyed.group_by("table", "row", "key").agg(pl.col("n_printed").first(), pl.col("n_equal").max())
    whole = best.group_by("table", "key").agg(printed=pl.col("n_printed").sum(), equal=pl.col("n_equal").sum())
    rows = keyed.join(best, on=["table", "row", "key"], suffix="_best", maintain_order="left")
    rows = rows.join(whole, on=["table", "key"], maintain_order="left")
    return rows.select(
        *tried.columns,
        n_printed_elsewhere=pl.col("printed") - pl.col("n_printed_best"),
        n_equal_elsewhere=pl.col("equal") - pl.col("n_equal_best"),
    )


def _judged(table: str, row: str, rule: str, n: int, values: Mapping[str, float]) -> Row:
    """Compare what a rule gives with the printed cells of a row."""
    cells = PRINTED[table, row]
    equal = [
        column
        for column, (number, decimals) in cells.items()
        if column in values and abs(values[column] - number) <= 0.5 * 10.0**-decimals + TOLERANCE
    ]
    return table, row, rule, n, len(cells), len(equal), "; ".join(equal)


def _run_rules(runs: pl.DataFrame) -> Iterator[Row]:
    """Yield means over parts of the runs, for the rows of tables 1 and 14."""
    is_gpt3, fewest = pl.col("model") == GPT3, pl.col("n_shots") == pl.col("n_shots").min().over("dataset")
    models = {"": pl.lit(True), f"without {GPT3}": ~is_gpt3, f"{GPT3} alone": is_gpt3}
    shots = {"": pl.lit(True), "fewer shots alone": fewest, "more shots alone": ~fewest}
    sets = {"": pl.lit(True)} | {
        f"set {name} alone": pl.col("demonstration_set") == name for name in sorted({*runs["demonstration_set"]})
    }
    for names in product(models, shots, sets):
        kept = runs.filter(models[names[0]] & shots[names[1]] & sets[names[2]])
        rule = ", ".join(filter(None, names)) or EVERY_RUN
        for table, column in (("1", "dataset"), ("14(a)", "dataset"), ("14(b)", "model")):
            yield from _mean_rules(table, column, rule, kept)


def _mean_rules(
    table: str, column: str, rule: str, runs: pl.DataFrame, means: Mapping[str, str] = MEANS
) -> Iterator[Row]:
    """Yield the means over runs for the rows of a table; `column` has the names of its rows."""
    for (row,), rows in runs.partition_by(column, as_dict=True, maintain_order=True).items():
        if (table, row) in PRINTED:
            values = {name: float(rows[source].to_numpy().mean()) for name, source in means.items()}
            yield _judged(table, str(row), rule, rows.height, values)


def _correlation_rules(results: PublishedResults) -> Iterator[Row]:
    """Yield the shares of table 2 over parts of the correlations, read in several ways."""
    for row, frame in (("Exemplars", results.across_sets), ("Shots", results.across_shots)):
        for cases, kept in _parts(frame):
            for reading, r, p in _readings(kept):
                for digits, limit in product(DIGITS, LIMITS):
                    rule = ", ".join((cases, *filter(None, (reading,)), digits, limit))
                    read = DIGITS[digits](r)
                    strong, weak = LIMITS[limit](read, p)
                    numbers = (float(read.mean()), float(np.median(read)), float(strong.mean()), float(weak.mean()))
                    yield _judged("2", row, rule, len(r), dict(zip(CORRELATION, numbers, strict=True)))


def _parts(frame: pl.DataFrame) -> Iterator[tuple[str, pl.DataFrame]]:
    """Yield the correlations of the paper's models and of all models, whole and without one value of a column."""
    named = frame.filter(~pl.col("model").is_in(list(NOT_IN_PAPER.values())))
    for name, rows in (("the paper's models", named), ("all models", frame)):
        yield name, rows
        for column in ("dataset", "model", *({"n_shots", "demonstration_set"} & {*rows.columns})):
            for value in rows[column].unique().sort():
                kept = rows.filter(pl.col(column) != value)
                if not kept.is_empty():
                    yield f"{name} without {column} {value}", kept


def _readings(rows: pl.DataFrame) -> Iterator[tuple[str, Floats, Floats]]:
    """Yield each way to read the correlations: its name, r and p of the cases."""
    if rows.schema["r"] == pl.Float64:
        yield "", rows["r"].to_numpy(), rows["p"].to_numpy()
        return
    mean_p = np.array([np.mean(p) for p in rows["p"].to_list()])
    for name, combine in PAIRS.items():
        yield name, np.array([combine(np.array(pairs)) for pairs in rows["r"].to_list()]), mean_p
    pairs = rows.explode("r", "p")
    yield ALONE, pairs["r"].to_numpy(), pairs["p"].to_numpy()


def _exemplar_rules(runs: pl.DataFrame) -> Iterator[Row]:
    """Yield the accuracies of GPT3-175B with one demonstration set, and their mean, for table 7."""
    gpt3, accuracy = runs.filter(model=GPT3), {"random": "accuracy"}
    yield from _mean_rules("7", "dataset", MEAN_OVER_SETS, gpt3, accuracy)
    for name in sorted({*gpt3["demonstration_set"]}):
        yield from _mean_rules("7", "dataset", f"set {name} alone", gpt3.filter(demonstration_set=name), accuracy)


def _size_rules(results: PublishedResults) -> Iterator[Row]:
    """Yield numbers of queries of runs, and how many p-values of correlations fit the printed number, for table 9."""
    for (dataset,), runs in results.runs.filter(pl.col("model") != GPT3).partition_by("dataset", as_dict=True).items():
        if ("9", dataset) not in PRINTED:
            continue
        ((column, (size, _)),) = PRINTED["9", dataset].items()
        sizes = runs["n_queries"].to_numpy()
        for rule, number in (("most queries of a run", sizes.max()), ("fewest queries of a run", sizes.min())):
            yield _judged("9", str(dataset), rule, runs.height, {column: float(number)})
        pairs = results.across_sets.filter(dataset=dataset).explode("r", "p")
        r, p = pairs["r"].to_numpy(), pairs["p"].to_numpy()
        for rule, n in (
            (f"{FIT} {size:,.0f} queries, the printed size", size),
            (f"{FIT} {sizes.max():,} queries, the most of a run", sizes.max()),
        ):
            n_fit, n_usable = p_values_that_fit(r, p, float(n))
            yield "9", str(dataset), rule, n_usable, n_usable, n_fit, ""


def p_values_that_fit(r: Floats, p: Floats, n: float) -> tuple[int, int]:
    """Count the p-values that belong to their correlations over n queries, and the p-values that can be compared."""
    usable = (p > MIN_P) & (p < 1) & (np.abs(r) < 1)
    return int(np.isclose(correlation_p(r[usable], n), p[usable], rtol=1e-3, atol=0).sum()), int(usable.sum())
