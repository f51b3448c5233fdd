"""Start a Ray cluster on this machine, or join one; leave nothing behind.

The files of a local cluster are in a folder of their own below the system's temporary folder, because Ray puts sockets
there and their paths must be short. A small process waits for the end of the command: if that was killed, it ends what
is left of the cluster, some of which would go on for a minute, and removes the folder.
"""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import psutil

from evaluator.engine.base import first_sentence
from evaluator.engine.devices import Machine, this_machine
from evaluator.errors import ConfigError

_PREFIX = "evaluator-ray-"
_MAX_TEMPORARY_PATH = 40  # characters; a socket's whole path has at most 107, of which Ray takes up to 65
_SECONDS_TO_ANSWER = 10
_OBJECT_STORE_BYTES = 256 * 2**20  # jobs and results on their way; more of them go to disk
_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_RECORD_ACTOR_TASK_LOGGING": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_worker_niceness": "0",  # as one process has it
}


_REAPER = """
import os, shutil, signal, sys
folder, *processes = sys.argv[1:]
if not sys.stdin.readline():
    for process in processes:
        try:
            os.kill(int(process), signal.SIGKILL)
        except ProcessLookupError:
            pass
    shutil.rmtree(folder, ignore_errors=True)
"""


@contextmanager
def local_cluster(n_cpus: int, n_gpus: int) -> Iterator[Any]:
    """Run a Ray cluster with these resources on this machine, and yield the module ray.

    Raises ConfigError if it cannot start.
    """
    ray = _import_ray()
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=_temporary_folder()))
    try:
        _connect(
            ray,
            address="local",
            num_cpus=n_cpus,
            num_gpus=n_gpus,
            object_store_memory=_OBJECT_STORE_BYTES,
            include_dashboard=False,
            _temp_dir=str(folder),
        )
        with _ended_if_killed(folder):
            yield ray
    finally:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def joined_cluster(address: str) -> Iterator[Any]:
    """Connect to a running cluster, and yield the module ray. Raises ConfigError if it does not answer."""
    _require_answer(address)
    ray = _import_ray()
    try:
        _connect(ray, address=address, runtime_env={"env_vars": environment_for_hosts(os.environ)})
        yield ray
    finally:
        ray.shutdown()


_SENT = ("HF_", "HUGGING_FACE_", "TRANSFORMERS_", "VLLM_", "NCCL_", "TORCH_", "PYTORCH_", "CUDA_")
_OF_A_HOST = ("VLLM_API_KEY", "VLLM_PORT", "VLLM_HOST_IP", "CUDA_VISIBLE_DEVICES", "CUDA_HOME", "CUDA_PATH")


def environment_for_hosts(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the command that replicas on all hosts compute with: of the hub, vLLM, PyTorch, NCCL.

    What belongs to one host or to servers stays here.
    """
    return {name: value for name, value in environment.items() if name.startswith(_SENT) and name not in _OF_A_HOST}


def _require_answer(address: str) -> None:
    """Raise ConfigError unless something listens at HOST:PORT: Ray itself would wait for many minutes."""
    host, _, port = address.rpartition(":")
    if address == "auto":
        return
    if not host or not port.isdecimal() or "/" in address:
        raise ConfigError(f"--ray-address takes HOST:PORT of a cluster's head, or auto, got {address}.")
    try:
        socket.create_connection((host, int(port)), timeout=_SECONDS_TO_ANSWER).close()
    except (OSError, UnicodeError) as error:  # a host name with an empty part cannot be encoded
        raise ConfigError(
            f"No Ray cluster answers at {address} ({error}). Start one with `ray start --head`."
        ) from error


@cache
def cluster_machine(address: str) -> Machine:
    """Return the devices of a running cluster, all of which are taken to be alike.

    Raises ConfigError if it does not answer.
    """
    with joined_cluster(address) as ray:
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        n_gpus = sum(int(node.get("GPU", 0)) for node in nodes)
        probe = ray.remote(num_gpus=1, num_cpus=0) if n_gpus else ray.remote(num_cpus=1)
        device: Machine = ray.get(probe(this_machine).remote())
    sizes = sorted(int(node.get("GPU" if n_gpus else "CPU", 0)) for node in nodes)
    hosts = tuple(size for size in sizes if size)
    return device._replace(n_devices=n_gpus or len(nodes), max_devices=sum(hosts), hosts=hosts)


def _import_ray() -> Any:
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError as error:
        raise ConfigError(
            f"Several replicas run on Ray, which cannot be imported ({error}). Install evaluator[ray], or use one "
            "replica (--devices 1)."
        ) from error
    if ray.is_initialized():
        raise ConfigError("This process is connected to a Ray cluster already. Call ray.shutdown() first.")
    return ray


def _connect(ray: Any, **options: Any) -> None:
    try:
        ray.init(log_to_driver=False, logging_level="ERROR", **options)
    except Exception as error:  # of any kind: ports, versions, memory
        raise ConfigError(f"Ray cannot be started or reached: {first_sentence(error)}.") from error


def _temporary_folder() -> str:
    folder = tempfile.gettempdir()
    return folder if len(folder) <= _MAX_TEMPORARY_PATH else "/tmp"  # noqa: S108 - mkdtemp makes a private folder in it


@contextmanager
def _ended_if_killed(folder: Path) -> Iterator[None]:
    """If this process ends within this context, have all processes that it has now ended, and the folder removed."""
    processes = [str(process.pid) for process in psutil.Process().children(recursive=True)]
    command = [sys.executable, "-I", "-S", "-c", _REAPER, str(folder), *processes]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, start_new_session=True) as reaper:
        try:
            yield
        finally:
            reaper.communicate(b"ended in order\n")
