"""Replicas of a model, which share jobs, and the loading of a run's model: at most once, and only if it is needed.

A job is a pure function of its data and the model: any replica can do it.
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
from evaluator.engine.devices import Place, n_replicas
from evaluator.models.source import ModelSource
from evaluator.progress import Progress, Stage
from evaluator.record import EngineRecord

MIN_ROOM = 8_192
"""Tokens of a prompt that engines are loaded for at least, and before prompts are known."""


T = TypeVar("T")


class Job(NamedTuple):
    """A piece of work for one replica. It is sent to other processes and hosts, so all of it can be pickled."""

    name: str
    size: float  # what it costs, in a unit that all jobs share: the largest are done first
    work: Callable[..., Iterator[Any]]  # work(engine, replica, *arguments) yields what has been done so far
    arguments: Sequence[Any] = ()


class Replicas(Protocol):
    """One or more copies of a model."""

    n: int  # copies

    def loaded(self) -> EngineRecord:
        """Wait until the first copy is loaded, and return the facts of the engines, which are the same for all.

        Raises the errors of loading.
        """
        ...

    def run(self, jobs: Sequence[Job]) -> Iterator[Any]:
        """Do the jobs, in any order, and yield their results.

        A job whose replica was lost begins again on another, so what it yields may begin again as well; it ends once.

        Raises what a job raises, and ModelError if replicas are lost again and again.
        """
        ...

    def close(self) -> None:
        """Release memory and devices."""
        ...


class OneReplica:
    """An engine in this process; does jobs one after the other."""

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
    """The replicas of a run. A run whose scores are all on disk never loads them.

    One replica is an engine in this process, loaded on first use; several, and those of a cluster, run on Ray, and can
    load while prompts are built.
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
        self.place: Place | None = None  # of the model, if others are loaded at the same time
        self._is_loaded = False
        self._waited_s = 0.0

    def begin(self) -> Stage[None]:
        """Start replicas that run in processes of their own, and return while they load the model.

        Does nothing for an engine in this process. Raises ConfigError if Ray cannot be started or reached.
        """
        if self._replicas is None and not self.is_here:
            yield from self._timed("Starting", self._started)

    def replicas(self, longest: int = 0) -> Stage[Replicas]:
        """Return the replicas once one is loaded. Those that are loaded for shorter prompts are loaded again.

        Args:
            longest: tokens of the longest prompt with its continuation.

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
        """Return the seconds that the command has waited for the model since this was last called."""
        waited_s, self._waited_s = self._waited_s, 0.0
        return waited_s

    def close(self) -> None:
        """Release memory and devices if the model was loaded, or began to load."""
        if self._replicas is not None:
            self._replicas.close()
        self._replicas, self._is_loaded = None, False

    @property
    def is_here(self) -> bool:
        """Return whether the engine is to be in this process."""
        devices = self._config.devices
        return n_replicas(devices) == 1 and devices.ray_address is None and self.place is None

    def _timed(self, verb: str, step: Callable[[], T]) -> Stage[T]:
        clock, stage = time.monotonic(), f"{verb} {_described(self._config.devices)}"
        yield Progress(stage=stage, done=0, total=1, unit="models")
        result = step()
        self._waited_s += time.monotonic() - clock
        yield Progress(stage=stage, done=1, total=1, unit="models")
        return result

    def _started(self) -> Replicas:
        """Return the replicas, which begin to load if they have not begun."""
        if self._replicas is None and self.is_here:
            self._replicas = OneReplica(load_engine(self._source, self._config))
        elif self._replicas is None:
            from evaluator.engine.ray_replicas import RayReplicas

            self._logs.mkdir(parents=True, exist_ok=True)
            self._replicas = RayReplicas(self._source, self._config, find_machine(self._config), self._logs, self.place)
        return self._replicas


def _described(devices: DevicesConfig) -> str:
    """Describe the layout: how many replicas, and how many devices each takes or how many share a device."""
    n, per_replica, per_device = n_replicas(devices), devices.per_replica, devices.engines_per_device
    what = "the model" if n == 1 else f"{n} replicas of the model"
    what += f", {per_replica} devices each" if per_replica > 1 else ""
    return what + (f", {per_device} to a device" if per_device > 1 else "")
