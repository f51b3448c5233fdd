"""Measure the time and the size of a board of 1,000 runs.

    python -m benchmarks.end_to_end.board [runs]

A small StaICC-Normal run with the fake engine is copied, and every copy gets other answers, so that 20 rankings of 50
runs are tested. The command runs in a separate process, and the time includes its start.
"""

import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.harness import Target, append_rows, print_targets
from evaluator.files.json_files import write_record
from evaluator.files.whole import write_table
from evaluator.run.folders import RUN_FILE, read_run

COMMAND = (sys.executable, "-m", "evaluator")
QUERIES, IN_A_RANKING = 64, 50


def main(n_runs: int = 1000) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fake = ("--model", "fake", "--engine", "fake", "--queries", str(QUERIES))
        subprocess.run([*COMMAND, "run", "staicc-normal", *fake, "--out", folder / "first"], check=True)
        for number in range(n_runs):
            write_copy(folder / "first", folder / "runs" / f"run-{number:04}", number)
        start = time.perf_counter()
        subprocess.run([*COMMAND, "board", folder / "runs", "--out", folder / "board"], check=True)
        seconds = time.perf_counter() - start
        megabytes = (folder / "board/index.html").stat().st_size / 1e6
    row = {"contestant": "evaluator board", "seconds": round(seconds, 2), "page_mb": round(megabytes, 2)}
    append_rows("board", f"{n_runs:,} runs of {10 * QUERIES} queries", ["polars", "numpy"], [row])
    print_targets(
        Target(what="board of 1,000 runs, s", value=seconds, at_most=20),
        Target(what="its page, MB", value=megabytes, at_most=5),
    )


def write_copy(source: Path, folder: Path, number: int) -> None:
    """Write a copy of a run with random answers; all runs of a ranking have the same prompt ids."""
    record = read_run(source)
    assert record.measures is not None
    assert record.model is not None
    rng, ranking = np.random.default_rng(number), number // IN_A_RANKING
    predictions, metrics = (pl.read_parquet(source / f"tables/{name}.parquet") for name in ("predictions", "metrics"))
    is_right = pl.Series(rng.random(predictions.height) < rng.uniform(0.3, 0.8))
    predictions = predictions.with_columns(
        pl.col("prompt_id") + f"-{ranking}",
        pred=pl.when(is_right).then("gold").otherwise((pl.col("gold") + 1) % pl.col("label_names").list.len()),
    )
    digests = {
        name: write_table(folder, name, table) for name, table in (("predictions", predictions), ("metrics", metrics))
    }
    model = replace(record.model, name=f"acme/model-{number}-7b", n_parameters=10**7 * (number + 1))
    scores = replace(record.scores, files={"drawn": str(number)}) if record.scores else None
    measures = replace(record.measures, tables=digests, scores=scores.fingerprint if scores else "")
    write_record(folder / RUN_FILE, replace(record, model=model, scores=scores, measures=measures, receipts={}))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
