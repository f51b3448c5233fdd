"""Find where the four printed tables of Cho & Inoue 2025 contradict each other, and the possible causes."""

import math
from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any, TypeAlias

import polars as pl
from scipy.special import pdtrc

from evaluator.reproductions.cells import JUDGED, PRINTED, printed, with_verdicts
from evaluator.schemas import declare

CELLS = pl.Schema({**PRINTED, "recomputed": pl.Float64(), "input_reach": pl.Float64(), **JUDGED})
FINDINGS = declare(
    kind=pl.String(),  # "unit" | "cell" | "block" | "equal values" | "heading" | "caption"
    table=pl.String(),
    place=pl.String(),  # row, column, or both
    finding=pl.String(),  # description in one sentence
    cause=pl.String(),  # possible cause, or UNEXPLAINED
)
UNEXPLAINED = "unexplained"

APPENDIX_DECIMALS = 4
ROW = ["table", "method", "measure"]
BLOCK = ["table", "block", "model", "model_b"]
ROW_NAME = pl.concat_str("method", "measure", separator=", ", ignore_nulls=True)
Found: TypeAlias = tuple[str, str, str, str, str]
"""A row of FINDINGS."""

COMPARABLE = ({"Contextual Bias", "Domain Bias"}, {"Template Robust.", "Sample Robust."})
"""Groups of measures of table 7 with the same unit."""

CHANCE_LEVEL = 0.05
"""If chance gives at least so many equal values with at least this probability, chance is their cause."""

UNIT_CAUSES = {("%", 100): "percent in place of shares", ("/0.1", 10): "the slope is divided by 0.1"}
"""Part of a printed unit, and factor between the tables -> cause."""

PRINTED_TEXTS = printed("cho_inoue_2025")
"""Printed column headings, and the number of the main table that every caption of the appendix names."""


def findings(main: pl.DataFrame, appendix: pl.DataFrame) -> pl.DataFrame:
    """Return FINDINGS of all kinds.

    Args:
        main, appendix: the cells of tables 2 and 3, and of tables 7 and 8, from published.printed_tables.
    """
    cells, pairs = judged_cells(main, appendix), _equal_pairs(main, appendix)
    found = [
        *_units(main, appendix),
        *_differing(cells),
        *_blocks(pairs, dict(appendix.select("model", "parameters_b").iter_rows())),
        *_equal_values(pairs),
        *_equal_rows(appendix),
        *_headings(main, appendix),
        *_captions(main, appendix),
    ]
    return pl.DataFrame(found, schema=FINDINGS, orient="row")


def judged_cells(main: pl.DataFrame, appendix: pl.DataFrame) -> pl.DataFrame:
    """Compare every cell of tables 2 and 3 with the same cell of the appendix, in the unit of the main table: CELLS."""
    cells = _in_units(main, appendix)
    named = cells.select(
        row=ROW_NAME,
        column="model",
        table=pl.col("table").cast(pl.String),
        published="value",
        decimals="decimals",
        recomputed=pl.col("appendix") * pl.col("unit_factor"),
        input_reach=0.5 * 10.0**-APPENDIX_DECIMALS * pl.col("unit_factor"),
    )
    judged = with_verdicts(named.select(PRINTED.names()).cast(PRINTED), named.drop("published", "decimals"))
    differs = judged["verdict"] == "differs"
    causes = [
        _cause(cell, cells, appendix) if is_other else None
        for cell, is_other in zip(cells.iter_rows(named=True), differs, strict=True)
    ]
    return judged.with_columns(note=pl.Series(causes, dtype=pl.String)).select(CELLS.names()).cast(CELLS)


def _in_units(main: pl.DataFrame, appendix: pl.DataFrame) -> pl.DataFrame:
    """Join the cells of the main tables with the values of the appendix, and add `decimals` and `unit_factor`.

    `unit_factor` is the power of ten nearest to the median ratio, main text to appendix, of the cells in a table row.
    `decimals` is the largest number of decimals in the row.
    """
    key = ["model", "method", "measure"]
    others = appendix.select(*key, appendix="value")
    cells = main.join(others, on=key, how="left", nulls_equal=True, maintain_order="left")
    printed = pl.col("value")
    factor = pl.lit(10.0).pow((printed / pl.col("appendix")).abs().log10().median().over(ROW).round())
    decimals = pl.sum_horizontal((printed.round(n) - printed).abs() > 1e-9 for n in range(APPENDIX_DECIMALS))
    return cells.with_columns(unit_factor=factor.fill_null(1.0), decimals=decimals.max().over(ROW).cast(pl.Int64))


def _cause(cell: Mapping[str, Any], cells: pl.DataFrame, appendix: pl.DataFrame) -> str:
    """Return why a printed cell differs: cut digits, another unit, a value of another column or row, or UNEXPLAINED."""
    printed: float = abs(cell["value"])
    decimals, factor = cell["decimals"], cell["unit_factor"]
    units: float = 10.0**decimals
    if math.floor(abs(cell["appendix"] * factor) * units + 1e-9) == round(printed * units):
        return "the digits were cut, not rounded"

    def is_printed(value: pl.Expr) -> pl.Expr:
        return (value.abs() - printed).abs() <= 0.5 / units + 1e-9

    for power in (-2, -1, 1, 2):
        if abs(abs(cell["appendix"] * factor * 10.0**power) - printed) <= 0.5 / units + 1e-9:
            return f"another unit: {10.0**power:g} times the value"
    of_row = [pl.col(name).eq_missing(pl.lit(cell[name])) for name in ("method", "measure")]
    row = appendix.filter(*of_row, pl.col("model") != cell["model"], is_printed(pl.col("value") * factor))
    if row.height:
        return f"the value of another column: {' or '.join(row['model'])}"
    in_unit = pl.col("appendix") * pl.col("unit_factor")
    column = cells.filter(is_printed(in_unit), model=cell["model"], table=cell["table"])
    if column.height:
        return f"the value of another row: {' or '.join(column.select(ROW_NAME).to_series())}"
    return UNEXPLAINED


def _units(main: pl.DataFrame, appendix: pl.DataFrame) -> Iterator[Found]:
    rows = _in_units(main, appendix).unique(ROW, keep="first", maintain_order=True)
    others = rows.filter(pl.col("unit_factor") != 1).with_columns(name=ROW_NAME, unit=pl.col("unit").fill_null(""))
    for (table, factor, unit), of_unit in others.group_by("table", "unit_factor", "unit", maintain_order=True):
        names = "every row" if of_unit.height == rows.filter(table=table).height else ", ".join(of_unit["name"])
        causes = [cause for (end, by), cause in UNIT_CAUSES.items() if end in str(unit) and by == factor]
        text = f"Table {table} prints {factor:g} times the values of the appendix ({unit})."
        yield "unit", str(table), names, text, (causes or [UNEXPLAINED])[0]
    power = (pl.col("value") / pl.col("value").median().over(ROW)).abs().log10().round()
    cells = appendix.filter(power.abs() == 2, pl.col("value") != 0).with_columns(name=ROW_NAME)
    for table, name, model, value in cells.select("table", "name", "model", "value").rows():
        text = f"Table {table} prints {value:g} for {model}, about a hundred times or a hundredth of the row's values."
        yield "unit", str(table), f"{name}, {model}", text, "percent and shares in one row"


def _differing(cells: pl.DataFrame) -> Iterator[Found]:
    for cell in cells.filter(verdict="differs").iter_rows(named=True):
        printed, other = (f"{cell[name]:.{cell['decimals']}f}" for name in ("published", "recomputed"))
        if printed == other:
            other = f"{cell['recomputed']:.{cell['decimals'] + 2}f}"
        text = f"Table {cell['table']} prints {printed}, and the appendix {other}."
        yield "cell", cell["table"], f"{cell['row']}, {cell['column']}", text, cell["note"]


def _equal_pairs(main: pl.DataFrame, appendix: pl.DataFrame) -> pl.DataFrame:
    """Return the pairs of models with the same value in a row of a table, one row per pair and table row.

    A pair in the main tables counts only if the appendix lacks at least one of the two cells. `chance` is the
    probability that two models have the same digits if values are normally distributed: 1 / (2 sqrt(pi) s), with the
    standard deviation s of the row in units of the last digit. `is_block` is true if two models have equal values in
    at least two rows of a method in which chance is below 0.01. `is_neighbour` is true for adjacent columns.
    """
    columns = [*ROW, "model", "value", "decimals", "is_new"]
    of_main = _in_units(main, appendix).with_columns(is_new=pl.col("appendix").is_null())
    of_appendix = appendix.with_columns(decimals=pl.lit(APPENDIX_DECIMALS, pl.Int64), is_new=pl.lit(True))
    cells = pl.concat([of_appendix.select(columns), of_main.select(columns)]).drop_nulls("value")
    # Standard deviation of a table row, in units of the last printed digit.
    deviation = pl.col("value").std().over(ROW) * pl.lit(10.0).pow(pl.col("decimals"))
    cells = cells.with_columns(
        chance=(1 / (2 * math.sqrt(math.pi) * deviation)).clip(upper_bound=1),
        place=pl.int_range(pl.len()).over(ROW),
        n_models=pl.len().over(ROW),
        block=pl.when(pl.col("table") == 2).then(pl.lit("")).otherwise(pl.col("method").fill_null("")),
        name=ROW_NAME,
    )
    # Pairs of equal values in a row; `place` is the number of the column, so that a pair occurs once.
    pairs = cells.join(cells, on=[*ROW, "value"], suffix="_b", nulls_equal=True)
    pairs = pairs.filter(pl.col("place") < pl.col("place_b"), pl.col("is_new") | pl.col("is_new_b"))
    # Number of rows of the method, for this pair of models, in which an equal value is unlikely by chance.
    n_telling = (pl.col("chance") < 0.01).sum().over(BLOCK)
    told = pairs.with_columns(is_block=n_telling > 1, is_neighbour=pl.col("place_b") == pl.col("place") + 1)
    return told.sort(*ROW, "place", "place_b")


def _blocks(pairs: pl.DataFrame, parameters: Mapping[str, float]) -> Iterator[Found]:
    """Yield the pairs of models with equal values in several rows of a method, which chance does not explain.

    Args:
        pairs: as _equal_pairs returns.
        parameters: model -> number of parameters in its column heading, in billions.
    """
    for (table, method, model, other), rows in pairs.filter("is_block").group_by(*BLOCK, maintain_order=True):
        text = f"{model} and {other} have the same values in {rows.height} rows{f' of {method}' if method else ''}."
        is_same = parameters[str(model)] == parameters[str(other)]
        cause = f"both columns are headed {parameters[str(model)]:g} B, and one repeats the other: which is not known"
        yield "block", str(table), f"{model}, {other}", text, cause if is_same else UNEXPLAINED


def _equal_values(pairs: pl.DataFrame) -> Iterator[Found]:
    """Yield the other equal values of two models, and how many of them are expected by chance."""
    others = pairs.filter(~pl.col("is_block")).group_by("table", "name", "is_neighbour", maintain_order=True)
    for (table, name, is_neighbour), rows in others:
        n_models, chance = rows.select("n_models", "chance").row(0)
        expected = chance * (n_models - 1 if is_neighbour else math.comb(n_models, 2))
        shown = rows.head(3).select("model", "model_b", "value").rows()
        listed = "; ".join(f"{model} and {other} {value:g}" for model, other, value in shown)
        listed += f"; and {rows.height - 3} pairs more" if rows.height > 3 else ""
        text = f"The same value in {'neighbouring' if is_neighbour else 'two'} columns: {listed}."
        yield "equal values", str(table), str(name), text, _by_chance(rows.height, expected)


def _equal_rows(appendix: pl.DataFrame) -> Iterator[Found]:
    """Yield the models with the same value in two rows of comparable measures, and how many are expected by chance.

    The difference of two rows is assumed to be normal: with mean m and standard deviation s over n models, in units of
    the last digit, n exp(-(m / s)^2 / 2) / (s sqrt(2 pi)) models are expected to have a difference of 0.
    """
    for (table,), rows in appendix.group_by("table", maintain_order=True):
        wide = rows.with_columns(name=ROW_NAME).pivot("name", index="model", values="value")
        names = rows.select("measure", name=ROW_NAME).unique(maintain_order=True).rows()
        groups = [kinds for kinds in COMPARABLE if kinds & set(rows["measure"])] or [{kind} for kind, _ in names]
        for group in dict.fromkeys(tuple(sorted(kinds)) for kinds in groups):  # in the order of the rows
            expected, equal = 0.0, []
            for a, b in combinations([name for kind, name in names if kind in group], 2):
                both = wide.drop_nulls([a, b])
                units = ((both[a] - both[b]) * 10**APPENDIX_DECIMALS).round()
                mean, deviation = float(units.mean() or 0), float(units.std() or math.inf)
                expected += both.height * math.exp(-((mean / deviation) ** 2) / 2) / deviation / math.sqrt(2 * math.pi)
                same = both.filter(units == 0)["model", a].rows()
                equal += [f"{model} {value:g} ({a} and {b})" for model, value in same]
            if equal:
                text = f"The same value in two rows: {'; '.join(equal)}."
                yield "equal values", str(table), ", ".join(group), text, _by_chance(len(equal), expected)


def _by_chance(n: int, expected: float) -> str:
    """Return the cause of n equal values: chance, if a Poisson variable with mean `expected` easily reaches n."""
    if pdtrc(n - 1, expected) >= CHANCE_LEVEL:
        return f"chance, of which {expected:.2g} are expected"
    return f"{UNEXPLAINED}, for {expected:.2g} are expected by chance"


def _headings(main: pl.DataFrame, appendix: pl.DataFrame) -> Iterator[Found]:
    """Yield the columns whose headings differ between the tables, in the star or the name of the model."""
    models = appendix.sort("order")["model"].unique(maintain_order=True).to_list()
    printed_headings = PRINTED_TEXTS["headings"]
    of_main = dict(zip(main["model"].unique(maintain_order=True), printed_headings["main"], strict=False))
    if len(models) != len(printed_headings["8"]):  # the models are not those of the paper
        return
    for place, model in enumerate(models):
        headings = {f"table {table}": printed_headings[table][place] for table in ("7", "8")}
        headings |= {"tables 2 and 3": of_main[model]} if model in of_main else {}
        if len({heading.replace("-", "").rsplit(" ", 1)[0] for heading in headings.values()}) < 2:
            continue
        listed = "; ".join(f"{heading} ({where})" for where, heading in headings.items())
        cause = UNEXPLAINED
        if model in of_main:
            cause = f"the values are those of {of_main[model]} in the main text"
        elif place and (before := of_main.get(models[place - 1])):
            names = [name for name, heading in headings.items() if heading.split()[0] == before.split()[0]]
            cause = f"{' and '.join(names)} has the star of the column before it, {before}" if names else UNEXPLAINED
        yield "heading", "7, 8", model, f"The headings of one column differ: {listed}.", cause


def _captions(main: pl.DataFrame, appendix: pl.DataFrame) -> Iterator[Found]:
    """Yield the tables of the appendix whose caption names the wrong main table."""
    augmented: dict[str, int] = PRINTED_TEXTS["augmented"]
    for number, named in augmented.items():
        measures = set(appendix.filter(table=int(number))["measure"])
        sources = [table for table in sorted({*main["table"]}) if measures & set(main.filter(table=table)["measure"])]
        if sources and sources != [named]:
            text = f"Table {number} is captioned as augmenting table {named} and has the rows of table {sources[0]}."
            (other,) = {*augmented} - {number}
            yield "caption", number, "caption", text, f"the caption of table {other}, whose table it is"
