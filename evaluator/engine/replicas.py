"""Replicas of a model, which share jobs. A job is a pure function of its data and the model: any replica can do it."""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple, Protocol

from evaluator.engine.base import Engine
from evaluator.record import EngineRecord


class Job(NamedTuple):
    """A piece of work for one replica. It is sent to other processes and hosts, so all of it can be pickled."""

    name: str
    size: float  # what it costs, in a unit that all jobs share: the largest are done first
    work: Callable[..., Iterator[Any]]  # work(engine, replica, *arguments) yields what has been done so far
    arguments: Sequence[Any] = ()


class Replicas(Protocol):
    """One or more copies of a model."""

    @property
    def n(self) -> int:
        """Return how many copies there are."""
        ...

    def wait(self) -> None:
        """Wait until the first copy is loaded. Raises what loading raises."""
        ...

    @property
    def facts(self) -> EngineRecord:
        """Return the facts of the engines, which are the same for all and known once one is loaded."""
        ...

    def run(self, jobs: Sequence[Job]) -> Iterator[Any]:
        """Do the jobs, in any order, and yield what they yield.

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

    def wait(self) -> None:
        """Do nothing: the engine is loaded."""

    @property
    def facts(self) -> EngineRecord:
        return self.engine.facts

    def run(self, jobs: Sequence[Job]) -> Iterator[Any]:
        return chain.from_iterable(job.work(self.engine, 0, *job.arguments) for job in jobs)

    def close(self) -> None:
        self.engine.close()
