"""The held-out figures of the published experiments: the paper's tables 3 and 4, and splits of our own."""

import numpy as np
import polars as pl
import pytest
from scipy import stats

from evaluator.reproductions.yauney_mimno_2024.held_out import _judged_as_released
from evaluator.reproductions.yauney_mimno_2024.recompute import Published


def rows_of(table: str) -> dict[str, list[float]]:
    """First column -> the numbers behind it."""
    rows = [line.split() for line in table.strip().splitlines()]
    return {name: [float(number) for number in numbers] for name, *numbers in rows}


# Yauney & Mimno 2024, table 3: percent above standard held out; accuracy, precision, recall, AUROC and AUPR, standard
# then max each.
TABLE_3 = rows_of("""
Llama-2-7b           77 0.92 0.87 0.91 0.95 0.99 0.88 0.82 0.85 0.91 0.93
OLMo-7B              72 0.79 0.73 0.79 0.89 0.97 0.72 0.64 0.74 0.79 0.84
falcon-7b            67 0.79 0.77 0.77 0.90 0.98 0.74 0.69 0.79 0.77 0.84
Alpaca-7b            84 0.83 0.87 0.84 0.96 0.99 0.88 0.50 0.84 0.84 0.94
OLMo-7B-Instruct     72 0.78 0.72 0.78 0.88 0.97 0.71 0.63 0.73 0.78 0.83
falcon-7b-instruct   68 0.79 0.80 0.77 0.91 0.98 0.77 0.67 0.81 0.77 0.86
all                  73 0.82 0.79 0.81 0.92 0.98 0.79 0.67 0.80 0.81 0.88
""")

# Table 4: AUROC and AUPR, standard then max each.
TABLE_4 = rows_of("""
code_line_description                0.50 0.50 1.00 1.00
bbq_lite_json                        0.67 0.78 0.96 0.97
hindu_knowledge                      0.50 0.50 1.00 1.00
novel_concepts                       0.50 0.46 0.93 0.92
emoji_movie                          0.50 0.53 0.62 0.64
vitaminc_fact_verification           0.96 0.94 0.98 0.98
conceptual_combinations              0.50 0.55 0.81 0.83
formal_fallacies_syllogisms_negation 0.58 0.51 0.41 0.37
known_unknowns                       0.49 0.57 0.59 0.63
logical_deduction                    0.50 0.48 0.81 0.80
play_dialog_same_or_different        0.98 0.95 0.97 0.95
strange_stories                      0.65 0.80 0.77 0.86
symbol_interpretation                0.78 0.50 0.33 0.17
winowhy                               nan  nan 1.00 1.00
strategyqa                           0.50 0.50 0.93 0.93
""")

SCORES = ("accuracy", "precision", "recall", "auroc", "aupr")
ROUNDED = 0.005 + 1e-9


def held_out(published: Published, splits: str, rules: str, over: str, group: str) -> dict[str, dict[str, float]]:
    rows = published.tables["held_out"].filter(splits=splits, rules=rules, over=over, group=group, tries=200)
    return {row["predictor"]: row for row in rows.iter_rows(named=True)}


@pytest.mark.parametrize("group", TABLE_3)
def test_table_3_comes_out_of_the_authors_splits(published: Published, group: str) -> None:
    rows = held_out(published, "authors'", "released", "all" if group == "all" else "model", group)
    percent, *scores = TABLE_3[group]
    # 83.5% exactly is printed as 84%.
    assert 100 * rows["standard"]["held_out_share"] == pytest.approx(percent, abs=0.5 + 1e-9)
    found = [rows[predictor][score] for score in SCORES for predictor in ("standard", "max")]
    assert found == pytest.approx(scores, abs=ROUNDED)


@pytest.mark.parametrize("dataset", TABLE_4)
def test_table_4_comes_out_of_the_authors_splits(published: Published, dataset: str) -> None:
    rows = held_out(published, "authors'", "released", "dataset", dataset)
    found = [rows[predictor][score] for score in ("auroc", "aupr") for predictor in ("standard", "max")]
    assert found == pytest.approx(TABLE_4[dataset], abs=ROUNDED, nan_ok=True)


def test_distribution_functions_foretell_as_published(published: Published) -> None:
    rows = held_out(published, "authors'", "released", "all", "all")
    for predictor in ("standard tail", "max tail"):
        assert (rows[predictor]["auroc"], rows[predictor]["aupr"]) == pytest.approx((0.90, 0.96), abs=ROUNDED)


def test_scores_over_seeded_splits_are_within_four_standard_errors_of_both_and_two_of_them_beyond_three_unexplained(
    published: Published,
) -> None:
    """Splits are random draws, the authors' as well: the tolerance is the spread of the difference between the two.

    Of fourteen scores two are more than three standard errors lower over seeded splits, which has no known cause.
    """
    spread = published.tables["held_out_spread"]
    assert spread.height == 14
    for row in spread.to_dicts():
        theirs, ours = (
            held_out(published, splits, "released", "all", "all")[row["predictor"]][row["score"]]
            for splits in ("authors'", "seeded")
        )
        assert (row["authors"], row["seeded"]) == (theirs, ours)
        assert abs(ours - theirs) < 4 * row["standard_error"]
    unexplained = spread.filter(pl.col("z").abs() > 3).select("predictor", "score").rows()
    assert unexplained == [("max", "accuracy"), ("max", "auroc")]


def test_the_standard_error_of_an_accuracy_is_that_of_a_mean_over_groups_of_splits(published: Published) -> None:
    # Every group has the same number of trials, so that the jackknife of an accuracy is the error of a mean of 20.
    squares = 0.0
    for trials in (published.authors_trials, published.seeded_trials):
        hits = trials.filter(tries=200).with_columns(
            hit=pl.col("above_max_on_train") == pl.col("above_standard_on_test"), part=pl.col("split") % 20
        )
        means = hits.group_by("part").agg(pl.col("hit").mean())["hit"].to_numpy()
        squares += stats.sem(means) ** 2
    row = published.tables["held_out_spread"].filter(predictor="max", score="accuracy").row(0, named=True)
    assert row["standard_error"] == pytest.approx(squares**0.5)


def test_trials_of_seeded_splits_are_judged_by_the_authors_rules_as_by_hand() -> None:
    # emoji_movie has a chance of 1/5. 5 of 8 right, of a train part of 10: .625 x 10 is 6.25, so the tail is that of 7.
    search = {"dataset": "emoji_movie", "n_train_part": 10, "correct_train": 5, "n_train": 8, "tries": 2}
    rows = pl.DataFrame([search | {"correct_test": correct, "n_test": 10} for correct in (2, 3)])
    judged = _judged_as_released(rows)
    tail = stats.binom.sf(6, 10, 0.2)
    assert judged["log10_standard_tail"].to_list() == pytest.approx([np.log10(tail)] * 2)
    assert judged["log10_max_tail"].to_list() == pytest.approx([np.log10(1 - (1 - tail) ** 2)] * 2)
    assert judged["above_standard_on_test"].to_list() == [False, True]  # 2 of 10 is chance, and not above it


def test_the_papers_numbers_come_out_but_one_that_its_equation_does_not_give(published: Published) -> None:
    cells = published.tables["cells"]
    assert cells.group_by("table", "verdict").len().sort("table", "verdict").rows() == [
        ("1", "equal", 34),
        ("2", "not in the data", 2),
        ("3", "equal", 77),
        ("4", "equal", 73),
        ("4", "not printed", 2),
        ("section 4", "differs", 1),
        ("section 5.1", "equal", 5),
    ]
    row = cells.filter(verdict="differs").row(0, named=True)
    assert row["recomputed"] == pytest.approx(0.5767798, abs=1e-7)  # exact fractions: 0.57677977...
    assert "unexplained" in row["note"]
