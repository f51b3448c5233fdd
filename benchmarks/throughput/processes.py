"""Run a contestant in a separate process, which loads the model, scores twice and ends."""

import multiprocessing
import time
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np
import psutil

from benchmarks.harness import peak_memory
from benchmarks.throughput.contestants import CONTESTANTS
from benchmarks.throughput.workloads import Job, Scores


class Turn(NamedTuple):
    """The result of one turn of a contestant."""

    scores: Scores
    score_s: float  # seconds of the second scoring, after warm-up
    whole_s: float  # seconds from the start of the process to the end of the first scoring
    peak_mib: float  # peak resident memory of the process and its children


def turn(name: str, job: Job) -> Turn:
    """Start a contestant, let it load and score its requests twice, and end it. Raises SystemExit if it dies."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    start = time.perf_counter()
    process = context.Process(target=_serve, args=(name, job, there))
    with peak_memory() as memory:
        process.start()
        there.close()
        try:
            scores = _answer(here, name)
            whole_s = time.perf_counter() - start
            score_s = _answer(here, name)
        finally:
            # Kill the process and its children, because children of some contestants survive a normal exit.
            for running in (*psutil.Process(process.pid).children(recursive=True), process):
                running.kill()
            process.join()
    return Turn(scores, score_s, whole_s, memory.peak_mib - memory.start_mib)


def _answer(connection: Connection, name: str) -> Any:
    try:
        return connection.recv()
    except EOFError:
        raise SystemExit(f"{name} died; its error message is above.") from None


def _serve(name: str, job: Job, connection: Connection) -> None:
    score = CONTESTANTS[name].load(job)
    connection.send(np.asarray(score(), np.float64))
    start = time.perf_counter()
    score()
    connection.send(time.perf_counter() - start)
