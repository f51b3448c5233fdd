"""Recompute the published numbers of in-context PVI (Lu et al. 2023) from the released results.

Also try rules by which the printed cells may have been computed. Where the paper does not say which runs or
correlations a cell summarises, the rule in use was chosen because it gives the printed cells: it is fitted to them. The
table PUBLISHED_TRIED says how many cells of a row every tried rule gives.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from scipy.special import fdtri

from evaluator.arrays import Bools, Floats
from evaluator.progress import Progress, Stage
from evaluator.reproductions.base import Tables, text_table
from evaluator.reproductions.cells import JUDGED, PRINTED, TOLERANCE, verdict_counts, with_verdicts
from evaluator.reproductions.lu_2023 import data
from evaluator.schemas import declare
from evaluator.statistics.correlation import correlation_p
from evaluator.statistics.variance_components import ONE_WAY, groups_of, one_way_by, one_way_reach
from evaluator.suites.in_context_pvi.correlations import strengths
from evaluator.suites.in_context_pvi.schema import PVI_STRENGTHS

HALF_UNIT = 0.5e-4
"""Largest rounding error of released run means, which have four decimals."""

STRENGTHS = dict(zip(data.CORRELATION, ("mean", "median", "strong_share", "weak_share"), strict=True))
PUBLISHED_CASES = "the paper's models; pairs of sets averaged first"
ALL_CASES = "all models; pairs of sets averaged first"
PAIRS = "the paper's models; every pair by itself"
PUBLISHED_DIFFERENCES = declare(  # figure 2 of the paper: one row per model, means over its runs
    model=pl.String(),
    n_runs=pl.Int64(),
    # Accuracy of the fifth (half) of queries with the highest PVI minus that of the fifth (half) with the lowest PVI:
    fifth_difference=pl.Float64(),
    half_difference=pl.Float64(),
)
PUBLISHED_STRENGTHS = declare(
    variable=pl.String(),  # "Exemplars": across demonstration sets | "Shots": across numbers of shots
    counted=pl.String(),  # which models are included, and what counts as one case
    **PVI_STRENGTHS,
)
PUBLISHED_ANOVA = declare(
    dataset=pl.String(),
    model=pl.String(),
    **ONE_WAY,
    f_reach=pl.Float64(),  # largest error of F that the rounding of run means can cause, to first order
    p_reach=pl.Float64(),  # largest such error of p
    f_needed=pl.Float64(),  # F at which p = 0.05
)

PUBLISHED_CELLS = declare(  # one row per cell of the paper's tables
    **PRINTED,
    recomputed=pl.Float64(),  # null where the data have no such run
    input_reach=pl.Float64(),  # largest error of `recomputed` that the rounding of released numbers can cause
    all_rows=pl.Float64(),  # the same number when no run or row is left out
    **JUDGED,
)
USED_RULES = {
    ("14(a)", "BoolQ"): "without GPT3-175B, more shots alone",
    **{("14(a)", row): "without GPT3-175B" for row in ("CoLA", "MultiNLI", "RTE", "SNLI")},
    **{("7", row): "set 1a alone" for row in ("CoLA", "MultiNLI", "SNLI")},
}
"""Table and row -> rule of tried_rules by which the row is recomputed, if it is not the most direct reading.

The paper does not state these rules; they were chosen because they give the printed cells."""


class Published(NamedTuple):
    """The recomputed tables, and the released results from which they are computed."""

    tables: Tables
    results: data.PublishedResults


def recompute(results: data.PublishedResults) -> Stage[Published]:
    """Compute the cells of the paper's tables from the released results, and compare them with the printed ones."""
    yield Progress(stage="Recomputing", done=0, total=len(data.TABLES), unit="tables")
    runs, is_gpt3, every_run = results.runs, pl.col("model") == data.GPT3, pl.lit(True)
    strengths_table, anova_table = _strengths(results), _anova(runs.filter(~is_gpt3))
    # The runs that table 14(a) averages, by the fitted rules in USED_RULES.
    in_table_14a = ~is_gpt3 & ~((pl.col("dataset") == "BoolQ") & (pl.col("n_shots") == 2))
    size = pl.col("n_queries").max().cast(pl.Float64)
    sizes = runs.filter(~is_gpt3).group_by(row="dataset").agg(size.alias("testing set size"))
    by_variable = strengths_table.select("counted", row="variable", **STRENGTHS)
    shares = (by_variable.filter(counted=cases).drop("counted") for cases in (PUBLISHED_CASES, ALL_CASES))
    multinli = anova_table.filter(dataset="MultiNLI")
    recomputed = pl.concat(
        [
            _run_means("1", "dataset", runs, is_gpt3, all_runs=is_gpt3),
            _run_means("14(a)", "dataset", runs, in_table_14a, all_runs=every_run),
            _run_means("14(b)", "model", runs, every_run, all_runs=every_run),
            _cells("2", *shares),
            _anova_cells("15", anova_table.with_columns(row=pl.format("{}, {}", "dataset", "model"))),
            _anova_cells("3", multinli.with_columns(row="model")),
            # Table 7 has randomly drawn demonstrations (set 1a); runs with chosen demonstrations are not released.
            _run_means("7", "dataset", runs, is_gpt3 & (pl.col("demonstration_set") == "1a"), all_runs=is_gpt3),
            _cells("9", sizes, sizes),
        ]
    )
    counts = strengths_table.filter(counted=PUBLISHED_CASES).select(pl.lit("2").alias("table"), "n", row="variable")
    tried = tried_rules(results)
    cells = judged_cells(recomputed, counts, tried)
    tables = {
        "cells": cells,
        "totals": verdict_counts(cells),
        "strengths": strengths_table,
        "anova": anova_table,
        "tried_rules": tried,
        "differences": _differences(runs),
    }
    yield Progress(stage="Recomputing", done=len(data.TABLES), total=len(data.TABLES), unit="tables")
    return Published(tables, results)


def _run_means(table: str, row: str, runs: pl.DataFrame, included: pl.Expr, *, all_runs: pl.Expr) -> pl.DataFrame:
    """Return the cells of a table of means over runs: over `included` runs, and over `all_runs` for comparison.

    All runs have the same weight, whatever their number of queries.
    """
    means = [pl.col(name).mean().alias(column) for column, name in data.MEANS.items()]
    recomputed, all_rows = (runs.filter(counted).group_by(row=row).agg(means) for counted in (included, all_runs))
    return _cells(table, recomputed, all_rows, HALF_UNIT)


def _strengths(results: data.PublishedResults) -> pl.DataFrame:
    """Return PUBLISHED_STRENGTHS for every way to count cases, the paper's way first."""
    counted = [
        strengths(rows.with_columns(variable=pl.lit(variable), counted=pl.lit(how)), by=["variable", "counted"])
        for variable, frame in (("Exemplars", results.across_sets), ("Shots", results.across_shots))
        for how, rows in _cases(frame).items()
    ]
    return pl.concat(counted).select(list(PUBLISHED_STRENGTHS)).cast(PUBLISHED_STRENGTHS)


def _cases(frame: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Return way to count cases -> rows, with one correlation per row."""
    named = frame.filter(~pl.col("model").is_in(list(data.NOT_IN_PAPER.values())))
    cases = {PUBLISHED_CASES: named, ALL_CASES: frame}
    if frame.schema["r"] == pl.Float64:
        return cases
    averaged = {how: rows.with_columns(pl.col("r").list.mean()) for how, rows in cases.items()}
    return averaged | {PAIRS: named.explode("r")}


def _anova(runs: pl.DataFrame) -> pl.DataFrame:
    """Return PUBLISHED_ANOVA: one-way analyses of the mean PVI of right predictions, with one value per run."""
    case = ["dataset", "model"]
    columns = {"condition": "demonstration_set", "value": "right_pvi"}
    finite = runs.filter(pl.col("right_pvi").is_finite()).sort(*case, "demonstration_set")
    table = one_way_by(finite, by=case, **columns)
    # Partitions are in the order of the rows of `table`.
    cases = [groups_of(rows, **columns) for rows in finite.partition_by(case)]
    reach = pl.DataFrame([one_way_reach(groups, HALF_UNIT) for groups in cases], ["f_reach", "p_reach"], orient="row")
    needed = fdtri(table["df_between"].to_numpy(), table["df_within"].to_numpy(), 0.95)
    return table.hstack(reach).with_columns(f_needed=needed).cast(PUBLISHED_ANOVA)


def _anova_cells(table: str, anova: pl.DataFrame) -> pl.DataFrame:
    """Return the cells of a table of F and p.

    Args:
        table: number of the table.
        anova: PUBLISHED_ANOVA with a column `row`, the printed names of the rows.
    """
    columns = (("f", "p"), ("f_reach", "p_reach"))
    tests, reach = (anova.select("row", **dict(zip(data.ANOVA, names, strict=True))) for names in columns)
    return _cells(table, tests, tests, reach)


def _differences(runs: pl.DataFrame) -> pl.DataFrame:
    """Return PUBLISHED_DIFFERENCES; all runs of a model have the same weight."""
    columns = {
        f"{part}_difference": (pl.col(f"highest_{part}_accuracy") - pl.col(f"lowest_{part}_accuracy")).mean()
        for part in ("fifth", "half")
    }
    by_model = runs.group_by("model").agg(n_runs=pl.len(), **columns).sort("model")
    return by_model.select(PUBLISHED_DIFFERENCES.names()).cast(PUBLISHED_DIFFERENCES)


def _cells(
    table: str, recomputed: pl.DataFrame, all_rows: pl.DataFrame, reach: float | pl.DataFrame = 0.0
) -> pl.DataFrame:
    """Return one row per cell of a table: row, column, recomputed, input_reach, all_rows, table.

    Args:
        table: number of the table.
        recomputed: recomputed numbers: the column `row` and the columns of the printed table.
        all_rows: the numbers when no run or correlation is left out, in the same form; has every row.
        reach: the largest errors of `recomputed` that the rounding of released numbers can cause: one number for all
            cells, or a frame in the same form.
    """
    if not isinstance(reach, pl.DataFrame):
        reach = all_rows.select("row", *(pl.lit(reach).alias(column) for column in all_rows.columns if column != "row"))
    frames = {"all_rows": all_rows, "recomputed": recomputed, "input_reach": reach}
    cells = pl.concat(
        frame.unpivot(index="row", variable_name="column").with_columns(number=pl.lit(name))
        for name, frame in frames.items()
    ).pivot("number", on_columns=[*frames], index=["row", "column"], values="value")
    return cells.select("row", "column", "recomputed", "input_reach", "all_rows", table=pl.lit(table))


def judged_cells(recomputed: pl.DataFrame, counts: pl.DataFrame, tried: pl.DataFrame) -> pl.DataFrame:
    """Return PUBLISHED_CELLS, in the paper's order.

    Args:
        recomputed: columns table, row, column, recomputed, input_reach, all_rows.
        counts: columns table, row, n, the number of cases of which the row prints shares.
        tried: PUBLISHED_TRIED.
    """
    cells = with_verdicts(data.PRINTED_CELLS, recomputed)
    cells = cells.join(counts, on=["table", "row"], how="left", maintain_order="left")
    rules = tried.partition_by("table", "row", as_dict=True)
    none = PUBLISHED_TRIED.to_frame()
    notes = [" ".join(_notes(cell, rules.get((cell["table"], cell["row"]), none))) for cell in cells.to_dicts()]
    noted = cells.with_columns(note=pl.Series([note or None for note in notes], dtype=pl.String))
    return noted.select(list(PUBLISHED_CELLS)).cast(PUBLISHED_CELLS)


def _notes(cell: Mapping[str, Any], tried: pl.DataFrame) -> Iterator[str]:
    """Yield the notes on a cell.

    Args:
        cell: PUBLISHED_CELLS without `note`, with `n`.
        tried: PUBLISHED_TRIED of the cell's row.
    """
    if cell["verdict"] == "not printed":
        yield "The transcription of this table has no numbers in this row."
    used = USED_RULES.get((cell["table"], cell["row"]))
    if used is not None and not tried.is_empty() and cell["recomputed"] is not None:
        plain = EVERY_RUN if cell["table"] == "14(a)" else MEAN_OVER_SETS
        n_equal = dict(tried.select("rule", "n_equal").iter_rows())
        yield (
            f"Fitted, the paper does not say it: {used} gives {n_equal.get(used, 0)} of {tried['n_printed'][0]} cells "
            f"of this row, {plain} {n_equal.get(plain, 0)}."
        )
    if cell["verdict"] == "differs":
        yield from _unexplained(cell, tried)
    if cell["verdict"] == "within rounding":
        yield "Run means are released to four decimals, which is not enough to compute this cell more precisely."
        units = (cell["recomputed"] - cell["published"]) * 10.0 ** cell["decimals"]
        if 0 <= units <= 1 and cell["published"] > 0:
            yield "The printed digits are those of a truncated number, while other cells are rounded."


def _unexplained(cell: Mapping[str, Any], tried: pl.DataFrame) -> Iterator[str]:
    """Yield the notes on a cell that differs: its counts, rules that give it, and numbers of queries that fit p-values.

    Args:
        cell, tried: as for _notes.
    """
    if cell["column"].startswith("r "):
        n, ours, printed = cell["n"], *(round(cell[name] * cell["n"]) for name in ("recomputed", "published"))
        yield f"{ours} of {n} cases; the printed share comes closest to {printed} of {n}."
    is_fit = pl.col("rule").str.starts_with(FIT)
    rules = tried.filter(~is_fit)
    if rules.is_empty():
        yield "Unexplained; no other rule was tried."
    else:
        gives_cell = rules["equal_columns"].str.split("; ").list.contains(cell["column"]).sum()
        whole = rules.filter(pl.col("n_equal") == pl.col("n_printed"))
        gives_table = (whole["n_equal_elsewhere"] == whole["n_printed_elsewhere"]).sum()
        yield (
            f"Unexplained: of {rules.height:,} rules tried for this row (table tried_rules), {gives_cell:,} give this "
            f"cell, {whole.height:,} the whole row and {gives_table:,} the whole table."
        )
    fits = tried.filter(is_fit, pl.col("n") > 0).select("rule", "n_equal", "n").iter_rows()
    if sizes := [f"{n_equal} of {n} released {rule}" for rule, n_equal, n in fits]:
        yield f"{'; '.join(sizes)}."


def all_tables(published: Published) -> pl.DataFrame:
    """Return the counts summed over all tables, one row: cells.COUNTS."""
    return published.tables["totals"].select(pl.lit("all").alias("table"), pl.exclude("table").sum())


def summary_lines(published: Published) -> Iterator[str]:
    """Yield the counts of cells by verdict, for each table and in total, then the cells that differ."""
    tables, sums = published.tables, all_tables(published)
    headings = [name.removeprefix("n_").replace("_", " ") for name in sums.columns[1:]]
    yield from text_table([("Table", *headings), *tables["totals"].rows(), *sums.rows()])
    yield f"{sums['equal'][0]} of {sums['n_printed'][0]} cells are equal to the paper's, to the printed decimals."
    for cell in tables["cells"].filter(verdict="differs").iter_rows(named=True):
        recomputed, printed = (f"{cell[name]:.{cell['decimals']}f}" for name in ("recomputed", "published"))
        note = f" {cell['note']}" if cell["note"] else ""
        yield f"Table {cell['table']}, {cell['row']}, {cell['column']}: {recomputed}, printed {printed}.{note}"


PUBLISHED_TRIED = declare(  # one row per row of a printed table and rule that was tried for it
    table=pl.String(),
    row=pl.String(),
    rule=pl.String(),  # which runs or correlations are used, and how they are read
    n=pl.Int64(),  # number of runs or correlations that the rule uses
    n_printed=pl.Int64(),  # printed cells of the row; for rules about p-values, the p-values that can be compared
    n_equal=pl.Int64(),  # printed cells that are equal to the printed decimals; p-values that fit
    equal_columns=pl.String(),  # columns of the equal cells
    # The same two counts for the other rows of the table, by the same rule; if the rule has several readings of pairs,
    # by the reading with the highest counts in a row.
    n_printed_elsewhere=pl.Int64(),
    n_equal_elsewhere=pl.Int64(),
)

EVERY_RUN, MEAN_OVER_SETS = "every run", "mean over sets"
FIT = "p-values fit"  # first words of the name of a rule about p-values

ALONE = "every pair by itself"

OVER_PAIRS: dict[str, Callable[[Floats], float]] = {
    "mean over pairs": lambda pairs: float(pairs.mean()),
    "median over pairs": lambda pairs: float(np.median(pairs)),
    "lowest of the pairs": lambda pairs: float(pairs.min()),
    "highest of the pairs": lambda pairs: float(pairs.max()),
    "Fisher's z over pairs": lambda pairs: float(np.tanh(np.mean(np.arctanh(np.clip(pairs, -1 + 1e-15, 1 - 1e-15))))),
}
"""Name of a reading -> function that combines the correlations of all pairs of demonstration sets into one number."""


def _decimals(cut: Callable[[Floats], Floats], n_decimals: int, r: Floats) -> Floats:
    return cut(r * 10.0**n_decimals) / 10.0**n_decimals


DIGITS: dict[str, Callable[[Floats], Floats]] = {
    "as released": lambda r: r,
    "absolute": np.abs,
    **{f"rounded to {n} decimals": partial(_decimals, np.round, n) for n in (1, 2, 3, 4)},
    **{f"cut to {n} decimals": partial(_decimals, np.trunc, n) for n in (1, 2, 3, 4)},
}
"""Name of a reading -> function that changes the digits of correlations."""

LIMITS: dict[str, Callable[[Floats, Floats], tuple[Bools, Bools]]] = {
    "r > 0.6 and r < 0.3": lambda r, _: (r > 0.6, r < 0.3),
    "r >= 0.6 and r <= 0.3": lambda r, _: (r >= 0.6, r <= 0.3),
    "r > 0.6 and r < 0.3 with p < 0.05": lambda r, p: (r > 0.6, (r < 0.3) & (p < 0.05)),
}
"""Name of a pair of limits -> function of r and p that says which correlations are strong and which are weak."""

MIN_P = 1e-250  # smaller p-values have lost digits or are 0, and are not compared

PRINTED_NUMBERS: dict[tuple[object, ...], dict[str, tuple[float, int]]] = {
    key: {row["column"]: (row["published"], row["decimals"]) for row in rows.to_dicts()}
    for key, rows in data.PRINTED_CELLS.drop_nulls().partition_by("table", "row", as_dict=True).items()
}
"""Table and row -> column -> the printed number and its decimals."""

Row = tuple[str, str, str, int, int, int, str]  # a row of PUBLISHED_TRIED without the last two columns


def tried_rules(results: data.PublishedResults) -> pl.DataFrame:
    """Return PUBLISHED_TRIED: how many printed cells of every table row every tried rule gives."""
    rows = [*_run_rules(results.runs), *_correlation_rules(results)]
    rows += [*_exemplar_rules(results.runs), *_size_rules(results)]
    return _with_other_rows(pl.DataFrame(rows, schema=PUBLISHED_TRIED.names()[:7], orient="row")).cast(PUBLISHED_TRIED)


def _with_other_rows(tried: pl.DataFrame) -> pl.DataFrame:
    """Add n_printed_elsewhere and n_equal_elsewhere: the counts of the same rule in the other rows of its table."""
    # Rules that differ only in the reading of pairs have the same key, because only one row of table 2 has pairs.
    readings = [f", {reading}" for reading in (*OVER_PAIRS, ALONE)]
    keyed = tried.with_columns(key=pl.col("rule").str.replace_many(readings, [""] * len(readings)))
    # A row counts once per key, with its highest counts.
    counts = pl.col("n_printed", "n_equal")
    best = keyed.group_by("table", "row", "key").agg(counts.max())
    elsewhere = counts.sum().over("table", "key") - counts
    others = best.select("table", "row", "key", elsewhere.name.suffix("_elsewhere"))
    return keyed.join(others, on=["table", "row", "key"], how="left", maintain_order="left").drop("key")


def _judged(table: str, row: str, rule: str, n: int, values: Mapping[str, float]) -> Row:
    """Compare the numbers that a rule gives with the printed cells of a row.

    Args:
        n: number of runs or correlations that the rule uses.
        values: printed column -> number that the rule gives.
    """
    cells = PRINTED_NUMBERS[table, row]
    equal = [
        column
        for column, (number, decimals) in cells.items()
        if column in values and abs(values[column] - number) <= 0.5 * 10.0**-decimals + TOLERANCE
    ]
    return table, row, rule, n, len(cells), len(equal), "; ".join(equal)


def _run_rules(runs: pl.DataFrame) -> Iterator[Row]:
    """Yield the comparisons of tables 1 and 14 with means over subsets of the runs."""
    is_gpt3, fewest = pl.col("model") == data.GPT3, pl.col("n_shots") == pl.col("n_shots").min().over("dataset")
    models = {"": pl.lit(True), f"without {data.GPT3}": ~is_gpt3, f"{data.GPT3} alone": is_gpt3}
    shots = {"": pl.lit(True), "fewer shots alone": fewest, "more shots alone": ~fewest}
    sets = {"": pl.lit(True)} | {
        f"set {name} alone": pl.col("demonstration_set") == name for name in sorted({*runs["demonstration_set"]})
    }
    for names in product(models, shots, sets):
        kept = runs.filter(models[names[0]] & shots[names[1]] & sets[names[2]])
        rule = ", ".join(filter(None, names)) or EVERY_RUN
        for table, column in (("1", "dataset"), ("14(a)", "dataset"), ("14(b)", "model")):
            yield from _mean_rules(table, column, rule, kept)


def _mean_rules(table: str, column: str, rule: str, runs: pl.DataFrame) -> Iterator[Row]:
    """Yield the comparisons of the rows of a table with means over runs; `column` has the names of the rows."""
    for (row,), rows in runs.partition_by(column, as_dict=True, maintain_order=True).items():
        if (table, row) in PRINTED_NUMBERS:
            values = {name: float(rows[source].to_numpy().mean()) for name, source in data.MEANS.items()}
            yield _judged(table, str(row), rule, rows.height, values)


def _correlation_rules(results: data.PublishedResults) -> Iterator[Row]:
    """Yield the comparisons of table 2 with subsets of the correlations, read in several ways."""
    for row, frame in (("Exemplars", results.across_sets), ("Shots", results.across_shots)):
        for cases, kept in _parts(frame):
            for reading, r, p in _readings(kept):
                for digits, limit in product(DIGITS, LIMITS):
                    rule = ", ".join(filter(None, (cases, reading, digits, limit)))
                    read = DIGITS[digits](r)
                    strong, weak = LIMITS[limit](read, p)
                    numbers = (float(read.mean()), float(np.median(read)), float(strong.mean()), float(weak.mean()))
                    yield _judged("2", row, rule, len(r), dict(zip(data.CORRELATION, numbers, strict=True)))


def _parts(frame: pl.DataFrame) -> Iterator[tuple[str, pl.DataFrame]]:
    """Yield subsets of the correlations: of the paper's models and of all models, complete and without one value.

    The omitted value is a dataset, a model, or a number of shots or demonstration set.
    """
    named = frame.filter(~pl.col("model").is_in(list(data.NOT_IN_PAPER.values())))
    for name, rows in (("the paper's models", named), ("all models", frame)):
        yield name, rows
        for column in ("dataset", "model", *({"n_shots", "demonstration_set"} & {*rows.columns})):
            for value in rows[column].unique().sort():
                kept = rows.filter(pl.col(column) != value)
                if not kept.is_empty():
                    yield f"{name} without {column} {value}", kept


def _readings(rows: pl.DataFrame) -> Iterator[tuple[str, Floats, Floats]]:
    """Yield the ways to read the correlations: name, and arrays of r and p with one entry per case."""
    if rows.schema["r"] == pl.Float64:
        yield "", rows["r"].to_numpy(), rows["p"].to_numpy()
        return
    mean_p = np.array([np.mean(p) for p in rows["p"].to_list()])
    for name, combine in OVER_PAIRS.items():
        yield name, np.array([combine(np.array(pairs)) for pairs in rows["r"].to_list()]), mean_p
    pairs = rows.explode("r", "p")
    yield ALONE, pairs["r"].to_numpy(), pairs["p"].to_numpy()


def _exemplar_rules(runs: pl.DataFrame) -> Iterator[Row]:
    """Yield the comparisons of table 7 with the accuracy of GPT3-175B: mean over sets, and for single sets."""
    gpt3 = runs.filter(model=data.GPT3)
    yield from _mean_rules("7", "dataset", MEAN_OVER_SETS, gpt3)
    for name in sorted({*gpt3["demonstration_set"]}):
        yield from _mean_rules("7", "dataset", f"set {name} alone", gpt3.filter(demonstration_set=name))


def _size_rules(results: data.PublishedResults) -> Iterator[Row]:
    """Yield the comparisons of table 9 with numbers of queries of runs, and the counts of p-values that fit them."""
    by_dataset = results.runs.filter(pl.col("model") != data.GPT3).partition_by("dataset", as_dict=True)
    for (dataset,), runs in by_dataset.items():
        if ("9", dataset) not in PRINTED_NUMBERS:
            continue
        ((column, (size, _)),) = PRINTED_NUMBERS["9", dataset].items()
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
    """Return the number of p-values that correlations over n queries give, and of p-values that can be compared.

    Args:
        r, p: correlations and their released p-values.
        n: number of queries of the correlations.
    """
    usable = (p > MIN_P) & (p < 1) & (np.abs(r) < 1)
    return int(np.isclose(correlation_p(r[usable], n), p[usable], rtol=1e-3, atol=0).sum()), int(usable.sum())
