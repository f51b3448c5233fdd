"""A folder like that of the released results, small enough to judge by hand: one task, two models, four prompts."""

from pathlib import Path

import polars as pl

TASK, N_ROWS = "known_unknowns", 46  # two choices, so a chance of 1/2
MODELS = {"OLMo-7B": "OLMo-7B, Base model", "OLMo-7B-Instruct": "OLMo-7B, Instruction-tuned"}
EXAMPLES = range(10, 18)
DEMONSTRATIONS = [[1], [2], [2], [3]]  # of prompts 0 to 3: two are the same prompt
CORRECT = {
    "OLMo-7B": [5, 4, 4, 6],  # of 8, by prompt
    "OLMo-7B-Instruct": [2, 4, 4, 3],
}
KEY = ["model", "dataset", "shots", "prompt_id"]


def predictions() -> pl.DataFrame:
    """Losses of prompt 0 are the same for both models, and differ for others; prompt 3 lost its query."""
    rows = [
        {
            "model": model,
            "dataset": TASK,
            "shots": 1,
            "prompt_id": prompt,
            "example_id": example,
            "loss": _loss(model, prompt, place),
            "correct": int(place < n_correct),
        }
        for model, counts in CORRECT.items()
        for prompt, n_correct in enumerate(counts)
        for place, example in enumerate(EXAMPLES)
    ]
    types = {"shots": pl.Int8, "prompt_id": pl.Int16, "example_id": pl.Int32, "loss": pl.Float32, "correct": pl.Int8}
    return pl.DataFrame(rows, schema_overrides=types).with_columns(pl.col("model", "dataset").cast(pl.Categorical))


def _loss(model: str, prompt: int, place: int) -> float:
    if prompt == 3:
        return 0.25
    return place / 8 if prompt == 0 else place / 8 + prompt + len(model)


def demonstrations() -> pl.DataFrame:
    own = pl.DataFrame({"prompt_id": range(4), "demonstration_ids": DEMONSTRATIONS})
    types = {"shots": pl.Int8, "prompt_id": pl.Int16, "demonstration_ids": pl.List(pl.Int32)}
    frame = pl.DataFrame({"model": list(MODELS), "dataset": TASK, "shots": 1}).join(own, how="cross")
    return frame.select(*KEY, "demonstration_ids").cast(types)


def held_out() -> pl.DataFrame:
    """Four trials a model and number of tries: two that are above and two that are not, on train and held out alike."""
    trials = pl.DataFrame(
        {
            "split": range(4),
            "above_max_random_on_train": [0, 0, 0, 1],
            "above_standard_random_on_train": [0, 1, 1, 1],
            "max_random_f": [0.0, 0.2, 0.5, 0.9],
            "standard_random_f": [0.1, 0.6, 0.7, 1.0],
            "above_standard_random_on_test": [0, 0, 1, 1],
        }
    )
    keys = pl.DataFrame({"model": list(MODELS.values()), "dataset": TASK, "shots": 1})
    return pl.DataFrame({"t": [1, 200]}).join(keys, how="cross").join(trials, how="cross")


def write_folder(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    predictions().write_parquet(folder / "few_shot_predictions.parquet")
    demonstrations().write_parquet(folder / "demonstrations.parquet")
    held_out().write_parquet(folder / "held_out_splits.parquet")
    samples = pl.DataFrame({"dataset": ["winowhy"], "position": [0], "example_id": [6]})
    samples.write_parquet(folder / "subsampled_ids.parquet")
    return folder
