"""Share work out over servers: prompts with a common prefix go to one server, and failed work is tried again."""

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from queue import SimpleQueue
from typing import Generic, TypeVar

import urllib3

from evaluator.engine.server_client import BadAnswerError, UnavailableError
from evaluator.errors import ModelError

BACKOFF = urllib3.Retry(total=None, backoff_factor=0.25, backoff_max=30, backoff_jitter=0.25, allowed_methods=None)
PATIENCE_S = 900.0
"""How long all servers may be silent: a large model takes minutes to load after a restart."""
MAX_BAD_ANSWERS = 5
"""After so many for the same work a run ends: what fails every time is no accident."""

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
    another. A job that fails with UnavailableError is put back, and its thread waits: twice as long after each failure
    in a row, or as long as the server says.

    Args:
        jobs: in the order in which servers should get them.
        servers: passed to `ask`.
        ask: returns the answer to a job; called from several threads.
        concurrency: jobs that a server works on at a time.

    Raises:
        ModelError: no server answered for PATIENCE_S, or one job got MAX_BAD_ANSWERS.
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


class _Work(Generic[JobT, AnswerT]):
    """Jobs, by their place in the sequence: waiting in one queue for each server, or with a thread, or answered."""

    def __init__(self, jobs: Sequence[JobT], n_servers: int) -> None:
        self._jobs = jobs
        bounds = [len(jobs) * part // n_servers for part in range(n_servers + 1)]
        self._queues = [deque(range(*part)) for part in pairwise(bounds)]
        self._unanswered = len(jobs)
        self._bad_answers: Counter[int] = Counter()
        self._last_answer = time.monotonic()
        self._changed = threading.Condition()
        self._stopped = threading.Event()
        self._results: SimpleQueue[tuple[int, AnswerT] | BaseException] = SimpleQueue()

    def run(self, server_place: int, server: ServerT, ask: Callable[[ServerT, JobT], AnswerT]) -> None:
        """Answer jobs until none is left. Runs in a thread."""
        retry = BACKOFF
        while (place := self._take(server_place)) is not None:
            try:
                answer = ask(server, self._jobs[place])
            except UnavailableError as error:
                self._put_back(server_place, place, error)
                retry = retry.increment("POST", error=error)
                self._stopped.wait(error.retry_after_s or retry.get_backoff_time())
            except BaseException as error:  # handed over to the caller's thread, not swallowed
                self._results.put(error)
                return
            else:
                retry = BACKOFF
                self._finish(place, answer)

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
        """Return the next job of a server, or the last one of the server with most jobs; None when all are answered."""
        with self._changed:
            while self._unanswered and not self._stopped.is_set():
                mine = self._queues[server_place]
                if mine:
                    return mine.popleft()
                if longest := max(self._queues, key=len):
                    return longest.pop()
                self._changed.wait()  # a job may be put back
            return None

    def _put_back(self, server_place: int, place: int, error: UnavailableError) -> None:
        with self._changed:
            self._queues[server_place].appendleft(place)
            self._changed.notify()
            self._bad_answers[place] += isinstance(error, BadAnswerError)
            given_up = self._bad_answers[place] >= MAX_BAD_ANSWERS
            silent = time.monotonic() - self._last_answer > PATIENCE_S
        if given_up or silent:
            how = f"{MAX_BAD_ANSWERS} times" if given_up else f"for {PATIENCE_S:.0f} s"
            self._results.put(
                ModelError(f"{error}, {how}. What was scored is kept: the same command goes on from there.")
            )

    def _finish(self, place: int, answer: AnswerT) -> None:
        with self._changed:
            self._unanswered -= 1
            self._last_answer = time.monotonic()
            if not self._unanswered:
                self._changed.notify_all()
        self._results.put((place, answer))
