"""The process of one replica: where it computes, where it writes, and what it loads."""

import os
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from evaluator.config import ModelConfig
from evaluator.engine import find_source, load_engine
from evaluator.engine.base import Engine
from evaluator.engine.replicas import Job
from evaluator.errors import ModelError
from evaluator.models.source import ModelSource
from evaluator.record import EngineRecord
from evaluator.run_log import now

_SECONDS_BETWEEN_STARTS = 0.5  # replicas of a host read the same files and look for free memory
# Below the ports that systems hand out by themselves. Each replica looks for its free ports in a range of its own.
_FIRST_PORT, _LAST_PORT, _PORTS = 20_000, 32_767, 64


@dataclass(frozen=True, kw_only=True)
class ReplicaSettings:
    """What distinguishes a replica from others of the same model."""

    number: int
    n_replicas: int
    cores: list[int] | None  # to compute on; None: those that Ray gives
    log: str  # file, if its folder is on this host
    ports_of: int  # process id of the command: two commands begin with different ports
    on_other_hosts: bool  # whether this may be another host than the command's


class ReplicaActor:
    """A process with a loaded model. Ray makes it an actor."""

    def __init__(self, settings: ReplicaSettings) -> None:
        self._settings = settings
        self._engine: Engine | None = None

    def load(self, source: ModelSource, config: ModelConfig) -> EngineRecord:
        """Load the model and return the facts of its engine. Raises as load_engine does."""
        settings = self._settings
        _write_output_to(Path(settings.log))
        place = f"replica {settings.number} of {settings.n_replicas}, process {os.getpid()} on {os.uname().nodename}"
        _log_line(f"started: {place}, cores {settings.cores or 'not chosen'}, GPUs {_visible_gpus() or 'none'}")
        _use(settings)
        time.sleep(_SECONDS_BETWEEN_STARTS * _place_on_host(settings))
        clock = time.monotonic()
        try:
            self._engine = load_engine(found_here(source, config, settings), config)
        except Exception:
            _log_line("the model was not loaded:")
            traceback.print_exc()
            raise
        _log_line(f"loaded the model in {time.monotonic() - clock:.1f} s")
        return self._engine.facts

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


def _use(settings: ReplicaSettings) -> None:
    """Compute on the settings' cores, and take ports from the settings' range; before other libraries are imported."""
    if settings.cores:
        os.sched_setaffinity(0, settings.cores)
        for library in ("OMP_NUM_THREADS", "POLARS_MAX_THREADS", "NUMBA_NUM_THREADS"):
            os.environ[library] = str(len(settings.cores))
    ranges = (_LAST_PORT - _FIRST_PORT) // _PORTS
    os.environ["VLLM_PORT"] = str(_FIRST_PORT + (8 * settings.ports_of + settings.number) % ranges * _PORTS)


def _place_on_host(settings: ReplicaSettings) -> int:
    """Return how many replicas of this host start earlier."""
    gpus = _visible_gpus()
    return int(gpus[0]) if gpus and gpus[0].isdigit() else settings.number if settings.cores else 0


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


def _write_output_to(path: Path) -> None:
    """Send what this process writes to its terminal to a file, if the file's folder is on this host."""
    if not path.parent.is_dir():
        return
    with path.open("a") as log:
        for stream in (1, 2):
            os.dup2(log.fileno(), stream)


def _log_line(text: str) -> None:
    os.write(2, f"{now()} {' '.join(text.split())}\n".encode())
