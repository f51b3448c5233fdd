"""The published numbers of in-context PVI: what comes out of the released results, and what does not."""

import numpy as np
import polars as pl
import pytest
from scipy import stats

from evaluator.progress import finish
from evaluator.reproductions.lu_2023.data import read_results
from evaluator.reproductions.lu_2023.paper import TABLES, printed_cells
from evaluator.reproductions.lu_2023.recompute import Published, recompute
from tests.shared_data import shared_data

GPT3 = "text-davinci-003"
TWENTY_BILLION = "(?i)20b"


@pytest.fixture(scope="module")
def published() -> Published:
    return finish(recompute(read_results(shared_data("pvi"))))


def cells(published: Published, table: str) -> pl.DataFrame:
    return published.tables.cells.filter(table=table)


def test_every_table_comes_out_as_far_as_it_does(published: Published) -> None:
    counts = published.tables.totals.select("table", "equal", "within_rounding", "differ", "not_printed")
    assert counts.rows() == [
        ("1", 20, 0, 0, 0),
        ("14(a)", 35, 0, 0, 0),
        ("14(b)", 30, 0, 0, 10),
        ("2", 7, 0, 1, 0),
        ("15", 93, 5, 0, 0),
        ("9", 5, 0, 2, 0),
    ]


def test_what_differs_has_a_note(published: Published) -> None:
    unequal = published.tables.cells.filter(pl.col("verdict") != "equal")
    assert unequal["note"].null_count() == 0
    assert cells(published, "2").filter(verdict="differs").select("row", "column").rows() == [("Exemplars", "r < 0.3")]
    assert cells(published, "9").filter(verdict="differs")["row"].to_list() == ["MultiNLI", "SNLI"]


def test_table_15_is_scipys_on_six_run_means(published: Published) -> None:
    released = pl.read_parquet(shared_data("pvi") / "results.parquet").filter(pl.col("model") != GPT3)
    expected = []
    for _, rows in released.group_by("dataset", "model"):
        groups = [rows.filter(prompt_set=name)["average_pvi_for_T"].to_numpy() for name in ("1a", "2a", "3a")]
        assert [len(group) for group in groups] == [2, 2, 2]
        found = stats.f_oneway(*groups)
        expected.append((found.statistic, found.pvalue))
    anova = published.tables.anova
    assert np.array(sorted(anova.select("f", "p").rows())) == pytest.approx(np.array(sorted(expected)), rel=1e-9)
    assert anova.select("df_between", "df_within").unique().rows() == [(2, 3)]
    # Every printed F and p is within a unit of its last digit of what comes out.
    off = (pl.col("recomputed") - pl.col("published")).abs().max()
    assert cells(published, "15").select(off).item() < 1e-4


def test_what_table_15_does_not_round_it_cuts(published: Published) -> None:
    unequal = cells(published, "15").filter(verdict="within rounding")
    assert (unequal["recomputed"] * 10**4).floor().to_list() == pytest.approx((unequal["published"] * 10**4).to_list())
    assert unequal["note"].str.contains("those of a truncated number").all()


def test_table_2_counts_averages_over_pairs_without_the_models_of_20_billion_parameters(published: Published) -> None:
    released = pl.read_parquet(shared_data("pvi") / "consistency_by_exemplar.parquet")
    named = released.filter(~pl.col("model").str.contains(TWENTY_BILLION))["average_r"].to_numpy()
    row = published.tables.strengths.row(0, named=True)
    assert (row["variable"], row["n"]) == ("Exemplars", 96)
    numbers = (row["mean"], row["median"], row["strong_share"], row["weak_share"])
    # Averages are released to nine decimals.
    expected = (named.mean(), np.median(named), (named > 0.6).mean(), (named < 0.3).mean())
    assert numbers == pytest.approx(expected, abs=1e-8)
    assert row["weak_share"] * 96 == pytest.approx(23)  # 22 of 96 would be the 22.9% that is printed
    whole = cells(published, "2").filter(row="Exemplars", column="r < 0.3")["all_rows"].item()
    assert whole == pytest.approx((released["average_r"].to_numpy() < 0.3).mean())


def test_no_choice_of_released_cases_gives_both_printed_shares_of_exemplars(published: Published) -> None:
    def counts(share: str, n: int) -> set[int]:
        return {count for count in range(n + 1) if f"{100 * count / n:.1f}" == share}

    fits = [(n, s, w) for n in range(1, 101) for s in counts("59.4", n) for w in counts("22.9", n) if s + w <= n]
    assert fits == [(96, 57, 22)]
    released = pl.read_parquet(shared_data("pvi") / "consistency_by_exemplar.parquet")["average_r"]
    assert (released.len(), released.is_between(0.3, 0.6).sum()) == (100, 16)  # 96 - 57 - 22 = 17 are needed
    note = cells(published, "2").filter(verdict="differs")["note"].item()
    assert note.startswith("23 of 96 cases; the printed share comes closest to 22 of 96. No choice among")


def test_leaving_out_weak_cases_by_p_mends_one_share_and_spoils_the_other() -> None:
    folder = shared_data("pvi")
    across_sets = pl.read_parquet(folder / "consistency_by_exemplar.parquet").select(
        "model", r="average_r", p="average_p"
    )
    across_shots = pl.read_parquet(folder / "consistency_by_number_of_shots.parquet")
    named, weak = ~pl.col("model").str.contains(TWENTY_BILLION), pl.col("r") < 0.3
    found = [rows.filter(named, weak, pl.col("p") < 0.05).height for rows in (across_sets, across_shots)]
    assert found == [22, 40]
    assert across_shots.filter(named, weak).height == 43  # as printed: 29.9% of 144
    assert max(across_sets.filter(named, weak)["p"]) < max(across_shots.filter(named, weak)["p"])  # nor another limit


def test_boolq_is_as_printed_without_its_2_shot_runs_alone(published: Published) -> None:
    boolq = cells(published, "14(a)").filter(row="BoolQ")
    assert (boolq["verdict"] == "equal").all()
    assert ((boolq["all_rows"] - boolq["published"]).abs() > 1e-3).all()
    # The other tables hold them: without, GPT2-125M's accuracy in 14(b) would be .3712.
    gpt2 = cells(published, "14(b)").filter(row="GPT2-125M", column="accuracy")
    assert gpt2["published"].item() == 0.3753


def test_transcribed_p_values_follow_from_transcribed_f() -> None:
    wide = printed_cells().filter(table="15").pivot(on="column", index="row", values="published")
    assert wide.height == 49
    # With 2 and 3 degrees of freedom p = (1 + 2 F / 3) ** -1.5; digits may have been cut.
    expected = (1 + 2 * wide["F-statistic"].to_numpy() / 3) ** -1.5
    assert wide["p-value"].to_numpy() == pytest.approx(expected, abs=1.5e-4)


def test_transcribed_tables_have_as_many_cells_as_printed_ones() -> None:
    counts = {table.number: printed_cells().filter(table=table.number).height for table in TABLES}
    assert counts == {"1": 20, "14(a)": 35, "14(b)": 40, "2": 8, "15": 98, "9": 7}
    shares = printed_cells().filter(table="2", column="r > 0.6")
    assert shares.select("published", "decimals").rows() == [(0.594, 3), (0.576, 3)]
