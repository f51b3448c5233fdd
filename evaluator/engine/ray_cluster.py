"""Start a Ray cluster on this machine or join a running one, leave nothing behind, and define the actor of a replica.

The files of a local cluster are in a separate folder below the system's temporary folder, because Ray puts sockets
there and their paths must be short. A small process waits for the end of the command: if the command was killed, it
ends the remaining processes of the cluster, some of which would run for another minute, and removes the folder.
"""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import filelock
import psutil

from evaluator.config import DevicesConfig, ModelConfig
from evaluator.engine import find_source, load_engine
from evaluator.engine.base import Engine, first_sentence
from evaluator.engine.devices import DeviceKind, Machine, this_machine
from evaluator.engine.replicas import Job
from evaluator.errors import ConfigError, ModelError
from evaluator.models.source import ModelSource
from evaluator.process import tune_process
from evaluator.record import EngineRecord
from evaluator.run_log import now

_PREFIX = "evaluator-ray-"
_MAX_TEMPORARY_PATH = 40  # characters; a socket's whole path has at most 107, of which Ray takes up to 65
_SECONDS_TO_ANSWER = 10
_OBJECT_STORE_BYTES = 256 * 2**20  # memory for jobs and results in transit; Ray writes the rest to disk
_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_RECORD_ACTOR_TASK_LOGGING": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_worker_niceness": "0",  # the priority of an engine in the command's process
}

LOGS_ELSEWHERE = f"evaluator-logs-{os.getuid()}"
"""Name of the log folder in the temporary folder of a host, if the host does not have the run's folder."""

_SECONDS_BETWEEN_STARTS = 0.5  # replicas of a host read the same files and measure free memory
_MAX_STARTS_AT_A_TIME = 8  # period of the delays of replicas without GPU numbers
# Ports below those that operating systems assign automatically. Each replica looks for free ports in a different range.
_FIRST_PORT, _LAST_PORT, PORTS = 20_000, 32_767, 64

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


def cluster_of(devices: DevicesConfig, kind: DeviceKind) -> AbstractContextManager[Any]:
    """Return a context manager for a cluster with the devices of a layout: a shared, a running or a new cluster.

    Entering the context yields the module ray, and raises ConfigError if the cluster cannot be started or reached.
    """
    if _shared:
        return nullcontext(_shared[-1])
    if devices.ray_address:
        return joined_cluster(devices.ray_address)
    n = devices.n_replicas
    n_gpus = n // devices.engines_per_device * devices.per_replica
    return local_cluster(n, n_gpus if kind == "cuda" else 0)


_shared: list[Any] = []  # the module ray, while several models of this process share a cluster


@contextmanager
def shared(cluster: AbstractContextManager[Any]) -> Iterator[None]:
    """Make all models of this process use one cluster: within this context, cluster_of returns this cluster."""
    with cluster as ray:
        _shared.append(ray)
        try:
            yield
        finally:
            _shared.remove(ray)


@contextmanager
def local_cluster(n_cpus: int, n_gpus: int) -> Iterator[Any]:
    """Run a Ray cluster with these resources on this machine, and yield the module ray.

    Raises ConfigError if it cannot start.
    """
    temporary = tempfile.gettempdir()
    if len(temporary) > _MAX_TEMPORARY_PATH:
        temporary = "/tmp"  # noqa: S108 - the folder in it is private
    resources = {"num_cpus": n_cpus, "num_gpus": n_gpus, "object_store_memory": _OBJECT_STORE_BYTES}
    with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=temporary, ignore_cleanup_errors=True) as folder:
        options = {"address": "local", "include_dashboard": False, "_temp_dir": folder}
        with _connected(**resources, **options) as ray, _ended_if_killed(folder):
            yield ray


@contextmanager
def joined_cluster(address: str) -> Iterator[Any]:
    """Connect to a running cluster, and yield the module ray. Raises ConfigError if it does not answer."""
    require_answer(address)
    with _connected(address=address, runtime_env={"env_vars": environment_for_hosts(os.environ)}) as ray:
        yield ray


_SENT = ("HF_", "HUGGING_FACE_", "TRANSFORMERS_", "VLLM_", "NCCL_", "TORCH_", "PYTORCH_", "CUDA_")
_OF_A_HOST = ("VLLM_API_KEY", "VLLM_PORT", "VLLM_HOST_IP", "CUDA_VISIBLE_DEVICES", "CUDA_HOME", "CUDA_PATH")


def environment_for_hosts(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables that replicas on all hosts need: of the hub, vLLM, PyTorch, NCCL and CUDA.

    Variables that are valid only on one host or only for servers are left out.
    """
    return {name: value for name, value in environment.items() if name.startswith(_SENT) and name not in _OF_A_HOST}


def require_answer(address: str) -> None:
    """Raise ConfigError unless something listens at HOST:PORT, for which Ray would wait many minutes.

    The address "auto" is not checked.
    """
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
    """Return the devices of a running cluster, all of which are assumed to be alike.

    Raises ConfigError if the cluster does not answer.
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


@contextmanager
def _connected(**options: Any) -> Iterator[Any]:
    """Start Ray or connect to a cluster, yield the module ray, and disconnect at the end."""
    ray, before = _import_ray(), signal.getsignal(signal.SIGTERM)
    with ExitStack() as stack:
        stack.callback(ray.shutdown)
        try:
            ray.init(log_to_driver=False, logging_level="ERROR", **options)
        except Exception as error:  # Ray can raise anything: ports, versions, memory
            raise ConfigError(f"Ray cannot be started or reached: {first_sentence(error)}.") from error
        finally:
            if before is not None and threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, before)  # Ray's handler ends the process with its own exit code
        yield ray


@contextmanager
def _ended_if_killed(folder: str) -> Iterator[None]:
    """If this process dies within this context, kill the child processes that it has now and remove the folder."""
    processes = [str(process.pid) for process in psutil.Process().children(recursive=True)]
    command = [sys.executable, "-I", "-S", "-c", _REAPER, folder, *processes]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, start_new_session=True) as reaper:
        try:
            yield
        finally:
            reaper.communicate(b"ended in order\n")


@dataclass(frozen=True, kw_only=True)
class ReplicaSettings:
    """The settings that differ between replicas of a model."""

    number: int  # number of the replica among those of its model, from 0
    place: int  # number that differs between all replicas of a command, also of different models
    cores: list[int] | None  # cores to compute on; None: all cores that the process is given
    log: Path  # log file, if its folder exists on the replica's host
    ports_of: int  # process id of the command, so that two commands begin with different ports


class Loaded(NamedTuple):
    """The report of a replica after it has loaded its model."""

    facts: EngineRecord
    host: str
    log: Path  # log file on this host
    weights: str  # fingerprint of the model on this host


class ReplicaActor:
    """A process with a loaded model, which Ray runs as an actor."""

    def __init__(self, settings: ReplicaSettings) -> None:
        self._settings = settings
        self._engine: Engine | None = None

    def load(self, source: ModelSource, config: ModelConfig) -> Loaded:
        """Load the model and report its engine, host, log file and fingerprint. Raises as load_engine does."""
        settings, host = self._settings, os.uname().nodename
        log = log_file(settings)
        # From here on, the process writes its standard output and error to the log.
        with log.open("a") as file:
            for output in (1, 2):
                os.dup2(file.fileno(), output)
        place = f"replica {settings.number} of {config.devices.n_replicas}, process {os.getpid()} on {host}"
        _log_line(f"started: {place}, cores {settings.cores or 'not chosen'}, GPUs {_visible_gpus() or 'none'}")
        use_cores_and_ports(settings)
        tune_process()
        time.sleep(seconds_before_start(settings))
        # One engine at a time loads on a GPU: vLLM measures free memory before and after loading.
        lock = Path(tempfile.gettempdir()) / f"evaluator-{os.getuid()}-gpu-{'-'.join(_visible_gpus())}.lock"
        alone = filelock.FileLock(lock) if config.devices.engines_per_device > 1 else nullcontext()
        with _noting("loading the model", "loaded the model"), alone:
            here = found_here(source, config)
            self._engine = load_engine(here, config)
        return Loaded(self._engine.facts, host, log, here.fingerprint)

    def run(self, replica: int, job: Job) -> Iterator[Any]:
        """Do a job and yield its results."""
        assert self._engine is not None, "load() comes first"
        _log_line(f"began {job.name}")
        with _noting(job.name, f"finished {job.name}"):
            yield from job.work(self._engine, replica, *job.arguments)


def use_cores_and_ports(settings: ReplicaSettings) -> None:
    """Restrict this process to its cores and its range of ports; to be called before other libraries are imported."""
    if settings.cores:
        os.sched_setaffinity(0, settings.cores)
        for library in ("OMP_NUM_THREADS", "POLARS_MAX_THREADS"):
            os.environ[library] = str(len(settings.cores))
    ranges = (_LAST_PORT - _FIRST_PORT) // PORTS
    os.environ["VLLM_PORT"] = str(_FIRST_PORT + (8 * settings.ports_of + settings.place) % ranges * PORTS)


def seconds_before_start(settings: ReplicaSettings) -> float:
    """Return the seconds that a replica waits before loading, so that replicas of a host start one after the other.

    The order is the number of its first GPU; without GPU numbers its place modulo _MAX_STARTS_AT_A_TIME, because
    neighbouring replicas are mostly on the same host.
    """
    gpus = _visible_gpus()
    place = int(gpus[0]) if gpus and gpus[0].isdigit() else settings.place % _MAX_STARTS_AT_A_TIME
    return _SECONDS_BETWEEN_STARTS * place


def _visible_gpus() -> list[str]:
    return [gpu for gpu in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if gpu]


def found_here(source: ModelSource, config: ModelConfig) -> ModelSource:
    """Return the model in the files of this host, not hashed yet. Raises ModelError if an adapter's weights differ."""
    if not config.devices.ray_address:  # this is the command's host
        return source
    here = find_source(config)
    adapters = []
    for expected in source.adapters:
        adapter = find_source(replace(config, adapter=expected.name)).adapter
        if adapter is None or adapter.fingerprint != expected.fingerprint:
            raise ModelError(f"{expected.name} has other weights on {os.uname().nodename}. Copy it to all hosts.")
        adapters.append(adapter)
    return replace(here, adapters=tuple(adapters))


def log_file(settings: ReplicaSettings) -> Path:
    """Return the log file for the output of this process.

    It is in the run's folder, or on a host without this folder in LOGS_ELSEWHERE, which is created if it is missing.
    """
    if settings.log.parent.is_dir():
        return settings.log
    folder = Path(tempfile.gettempdir()) / LOGS_ELSEWHERE
    folder.mkdir(exist_ok=True)
    return folder / f"{settings.ports_of}-{settings.log.name}"


@contextmanager
def _noting(work: str, done: str) -> Iterator[None]:
    """Log how long a piece of work takes, or why it fails."""
    clock = time.monotonic()
    try:
        yield
    except Exception:
        _log_line(f"{work} failed:")
        traceback.print_exc()
        raise
    _log_line(f"{done} in {time.monotonic() - clock:.1f} s")


def _log_line(text: str) -> None:
    os.write(2, f"{now()} {' '.join(text.split())}\n".encode())
