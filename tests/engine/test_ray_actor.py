"""Where a replica's process computes, which ports it takes, when it starts and where it writes."""

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path

import pytest
from ray.cluster_utils import Cluster

from evaluator.config import DevicesConfig, ModelConfig
from evaluator.engine import ray_replicas
from evaluator.engine.devices import Machine, lay_out
from evaluator.engine.ray_cluster import (
    LOGS_ELSEWHERE,
    PORTS,
    Loaded,
    ReplicaSettings,
    cluster_machine,
    environment_for_hosts,
    joined_cluster,
    local_cluster,
    log_file,
    seconds_before_start,
    shared,
    use_cores_and_ports,
)
from evaluator.engine.ray_replicas import RayReplicas
from evaluator.engine.replicas import Job
from evaluator.errors import ConfigError, ModelError
from evaluator.models.fake_source import fake_model_source

SETTINGS = ReplicaSettings(number=0, place=0, cores=None, log=Path("no/replica.log"), ports_of=1234)


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
    ports = sorted(first_port(replace(SETTINGS, ports_of=command, place=place)) for command, place in places)
    assert all(later - earlier >= PORTS for earlier, later in pairwise(ports))
    assert ports[0] >= 20_000
    assert ports[-1] + PORTS <= 32_768  # where Linux begins to hand out ports


def test_replicas_of_a_host_start_one_after_the_other(environment):
    assert [seconds_before_start(replace(SETTINGS, place=place)) for place in range(3)] == [0, 0.5, 1]
    environment.setenv("CUDA_VISIBLE_DEVICES", "2,3")  # the second replica of this host, whatever its number
    assert seconds_before_start(replace(SETTINGS, place=500)) == 1


def test_a_host_without_the_folder_of_the_run_has_the_log_in_its_temporary_folder(tmp_path, monkeypatch):
    here = tmp_path / "logs" / "replica-3.log"
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert log_file(replace(SETTINGS, log=here)) == tmp_path / LOGS_ELSEWHERE / "1234-replica-3.log"
    here.parent.mkdir()
    assert log_file(replace(SETTINGS, log=here)) == here


def test_several_engines_share_a_gpu_or_wait_for_it_and_a_log_on_another_host_is_named(tmp_path, monkeypatch, caplog):
    """On what Ray is told is one GPU: two replicas that share it, then two that do not."""
    with shared(local_cluster(2, 1)):
        devices = DevicesConfig(n=1, tensor_parallel=1, engines_per_device=2)
        config = ModelConfig(model="fake", engine="fake", devices=devices)
        machine = Machine("cuda", "a GPU", 1, 1)
        with closing(RayReplicas(fake_model_source(), config, machine, tmp_path)) as both:
            check_that_a_gpu_is_shared(both, tmp_path)
        caplog.set_level("INFO")
        monkeypatch.setattr(ray_replicas, "_SECONDS_BETWEEN_NOTES", 0)
        lent = replace(config, devices=replace(devices, n=2, engines_per_device=1))
        with closing(RayReplicas(fake_model_source(), lent, machine, tmp_path)) as two:
            while not two._loaded:
                two._wait({})
            caplog.clear()
            two._wait({})
        assert "1 of 2 replicas wait for 1 GPUs on one host each: 0 of 1 " in caplog.text


def check_that_a_gpu_is_shared(on_one_gpu: RayReplicas, tmp_path: Path) -> None:
    def work(_engine, replica, folder):
        (folder / f"job-{replica}").touch()
        while len(list(folder.glob("job-*"))) < 2:  # so that no replica does both
            time.sleep(0.01)
        yield replica, os.environ["CUDA_VISIBLE_DEVICES"]

    done = list(on_one_gpu.run([Job(name, 1, work, (tmp_path,)) for name in "ab"]))
    assert sorted(done) == [(0, "0"), (1, "0")]
    replica = next(iter(on_one_gpu._loaded.values()))
    weights = fake_model_source().fingerprint
    on_one_gpu._admit(replica, Loaded(on_one_gpu.loaded(), "host-b", Path("/elsewhere/replica.log"), weights))
    log = (tmp_path / f"replica-{replica.number}.log").read_text()
    assert f"replica {replica.number} writes to /elsewhere/replica.log on host-b" in log
    with pytest.raises(ModelError, match="fake has other weights on host-b"):
        on_one_gpu._admit(replica, Loaded(on_one_gpu.loaded(), "host-b", tmp_path, "others"))


@pytest.fixture(scope="module")
def two_hosts() -> Iterator[Cluster]:
    """A cluster of two nodes that Ray is told have eight GPUs each."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "num_gpus": 8, "include_dashboard": False})
    cluster.add_node(num_cpus=1, num_gpus=8)
    yield cluster
    cluster.shutdown()


def test_the_environment_reaches_processes_of_a_joined_cluster_by_an_allow_list(two_hosts, monkeypatch):
    sent = {"HF_HOME": "/models", "VLLM_BATCH_INVARIANT": "1", "NCCL_DEBUG": "INFO", "PYTORCH_ALLOC_CONF": "x:y"}
    kept = {"VLLM_API_KEY": "secret", "VLLM_PORT": "1", "CUDA_VISIBLE_DEVICES": "7", "AWS_SECRET_ACCESS_KEY": "secret"}
    assert environment_for_hosts(sent | kept) == sent
    monkeypatch.setenv("VLLM_BATCH_INVARIANT", "1")
    monkeypatch.setenv("VLLM_API_KEY", "secret")
    with joined_cluster(two_hosts.address) as ray:
        seen = ray.get(ray.remote(lambda: dict(os.environ)).remote())
    assert seen["VLLM_BATCH_INVARIANT"] == "1"
    assert "VLLM_API_KEY" not in seen


def test_replicas_of_eight_devices_lie_on_a_host_each(two_hosts, tmp_path):
    def work(_engine, replica, folder):
        (folder / f"job-{replica}").touch()
        while len(list(folder.glob("job-*"))) < 2:  # so that no replica does both
            time.sleep(0.01)
        yield os.environ["CUDA_VISIBLE_DEVICES"], os.getppid()  # its parent is the node's own process

    machine = cluster_machine(two_hosts.address)._replace(kind="cuda")
    assert (machine.n_devices, machine.hosts) == (16, (8, 8))
    devices = DevicesConfig(n=16, tensor_parallel=8, ray_address=two_hosts.address)
    config = ModelConfig(model="fake", engine="fake", devices=devices)
    with closing(RayReplicas(fake_model_source(), config, machine, tmp_path)) as replicas:
        done = list(replicas.run([Job(name, 1, work, (tmp_path,)) for name in "ab"]))
    assert {gpus for gpus, _ in done} == {"0,1,2,3,4,5,6,7"}
    assert len({node for _, node in done}) == 2
    with pytest.raises(ConfigError, match="is 16, and there are 8 devices on a host"):
        lay_out(
            fake_model_source(),
            replace(config, devices=replace(devices, tensor_parallel=16)),
            machine,
            splits_models=True,
        )
