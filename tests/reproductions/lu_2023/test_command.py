"""`evaluator reproduce lu-2023` on a small folder that is worked by hand, and on folders that do not fit."""

import re
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from evaluator.errors import DatasetError
from evaluator.progress import finish
from evaluator.reproductions import REPRODUCTIONS
from evaluator.reproductions.base import reproduce
from evaluator.reproductions.cells import COUNTS
from evaluator.reproductions.lu_2023.recompute import (
    PUBLISHED_ANOVA,
    PUBLISHED_CELLS,
    PUBLISHED_DIFFERENCES,
    PUBLISHED_STRENGTHS,
    PUBLISHED_TRIED,
    Published,
    judged_cells,
)
from tests.reproductions.commanded import Commanded, reproduce_by_command
from tests.reproductions.lu_2023.released_folder import BOOLQ, across_sets, runs, write_folder

SCHEMAS = {
    "cells": PUBLISHED_CELLS,
    "totals": COUNTS,
    "strengths": PUBLISHED_STRENGTHS,
    "anova": PUBLISHED_ANOVA,
    "tried_rules": PUBLISHED_TRIED,
    "differences": PUBLISHED_DIFFERENCES,
}


def recompute(data: Path, out: Path) -> Published:
    published: Published = finish(reproduce(REPRODUCTIONS["lu-2023"](), data, out))
    return published


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pvi")
    recompute(write_folder(folder / "data"), folder / "out")
    return folder / "out"


def cell(out: Path, table: str, row: str, column: str) -> dict[str, object]:
    return pl.read_parquet(out / "tables" / "cells.parquet").row(
        by_predicate=(pl.col("table") == table) & (pl.col("row") == row) & (pl.col("column") == column), named=True
    )


@pytest.fixture(scope="module")
def commanded(tmp_path_factory: pytest.TempPathFactory) -> Commanded:
    """The command on a folder with the same files as that of `out`."""
    return reproduce_by_command("lu-2023", write_folder, tmp_path_factory.mktemp("commanded"))


def test_the_command_writes_tables_and_a_page_and_says_how_many_cells_are_equal(commanded: Commanded) -> None:
    out, printed = commanded
    assert re.search(r"^14\(a\) +35 +", printed, re.MULTILINE)
    # Accuracies of CoLA in tables 1 and 14(a) and of BoolQ in 14(a), sizes of both, PVI for TRUE of table 1 (1.1640)
    # and Shots' mean, .44 = (.7 + .74 - .12) / 3: of these last, the mean alone and no median (.7 is not .74).
    assert "7 of 218 cells are equal to the paper's, to the printed decimals." in printed
    assert "Table 14(a), CoLA, acc. low PVI: 0.2500, printed 0.3374. Fitted, the paper does not say it" in printed
    assert (out / "report.html").is_file()


def test_tables_are_those_of_the_schemas(out: Path) -> None:
    found = {path.stem: pl.read_parquet(path).schema for path in (out / "tables").glob("*.parquet")}
    assert found == SCHEMAS


def test_means_over_runs_leave_out_what_the_paper_left_out_and_say_what_that_changes(out: Path) -> None:
    boolq = cell(out, "14(a)", "BoolQ", "accuracy")
    assert (boolq["recomputed"], boolq["all_rows"]) == pytest.approx((0.4543, (0.9 + 0.4543) / 2))
    # Of the five printed cells of BoolQ, its 4-shot runs have the accuracy and, at 0.2009 to four decimals, no other.
    assert boolq["verdict"] == "equal"
    assert str(boolq["note"]).endswith("more shots alone gives 1 of 5 cells of this row, every run 0.")
    cola = cell(out, "14(a)", "CoLA", "accuracy")
    assert (cola["recomputed"], cola["all_rows"]) == pytest.approx((0.5175, (6 * 0.5175 + 3 * 0.7242) / 9))
    gpt2 = cell(out, "14(b)", "GPT2-125M", "accuracy")
    assert gpt2["recomputed"] == pytest.approx((6 * 0.5175 + 3 * 0.9 + 3 * 0.4543) / 12)
    assert gpt2["verdict"] == "differs"
    assert cell(out, "1", "CoLA", "accuracy")["recomputed"] == pytest.approx(0.7242)


def test_cells_without_a_run_or_a_printed_figure_say_so(out: Path) -> None:
    missing = cell(out, "1", "RTE", "accuracy")
    assert (missing["recomputed"], missing["verdict"]) == (None, "not in the data")
    assert cell(out, "14(b)", "Alpaca-7B", "accuracy")["verdict"] == "not in the data"
    totals = pl.read_parquet(out / "tables" / "totals.parquet")
    cells = pl.read_parquet(out / "tables" / "cells.parquet")
    assert totals.select(pl.exclude("table", "n_printed")).sum().sum_horizontal()[0] == cells.height


def test_the_anova_is_that_worked_by_hand(out: Path) -> None:
    rows = pl.read_parquet(out / "tables" / "anova.parquet")
    assert rows.select("dataset", "model").rows() == [("BoolQ", "GPT2-125M"), ("CoLA", "GPT2-125M")]
    cola = rows.row(1, named=True)
    assert (cola["f"], cola["p"]) == pytest.approx((7, (17 / 3) ** -1.5))
    # Table A of F with 2 and 3 degrees of freedom: 9.55 at 5%. In closed form (1 + 2 F / 3) ** -1.5 = .05.
    assert cola["f_needed"] == pytest.approx(1.5 * (0.05 ** (-2 / 3) - 1))


def test_strengths_are_counted_in_three_ways(out: Path) -> None:
    rows = pl.read_parquet(out / "tables" / "strengths.parquet").filter(variable="Exemplars").sort("n")
    numbers = rows.select("n", "mean", "median", "strong_share", "weak_share").rows()
    # Averages .7 and .2; the same and -.1; and .9 .8 .4 .1 .2 .3, of which two are above .6 and two below .3.
    assert numbers[0] == pytest.approx((2, 0.45, 0.45, 1 / 2, 1 / 2))
    assert numbers[1] == pytest.approx((3, 0.8 / 3, 0.2, 1 / 3, 2 / 3))
    assert numbers[2] == pytest.approx((6, 0.45, 0.35, 1 / 3, 1 / 3))
    note = cell(out, "2", "Exemplars", "r < 0.3")["note"]
    # .229 of 2 is .458. What is unexplained is said of these data, whatever other data have.
    assert str(note).startswith("1 of 2 cases; the printed share comes closest to 0 of 2. Unexplained: of ")
    tried = pl.read_parquet(out / "tables" / "tried_rules.parquet").filter(table="2", row="Exemplars")
    assert f"of {tried.height:,} rules tried" in str(note)
    assert "57 strong" not in str(note)


def test_one_run_a_set_or_none_at_all_leaves_cells_without_a_number(tmp_path: Path) -> None:
    folder = write_folder(tmp_path)
    for rows in (runs().filter(number_of_shots=4), runs().clear()):
        rows.write_parquet(folder / "results.parquet")
        of_anova = recompute(folder, tmp_path / "out").tables["cells"].filter(table="15")
        assert set(of_anova["verdict"]) == {"not in the data"}


def test_a_case_whose_runs_have_no_right_answers_has_no_analysis_of_variance(tmp_path: Path) -> None:
    folder = write_folder(tmp_path)
    is_boolq = pl.col("dataset") == BOOLQ
    undefined = pl.when(~is_boolq).then("average_pvi_for_T").otherwise(float("nan"))
    runs().with_columns(average_pvi_for_T=undefined).write_parquet(folder / "results.parquet")
    assert recompute(folder, tmp_path / "out").tables["anova"]["dataset"].to_list() == ["CoLA"]


@pytest.mark.parametrize(
    ("recomputed", "reach", "verdict"),
    [
        (0.72425, 0.0, "equal"),  # halfway between 0.7242, as printed, and 0.7243
        (0.72415, 0.0, "equal"),
        (0.72427, 0.0, "differs"),
        (0.72427, 0.00005, "within rounding"),
        (0.72431, 0.00005, "differs"),
        (None, 0.00005, "not in the data"),
    ],
)
def test_a_cell_is_judged_by_its_printed_decimals(recomputed: float | None, reach: float, verdict: str) -> None:
    key = {"table": "1", "row": "CoLA", "column": "accuracy"}
    types = {"recomputed": pl.Float64}
    own = pl.DataFrame(
        [key | {"recomputed": recomputed, "input_reach": reach, "all_rows": 0.0}], schema_overrides=types
    )
    counts = pl.DataFrame({"table": ["2"], "row": ["Shots"], "n": [3]}, schema_overrides={"n": pl.Int64})
    assert judged_cells(own, counts, PUBLISHED_TRIED.to_frame())["verdict"][0] == verdict


def test_a_second_run_gives_the_same_bytes(out: Path, commanded: Commanded) -> None:
    for name in ("report.html", *(f"tables/{name}.parquet" for name in SCHEMAS)):
        assert (commanded.out / name).read_bytes() == (out / name).read_bytes(), name


def test_the_page_shows_every_cell_beside_the_papers_and_asks_for_nothing_from_a_network(out: Path) -> None:
    page = (out / "report.html").read_text()
    assert "default-src 'none'" in page
    assert re.findall(r"""(?:src|href)=["'](?!data:|#)""", page) == []
    assert page.count("data-verdict=") == pl.read_parquet(out / "tables" / "cells.parquet").height
    assert re.search(r'data-verdict="equal"[^>]*>0\.454300 <span class="interval">0\.4543</span>', page)


def test_a_folder_without_the_files_says_which_are_needed_and_where_they_are_published(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"lacks results.parquet, consistency_by_exemplar.parquet") as raised:
        recompute(tmp_path, tmp_path / "out")
    said = str(raised.value)
    assert "UKPLab/in-context-pvi" in said
    assert "accuracy_for_pvi<1/5quantile" in said
    assert not (tmp_path / "out").exists()


Change = Callable[[pl.DataFrame], pl.DataFrame]


def with_runs(change: Change) -> Callable[[Path], None]:
    return lambda folder: change(runs()).write_parquet(folder / "results.parquet")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            with_runs(lambda rows: rows.drop("accuracy")),
            r"has no column 'accuracy'. Did you mean .* It has: dataset, number_of_data",
        ),
        (with_runs(lambda rows: rows.cast({"accuracy": pl.String})), "column 'accuracy' must be Float64 and is String"),
        (with_runs(lambda rows: pl.concat([rows, rows.head(1)])), "some of these are in more than one row"),
        (with_runs(lambda rows: rows.with_columns(model=pl.lit("gpt5"))), "'gpt5' in column 'model' is none of"),
        (with_runs(lambda rows: rows.with_columns(dataset=pl.lit("sst/x"))), "'sst' in column 'dataset' is none of"),
        (
            lambda folder: (
                across_sets().with_columns(r=pl.lit("[nan")).write_parquet(folder / "consistency_by_exemplar.parquet")
            ),
            "`r` and `p` must hold lists of numbers",
        ),
        (
            with_runs(lambda rows: rows.with_columns(accuracy=pl.lit(None, pl.Float64))),
            "'accuracy' has 15 missing",
        ),
        (
            lambda folder: (
                across_sets().with_columns(p=pl.lit("[0.1]")).write_parquet(folder / "consistency_by_exemplar.parquet")
            ),
            "as many in `p` as in `r` and at least one",
        ),
        (lambda folder: (folder / "results.parquet").write_text("no"), "cannot be read as Parquet"),
    ],
)
def test_files_that_do_not_fit_are_refused(tmp_path: Path, spoil: Callable[[Path], None], message: str) -> None:
    folder = write_folder(tmp_path)
    spoil(folder)
    with pytest.raises(DatasetError, match=message):
        recompute(folder, tmp_path / "out")
