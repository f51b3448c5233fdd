"""Run several models at the same time on the devices of a run.

The largest models begin, and a model that ends frees its devices for other models. With many devices, loading a model
takes as long as scoring with it, so that some models load while others score.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing
from contextvars import copy_context
from dataclasses import dataclass, replace
from queue import SimpleQueue
from threading import Event, Thread
from typing import Generic, TypeVar

from evaluator.config import ModelConfig
from evaluator.engine.devices import Place
from evaluator.engine.replicas import EngineLoader
from evaluator.progress import Progress, Stage
from evaluator.scores.compute import STAGE_NAMES

T = TypeVar("T")
RunT = TypeVar("RunT")


@dataclass(eq=False)
class Load(Generic[RunT]):
    """A model that is loaded once, and the runs that are scored with it."""

    runs: Sequence[RunT]
    title: str
    n_parameters: int
    config: ModelConfig  # with the number of its devices
    loader: EngineLoader  # has a `place` once the model gets devices, if models run at the same time
    scored: Progress | None = None  # last progress of scoring its prompts

    @property
    def n_devices(self) -> int:
        return self.config.devices.n if isinstance(self.config.devices.n, int) else 0


def devices_of_each(configs: Sequence[ModelConfig]) -> Sequence[ModelConfig] | None:
    """Divide the devices of a run among models that are loaded at the same time; None if only one model fits.

    All models get the same number of replicas: as many as leave room for all models, and at least one.
    """
    n_devices, widths = configs[0].devices.n, [config.devices.per_replica for config in configs]
    if not isinstance(n_devices, int) or len(widths) < 2 or sum(sorted(widths)[:2]) > n_devices:
        return None
    n_replicas = max(1, n_devices // sum(widths))
    return [replace(one, devices=replace(one.devices, n=n_replicas * one.devices.per_replica)) for one in configs]


def take_places(loads: Sequence[Load[RunT]], free: set[int], n_devices: int) -> list[Load[RunT]]:
    """Assign devices to models that have none, the largest model first, and return the models that got devices.

    Args:
        loads: all models of the run.
        free: numbers of the free devices; assigned devices are removed.
        n_devices: number of devices of the run.
    """
    placed = []
    for load in sorted(loads, key=lambda load: -load.n_parameters):
        if load.loader.place is None and load.n_devices <= len(free):
            load.loader.place = Place(sorted(free)[: load.n_devices], n_devices)
            free.difference_update(load.loader.place.devices)
            placed.append(load)
    return placed


def side_by_side(loads: Sequence[Load[RunT]], work: Callable[[Load[RunT]], Stage[T]]) -> Stage[list[T]]:
    """Do the work of each model in a thread once it has devices, and return the results in the order of `loads`.

    Args:
        loads: the models; models with a place begin at once.
        work: stage to run for a model that has its devices.

    If a model fails, raises its error and stops the other models; files that they have written stay.
    """
    places = {load: load.loader.place for load in loads if load.loader.place}
    n_devices = max(place.n_of_run for place in places.values())
    free = {*range(n_devices)}.difference(*(place.devices for place in places.values()))
    events: SimpleQueue[tuple[Load[RunT], Progress | Future[T]]] = SimpleQueue()
    stopped, results, threads = Event(), dict[Load[RunT], T](), list[Thread]()

    def drive(load: Load[RunT]) -> None:
        result = Future[T]()
        try:
            with closing(work(load)) as stage:
                while not stopped.is_set():
                    events.put((load, next(stage)))
        except StopIteration as end:
            result.set_result(end.value)
        except BaseException as error:
            result.set_exception(error)
        events.put((load, result))  # not read if the models are stopped

    def begin(load: Load[RunT]) -> None:
        threads.append(Thread(target=copy_context().run, args=(drive, load), name=load.title, daemon=True))
        threads[-1].start()

    try:
        for load in places:
            begin(load)
        while len(results) < len(loads):
            load, event = events.get()
            if isinstance(event, Progress):
                yield from _shown(load, event, loads)
                continue
            results[load] = event.result()
            free.update(load.loader.place.devices if load.loader.place else ())
            for other in take_places(loads, free, n_devices):
                begin(other)
    except BaseException:
        stopped.set()
        for load in loads:
            load.loader.close()
        raise
    finally:
        for thread in threads:
            thread.join()
    return [results[load] for load in loads]


def _shown(load: Load[RunT], event: Progress, loads: Sequence[Load[RunT]]) -> Iterator[Progress]:
    """Yield a model's line with its name in front, or the number of scored prompts of all models.

    A model that has not begun counts as many prompts as the others have on average.
    """
    if event.line:
        is_named = event.line.startswith(f"{load.title}: ")
        yield event if is_named else replace(event, line=f"{load.title}: {event.line}")
    elif event.stage in STAGE_NAMES.values():
        load.scored = event
        begun = [each.scored for each in loads if each.scored]
        rates = [one.requests_per_s for one in begun if one.requests_per_s and one.done < one.total]
        yield Progress(
            stage="Scoring models side by side",
            done=sum(one.done for one in begun),
            total=sum(one.total for one in begun) * len(loads) // len(begun),
            unit="prompts",
            requests_per_s=sum(rates) if rates else None,
        )
