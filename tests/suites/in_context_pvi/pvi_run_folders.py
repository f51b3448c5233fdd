"""Hand-made folders of runs of the suite pvi: what `evaluator run pvi` leaves that a comparison reads."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl

from evaluator.schemas import PREDICTIONS
from evaluator.suites.in_context_pvi.schema import PVI_KEY
from tests.compare.run_folders import put_table, write_run
from tests.suites.in_context_pvi.pvi_answers import run_table

RUNS = {"zoo": [(2, 0), (2, 1), (4, 0), (4, 1)], "abc": [(4, 0), (4, 1), (8, 0), (8, 1)]}
N_QUERIES = 12
DEFINITIONS = ("paper", "label_space")


def asked_of(*asked: object) -> str:
    return f"prompt {asked}"


def pvi_predictions(
    seed: int, prompt: Callable[..., str] = asked_of, datasets: tuple[str, ...] = tuple(RUNS)
) -> pl.DataFrame:
    """Probabilities at random; `prompt` names what was asked by dataset, n_shots, set and query_id."""
    rng = np.random.default_rng(seed)
    rows = []
    for dataset in datasets:
        for place, (n_shots, number) in enumerate(RUNS[dataset]):
            for query in range(N_QUERIES):
                probs = rng.dirichlet([1, 1]).tolist()
                about = {"suite": "pvi", "part": "input", "dataset": dataset, "method": "vanilla"}
                where = {"position": place * N_QUERIES + query, "query_id": query, "demonstration_set": number}
                asked = {"n_shots": n_shots, "prompt_id": prompt(dataset, n_shots, number, query)}
                said = {"gold": query % 2, "pred": int(np.argmax(probs)), "label_probs": probs}
                row = about | where | asked | said | {"label_names": ["0", "1"]}
                rows += [row | {"definition": definition} for definition in ("paper", "released")]
    return pl.DataFrame(rows, schema=PREDICTIONS)


def random_pvi(seed: int, definitions: tuple[str, ...] = DEFINITIONS) -> pl.DataFrame:
    """schema.PVI; what makes a query hard is in part the same for all seeds, and the first query has none."""
    frames = []
    for place, (dataset, runs) in enumerate(RUNS.items()):
        shared = np.random.default_rng(place).normal(size=N_QUERIES)
        rng = np.random.default_rng([seed, place])
        for n_shots, number in runs:
            for definition in definitions:
                values = (shared + rng.normal(size=N_QUERIES)).tolist()
                run = {"dataset": dataset, "n_shots": n_shots, "demonstration_set": number, "definition": definition}
                frames.append(run_table([None, *values[1:]], [True] * N_QUERIES, **run))
    return pl.concat(frames).sort(PVI_KEY)


def write_pvi_run(folder: Path, model: str, predictions: pl.DataFrame, pvi: pl.DataFrame | None) -> Path:
    """`pvi` as tables/pvi.parquet, where there is one."""
    prompts = {"suites": ["pvi"], "shots": "number of labels, and twice as many", "n_shots": None}
    write_run(folder, model, predictions, prompts=prompts)
    if pvi is not None:
        put_table(folder, "pvi", pvi)
    return folder
