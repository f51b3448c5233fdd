"""Time `evaluator reproduce yauney-mimno-2024` against a script that only computes verdicts with max-random-baseline.

python -m benchmarks.columnar.published_baselines

The released results are needed in the folder random_baselines of $EVALUATOR_SHARED_DATA, by default ../shared/data next
to the repository. The script does a small part of the work: no held-out trials, sound rules, tables or figures.
"""

import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import polars as pl
from max_random_baseline.max_random_baseline import max_random_baseline

from benchmarks.harness import ROOT, SHARED_DATA, Target, Work, print_targets, race, require_green_tests
from evaluator.reproductions.yauney_mimno_2024.data import EXPERIMENT, TASKS

DATA = SHARED_DATA / "random_baselines"

Totals = dict[str, int]


def main() -> None:
    if not DATA.is_dir():
        raise SystemExit(f"{DATA} is absent; EVALUATOR_SHARED_DATA names the folder that holds random_baselines.")
    require_green_tests("tests/reproductions/yauney_mimno_2024")
    work = Work(
        benchmark="published_baselines",
        case="288 experiments",
        items=8_131_781,
        unit="rows",
        packages=["polars", "max-random-baseline"],
    )
    timings = race(work, {"package, verdicts": by_package, "evaluator, whole command": by_command}, runs=3)
    ours = timings["evaluator, whole command"]
    print_targets(
        Target(what="whole command, s", value=ours.median_s, at_most=20),
        Target(what="whole command, peak GiB, the benchmark's own included", value=ours.peak_mib / 1024, at_most=2),
    )


def by_package() -> Totals:
    """Count verdicts under the authors' rules, as a short script would."""
    rows = pl.read_parquet(DATA / "few_shot_predictions.parquet", columns=[*EXPERIMENT, "prompt_id", "correct"])
    accuracy = rows.group_by(*EXPERIMENT, "prompt_id").agg(pl.col("correct").mean())
    verdicts: Counter[str] = Counter()
    for _, dataset, shots, best in accuracy.group_by(EXPERIMENT).agg(pl.col("correct").max()).iter_rows():
        task = TASKS[dataset]
        chance = task.stated_chance
        if best >= chance:
            verdicts["above standard"] += 1
            verdicts["above both"] += int(
                best > max_random_baseline(task.stated_n(shots), chance, task.stated_tries(shots))
            )
    return dict(verdicts)


def by_command() -> Totals:
    with tempfile.TemporaryDirectory() as folder:
        words = ["reproduce", "yauney-mimno-2024", "--data", str(DATA), "--out", folder]
        subprocess.run([sys.executable, "-m", "evaluator", *words], cwd=ROOT, check=True, capture_output=True)
        totals = pl.read_parquet(Path(folder) / "tables" / "totals.parquet").filter(rules="released")
        return {"above standard": totals["above_standard"].item(), "above both": totals["above_max"].item()}


if __name__ == "__main__":
    main()
