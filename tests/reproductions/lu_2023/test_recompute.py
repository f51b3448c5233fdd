"""The published numbers of in-context PVI: what comes out of the released results, and what does not."""

import numpy as np
import polars as pl
import pytest
from scipy import stats

from evaluator.progress import finish
from evaluator.reproductions.lu_2023.data import PRINTED_CELLS, TABLES, read_results
from evaluator.reproductions.lu_2023.recompute import Published, p_values_that_fit, recompute
from tests.shared_data import shared_data

GPT3 = "text-davinci-003"
TWENTY_BILLION = "(?i)20b"


@pytest.fixture(scope="module")
def published() -> Published:
    return finish(recompute(read_results(shared_data("pvi"))))


def cells(published: Published, table: str) -> pl.DataFrame:
    return published.tables["cells"].filter(table=table)


def test_every_table_comes_out_as_far_as_it_does(published: Published) -> None:
    counts = published.tables["totals"].select("table", "equal", "within_rounding", "differ", "not_printed")
    assert counts.rows() == [
        ("1", 20, 0, 0, 0),
        ("14(a)", 35, 0, 0, 0),
        ("14(b)", 30, 0, 0, 10),
        ("2", 7, 0, 1, 0),
        ("3", 13, 1, 0, 0),
        ("7", 2, 0, 1, 0),
        ("15", 93, 5, 0, 0),
        ("9", 5, 0, 2, 0),
    ]


def test_what_differs_has_a_note(published: Published) -> None:
    unequal = published.tables["cells"].filter(~pl.col("verdict").is_in(["equal", "not in the data"]))
    assert unequal["note"].null_count() == 0
    assert unequal.filter(verdict="differs")["note"].str.contains("Unexplained").all()
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
    anova = published.tables["anova"]
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
    row = published.tables["strengths"].row(0, named=True)
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
    assert note.startswith("23 of 96 cases; the printed share comes closest to 22 of 96. Unexplained: of ")
    assert note.endswith("and 0 the whole table.")


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
    wide = PRINTED_CELLS.filter(table="15").pivot(on="column", index="row", values="published")
    assert wide.height == 49
    # With 2 and 3 degrees of freedom p = (1 + 2 F / 3) ** -1.5; digits may have been cut.
    expected = (1 + 2 * wide["F-statistic"].to_numpy() / 3) ** -1.5
    assert wide["p-value"].to_numpy() == pytest.approx(expected, abs=1.5e-4)


def test_transcribed_tables_have_as_many_cells_as_printed_ones() -> None:
    counts = {table.number: PRINTED_CELLS.filter(table=table.number).height for table in TABLES}
    assert counts == {"1": 20, "14(a)": 35, "14(b)": 40, "2": 8, "3": 14, "7": 6, "15": 98, "9": 7}
    shares = PRINTED_CELLS.filter(table="2", column="r > 0.6")
    assert shares.select("published", "decimals").rows() == [(0.594, 3), (0.576, 3)]


def test_rules_that_were_tried_are_data_with_what_each_of_them_gives(published: Published) -> None:
    tried = published.tables["tried_rules"]
    assert not tried.select("table", "row", "rule").is_duplicated().any()
    # The mean of the released averages of 96 cases rounds to .55 and their median to .71, 57 of 96 are above .6.
    plain = "the paper's models, mean over pairs, as released, r > 0.6 and r < 0.3"
    row = tried.filter(table="2", row="Exemplars", rule=plain).row(0, named=True)
    assert (row["n"], row["n_equal"], row["equal_columns"]) == (96, 3, "avg.; med.; r > 0.6")
    # With p < 0.05 for weak cases all four cells of Exemplars are given, but not those of Shots: 40 of 144 for 43.
    limited = tried.filter(table="2", rule=plain + " with p < 0.05").row(0, named=True)
    assert (limited["n_equal"], limited["n_equal_elsewhere"], limited["n_printed_elsewhere"]) == (4, 3, 4)
    # For the row Shots, which has no pairs of sets, the reading of pairs that gives most of Exemplars' cells counts.
    of_shots = tried.filter(table="2", row="Shots", rule=plain.replace(" mean over pairs,", "") + " with p < 0.05")
    assert of_shots.select("n_equal", "n_equal_elsewhere", "n_printed_elsewhere").rows() == [(3, 4, 4)]
    whole = tried.filter(pl.col("n_equal") == pl.col("n_printed"), table="14(a)", row="BoolQ")["rule"].to_list()
    assert sorted(whole) == ["more shots alone", "without GPT3-175B, more shots alone"]


def test_p_values_fit_the_number_of_queries_of_which_scipys_are(published: Published) -> None:
    random = np.random.default_rng(0)
    pairs = [(x, x + random.normal(0, 3, 50)) for x in random.normal(0, 1, (20, 50))]
    found = [stats.pearsonr(*pair) for pair in pairs]
    r, p = np.array([each.statistic for each in found]), np.array([each.pvalue for each in found])
    assert p_values_that_fit(r, p, 50) == (20, 20)
    assert p_values_that_fit(r, p, 60)[0] < 20
    sizes = published.tables["tried_rules"].filter(table="9", row="SNLI")
    assert sizes.filter(pl.col("rule").str.contains("10,000"))["n_equal"].item() == 11
    assert sizes.filter(pl.col("rule").str.contains("9,824"))["n_equal"].item() == 0


def test_differences_between_low_and_high_pvi_are_means_over_runs(published: Published) -> None:
    released = pl.read_parquet(shared_data("pvi") / "results.parquet").filter(pl.col("model") == GPT3)
    row = published.tables["differences"].filter(model="GPT3-175B").row(0, named=True)
    assert row["n_runs"] == 12
    for part, ends in (("fifth", (">4/5", "<1/5")), ("half", (">1/2", "<1/2"))):
        high, low = (released[f"accuracy_for_pvi{end}quantile"].to_numpy() for end in ends)
        assert row[f"{part}_difference"] == pytest.approx((high - low).mean())
