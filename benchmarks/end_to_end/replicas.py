"""Time whole commands with one replica on one core and with two replicas on two cores, and what Ray costs a command.

Scores are those of a 28 M-parameter random Llama on vLLM in fp32, on prompts that share little; what Ray costs is
measured with the fake engine, which takes no time.

    python -m benchmarks.end_to_end.replicas [queries a dataset] [runs]
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.harness import Target, Work, print_targets, race
from benchmarks.throughput.workloads import SHAPES
from evaluator.datasets.staicc import load_staicc
from evaluator.engine.device import cores
from evaluator.models.embedded.random_llama import make_random_llama
from evaluator.models.embedded.random_model import tokenizer_texts
from evaluator.run.folder import read_scores
from evaluator.run.record import read_run

DATASETS = ("sst5", "trec", "agnews", "subjective", "glue_sst2", "rotten_tomatoes")
TOLERANCE_NATS = 1e-5


def main(queries: int = 512, runs: int = 3) -> None:
    with tempfile.TemporaryDirectory() as name:
        model = Path(name) / "llama-28m"
        make_random_llama(model, texts=tokenizer_texts([load_staicc(one) for one in DATASETS]), size=SHAPES["28M"])
        rates: list[float] = []  # of each run: prompts a second while shards were computed
        folders = (Path(name) / str(number) for number in count())

        def command(words: Sequence[str], n_cores: int) -> pl.DataFrame:
            out = next(folders)
            run_on(n_cores, ["run", "staicc-normal", "--out", str(out), *words])
            scores = read_run(out).scores
            assert scores is not None, "the run was scored"
            rates.append(scores.throughput.requests_per_s)
            return read_scores(out).collect().sort("dataset", "position")

        scored = ["--datasets", ",".join(DATASETS), "--queries", str(queries), "--model", str(model)]
        vllm = [*scored, "--engine", "vllm", "--dtype", "float32"]
        contestants: dict[str, Callable[[], pl.DataFrame]] = {
            "one replica on one core": partial(command, vllm, 1),
            "two replicas on two cores": partial(command, [*vllm, "--devices", "2"], 2),
        }
        work = work_of(f"28 M random Llama, fp32, {queries} queries of {len(DATASETS)} datasets", queries)
        seconds = race(work, contestants, runs=runs, same=same, starts_anew=True)
        one, two = (seconds[contestant].median_s for contestant in contestants)
        one_rate, two_rate = float(np.median(rates[0::2])), float(np.median(rates[1::2]))
        print(f"scoring alone: {one_rate:.2f} prompts/s on one core, {two_rate:.2f} on two, x{two_rate / one_rate:.2f}")

        nothing = ["--datasets", "sst5", "--queries", "16", "--model", "fake", "--engine", "fake"]
        contestants = {
            "in this process": partial(command, nothing, 2),
            "on Ray": partial(command, [*nothing, "--devices", "2"], 2),
        }
        seconds = race(
            work_of("a command without a model", 4), contestants, runs=max(runs, 3), same=same, starts_anew=True
        )
        alone, on_ray = (seconds[contestant].median_s for contestant in contestants)
    print_targets(
        Target(what="two replicas, times one", value=one / two, at_least=1.7),
        Target(what="Ray, seconds a command", value=on_ray - alone, at_most=8),
        Target(what="lost of two replicas' scoring", value=1 - two_rate / (2 * one_rate), at_most=0.02),
    )


def run_on(n_cores: int, words: Sequence[str]) -> None:
    """Run the command in a process of its own, on the first cores of this one."""
    some = cores()[:n_cores]
    subprocess.run(
        [sys.executable, "-m", "evaluator", *words],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"OMP_NUM_THREADS": str(n_cores)},
        preexec_fn=lambda: os.sched_setaffinity(0, some),
    )


def same(expected: pl.DataFrame, found: pl.DataFrame) -> None:
    assert expected["prompt_id"].to_list() == found["prompt_id"].to_list()
    before, after = (scores["label_log_likelihoods"].explode().to_numpy() for scores in (expected, found))
    np.testing.assert_allclose(after, before, rtol=0, atol=TOLERANCE_NATS)


def work_of(case: str, queries: int) -> Work:
    packages = ("torch", "transformers", "ray")
    return Work(benchmark="replicas", case=case, items=queries * len(DATASETS), unit="prompts", packages=packages)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
