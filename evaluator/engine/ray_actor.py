"""The process of one replica: where it computes, where it writes, and what it loads."""

import os
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import filelock

from evaluator.config import ModelConfig
from evaluator.engine import find_source, load_engine
from evaluator.engine.base import Engine
from evaluator.engine.replicas import Job
from evaluator.errors import ModelError
from evaluator.models.source import ModelSource
from evaluator.process import tune_process
from evaluator.record import EngineRecord
from evaluator.run_log import now

LOGS_ELSEWHERE = f"evaluator-logs-{os.getuid()}"
"""Folder below the temporary one of a host that has not the run's folder."""

_SECONDS_BETWEEN_STARTS = 0.5  # replicas of a host read the same files and look for free memory
_MAX_STARTS_AT_A_TIME = 8  # without GPUs: neighbours are mostly on one host, and no more of them than that wait
# Below the ports that systems hand out by themselves. Each replica looks for its free ports in a range of its own.
_FIRST_PORT, _LAST_PORT, PORTS = 20_000, 32_767, 64


@dataclass(frozen=True, kw_only=True)
class ReplicaSettings:
    """What distinguishes a replica from others of the same model."""

    number: int
    n_replicas: int
    cores: list[int] | None  # to compute on; None: those that Ray gives
    log: str  # file, used if its folder is on this host
    ports_of: int  # process id of the command: two commands begin with different ports
    on_other_hosts: bool  # whether this may be another host than the command's


class Loaded(NamedTuple):
    """What a replica says once it has loaded its model."""

    facts: EngineRecord
    host: str
    log: Path  # on that host


class ReplicaActor:
    """A process with a loaded model. Ray makes it an actor."""

    def __init__(self, settings: ReplicaSettings) -> None:
        self._settings = settings
        self._engine: Engine | None = None

    def load(self, source: ModelSource, config: ModelConfig) -> Loaded:
        """Load the model and return the facts of its engine. Raises as load_engine does."""
        settings, host = self._settings, os.uname().nodename
        log = write_output_to(log_file(settings))
        place = f"replica {settings.number} of {settings.n_replicas}, process {os.getpid()} on {host}"
        _log_line(f"started: {place}, cores {settings.cores or 'not chosen'}, GPUs {_visible_gpus() or 'none'}")
        use_cores_and_ports(settings)
        tune_process()
        time.sleep(seconds_before_start(settings))
        clock = time.monotonic()
        try:
            with _loading_alone(config.devices.engines_per_device):
                self._engine = load_engine(found_here(source, config, settings), config)
        except Exception:
            _log_line("the model was not loaded:")
            traceback.print_exc()
            raise
        _log_line(f"loaded the model in {time.monotonic() - clock:.1f} s")
        return Loaded(self._engine.facts, host, log)

    def run(self, replica: int, job: Job) -> Iterator[Any]:
        """Do a job and yield what it yields."""
        assert self._engine is not None, "load() comes first"
        clock = time.monotonic()
        _log_line(f"began {job.name}")
        try:
            yield from job.work(self._engine, replica, *job.arguments)
        except Exception:
            _log_line(f"{job.name} failed:")
            traceback.print_exc()
            raise
        _log_line(f"finished {job.name} in {time.monotonic() - clock:.1f} s")


def use_cores_and_ports(settings: ReplicaSettings) -> None:
    """Compute on the settings' cores, and take ports from the settings' range; before other libraries are imported."""
    if settings.cores:
        os.sched_setaffinity(0, settings.cores)
        for library in ("OMP_NUM_THREADS", "POLARS_MAX_THREADS", "NUMBA_NUM_THREADS"):
            os.environ[library] = str(len(settings.cores))
    ranges = (_LAST_PORT - _FIRST_PORT) // PORTS
    os.environ["VLLM_PORT"] = str(_FIRST_PORT + (8 * settings.ports_of + settings.number) % ranges * PORTS)


def seconds_before_start(settings: ReplicaSettings) -> float:
    """Return the seconds before a replica loads: half a second for each that starts earlier on its host."""
    gpus = _visible_gpus()
    place = int(gpus[0]) if gpus and gpus[0].isdigit() else settings.number % _MAX_STARTS_AT_A_TIME
    return _SECONDS_BETWEEN_STARTS * place


@contextmanager
def _loading_alone(engines_per_device: int) -> Iterator[None]:
    """Load while no other engine is loaded on this GPU: vLLM takes what is free before and after for its own."""
    if engines_per_device == 1:
        yield
        return
    name = f"evaluator-{os.getuid()}-gpu-{'-'.join(_visible_gpus())}.lock"
    with filelock.FileLock(Path(tempfile.gettempdir()) / name):
        yield


def _visible_gpus() -> list[str]:
    return [gpu for gpu in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if gpu]


def found_here(source: ModelSource, config: ModelConfig, settings: ReplicaSettings) -> ModelSource:
    """Return the model as this host has it. Raises ModelError if its weights, or those of an adapter, are others."""
    if not settings.on_other_hosts:
        return source
    here = find_source(config)
    if here.fingerprint != source.fingerprint:
        raise ModelError(f"{config.model} has other weights on {os.uname().nodename}. Copy the model to all hosts.")
    adapters = []
    for expected in source.adapters:
        adapter = find_source(replace(config, adapter=expected.name)).adapter
        if adapter is None or adapter.fingerprint != expected.fingerprint:
            raise ModelError(f"{expected.name} has other weights on {os.uname().nodename}. Copy it to all hosts.")
        adapters.append(adapter)
    return replace(here, adapters=tuple(adapters))


def log_file(settings: ReplicaSettings) -> Path:
    """Return the file for the output of this process: in the run's folder, or on a host without it, in LOGS_ELSEWHERE.

    Its folder is made if it is missing.
    """
    path = Path(settings.log)
    if path.parent.is_dir():
        return path
    folder = Path(tempfile.gettempdir()) / LOGS_ELSEWHERE
    folder.mkdir(exist_ok=True)
    return folder / f"{settings.ports_of}-{path.name}"


def write_output_to(path: Path) -> Path:
    """Send what this process writes to its terminal to a file; returns the file."""
    with path.open("a") as log:
        for stream in (1, 2):
            os.dup2(log.fileno(), stream)
    return path


def _log_line(text: str) -> None:
    os.write(2, f"{now()} {' '.join(text.split())}\n".encode())
