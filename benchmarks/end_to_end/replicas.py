"""Time whole commands with one replica on one core and with two replicas on two cores, and the overhead of Ray.

The model is a random Llama with 28 million parameters in vLLM and fp32; prompts share little. The overhead of Ray per
command is measured with the fake engine, which needs no time; its overhead in scoring is measured against two
simultaneous commands.

    python -m benchmarks.end_to_end.replicas [queries per dataset] [runs]

Time a command with two models (the model that ships, and a random model of the same size): one after the other on both
cores, and at the same time on one core each.

    python -m benchmarks.end_to_end.replicas models [queries per dataset] [runs]
"""

import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from benchmarks.engine_work import random_llama
from benchmarks.harness import Target, Work, print_targets, race
from evaluator.engine.devices import cores
from evaluator.run.folder import read_scores
from evaluator.run.folders import read_run

HALVES = (("agnews", "rotten_tomatoes"), ("sst5", "trec", "subjective", "glue_sst2"))  # about equal numbers of tokens
DATASETS = (*HALVES[0], *HALVES[1])
TOLERANCE_NATS = 1e-5
ONE, TWO = "one replica on one core", "two replicas on two cores"
APART = "two commands at once, half the datasets each"  # the rate of two cores without Ray
HERE, ON_RAY = "in this process", "on Ray"
WITHOUT_MODEL = "a command without a model"
RUN = ("run", "staicc-normal")


class Command(NamedTuple):
    """The arguments of a command, and the cores on which it runs."""

    cores: Sequence[int]
    words: Sequence[str]


def main(queries: int = 512, runs: int = 3) -> None:
    first, second = cores()[:2]
    with tempfile.TemporaryDirectory() as name:
        model = random_llama(Path(name), datasets=DATASETS)
        folders = (Path(name) / str(number) for number in count())
        rates: dict[str, list[float]] = defaultdict(list)  # contestant -> computed tokens per second of every run

        def command(contestant: str, *started: Command) -> pl.DataFrame:
            """Run commands at the same time, record their rate, and return their scores."""
            outs = [next(folders) for _ in started]
            processes = [start(one, out) for one, out in zip(started, outs, strict=True)]
            if any(code != 0 for code in [process.wait() for process in processes]):
                raise SystemExit(f"{contestant}: a command failed")
            scored = [scores for out in outs if (scores := read_run(out).scores) is not None]
            assert len(scored) == len(started), "every run was scored"
            rates[contestant].append(sum(scores.throughput.computed_tokens_per_s for scores in scored))
            return pl.concat([read_scores(out).collect() for out in outs]).sort("dataset", "position")

        def vllm(datasets: Sequence[str], on: Sequence[int], *more: str) -> Command:
            words = ["--datasets", ",".join(datasets), "--queries", str(queries), "--model", str(model)]
            return Command(on, [*RUN, *words, "--engine", "vllm", "--dtype", "float32", *more])

        one = [vllm(DATASETS, [first])]
        two = [vllm(DATASETS, [first, second], "--devices", "2")]
        apart = [vllm(HALVES[0], [first]), vllm(HALVES[1], [second])]
        work = work_of(f"28 M random Llama, fp32, {queries} queries of {len(DATASETS)} datasets", queries)
        seconds = race(
            work, contestants(command, {ONE: one, TWO: two, APART: apart}), runs=runs, same=same, starts_anew=True
        )
        rate = {contestant: float(np.median(of_one)) for contestant, of_one in rates.items()}
        for contestant, value in rate.items():
            print(f"scoring alone, {contestant}: {value:,.0f} computed tokens/s, {value / rate[ONE]:.2f} times one")

        nothing = [*RUN, "--datasets", "sst5", "--queries", "16", "--model", "fake", "--engine", "fake"]
        here, on_ray = [Command([first, second], nothing)], [Command([first, second], [*nothing, "--devices", "2"])]
        work = work_of(WITHOUT_MODEL, 4)
        bare = race(
            work, contestants(command, {HERE: here, ON_RAY: on_ray}), runs=max(runs, 3), same=same, starts_anew=True
        )
    print_targets(
        Target(what="two replicas, times one", value=seconds[ONE].median_s / seconds[TWO].median_s, at_least=1.7),
        Target(what="Ray, seconds a command", value=bare[ON_RAY].median_s - bare[HERE].median_s, at_most=8),
        Target(what="lost of the scoring of two processes", value=1 - rate[TWO] / rate[APART], at_most=0.02),
    )


def models(queries: int = 512, runs: int = 3) -> None:
    """Race two models that run at the same time against the same models one after the other."""
    names, one_by_one, packed = ("embedded", "random"), "one after the other", "side by side"
    with tempfile.TemporaryDirectory() as name:
        folders = (Path(name) / str(number) for number in count())

        def command(devices: int) -> pl.DataFrame:
            words = [*RUN, "--datasets", ",".join(DATASETS), "--queries", str(queries), "--engine", "vllm"]
            words += [word for model in names for word in ("--model", model)]
            out = next(folders)
            if start(Command(cores()[:2], [*words, "--dtype", "float32", "--devices", str(devices)]), out).wait():
                raise SystemExit(f"{devices} devices: the command failed")
            scores = [read_scores(out / "models" / model).with_columns(model=pl.lit(model)) for model in names]
            return pl.concat(scores).collect().sort("model", "dataset", "position")

        work = work_of(f"two models of 3 M, fp32, {queries} queries of {len(DATASETS)} datasets each", 2 * queries)
        seconds = race(
            work, {one_by_one: partial(command, 1), packed: partial(command, 2)}, runs=runs, same=same, starts_anew=True
        )
    times = seconds[one_by_one].median_s / seconds[packed].median_s
    print_targets(Target(what="two models side by side, times one after the other", value=times, at_least=1.0))


def contestants(
    command: Callable[..., pl.DataFrame], started: Mapping[str, Sequence[Command]]
) -> dict[str, Callable[[], pl.DataFrame]]:
    return {name: partial(command, name, *commands) for name, commands in started.items()}


def start(command: Command, out: Path) -> subprocess.Popen[bytes]:
    """Start a command in a separate process on its cores, with its results in the folder `out`."""
    return subprocess.Popen(
        [sys.executable, "-m", "evaluator", *command.words, "--out", str(out)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"OMP_NUM_THREADS": str(len(command.cores))},
        preexec_fn=lambda: os.sched_setaffinity(0, command.cores),
    )


def same(expected: pl.DataFrame, found: pl.DataFrame) -> None:
    assert expected["prompt_id"].to_list() == found["prompt_id"].to_list()
    before, after = (scores["label_log_likelihoods"].explode().to_numpy() for scores in (expected, found))
    np.testing.assert_allclose(after, before, rtol=0, atol=TOLERANCE_NATS)


def work_of(case: str, queries: int) -> Work:
    packages = ("torch", "transformers", "ray")
    return Work(benchmark="replicas", case=case, items=queries * len(DATASETS), unit="prompts", packages=packages)


if __name__ == "__main__":
    chosen, numbers = (models, sys.argv[2:]) if sys.argv[1:2] == ["models"] else (main, sys.argv[1:])
    chosen(*map(int, numbers))
