"""Time building in-context PVI on MultiNLI with the command in a separate process, without cached files.

Prompts have three published sets of 3 and of 6 demonstrations and 9,815 queries, and are tokenised. The data is in the
folder `pvi` of $EVALUATOR_SHARED_DATA. The tokenizer of a random Llama is trained on the same texts.

    python -m benchmarks.end_to_end.pvi_build [runs]
"""

import shutil
import sys
import tempfile
from pathlib import Path

import polars as pl

from benchmarks.end_to_end.build import command
from benchmarks.harness import SHARED_DATA, Target, Work, print_targets, race
from evaluator.config import DataOptions
from evaluator.datasets.conversions import as_classification
from evaluator.datasets.sources import load_datasets
from evaluator.models.embedded.llama import make_random_llama
from evaluator.run.folder import BuiltFolder

DATA = SHARED_DATA / "pvi"
N_QUERIES, N_SETS, N_SHOT_COUNTS = 9_815, 3, 2
N_INPUTS, N_NULLS = N_SHOT_COUNTS * N_SETS * N_QUERIES, N_SHOT_COUNTS * N_SETS


def main(runs: int = 3) -> None:
    if not DATA.is_dir():
        raise SystemExit(f"{DATA} is absent; EVALUATOR_SHARED_DATA names the folder that holds it.")
    work = Work(
        benchmark="pvi_build",
        case="MultiNLI, 3 sets of 3 and of 6 shots, published demonstrations",
        items=N_INPUTS,
        unit="requests",
        packages=["polars", "pyarrow", "tokenizers"],
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = tokenizer(folder / "model")
        timing = race(work, {"cold, tokenised": lambda: cold(folder, model)}, runs=runs)["cold, tokenised"]
    print_targets(
        Target(what="cold, tokenised, seconds", value=timing.median_s, at_most=40),
        Target(what="peak memory of that, GB", value=timing.added_mib * 2**20 / 1e9, at_most=4),
    )


def tokenizer(folder: Path) -> Path:
    (loaded,) = load_datasets(["multinli"], DataOptions(paths=(DATA,)), query_every_row=True)
    multinli = as_classification(loaded)
    label_text = multinli.verbalizer.text(pl.col("gold"))
    texts = multinli.test.select(multinli.template.demonstration(pl.col("texts"), label_text)).to_series()
    return make_random_llama(folder, texts=texts)


def cold(folder: Path, model: Path) -> None:
    out = folder / "cold"
    shutil.rmtree(out, ignore_errors=True)
    words = ("--data", DATA, "--datasets", "multinli", "--demonstrations", "published", "--sets", N_SETS)
    command(folder, "build", "pvi", *words, "--out", out, "--model", model)
    assert BuiltFolder(out).built.store.manifest.n_requests == N_INPUTS + N_NULLS, (
        "every query has a prompt with every set"
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
