"""Time building StaICC (ten datasets, k = 4, tokenised) with the command in a separate process, as a user runs it.

Build StaICC-Normal first, then all of StaICC with the noisy channel. "Cold" starts without converted datasets, store
and tokens; "there already" starts with all of them. The toolkit builds the same strings and nothing else. Measuring of
fake scores is timed as well.

    python -m benchmarks.end_to_end.build [runs] [runs of the whole]
"""

import contextlib
import io
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import evaluator
from benchmarks.harness import Target, Work, print_targets, race
from evaluator.datasets import SOURCES
from evaluator.datasets.staicc import load_staicc
from evaluator.models.embedded import tokenizer_texts
from evaluator.models.embedded.llama import make_random_llama

NORMAL = ("staicc-normal",)
WHOLE = ("staicc", "--methods", "vanilla,noisy_channel", "--definition")
N_REQUESTS = 10_240
N_RELEASED = 135_976
N_PAPER = 249_856


def main(runs: int = 3, runs_of_the_whole: int = 1) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = make_random_llama(folder / "model", texts=tokenizer_texts([load_staicc(name) for name in SOURCES]))
        command(folder, "build", *NORMAL, "--out", folder / "there", "--model", model)
        timings = race(
            work("prompts, ten datasets"),
            {
                "StaICC toolkit": toolkit_prompts,
                "cold, tokenised": lambda: cold(folder, model, NORMAL),
                "there already, tokenised": lambda: build(folder, folder / "there", model, NORMAL),
            },
            runs=runs,
        )
        whole = race(
            work("all of StaICC in the toolkit's sizes, ten datasets", N_RELEASED),
            {"StaICC toolkit": toolkit_whole, "cold, tokenised": lambda: cold(folder, model, (*WHOLE, "released"))},
            runs=runs_of_the_whole,
        )
        papers = race(
            work("all of StaICC in the paper's sizes, ten datasets", N_PAPER),
            {"cold, tokenised": lambda: cold(folder, model, (*WHOLE, "paper"))},
            runs=runs_of_the_whole,
        )
        command(folder, "run", *NORMAL, "--model", "fake", "--engine", "fake", "--out", folder / "fake")
        memory = race(work("metrics and intervals"), {"measure": lambda: measure(folder, folder / "fake")}, runs=runs)
    print_targets(
        Target(what="all in the toolkit's sizes, cold, seconds", value=whole["cold, tokenised"].median_s, at_most=45),
        Target(what="peak memory of that, GB", value=whole["cold, tokenised"].added_mib * 2**20 / 1e9, at_most=4),
        Target(what="all in the paper's sizes, cold, seconds", value=papers["cold, tokenised"].median_s, at_most=120),
        Target(what="cold, seconds", value=timings["cold, tokenised"].median_s, at_most=10),
        Target(what="there already, seconds", value=timings["there already, tokenised"].median_s, at_most=1),
        Target(what="measuring, seconds", value=memory["measure"].median_s, at_most=3),
        Target(
            what="peak memory of building and of measuring, GB",
            value=max(timings["cold, tokenised"].added_mib, memory["measure"].added_mib) * 2**20 / 1e9,
            at_most=1.5,
        ),
    )


def work(case: str, items: int = N_REQUESTS) -> Work:
    return Work(
        benchmark="build", case=case, items=items, unit="requests", packages=["polars", "pyarrow", "tokenizers"]
    )


def command(folder: Path, *words: object) -> None:
    environment = os.environ | {"EVALUATOR_CACHE": str(folder / "cache")}
    subprocess.run(
        [sys.executable, "-m", "evaluator", *map(str, words)], env=environment, check=True, capture_output=True
    )


def cold(folder: Path, model: Path, arguments: tuple[str, ...]) -> list[str]:
    shutil.rmtree(folder / "cache", ignore_errors=True)
    shutil.rmtree(folder / "cold", ignore_errors=True)
    return build(folder, folder / "cold", model, arguments)


def build(folder: Path, out: Path, model: Path, arguments: tuple[str, ...]) -> list[str]:
    """Run the build command and return the sorted prompts, on which all contestants must agree."""
    command(folder, "build", *arguments, "--out", out, "--model", model)
    return evaluator.read_requests(out).select("prompt").collect()["prompt"].sort().to_list()


def measure(folder: Path, out: Path) -> None:
    command(folder, "measure", out)


def toolkit_prompts() -> list[str]:
    from StaICC.normal import Normal

    with contextlib.redirect_stdout(io.StringIO()):
        return sorted(prompt for experiment in Normal(k=4).experimentor for prompt in experiment.prompt_set())


def toolkit_whole() -> list[str]:
    """Return the sorted prompts that runs of all parts of the toolkit send to a model."""
    from StaICC import diagnosis
    from StaICC.normal import Normal

    sent: list[str] = []

    def note(prompt: list[Any], label_space: list[str]) -> list[list[float]]:
        for texts in prompt:
            sent.extend(texts if isinstance(texts, list) else [texts])
        return [[1.0] + [0.0] * (len(label_space) - 1)] * len(prompt)

    parts = (
        Normal,
        diagnosis.Contextual_bias,
        diagnosis.Domain_bias,
        diagnosis.GLER,
        diagnosis.Template_sens,
        diagnosis.Demo_sens,
    )
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for benchmark in (*(part(k=4) for part in parts), Normal(k=4, noisy_channel=True)):
            for experiment in benchmark.experimentor:
                experiment(forward_inference=note, batched_inference=True)
    return sorted(sent)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
