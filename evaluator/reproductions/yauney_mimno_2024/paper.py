"""Transcribe the numbers that Yauney & Mimno 2024 print, as cells: table, row, column, published and decimals."""

import polars as pl

PREDICTORS = ("standard", "max")

TEXT = """
experiments          288
above standard       255
above max            199
disagreements        56
share of above       0.220
"""
"""Section 5.1, of the best of 200 prompts."""

SECTION_4 = "n = 100, two choices, best of 10"
EXPECTED_BEST = 0.575
"""Section 4: "a dataset of n = 100 examples has an expected max accuracy of 0.575 after only t = 10 evaluations"."""

TABLE_1 = """
novel_concepts 0
known_unknowns 9
code_line_description 0
emoji_movie 11
conceptual_combinations 0
strange_stories 0
hindu_knowledge 0
bbq_lite_json 0
formal_fallacies_syllogisms_negation 12
language_identification 12
logical_deduction 3
play_dialog_same_or_different 1
strategyqa 0
symbol_interpretation 7
vitaminc_fact_verification 1
winowhy 0
"""
"""Disagreements between the baselines, by task; the symbols of single experiments are not transcribed."""

TABLE_1_MODELS = {
    1: {"Llama-2-7b": 2, "OLMo-7B": 5, "falcon-7b": 5, "Alpaca-7b": 4, "OLMo-7B-Instruct": 5, "falcon-7b-instruct": 4},
    2: {"Llama-2-7b": 1, "OLMo-7B": 4, "falcon-7b": 3, "Alpaca-7b": 2, "OLMo-7B-Instruct": 4, "falcon-7b-instruct": 3},
    4: {"Llama-2-7b": 1, "OLMo-7B": 1, "falcon-7b": 3, "Alpaca-7b": 3, "OLMo-7B-Instruct": 2, "falcon-7b-instruct": 4},
}
"""Disagreements by number of shots and model."""

TABLE_2 = {"disagreements": (40.0, 0), "share of above": (0.158, 3)}
"""The same with models that were not quantised, whose results are not released."""

TABLE_3 = """
Llama-2-7b           77 0.92 0.87 0.91 0.95 0.99 0.88 0.82 0.85 0.91 0.93
OLMo-7B              72 0.79 0.73 0.79 0.89 0.97 0.72 0.64 0.74 0.79 0.84
falcon-7b            67 0.79 0.77 0.77 0.90 0.98 0.74 0.69 0.79 0.77 0.84
Alpaca-7b            84 0.83 0.87 0.84 0.96 0.99 0.88 0.50 0.84 0.84 0.94
OLMo-7B-Instruct     72 0.78 0.72 0.78 0.88 0.97 0.71 0.63 0.73 0.78 0.83
falcon-7b-instruct   68 0.79 0.80 0.77 0.91 0.98 0.77 0.67 0.81 0.77 0.86
all                  73 0.82 0.79 0.81 0.92 0.98 0.79 0.67 0.80 0.81 0.88
"""
"""Percent above standard held out; then accuracy, precision, recall, AUROC and AUPR, each for standard and max."""

TABLE_4 = """
code_line_description                100 0.50 0.50 1.00 1.00
bbq_lite_json                        94  0.67 0.78 0.96 0.97
hindu_knowledge                      100 0.50 0.50 1.00 1.00
novel_concepts                       93  0.50 0.46 0.93 0.92
emoji_movie                          62  0.50 0.53 0.62 0.64
vitaminc_fact_verification           83  0.96 0.94 0.98 0.98
conceptual_combinations              81  0.50 0.55 0.81 0.83
formal_fallacies_syllogisms_negation 37  0.58 0.51 0.41 0.37
known_unknowns                       59  0.49 0.57 0.59 0.63
logical_deduction                    81  0.50 0.48 0.81 0.80
play_dialog_same_or_different        59  0.98 0.95 0.97 0.95
strange_stories                      69  0.65 0.80 0.77 0.86
symbol_interpretation                17  0.78 0.50 0.33 0.17
winowhy                              100 n/a  n/a  1.00 1.00
strategyqa                           93  0.50 0.50 0.93 0.93
"""
"""Percent above standard held out; then AUROC and AUPR. The paper has no row for language_identification."""

Cell = tuple[str, str, str, float | None, int]


def printed_cells() -> pl.DataFrame:
    """Return every transcribed cell; `published` is null where the paper prints no number."""
    cells: list[Cell] = [("section 4", SECTION_4, "expected best accuracy", EXPECTED_BEST, 3)]
    for line in TEXT.strip().splitlines():
        name, number = line.rsplit(maxsplit=1)
        cells.append(("section 5.1", "all", name.strip(), float(number), len(number.partition(".")[2])))
    cells += [("1", name, "disagreements", float(n), 0) for name, n in map(str.split, TABLE_1.strip().splitlines())]
    cells += [
        ("1", f"{model}, {shots}-shot", "disagreements", float(n), 0)
        for shots, models in TABLE_1_MODELS.items()
        for model, n in models.items()
    ]
    cells += [("2", "all", name, number, decimals) for name, (number, decimals) in TABLE_2.items()]
    cells += _held_out("3", TABLE_3, ("accuracy", "precision", "recall", "auroc", "aupr"))
    cells += _held_out("4", TABLE_4, ("auroc", "aupr"))
    types = dict.fromkeys(("table", "row", "column"), pl.String) | {"published": pl.Float64, "decimals": pl.Int64}
    return pl.DataFrame(cells, schema=types, orient="row")


def _held_out(table: str, body: str, scores: tuple[str, ...]) -> list[Cell]:
    columns = [f"{score}, {predictor}" for score in scores for predictor in PREDICTORS]
    cells: list[Cell] = []
    for name, percent, *numbers in map(str.split, body.strip().splitlines()):
        cells.append((table, name, "share above", float(percent) / 100, 2))
        cells += [
            (table, name, column, None if number == "n/a" else float(number), 2)
            for column, number in zip(columns, numbers, strict=True)
        ]
    return cells
