"""Write the page of the StaICC paper: recomputed figures, tested sentences and compared tables."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import polars as pl

from evaluator.compare.report import triangle
from evaluator.methods import REFERENCE_METHOD
from evaluator.report.section import Block, Group, Legend, Matrices, Panel, Panels, Section, texts
from evaluator.report.table import Column, Row, Table, p_text, signed, signed_interval, text_column
from evaluator.reproductions.base import Reproduction, Tables
from evaluator.reproductions.cells import section, table_blocks
from evaluator.reproductions.cho_inoue_2025 import recompute
from evaluator.reproductions.cho_inoue_2025.inconsistencies import UNEXPLAINED
from evaluator.suites.staicc.published import METHODS, METRICS, printed_tables
from evaluator.suites.staicc.standing import KEYS, TITLES, size_panel

TEXTS = texts("evaluator.reproductions.cho_inoue_2025")

FINDINGS = [
    text_column("Table", "table"),
    text_column("Where", "place", style="text"),
    text_column("Finding", "finding", style="text"),
    Column("Cause", "cause", style=lambda row: f"text {'unexplained' * (UNEXPLAINED in row['cause'])}", head="text"),
]

FIGURES = {
    4: ("Performance by size", "figure 4, and the other metrics"),
    5: ("Improvement of accuracy by size", "figure 5"),
    7: ("Diagnostics by size", "figure 7"),
}


def published_sections(recomputed: recompute.Recomputed) -> Iterator[Section]:
    """Yield the sections of the page: tested sentences, contradictions between tables, and figures."""
    tables = recomputed.tables
    yield section("sentences", "The paper's sentences, tested", TEXTS["sentences_note"], *_sentences(tables))
    table = Table(tables["findings"], FINDINGS, caption=TEXTS["findings_caption"], data={"table": "findings"})
    title, subtitle = "Tables against each other", "tables 2, 3, 7 and 8"
    yield section("findings", title, table, subtitle=subtitle, navigation="Findings")
    for (name,), cells in tables["cells"].group_by("table", maintain_order=True):
        title, content = f"Table {name} against the appendix", table_blocks(cells)
        yield section(f"table-{name}", title, *content, subtitle="cell by cell", navigation=f"Table {name}")
    for figure, (title, subtitle) in FIGURES.items():
        drawn = Legend(KEYS), TEXTS["figures_note"], Panels(list(_panels(recomputed, figure)), style="scaling")
        yield section(f"figure-{figure}", title, *drawn, subtitle=subtitle, navigation=f"Figure {figure}")
    title, drawn_pairs = "Rank correlations", _correlations(tables)
    figure_8 = section("figure-8", title, *drawn_pairs, subtitle="figure 8", navigation="Figure 8")
    yield replace(figure_8, style="evaluator.compare:assets/compare.css")
    yield section("source", "Source", TEXTS["source"])


def _sentences(tables: Tables) -> Iterator[Block]:
    """Yield a table with one row per sentence, and a folded table with one row per quantity."""
    key, results = ["section", "sentence"], tables["sentences"]
    rows = [
        {"section": section, "sentence": sentence}
        | {one.name: recompute.outcome(rows.filter(counted=one.name)["outcome"]) for one in recompute.COUNTED}
        for (section, sentence), rows in results.group_by(*key, maintain_order=True)
    ]
    about = [Column("§", "section", show=str, style=""), text_column("Sentence", "sentence", style="text")]
    counted = [Column(_counted(one), one.name, style=_style(one.name), head="text") for one in recompute.COUNTED]
    yield Table(pl.DataFrame(rows), [*about, *counted], style="metrics sentences", data={"table": "sentences"})
    cells = results.select(*key, "quantity", "counted", cell=pl.struct(pl.exclude(*key, "quantity", "counted")))
    wide = cells.pivot("counted", index=[*key, "quantity"], values="cell", maintain_order=True)
    numbers = [
        Column(
            _counted(one),
            "value",
            of=one.name,
            show=signed,
            below=(
                lambda row: signed_interval(row["ci_low"], row["ci_high"]),
                lambda row: f"p {p_text(row['p_holm'])}, {row['n_models']} models",
                lambda row: row["outcome"],
            ),
            style=lambda row: f"number {row['outcome'].replace(' ', '-')}",
            data={"outcome": "outcome", "low": "ci_low", "high": "ci_high", "p": "p_holm"},
        )
        for one in recompute.COUNTED
    ]
    columns = [*about, Column("Quantity", "quantity", show=_in_words, style="text"), *numbers]
    yield Group([Table(wide, columns, data={"table": "quantities"})], "Every quantity, with intervals", is_folded=True)


def _counted(counted: recompute.Counted) -> str:
    return counted.name[0].upper() + counted.name[1:]


def _style(name: str) -> Callable[[Row], str]:
    return lambda row: f"text {row[name].replace(' ', '-')}"


def _in_words(quantity: str) -> str:
    names = {name: text.title for name, text in TITLES.named.items()}
    names |= {method: printed for printed, method in METHODS.items()}
    return " ".join(names.get(word, word) for word in quantity.split(" "))


def _panels(recomputed: recompute.Recomputed, figure: int) -> Iterator[Panel]:
    """Yield the panels of a figure; their captions give the slopes of the fitted lines."""
    lines = recomputed.tables["lines"].filter(figure=figure)
    for (method, metric), rows in lines.group_by("method", "metric", maintain_order=True):
        points = recomputed.points.filter(figure=figure, method=method, metric=metric)
        slopes = [
            f"{row['counted']} {signed(row['value'])} ({signed_interval(row['ci_low'], row['ci_high'])}), "
            f"p {p_text(row['p_holm'])}"
            for row in rows.iter_rows(named=True)
        ]
        title = _in_words(str(metric if method == REFERENCE_METHOD else method))
        yield size_panel(title, points, about=f"{rows['n_models'][0]} models; slope {'; '.join(slopes)}")


def _correlations(tables: Tables) -> Iterator[Block]:
    titles = {metric: TITLES.title(metric) for metric in METRICS.values()}
    named = {"rho": "value", "p_value": "p_holm", "n_points": "n_models"}
    pairs = tables["correlations"].with_columns(**named, reason=pl.lit(None, pl.String))
    matrices = [
        triangle(pairs.filter(counted=one.name), titles, _counted(one), {"counted": one.name}, points="models")
        for one in recompute.COUNTED
    ]
    yield TEXTS["correlations_note"]
    yield Matrices(list(filter(None, matrices)))


def _subject(recomputed: recompute.Recomputed) -> str:
    causes = recomputed.tables["findings"]["cause"]
    n_unexplained = causes.str.contains(UNEXPLAINED).sum()
    findings = f"{len(causes)} findings where tables contradict each other or repeat values"
    return f"{findings}, {n_unexplained} of them unexplained"


REPRODUCTION = Reproduction(
    title="Cho & Inoue 2025, StaICC: figures 4, 5, 7 and 8 recomputed from the printed tables, sentences tested, "
    "tables compared with each other",
    source="arXiv 2501.15708, tables 2, 3, 7 and 8",
    read=lambda _folder: printed_tables(),
    recompute=recompute.recompute,
    summary_lines=recompute.summary_lines,
    kicker="Cho & Inoue 2025, StaICC, recomputed from its printed tables",
    heading="What 29 models say",
    subject=_subject,
    sections=published_sections,
)
