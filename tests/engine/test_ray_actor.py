"""Where a replica's process computes, which ports it takes, when it starts and where it writes."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path

import pytest

from evaluator.config import DevicesConfig, ModelConfig
from evaluator.engine.devices import Machine
from evaluator.engine.ray_actor import (
    LOGS_ELSEWHERE,
    PORTS,
    Loaded,
    ReplicaSettings,
    log_file,
    seconds_before_start,
    use_cores_and_ports,
)
from evaluator.engine.ray_replicas import RayReplicas
from evaluator.engine.replicas import Job
from evaluator.models.fake_source import fake_model_source

SETTINGS = ReplicaSettings(number=0, n_replicas=8, cores=None, log="", ports_of=1234, on_other_hosts=True)


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setenv("VLLM_PORT", "")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return monkeypatch


def first_port(settings: ReplicaSettings) -> int:
    use_cores_and_ports(settings)
    return int(os.environ["VLLM_PORT"])


@pytest.mark.usefixtures("environment")
def test_neighbouring_replicas_and_commands_have_ranges_of_ports_of_their_own():
    places = product((1234, 1235), range(8))
    ports = sorted(first_port(replace(SETTINGS, ports_of=command, number=number)) for command, number in places)
    assert all(later - earlier >= PORTS for earlier, later in pairwise(ports))
    assert ports[0] >= 20_000
    assert ports[-1] + PORTS <= 32_768  # where Linux begins to hand out ports


def test_replicas_of_a_host_start_one_after_the_other(environment):
    assert [seconds_before_start(replace(SETTINGS, number=number)) for number in range(3)] == [0, 0.5, 1]
    environment.setenv("CUDA_VISIBLE_DEVICES", "2,3")  # the second replica of this host, whatever its number
    assert seconds_before_start(replace(SETTINGS, number=500)) == 1


def test_a_host_without_the_folder_of_the_run_has_the_log_in_its_temporary_folder(tmp_path, monkeypatch):
    here = tmp_path / "logs" / "replica-3.log"
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert log_file(replace(SETTINGS, log=str(here))) == tmp_path / LOGS_ELSEWHERE / "1234-replica-3.log"
    here.parent.mkdir()
    assert log_file(replace(SETTINGS, log=str(here))) == here


@pytest.fixture
def on_one_gpu(tmp_path: Path) -> Iterator[RayReplicas]:
    """Three replicas of a fake model on what Ray is told is one GPU."""
    devices = DevicesConfig(n=1, tensor_parallel=1, engines_per_device=3)
    config = ModelConfig(model="fake", engine="fake", devices=devices)
    with closing(RayReplicas(fake_model_source(), config, Machine("cuda", "a GPU", 1, 1), tmp_path)) as replicas:
        yield replicas


def test_several_engines_share_a_gpu(on_one_gpu, tmp_path):
    def work(_engine, replica, folder):
        (folder / f"job-{replica}").touch()
        while len(list(folder.glob("job-*"))) < 3:  # so that no replica does two
            pass
        yield replica, os.environ["CUDA_VISIBLE_DEVICES"]

    done = list(on_one_gpu.run([Job(name, 1, work, (tmp_path,)) for name in "abc"]))
    assert sorted(done) == [(0, "0"), (1, "0"), (2, "0")]


def test_the_log_of_a_replica_on_another_host_is_named_in_the_folder_of_the_run(on_one_gpu, tmp_path):
    on_one_gpu.wait()
    replica = on_one_gpu._free[0]
    on_one_gpu._admit(replica, Loaded(on_one_gpu.facts, "host-b", Path("/elsewhere/replica.log")))
    log = (tmp_path / f"replica-{replica.number}.log").read_text()
    assert f"replica {replica.number} writes to /elsewhere/replica.log on host-b" in log
