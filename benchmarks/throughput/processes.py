"""Run contestants in separate processes: for one turn, or loaded at the same time for many short turns."""

import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import NamedTuple

import numpy as np
import psutil

from benchmarks.harness import peak_memory
from benchmarks.throughput.contestants import CONTESTANTS
from benchmarks.throughput.workloads import Job, Scores


class Turn(NamedTuple):
    """The result of one turn of a contestant."""

    scores: Scores
    score_s: float  # seconds of the scoring after warm-up
    whole_s: float | None  # seconds from the start of the process to the end of the first scoring
    peak_mib: float  # peak resident memory of the process and its children


def turn(name: str, job: Job) -> Turn:
    """Start a contestant, let it load and score its requests twice, and end it. Raises SystemExit if it dies."""
    start = time.perf_counter()
    with peak_memory() as memory, loaded(name, [job]) as score:
        scores, _ = score(0)
        whole_s = time.perf_counter() - start
        _, score_s = score(0)
    return Turn(scores, score_s, whole_s, memory.peak_mib - memory.start_mib)


@contextmanager
def loaded(name: str, jobs: Sequence[Job]) -> Iterator[Callable[[int], tuple[Scores, float]]]:
    """Start a contestant that loads; yield a function from the number of a job to its scores and seconds; end it.

    The function raises SystemExit if the contestant dies.
    """
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(name, jobs, there))
    process.start()
    there.close()

    def score(number: int) -> tuple[Scores, float]:
        try:
            here.send(number)
            answer: tuple[Scores, float] = here.recv()
        except (EOFError, BrokenPipeError, ConnectionResetError):
            raise SystemExit(f"{name} died; its error message is above.") from None
        return answer

    try:
        yield score
    finally:
        # Kill the process and its children, because children of some contestants survive a normal exit.
        for running in (*psutil.Process(process.pid).children(recursive=True), process):
            running.kill()
        process.join()


def _serve(name: str, jobs: Sequence[Job], connection: Connection) -> None:
    scores = [CONTESTANTS[name].load(job) for job in jobs]
    while True:
        number = connection.recv()
        start = time.perf_counter()
        found = np.asarray(scores[number](), np.float64)
        connection.send((found, time.perf_counter() - start))
