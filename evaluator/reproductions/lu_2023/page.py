"""Write the page of the recomputed tables of Lu et al. 2023 (in-context PVI), cell by cell."""

from collections.abc import Iterator

import polars as pl

from evaluator.report.section import Block, List, Section, texts
from evaluator.report.table import Column, Table, number, text_column
from evaluator.reproductions.base import Reproduction
from evaluator.reproductions.cells import COUNT_COLUMNS, section, table_blocks
from evaluator.reproductions.lu_2023 import data
from evaluator.reproductions.lu_2023.data import GPT3, NOT_IN_PAPER, TABLES
from evaluator.reproductions.lu_2023.recompute import FIT, Published, all_tables, recompute, summary_lines
from evaluator.suites.in_context_pvi.report import STRENGTH_COLUMNS

TEXTS = texts("evaluator.reproductions.lu_2023")

SIGNIFICANT = 0.05

STRENGTHS = [
    text_column("Across", "variable"),
    text_column("Counted", "counted", style="text"),
    Column("Cases", "n"),
    *STRENGTH_COLUMNS,
]

DIFFERENCES = [
    text_column("Model", "model"),
    Column("Runs", "n_runs"),
    Column("Fifths", "fifth_difference"),
    Column("Halves", "half_difference"),
]

TRIED = [
    text_column("Table", "table"),
    text_column("Row", "row", style="text"),
    Column("Tried", "n_rules"),
    Column("Cells", "n_printed"),
    Column("Given", "n_equal"),
    Column("By", "n_best"),
    text_column("For example", "example", style="text"),
]

STRENGTHS_CAPTION = TEXTS["strengths_caption"].format(" and ".join(NOT_IN_PAPER.values()))
REMARKS = (
    TEXTS["remarks"],
    "Accuracy is of sampled answers, not of the most probable label.",
    TEXTS["remarks_2"],
    "Causal Language is coded 1 and 3 the other way round in its corpus and in the prompts.",
)


def published_sections(published: Published) -> Iterator[Section]:
    """Yield the sections of the page: counts of all tables, the paper's tables, figure 2, tried rules, and remarks."""
    tables = published.tables
    totals = Table(tables["totals"], COUNT_COLUMNS, caption=TEXTS["totals_caption"], foot=all_tables(published))
    yield section("totals", "Cell by cell", totals)
    also: dict[str, list[Block]] = {
        "2": [Table(tables["strengths"], STRENGTHS, caption=STRENGTHS_CAPTION)],
        "15": [_anova_text(tables["anova"])],
    }
    for place, table in enumerate(TABLES, 1):
        content = [*table_blocks(tables["cells"].filter(table=table.number)), *also.get(table.number, [])]
        name = f"table {table.number}"
        yield section(f"table-{place}", table.title, *content, subtitle=name, navigation=name.capitalize())
    title, caption = "Accuracy gained from low to high PVI", TEXTS["published_caption"]
    differences = Table(tables["differences"], DIFFERENCES, caption=caption, data={"table": "differences"})
    yield section("figure-2", title, differences, subtitle="figure 2", navigation="Figure 2")
    tried = Table(_tried_shown(tables["tried_rules"]), TRIED, caption=TEXTS["tried_caption"], data={"table": "tried"})
    yield section("tried", "Rules that were tried", tried)
    sizes = published.results.runs.filter(model=GPT3).select("dataset", "demonstration_set", "n_queries").rows()
    listed = "; ".join(" ".join(map(str, row)) for row in sizes)
    of_sizes = [TEXTS["published_remark"].format(listed)] if sizes else []
    remarks = List([*REMARKS, *of_sizes, TEXTS["published_last"]])
    yield section("known", "Remarks on these results", TEXTS["note"], remarks)


def _tried_shown(tried: pl.DataFrame) -> pl.DataFrame:
    """Return one row per row of a printed table: the number of tried rules, and a rule that gives most of its cells."""
    judged = tried.filter(~pl.col("rule").str.starts_with(FIT)).sort("n_equal", descending=True, maintain_order=True)
    best = judged.group_by("table", "row", maintain_order=True).agg(
        pl.col("rule", "n_equal", "n_printed").first(),
        n_rules=pl.len(),
        n_best=(pl.col("n_equal") == pl.col("n_equal").max()).sum(),
    )
    return best.sort("table", "row").with_columns(example=pl.when(pl.col("n_equal") > 0).then("rule"))


def _anova_text(anova: pl.DataFrame) -> str:
    """Describe in words how much power the tests of table 15 have."""
    tested = anova.filter(pl.col("p").is_finite())
    n_significant = tested.filter(pl.col("p") < SIGNIFICANT).height
    kinds = anova.select("df_between", "df_within", "f_needed").unique(maintain_order=True)
    needed = "".join(
        f" With {between} and {within} degrees of freedom, p falls below {SIGNIFICANT} only from F = {number(f, 2)}."
        for between, within, f in kinds.iter_rows()
        if within
    )
    return TEXTS["anova_text"].format(needed, n_significant, tested.height, number(SIGNIFICANT * tested.height, 1))


def _subject(published: Published) -> str:
    total = all_tables(published).row(0, named=True)
    counts = f"{total['equal']} of {total['n_printed']}"
    return f"{counts} printed cells are equal to the recomputed ones, to the printed decimals"


REPRODUCTION = Reproduction(
    title="Lu et al. 2023, Measuring Pointwise V-Usable Information In-Context-ly: tables 1, 2, 9, 14 and 15, each "
    "cell next to the paper's",
    source="UKPLab/in-context-pvi on GitHub",
    files=data.FILES,
    read=data.read_results,
    recompute=recompute,
    summary_lines=summary_lines,
    kicker="Lu et al. 2023, Measuring Pointwise V-Usable Information In-Context-ly, recomputed from the released "
    "results",
    heading="In-context PVI, as published",
    subject=_subject,
    sections=published_sections,
)
