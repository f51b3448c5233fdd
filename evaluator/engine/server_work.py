"""Share work out over servers: prompts with a common prefix go to one server, and failed work is tried again."""

import heapq
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from queue import SimpleQueue
from typing import Generic, TypeVar

from evaluator.engine.server_client import BadAnswerError, InternalError, UnavailableError
from evaluator.errors import ModelError

FIRST_WAIT_S, MAX_WAIT_S = 0.25, 30.0
"""How long a job or a thread waits after its first failure, and at most after many."""
PATIENCE_S = 900.0
"""How long all servers may be silent: a large model takes minutes to load after a restart."""
MAX_BAD_ANSWERS = 5
"""After so many for the same job a run ends: what fails every time is no accident."""

JobT = TypeVar("JobT")
AnswerT = TypeVar("AnswerT")
ServerT = TypeVar("ServerT")


def answer_all(
    jobs: Sequence[JobT],
    servers: Sequence[ServerT],
    ask: Callable[[ServerT, JobT], AnswerT],
    *,
    concurrency: int,
) -> Iterator[tuple[JobT, AnswerT]]:
    """Yield each job once with its answer, as answers come.

    Each server starts with an equal part of neighbouring jobs and, once it has none left, takes the last one of
    another. A job that fails with UnavailableError is put back for any server. What may be at fault waits, twice as
    long after each failure, while the others go on:

    - the job, after a BadAnswerError or an InternalError. The first counts against it; the second only if the same
      server has answered another job since this one's first failure.
    - the server's thread, after an InternalError or any other UnavailableError, or as long as the server says. So a
      server that is down is not flooded.

    Args:
        jobs: in the order in which servers should get them.
        servers: passed to `ask`.
        ask: returns the answer to a job; called from several threads.
        concurrency: jobs that a server works on at a time.

    Raises:
        ModelError: no server answered for PATIENCE_S, or MAX_BAD_ANSWERS count against one job.
        Exception: whatever else `ask` raises.
    """
    work: _Work[JobT, AnswerT] = _Work(jobs, len(servers))
    threads = [
        threading.Thread(target=work.run, args=(place, server, ask), daemon=True)  # so that Ctrl-C never waits for one
        for place, server in enumerate(servers)
        for _ in range(min(concurrency, len(jobs)))
    ]
    try:
        for thread in threads:
            thread.start()
        for _ in jobs:
            place, answer = work.next_answer()
            yield jobs[place], answer
    finally:
        work.stop()


@dataclass
class _Failures:
    """The failures of one job."""

    first_s: float  # time of the first, of a monotonic clock
    total: int = 0
    counted: int = 0  # those that count against the job


class _Work(Generic[JobT, AnswerT]):
    """Jobs, by their place in the sequence.

    A job is in the queue of a server, or with a thread, or waiting after a failure, or answered.
    """

    def __init__(self, jobs: Sequence[JobT], n_servers: int) -> None:
        self._jobs = jobs
        bounds = [len(jobs) * part // n_servers for part in range(n_servers + 1)]
        self._queues = [deque(range(*part)) for part in pairwise(bounds)]
        self._unanswered = len(jobs)
        self._failures: dict[int, _Failures] = {}
        self._waiting: list[tuple[float, int]] = []  # heap of failed jobs, with the time from which they may be tried
        self._last_answers = [time.monotonic()] * n_servers
        self._changed = threading.Condition()
        self._stopped = threading.Event()
        self._results: SimpleQueue[tuple[int, AnswerT] | BaseException] = SimpleQueue()

    def run(self, server_place: int, server: ServerT, ask: Callable[[ServerT, JobT], AnswerT]) -> None:
        """Answer jobs until none is left. Runs in a thread."""
        failed_in_a_row = 0
        while (place := self._take(server_place)) is not None:
            try:
                answer = ask(server, self._jobs[place])
            except BadAnswerError as error:  # of a server that is there, so that the thread goes on
                self._put_back(server_place, place, error)
            except UnavailableError as error:
                self._put_back(server_place, place, error)
                self._stopped.wait(error.retry_after_s or _wait_s(failed_in_a_row))
                failed_in_a_row += 1
            except BaseException as error:  # handed over to the caller's thread, not swallowed
                self._results.put(error)
                return
            else:
                failed_in_a_row = 0
                self._finish(server_place, place, answer)

    def next_answer(self) -> tuple[int, AnswerT]:
        """Wait for an answer; returns the job's place with it. Raises what a thread failed with."""
        result = self._results.get()
        if isinstance(result, BaseException):
            raise result
        return result

    def stop(self) -> None:
        """Let threads end. What they still receive is dropped."""
        self._stopped.set()
        with self._changed:
            self._changed.notify_all()

    def _take(self, server_place: int) -> int | None:
        """Return the next job for a server; None when all are answered.

        That is a failed job that has waited, else the server's next, else the last one of the server with most jobs.
        """
        with self._changed:
            while self._unanswered and not self._stopped.is_set():
                wait_s = self._waiting[0][0] - time.monotonic() if self._waiting else None
                if wait_s is not None and wait_s <= 0:
                    return heapq.heappop(self._waiting)[1]
                if mine := self._queues[server_place]:
                    return mine.popleft()
                if longest := max(self._queues, key=len):
                    return longest.pop()
                self._changed.wait(wait_s)  # a job may fail
            return None

    def _put_back(self, server_place: int, place: int, error: UnavailableError) -> None:
        given_up = False
        with self._changed:
            if isinstance(error, BadAnswerError | InternalError):
                given_up = self._let_wait(server_place, place, error)
            else:
                self._queues[server_place].appendleft(place)
            self._changed.notify()
            silent = time.monotonic() - max(self._last_answers) > PATIENCE_S
        if given_up or silent:
            how = f"{MAX_BAD_ANSWERS} times" if given_up else f"for {PATIENCE_S:.0f} s"
            self._results.put(
                ModelError(f"{error} ({how}). What was scored is kept: the same command goes on from there.")
            )

    def _let_wait(self, server_place: int, place: int, error: UnavailableError) -> bool:
        """Let a job wait before it is tried again. Returns whether too much counts against it by now."""
        now = time.monotonic()
        failures = self._failures.setdefault(place, _Failures(now))
        failures.total += 1
        server_is_well = isinstance(error, BadAnswerError) or self._last_answers[server_place] > failures.first_s
        failures.counted += server_is_well
        heapq.heappush(self._waiting, (now + _wait_s(failures.total), place))
        return failures.counted >= MAX_BAD_ANSWERS

    def _finish(self, server_place: int, place: int, answer: AnswerT) -> None:
        with self._changed:
            self._unanswered -= 1
            self._last_answers[server_place] = time.monotonic()
            if not self._unanswered:
                self._changed.notify_all()
        self._results.put((place, answer))


def _wait_s(n_failures: int) -> float:
    """Return how long to wait after so many failures; a random part of it keeps jobs from coming back all at once."""
    if not n_failures:
        return 0.0
    doubled = 2.0 ** min(n_failures - 1, 16)  # more would overflow in the end
    return min(FIRST_WAIT_S * doubled, MAX_WAIT_S) * random.uniform(1, 1.25)
