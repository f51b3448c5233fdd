"""The held-out figures of the published experiments: the paper's tables 3 and 4, and splits of our own."""

import pytest

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
    rows = published.tables.held_out.filter(splits=splits, rules=rules, over=over, group=group, tries=200)
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


def test_splits_of_our_own_give_the_authors_figures_but_for_chance(published: Published) -> None:
    theirs, ours = (held_out(published, splits, "released", "all", "all") for splits in ("authors'", "seeded"))
    # Over twelve seeds these figures have standard deviations of .0005 to .0023.
    for predictor, scores in {"standard": SCORES, "max": SCORES, "max tail": ("auroc", "aupr")}.items():
        for score in scores:
            assert ours[predictor][score] == pytest.approx(theirs[predictor][score], abs=0.01)
