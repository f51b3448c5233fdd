"""Sharing work out over servers: what waits, what goes on, and what ends a run."""

import threading

import pytest
from urllib3 import HTTPResponse

from evaluator.engine import server_client
from evaluator.engine.server_client import MAX_BAD_ANSWERS, BadAnswerError, InternalError, UnavailableError, answer_all
from evaluator.errors import ModelError


class Server:
    """Answers a job with itself, unless `fault(number of the call from 1, job)` is something to raise."""

    def __init__(self, fault=lambda _number, _job: None):
        self.fault, self.asked, self.lock = fault, [], threading.Lock()

    def __call__(self, job):
        with self.lock:
            self.asked.append(job)
            fault = self.fault(len(self.asked), job)
        if fault is not None:
            raise fault
        return job


def answered(n_jobs, *servers, concurrency):
    """Return the jobs that were answered, in order; each must have its own answer."""
    pairs = list(answer_all(range(n_jobs), servers, lambda server, job: server(job), concurrency=concurrency))
    assert all(job == answer for job, answer in pairs)
    return sorted(job for job, _ in pairs)


@pytest.mark.usefixtures("short_waits")
def test_a_server_that_fails_at_everything_for_a_while_is_waited_for():
    # While it fails, 16 threads ask it 80 times: many jobs fail more often than MAX_BAD_ANSWERS.
    server = Server(lambda number, _job: InternalError("500") if number <= 80 else None)
    assert answered(8, server, concurrency=16) == list(range(8))
    assert max(map(server.asked.count, range(8))) > MAX_BAD_ANSWERS


def test_other_jobs_go_on_while_a_failed_one_waits(monkeypatch):
    monkeypatch.setattr(server_client, "FIRST_WAIT_S", 3600.0)
    server = Server(lambda _number, job: InternalError("500") if job == 0 else None)
    running = answer_all(range(10), [server], lambda server, job: server(job), concurrency=1)
    assert [next(running)[0] for _ in range(9)] == list(range(1, 10))
    running.close()
    assert server.asked == list(range(10))


@pytest.mark.usefixtures("short_waits")
def test_a_job_that_fails_while_others_are_answered_ends_the_run():
    server = Server(lambda _number, job: InternalError("500 out of memory") if job == 3 else None)
    with pytest.raises(ModelError, match=rf"^500 out of memory \({MAX_BAD_ANSWERS} times\)\. What was scored is kept"):
        answered(10, server, concurrency=1)
    # The first failure was before another job's answer, so it does not count.
    assert server.asked.count(3) > MAX_BAD_ANSWERS


@pytest.mark.usefixtures("short_waits")
def test_an_answer_that_is_never_one_ends_the_run_without_patience():
    server = Server(lambda _number, _job: BadAnswerError("no log-probability of token 5"))
    with pytest.raises(ModelError, match=rf"token 5 \({MAX_BAD_ANSWERS} times\)"):
        answered(1, server, concurrency=1)
    assert len(server.asked) == MAX_BAD_ANSWERS


@pytest.mark.timeout(60)
def test_a_wait_of_a_microsecond_for_answers_ends():
    for _ in range(10_000):  # of SimpleQueue, one in some thousands lasts for ever
        with pytest.raises(server_client.Empty):
            server_client.Queue().get(timeout=1e-6)


@pytest.mark.usefixtures("short_waits")
def test_a_server_that_fails_at_everything_leaves_it_to_another():
    has_failed, has_failed_often = threading.Event(), threading.Event()

    def fail(number, job):
        if number > 1:
            has_failed.set()
        if ill.asked.count(job) > MAX_BAD_ANSWERS + 1:
            has_failed_often.set()
        return InternalError("500")

    def wait(number, _job):  # answers after the other's first failure, and again after many for one job
        (has_failed if number == 1 else has_failed_often).wait()

    ill = Server(fail)
    assert answered(10, ill, Server(wait), concurrency=1) == list(range(10))
    assert has_failed_often.is_set()


def test_a_server_without_jobs_takes_the_last_job_of_the_server_with_the_most():
    work = server_client._Work(9, 3)  # jobs 0 to 2, 3 to 5 and 6 to 8
    assert [work.take(server, 0.0) for server in (0, 0, 0, 1, 0)] == [0, 1, 2, 3, 8]


def test_what_a_server_that_is_gone_leaves_is_taken_over_at_once(monkeypatch):
    monkeypatch.setattr(server_client, "FIRST_WAIT_S", 3600.0)
    gone = Server(lambda _number, _job: UnavailableError("refused"))
    assert answered(100, gone, Server(), concurrency=1) == list(range(100))


@pytest.mark.usefixtures("short_waits")
def test_a_job_that_a_busy_server_sends_away_again_and_again_is_not_given_up():
    sent_away = []

    def busy(_number, job):
        if job == 0 and len(sent_away) < 2 * MAX_BAD_ANSWERS:
            sent_away.append(job)
            return UnavailableError("429")
        return None

    assert answered(10, Server(busy), concurrency=2) == list(range(10))


@pytest.mark.usefixtures("short_waits")
def test_silence_that_outlasts_patience_ends_the_run(monkeypatch):
    monkeypatch.setattr(server_client, "PATIENCE_S", 0.0)
    with pytest.raises(ModelError, match=r"refused \(for 0 s\)"):
        answered(1, Server(lambda _number, _job: UnavailableError("refused")), concurrency=1)


@pytest.mark.parametrize(("header", "seconds"), [(("Retry-After", "7"), 7), (("retry-after-ms", "1500"), 1.5)])
def test_a_time_to_wait_is_in_seconds_or_named_in_milliseconds(header, seconds):
    assert server_client._retry_after_s(HTTPResponse(headers=dict([header]))) == seconds


def test_waits_double_up_to_half_a_minute():
    waits = [server_client._wait_s(n_failures) for n_failures in (0, 1, 2, 3, 8, 10_000)]
    for wait, least in zip(waits, (0, 0.25, 0.5, 1, 30, 30), strict=True):
        assert least <= wait <= 1.25 * least
