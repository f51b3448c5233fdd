"""Replicas in processes of their own, with jobs that fail and processes that die."""

import os
import re
import signal
import time
from collections.abc import Iterator

import pytest

from evaluator.config import DevicesConfig, ModelConfig
from evaluator.engine import with_devices
from evaluator.engine.devices import this_processor
from evaluator.engine.ray_replicas import MAX_ATTEMPTS, RayReplicas
from evaluator.engine.replicas import Job
from evaluator.errors import ModelError, ScoreError
from evaluator.models.fake_source import fake_model_source

pytestmark = pytest.mark.skipif(this_processor().max_devices < 2, reason="one core")


@pytest.fixture(scope="module")
def replicas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayReplicas]:
    source = fake_model_source()
    config = with_devices(source, ModelConfig(model="fake", engine="fake", devices=DevicesConfig(n=2)))
    replicas = RayReplicas(source, config, this_processor(), tmp_path_factory.mktemp("logs"))
    yield replicas
    replicas.close()


def jobs(work, names: str = "abcd", *more: object) -> list[Job]:
    return [Job(name, size, work, (name, *more)) for size, name in enumerate(names)]


def test_jobs_are_shared_the_largest_first_by_processes_with_cores_of_their_own(replicas):
    def work(_engine, replica, name):
        yield name, replica, os.getpid(), os.sched_getaffinity(0), os.environ["OMP_NUM_THREADS"]

    done = list(replicas.run(jobs(work)))
    assert {name for name, *_ in done} == {*"abcd"}
    assert {name for name, *_ in done[:2]} <= {*"bcd"}
    cores = {replica: cores for _, replica, _, cores, _ in done}
    assert os.getpid() not in {pid for _, _, pid, *_ in done}
    assert not set.intersection(*cores.values()) or len(cores) == 1
    assert all(int(threads) == len(cores) for *_, cores, threads in done)


def test_an_error_in_a_job_ends_the_run_and_the_next_one_has_all_replicas(replicas, tmp_path):
    def fails(_engine, _replica, name):
        yield name
        raise ScoreError("not a number")

    def work(_engine, replica, name, folder):
        (folder / name).touch()
        while len(list(folder.iterdir())) < 2:  # so that no replica does both
            time.sleep(0.01)
        yield replica

    with pytest.raises(ScoreError, match="not a number"):
        list(replicas.run(jobs(fails)))
    assert {*replicas.run(jobs(work, "ab", tmp_path))} == {0, 1}


def test_a_job_whose_replica_dies_begins_again_on_another(replicas, tmp_path, caplog):
    def work(_engine, _replica, name, folder):
        yield name, "begun"
        if name == "b" and not (folder / "died").exists():
            (folder / "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        yield name, "ended"

    done = list(replicas.run(jobs(work, "abcd", tmp_path)))
    assert sorted(name for name, said in done if said == "ended") == [*"abcd"]
    assert done.count(("b", "begun")) == 2
    assert "which begins again" in caplog.text


@pytest.mark.parametrize("error", [ModelError("vLLM cannot run m: CUDA error"), RuntimeError("CUDA error: ECC")])
def test_a_device_that_fails_costs_its_shard_and_not_the_run(replicas, tmp_path, caplog, error):
    """vLLM's errors while it runs are ModelErrors, those of transformers are PyTorch's."""

    def work(_engine, _replica, name, folder):
        yield name, "begun", os.getpid()
        if name == "c" and not (folder / "failed").exists():
            (folder / "failed").touch()
            raise error
        yield name, "ended", os.getpid()

    done = list(replicas.run(jobs(work, "abcdefg", tmp_path)))
    assert sorted(name for name, said, _ in done if said == "ended") == [*"abcdefg"]
    failed, again = [pid for name, said, pid in done if (name, said) == ("c", "begun")]
    assert failed != again
    assert re.search(r"was lost while it computed c, which begins again: .*CUDA error", caplog.text)


def test_a_job_whose_device_always_fails_ends_the_run_with_the_error(replicas):
    def always_fails(_engine, _replica, name):
        yield name
        raise RuntimeError("CUDA error: ECC")

    with pytest.raises(ModelError, match=rf"lost {MAX_ATTEMPTS} times while it computed a, .* \(CUDA error: ECC\)"):
        list(replicas.run(jobs(always_fails, "a")))


def test_a_replica_has_a_second_job_in_flight_while_many_wait(replicas, monkeypatch):
    replicas.loaded()
    sent: list[tuple[int, int]] = []
    following = type(replicas)._next

    def noting(self, running, n_waiting):
        replica = following(self, running, n_waiting)
        if replica:
            sent.append((n_waiting, sum(other is replica for other, _ in running.values())))
        return replica

    def work(_engine, _replica, name):
        yield name
        yield name, "ended"

    monkeypatch.setattr(type(replicas), "_next", noting)
    done = list(replicas.run(jobs(work, "abcdefghijkl")))
    assert sorted(name for name in done if isinstance(name, str)) == [*"abcdefghijkl"]
    assert {in_flight for n_waiting, in_flight in sent if n_waiting > 2} == {0, 1}
    assert {in_flight for n_waiting, in_flight in sent if n_waiting <= 2} == {0}, "the last jobs never queue"


def test_a_job_that_kills_every_replica_ends_the_run_in_one_sentence(replicas):
    def kills(_engine, _replica, _name):
        yield os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(
        ModelError, match=rf"lost {MAX_ATTEMPTS} times while it computed a, .* last words are in .*replica-"
    ):
        list(replicas.run(jobs(kills, "a")))
