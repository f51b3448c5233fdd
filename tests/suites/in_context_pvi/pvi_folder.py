"""A hand-made folder of the published tables: thirty SNLI pairs, twelve CoLA training sentences and nine to ask."""

from pathlib import Path

import polars as pl

GOLD = ("contradiction", "entailment", "neutral")


def write_folder(folder: Path) -> Path:
    numbers = range(30)
    pl.DataFrame(
        {
            "sentence1": [f"Dog {n} runs." for n in numbers],
            "sentence2": [f"Animal {n} moves." for n in numbers],
            "gold_label": [GOLD[n % 3] for n in numbers],
        }
    ).write_parquet(folder / "snli_test.parquet")
    for name, kind, size in (("cola_in_domain_train", "Shown", 12), ("cola_in_domain_dev", "Asked", 9)):
        sentences = [f"{kind} sentence {n}." for n in range(size)]
        labels = pl.Series([n % 2 for n in range(size)], dtype=pl.Int8)
        pl.DataFrame({"label": labels, "sentence": sentences}).write_parquet(folder / f"{name}.parquet")
    write_prompts(folder)
    return folder


def write_prompts(folder: Path) -> None:
    """Published demonstrations of SNLI: two sets of 3 and of 6 shots, of which set 2 is written first."""
    rows = []
    for prompt_set, labels in (("2", "102021"), ("1", "210012")):
        for shots in (6, 3):
            inputs = [f"SENTENCE1: Cat {n}  \nSENTENCE2: Pet {n}\nQUESTION: Which?\n" for n in range(shots)]
            answers = [f"ANSWER: {label}\n\n" for label in labels[:shots]]
            whole = "".join(text + answer for text, answer in zip(inputs, answers, strict=True))
            for kind, text in (("g_prime", whole), ("g", "".join(answers))):
                rows.append({"prompt_set": prompt_set, "dataset": "snli", "kind": kind, "shots": shots, "text": text})
    pl.DataFrame(rows, schema_overrides={"shots": pl.Int8}).write_parquet(folder / "prompts.parquet")
