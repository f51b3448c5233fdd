"""Runs on two replicas of a model: the same tables as one process's, whatever is killed on the way."""

import re
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import psutil
import pytest
from ray.cluster_utils import Cluster

from evaluator.config import ChatConfig, DevicesConfig, ModelConfig, RunConfig
from evaluator.engine.devices import this_processor
from evaluator.engine.ray_replicas import RayReplicas
from evaluator.progress import finish
from evaluator.run import pipeline
from tests.command_line import command
from tests.end_to_end.processes import prompts_left, shards_done, start, table_bytes

pytestmark = [
    pytest.mark.skipif(this_processor().max_devices < 2, reason="one core"),
    pytest.mark.usefixtures("without_pages"),
]

WORDS = ("run", "staicc-normal", "--datasets", "sst5,trec")
FAKE = (*WORDS, "--queries", 128, "--model", "fake", "--engine", "fake", "--methods", "vanilla,hidden_calibration")
SAME_AS_FAKE = RunConfig(
    suites=("staicc-normal",), datasets=("sst5", "trec"), n_queries=128, methods=("vanilla", "hidden_calibration")
)

# Whichever is next; a replica that has just loaded the model is known to the command a moment later.
LOST = "Replica [01] was lost while it (computed (scores|states)-|loaded the model)"


@pytest.fixture(scope="module")
def one_process(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("one") / "out"
    command(*FAKE, "--out", out)
    return out


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_until_loaded(folder: Path) -> list[Path]:
    """Wait until both replicas of a run have loaded their model; return their logs."""
    logs = [folder / "logs" / f"replica-{number}.log" for number in range(2)]
    while not all(log.exists() and "loaded the model" in log.read_text() for log in logs):
        time.sleep(0.01)  # the command does nothing meanwhile
    return logs


def running_children() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True) if is_running(child.pid)}


@pytest.fixture
def until_lost(monkeypatch, tmp_path, caplog):
    """Replicas finish one job and hold the others until the log says that one was lost. Return what ends such a run."""
    lost, run = tmp_path / "lost", RayReplicas.run

    def held(work, *arguments):  # in the replica, which gets this function whole
        while not lost.exists():
            time.sleep(0.01)
        yield from work(*arguments)

    def run_held(replicas, jobs):
        *others, first = sorted(jobs, key=lambda job: job.size)  # as replicas take them, the last first
        return run(replicas, [*(job._replace(work=partial(held, job.work)) for job in others), first])

    def until_lost(stages):
        def watch():
            while not re.search(LOST, caplog.text):
                time.sleep(0.01)
            lost.touch()

        watching = threading.Thread(target=watch, daemon=True)
        watching.start()
        finish(stages)
        watching.join()

    monkeypatch.setattr(RayReplicas, "run", run_held)
    return until_lost


def test_replicas_of_two_models_load_before_prompts_are_built_and_end_with_the_run(tmp_path):
    config = RunConfig(suites=("staicc-normal",), datasets=("sst5",), n_queries=4)
    model = ModelConfig(model="fake", engine="fake", devices=DevicesConfig(n=2))
    (tmp_path / "chat.jinja").write_text("{% for message in messages %}{{ message.content }}{% endfor %}")
    models = [model, replace(model, chat=ChatConfig(template=str(tmp_path / "chat.jinja")))]
    out, before = tmp_path / "out", running_children()  # another test's browser, for instance
    run = pipeline.run(config, models, out)
    next(progress for progress in run if progress.stage == "Starting 2 replicas of the model" and progress.done)
    logs = wait_until_loaded(out / "models" / "fake")
    assert not (out / "store").exists()
    run.close()  # as an error does
    assert not any(is_running(int(re.search(r"process (\d+)", log.read_text())[1])) for log in logs)
    assert running_children() <= before


def test_replicas_do_not_start_where_scores_are_there_already(one_process, tmp_path):
    model = ModelConfig(model="fake", engine="fake", devices=DevicesConfig(n=2))
    stages = {progress.stage for progress in pipeline.run(SAME_AS_FAKE, model, tmp_path, data=one_process)}
    assert "Writing the report" in stages
    assert not {stage for stage in stages if "replicas" in stage}


def test_a_command_that_is_killed_leaves_no_process_and_goes_on_without_replicas(one_process, tmp_path):
    words = (*FAKE, "--out", tmp_path)
    process = start(2, *words, "--devices", 2, program=(str(Path(__file__).with_name("killed_driver.py")),))
    outputs = process.communicate()
    assert process.returncode == -signal.SIGKILL, outputs
    started = [int(pid) for pid in re.search(r"^processes (.*)$", outputs[0], re.MULTILINE)[1].split()]
    assert len(started) > 2
    while any(map(is_running, started)):
        time.sleep(0.1)
    assert shards_done(tmp_path) == 2
    assert not Path(re.search(r"^folder (.*)$", outputs[0], re.MULTILINE)[1]).exists()
    command(*words)
    assert table_bytes(tmp_path) == table_bytes(one_process)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    yield cluster
    cluster.shutdown()


@pytest.fixture
def two_hosts(cluster: Cluster) -> Cluster:
    """A Ray cluster of two nodes with a core each, as two hosts would be. The first test loses one, the next all."""
    cluster.add_node(num_cpus=1)
    return cluster


def test_a_host_that_is_lost_while_its_replica_scores_changes_no_byte(two_hosts, one_process, tmp_path, until_lost):
    devices = DevicesConfig(n=2, ray_address=two_hosts.address)
    run = pipeline.run(SAME_AS_FAKE, ModelConfig(model="fake", engine="fake", devices=devices), tmp_path)
    next(progress for progress in run if progress.stage == "Scoring")
    wait_until_loaded(tmp_path)
    (worker,) = two_hosts.worker_nodes
    two_hosts.remove_node(worker, allow_graceful=False)
    until_lost(run)
    assert table_bytes(tmp_path) == table_bytes(one_process)


HELD = """
import sys, time
from functools import partial
from pathlib import Path
from evaluator.cli.main import main
from evaluator.engine import ray_replicas
from evaluator.engine.ray_replicas import RayReplicas

ray_replicas._SECONDS_BETWEEN_LOOKS = 0.2
folder, run = Path(sys.argv.pop(1)), RayReplicas.run

def hold(*arguments):
    folder.joinpath("held").touch()
    while True:
        time.sleep(60)
    yield  # never: a job is a generator

def run_one(replicas, jobs):
    *others, first = sorted(jobs, key=lambda job: job.size)  # as replicas take them, the last first
    return run(replicas, [*(job._replace(work=hold) for job in others), first])

RayReplicas.run = run_one
main()
"""
"""The command, whose replicas finish one job and never another."""


def test_a_lost_head_of_a_cluster_ends_the_run_in_one_sentence_and_the_command_goes_on(
    two_hosts, one_process, tmp_path
):
    out, address = tmp_path / "out", two_hosts.address
    words = (*FAKE, "--out", out)
    process = start(tmp_path, *words, "--devices", 2, "--ray-address", address, program=("-c", HELD))
    while not ((tmp_path / "held").exists() and shards_done(out)):
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    two_hosts.head_node.kill_gcs_server()
    outputs = process.communicate()
    assert process.returncode == 2, outputs
    told = f"The head of the Ray cluster at {address} does not answer any more. Start a cluster again; the same command"
    assert f"{told} then goes on from what was scored." in " ".join(outputs[1].split()), outputs
    assert shards_done(out) == 1
    assert prompts_left(out)
    command(*words)
    assert table_bytes(out) == table_bytes(one_process)
