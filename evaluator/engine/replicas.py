"""Replicas (copies) of a model, which share jobs, and the loader of a run's model, which loads it only if needed.

The result of a job depends only on its data and the model, so any replica can do it.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from evaluator.config import DevicesConfig, ModelConfig
from evaluator.engine import find_machine, load_engine
from evaluator.engine.base import Engine
from evaluator.engine.devices import Place
from evaluator.models.source import ModelSource
from evaluator.progress import Progress, Stage
from evaluator.record import EngineRecord

MIN_ROOM = 8_192
"""Minimum of the prompt length, in tokens, for which engines are loaded; also used before prompts are known."""


T = TypeVar("T")


class Job(NamedTuple):
    """A piece of work for one replica. It is sent to other processes and hosts, so all fields can be pickled."""

    name: str
    size: float  # cost, in the same unit for all jobs; several replicas start the largest jobs first
    work: Callable[..., Iterator[Any]]  # work(engine, replica, *arguments) yields results while it runs
    arguments: Sequence[Any] = ()


class Replicas(Protocol):
    """One or more copies of a model."""

    n: int  # number of copies

    def loaded(self) -> EngineRecord:
        """Wait until the first copy is loaded, and return the facts of the engine, which are the same for all copies.

        Raises the errors of loading.
        """

    def run(self, jobs: Sequence[Job]) -> Iterator[Any]:
        """Do the jobs, in any order, and yield their results.

        A job whose replica was lost begins again on another replica, so that its results may be yielded twice.

        Raises the errors of a job, and ModelError if replicas are lost repeatedly.
        """

    def close(self) -> None:
        """Release memory and devices."""


class OneReplica:
    """One engine in this process, which does jobs one after the other."""

    n = 1

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def loaded(self) -> EngineRecord:
        return self.engine.facts

    def run(self, jobs: Sequence[Job]) -> Iterator[Any]:
        return chain.from_iterable(job.work(self.engine, 0, *job.arguments) for job in jobs)

    def close(self) -> None:
        self.engine.close()


class EngineLoader:
    """Loads the replicas of a run when they are needed; a run whose scores are all on disk never loads them.

    A single replica is an engine in this process, loaded on first use. Several replicas, replicas on a cluster, and
    models that are loaded at the same time run on Ray, and can load while prompts are built.
    """

    def __init__(self, source: ModelSource, config: ModelConfig, logs: Path) -> None:
        """Prepare to load a model.

        Args:
            source, config: the model, and how to load it; devices are laid out.
            logs: folder for the log files of replicas in other processes.
        """
        self._source, self._logs = source, logs
        self._config = replace(config, max_prompt_tokens=MIN_ROOM)
        self._replicas: Replicas | None = None
        self.place: Place | None = None  # devices of the model, if other models are loaded at the same time
        self._is_loaded = False
        self._waited_s = 0.0

    def begin(self) -> Stage[None]:
        """Start replicas that run in separate processes, and return while they load the model.

        Does nothing for an engine in this process. Raises ConfigError if Ray cannot be started or reached.
        """
        if self._replicas is None and not self.is_here:
            yield from self._timed("Starting", self._started)

    def replicas(self, longest: int = 0) -> Stage[Replicas]:
        """Wait until a replica is loaded and return the replicas; load them again if prompts are longer than expected.

        Args:
            longest: number of tokens of the longest prompt with its continuation.

        Raises as engine.load_engine does, and ConfigError.
        """
        if longest > (self._config.max_prompt_tokens or 0):
            self.close()
            self._config = replace(self._config, max_prompt_tokens=longest)
        if not self._is_loaded:
            facts = yield from self._timed("Loading", lambda: self._started().loaded())
            self._is_loaded = True
            if facts.prefix_block_tokens:
                line = f"{facts.name} shares the prefixes of prompts in blocks of {facts.prefix_block_tokens} tokens"
                yield Progress(stage="Loaded", done=1, total=1, unit="models", line=line)
        return self._started()

    def take_waited_s(self) -> float:
        """Return the seconds that the command has waited for the model since the last call of this method."""
        waited_s, self._waited_s = self._waited_s, 0.0
        return waited_s

    def close(self) -> None:
        """Release memory and devices if the model was loaded, or began to load."""
        if self._replicas is not None:
            self._replicas.close()
        self._replicas, self._is_loaded = None, False

    @property
    def is_here(self) -> bool:
        """Whether the engine runs in this process: one replica, no cluster, no other model at the same time."""
        devices = self._config.devices
        return devices.n_replicas == 1 and devices.ray_address is None and self.place is None

    def _timed(self, verb: str, step: Callable[[], T]) -> Stage[T]:
        clock, stage = time.monotonic(), f"{verb} {_described(self._config.devices)}"
        yield Progress(stage=stage, done=0, total=1, unit="models")
        result = step()
        self._waited_s += time.monotonic() - clock
        yield Progress(stage=stage, done=1, total=1, unit="models")
        return result

    def _started(self) -> Replicas:
        """Return the replicas; start to load them if this has not happened yet."""
        if self._replicas is None and self.is_here:
            self._replicas = OneReplica(load_engine(self._source, self._config))
        elif self._replicas is None:
            from evaluator.engine.ray_replicas import RayReplicas

            self._logs.mkdir(parents=True, exist_ok=True)
            self._replicas = RayReplicas(self._source, self._config, find_machine(self._config), self._logs, self.place)
        return self._replicas


def _described(devices: DevicesConfig) -> str:
    """Describe the layout: how many replicas, and how many devices each takes or how many share a device."""
    n, per_replica, per_device = devices.n_replicas, devices.per_replica, devices.engines_per_device
    what = "the model" if n == 1 else f"{n} replicas of the model"
    what += f", {per_replica} devices each" if per_replica > 1 else ""
    return what + (f", {per_device} to a device" if per_device > 1 else "")
