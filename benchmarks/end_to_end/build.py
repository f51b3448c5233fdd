"""Building StaICC-Normal (ten datasets, k = 4, tokenised) as a user does: the command, in a process of its own.

Cold: no converted dataset, no store, no tokens. There already: everything is. The toolkit writes the same strings, and
those alone; building and measuring together must stay small, so the metrics of fake scores are measured as well.

    python -m benchmarks.end_to_end.build [runs]
"""

import contextlib
import io
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import evaluator
from benchmarks.harness import Target, Work, print_targets, race
from evaluator.datasets import DATASETS
from evaluator.embedded.random_llama import make_random_llama
from evaluator.embedded.random_model import tokenizer_texts

SUITE = "staicc-normal"
N_REQUESTS = 10_240


def main(runs: int = 3) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = make_random_llama(folder / "model", texts=tokenizer_texts([load() for load in DATASETS.values()]))
        command(folder, "build", SUITE, "--out", folder / "there", "--model", model)
        timings = race(
            work("prompts, ten datasets"),
            {
                "StaICC toolkit": toolkit_prompts,
                "cold, tokenised": lambda: cold(folder, model),
                "there already, tokenised": lambda: build(folder, folder / "there", model),
            },
            runs=runs,
        )
        command(folder, "run", SUITE, "--model", "fake", "--engine", "fake", "--out", folder / "fake")
        memory = race(work("metrics and intervals"), {"measure": lambda: measure(folder, folder / "fake")}, runs=runs)
    print_targets(
        Target(what="cold, seconds", value=timings["cold, tokenised"].median_s, at_most=10),
        Target(what="there already, seconds", value=timings["there already, tokenised"].median_s, at_most=1),
        Target(what="measuring, seconds", value=memory["measure"].median_s, at_most=3),
        Target(
            what="peak memory of building and of measuring, GB",
            value=max(timings["cold, tokenised"].added_mib, memory["measure"].added_mib) * 2**20 / 1e9,
            at_most=1.5,
        ),
    )


def work(case: str) -> Work:
    return Work(
        benchmark="build", case=case, items=N_REQUESTS, unit="requests", packages=["polars", "pyarrow", "tokenizers"]
    )


def command(folder: Path, *words: object) -> None:
    environment = os.environ | {"EVALUATOR_CACHE": str(folder / "cache")}
    subprocess.run(
        [sys.executable, "-m", "evaluator", *map(str, words)], env=environment, check=True, capture_output=True
    )


def cold(folder: Path, model: Path) -> list[str]:
    shutil.rmtree(folder / "cache", ignore_errors=True)
    shutil.rmtree(folder / "cold", ignore_errors=True)
    return build(folder, folder / "cold", model)


def build(folder: Path, out: Path, model: Path) -> list[str]:
    """The prompts, sorted: what every contestant must agree on."""
    command(folder, "build", SUITE, "--out", out, "--model", model)
    return evaluator.read_requests(out).select("prompt").collect()["prompt"].sort().to_list()


def measure(folder: Path, out: Path) -> None:
    command(folder, "measure", out)


def toolkit_prompts() -> list[str]:
    from StaICC.normal import Normal

    with contextlib.redirect_stdout(io.StringIO()):
        return sorted(prompt for experiment in Normal(k=4).experimentor for prompt in experiment.prompt_set())


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
