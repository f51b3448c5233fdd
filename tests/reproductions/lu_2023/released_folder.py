"""A folder like that of the released results, small enough to work by hand: two datasets, two models."""

from pathlib import Path

import polars as pl

SETS = ("1a", "2a", "3a")
COLA, BOOLQ = "cola/raw/in_domain_dev.tsv", "boolq/dev.csv"
RIGHT_PVI = {("1a", 4): 1.0, ("1a", 8): 3.0, ("2a", 4): 2.0, ("2a", 8): 4.0, ("3a", 4): 6.0, ("3a", 8): 8.0}
"""Mean PVI of right answers of GPT2-125M on CoLA: the groups worked by hand in tests/statistics/test_anova.py."""


def run(
    dataset: str, model: str, demonstration_set: str, shots: int, accuracy: float, right_pvi: float
) -> dict[str, object]:
    return {
        "dataset": dataset,
        "number_of_data": {COLA: 527, BOOLQ: 3270}[dataset],
        "model": model,
        "prompt_set": demonstration_set,
        "number_of_shots": shots,
        "accuracy": accuracy,
        "average_pvi_for_T": right_pvi,
        "average_pvi_for_F": -1.0,
        "accuracy_for_pvi<1/5quantile": 0.25,
        "accuracy_for_pvi>4/5quantile": 0.75,
        "accuracy_for_pvi<1/2quantile": 0.375,
        "accuracy_for_pvi>1/2quantile": 0.5,
    }


def runs() -> pl.DataFrame:
    """CoLA as accurate as printed in table 14(a) without GPT3-175B, BoolQ as in its 4-shot runs alone."""
    return pl.DataFrame(
        [
            *(run(COLA, "gpt2", which, shots, 0.5175, pvi) for (which, shots), pvi in RIGHT_PVI.items()),
            *(run(COLA, "text-davinci-003", which, 4, 0.7242, 1.164) for which in SETS),
            *(run(BOOLQ, "gpt2", which, 2, 0.9, 0.5) for which in SETS),
            *(run(BOOLQ, "gpt2", which, 4, 0.4543, 0.2) for which in SETS),
        ]
    )


def across_sets() -> pl.DataFrame:
    """Averages .7 and .2 of two cases of the paper's models, and -.1 of a model that it does not name."""
    cases = [
        ("gpt2", 4, [0.9, 0.8, 0.4]),
        ("gpt2", 8, [0.1, 0.2, 0.3]),
        ("EleutherAI/gpt-neox-20b", 4, [-0.1, -0.1, -0.1]),
    ]
    return pl.DataFrame(
        [
            {"dataset": COLA, "model": model, "number_of_shot": shots, "r": str(r), "p": str([0.0] * 3)}
            for model, shots, r in cases
        ]
    )


def across_shots() -> pl.DataFrame:
    return pl.DataFrame({"dataset": COLA, "model": "gpt2", "prompt_set": SETS, "r": [0.7, 0.74, -0.12], "p": [0.0] * 3})


def write_folder(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    runs().write_parquet(folder / "results.parquet")
    across_sets().write_parquet(folder / "consistency_by_exemplar.parquet")
    across_shots().write_parquet(folder / "consistency_by_number_of_shots.parquet")
    return folder
