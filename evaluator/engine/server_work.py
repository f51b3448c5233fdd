"""Share work out over servers: prompts with a common prefix go to one server, and failed work is tried again."""

import heapq
import math
import random
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TypeVar

from evaluator.engine.server_client import BadAnswerError, InternalError, UnavailableError
from evaluator.errors import ModelError

FIRST_WAIT_S, MAX_WAIT_S = 0.25, 30.0
"""How long a job or a slot waits after its first failure, and at most after many."""
PATIENCE_S = 900.0
"""How long all servers may be silent: a large model takes minutes to load after a restart."""
MAX_BAD_ANSWERS = 5
"""After so many for the same job a run ends: what fails every time is no accident."""

JobT = TypeVar("JobT")
AnswerT = TypeVar("AnswerT")
ServerT = TypeVar("ServerT")


@dataclass
class _Slot:
    """Room for one request to a server."""

    server: int
    free_from_s: float = 0.0  # of a monotonic clock; infinite while a request is in flight
    failed_in_a_row: int = 0


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
    - the server's slot, after an InternalError or any other UnavailableError, or as long as the server says. So a
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
    work = _Work(len(jobs), len(servers))
    slots = [_Slot(server) for server in range(len(servers)) for _ in range(min(concurrency, len(jobs)))]
    results: SimpleQueue[tuple[_Slot, int, AnswerT | BaseException]] = SimpleQueue()

    def send(slot: _Slot, job: int) -> None:
        try:
            results.put((slot, job, ask(servers[slot.server], jobs[job])))
        except BaseException as error:  # handed over to the caller's thread, not swallowed
            results.put((slot, job, error))

    def fill_slots(now: float) -> None:
        for slot in slots:
            if slot.free_from_s <= now and (job := work.take(slot.server, now)) is not None:
                slot.free_from_s = math.inf
                Thread(target=send, args=(slot, job), daemon=True).start()  # so that Ctrl-C never waits for one

    n_answered = 0
    while n_answered < len(jobs):
        now = time.monotonic()
        fill_slots(now)
        try:
            slot, job, result = results.get(timeout=work.seconds_to_wait(slots, now))
        except Empty:  # a job or a slot has waited
            continue
        slot.free_from_s = time.monotonic()
        if isinstance(result, UnavailableError):
            work.put_back(slot, job, result)
        elif isinstance(result, BaseException):
            raise result
        else:
            slot.failed_in_a_row = 0
            work.last_answers_s[slot.server] = slot.free_from_s
            n_answered += 1
            fill_slots(slot.free_from_s)  # servers go on while the caller is at work
            yield jobs[job], result


@dataclass
class _Failures:
    """The failures of one job."""

    first_s: float  # of a monotonic clock
    total: int = 0
    counted: int = 0  # failures that count against the job


class _Work:
    """Jobs, by their place in the sequence, that are not with a server: in the queue of one, or waiting."""

    def __init__(self, n_jobs: int, n_servers: int) -> None:
        bounds = [n_jobs * part // n_servers for part in range(n_servers + 1)]
        self._queues = [deque(range(*part)) for part in pairwise(bounds)]
        self._failures: dict[int, _Failures] = {}
        self._waiting: list[tuple[float, int]] = []  # heap of failed jobs, with the time from which they may be tried
        self.last_answers_s = [time.monotonic()] * n_servers

    def take(self, server: int, now: float) -> int | None:
        """Return the next job for a server, None if there is none now.

        That is a failed job that has waited, else the server's next, else the last one of the server with most jobs.
        """
        if self._waiting and self._waiting[0][0] <= now:
            return heapq.heappop(self._waiting)[1]
        if queue := self._queues[server]:
            return queue.popleft()
        longest = max(self._queues, key=len)
        return longest.pop() if longest else None

    def seconds_to_wait(self, slots: Sequence[_Slot], now: float) -> float | None:
        """Return the seconds until a job or a slot may be tried again; None where only an answer changes anything."""
        times = [*(slot.free_from_s for slot in slots), *(time_s for time_s, _ in self._waiting[:1])]
        return min((time_s - now for time_s in times if now < time_s < math.inf), default=None)

    def put_back(self, slot: _Slot, job: int, error: UnavailableError) -> None:
        """Let a failed job, the slot or both wait. Raises ModelError if too much counts against the job or servers."""
        now = time.monotonic()
        if not isinstance(error, BadAnswerError):  # after which a server is there, so that the slot goes on
            slot.free_from_s = now + (error.retry_after_s or _wait_s(slot.failed_in_a_row))
            slot.failed_in_a_row += 1
        if not isinstance(error, BadAnswerError | InternalError):
            self._queues[slot.server].appendleft(job)
        else:
            failures = self._failures.setdefault(job, _Failures(now))
            failures.total += 1
            server_is_well = isinstance(error, BadAnswerError) or self.last_answers_s[slot.server] > failures.first_s
            failures.counted += server_is_well
            heapq.heappush(self._waiting, (now + _wait_s(failures.total), job))
            if failures.counted >= MAX_BAD_ANSWERS:
                raise _given_up(error, f"{MAX_BAD_ANSWERS} times")
        if now - max(self.last_answers_s) > PATIENCE_S:
            raise _given_up(error, f"for {PATIENCE_S:.0f} s")


def _given_up(error: UnavailableError, how: str) -> ModelError:
    return ModelError(f"{error} ({how}). What was scored is kept: the same command goes on from there.")


def _wait_s(n_failures: int) -> float:
    """Return the seconds to wait after this number of failures; a random part keeps jobs from coming back at once."""
    if not n_failures:
        return 0.0
    doubled = 2.0 ** min(n_failures - 1, 16)  # more would overflow in the end
    return min(FIRST_WAIT_S * doubled, MAX_WAIT_S) * random.uniform(1, 1.25)
