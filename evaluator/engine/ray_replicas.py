"""Replicas of a model as Ray actors, on this machine or on a cluster.

Replicas load at the same time, each in a separate process, and begin to work as soon as they are loaded. A job is sent
to a replica that is free. When a process dies, its job goes to any replica, and a new process replaces it.
"""

import logging
import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from evaluator.config import ModelConfig
from evaluator.engine import ray_cluster
from evaluator.engine.base import first_sentence
from evaluator.engine.devices import Machine, Place, cores, split
from evaluator.engine.replicas import Job
from evaluator.errors import ConfigError, ModelError
from evaluator.models.source import ModelSource
from evaluator.record import EngineRecord
from evaluator.run_log import now

_log = logging.getLogger(__name__)

MAX_ATTEMPTS = 3
"""Number of times that a job is begun, or a replica is loaded, before the run ends with an error."""

_SECONDS_TO_WAIT = 1.0  # maximum time of one wait for results or loaded replicas
_SECONDS_BETWEEN_LOOKS = 5  # time between checks of a cluster's head
_SECONDS_BETWEEN_NOTES = 30  # time between log lines while replicas wait for devices that are in use
_MAX_IN_FLIGHT = 2  # jobs sent to a replica: it begins the second while results of the first are transferred


class _Replica(NamedTuple):
    number: int
    actor: Any
    started: Any  # reference that is ready once the process runs and has its devices


_Running = dict[Any, tuple[_Replica, Job]]  # stream of a job's results -> (its replica, the job)


class RayReplicas:
    """Replicas of one model in separate processes, which load it while the command goes on."""

    def __init__(
        self,
        source: ModelSource,
        config: ModelConfig,
        machine: Machine,
        logs: Path,
        place: Place | None = None,
    ) -> None:
        """Start to load the replicas.

        Args:
            source, config: the model, and how to load it; devices are laid out.
            machine: devices to load the model on.
            logs: folder for the log files of the replicas.
            place: devices of this model if several models are loaded at the same time; None: a single model.
        """
        self._source, self._config, self._machine, self._logs = source, config, machine, logs
        self.n, self._is_closed = config.devices.n_replicas, False
        self._place = place or Place(range(self.n), self.n)
        self._loading: dict[Any, _Replica] = {}  # reference to the report of load() -> replica
        self._loaded: dict[int, _Replica] = {}  # number -> replica
        self._next_look = 0.0
        self._next_note = time.monotonic() + _SECONDS_BETWEEN_NOTES
        self._times_loaded: Counter[int] = Counter()
        self._facts: EngineRecord | None = None
        self._resources = ExitStack()
        try:
            self._ray = self._resources.enter_context(ray_cluster.cluster_of(config.devices, machine.kind))
            for number in range(self.n):
                self._load(number)
        except BaseException:
            self.close()
            raise

    def loaded(self) -> EngineRecord:
        while self._facts is None:
            self._wait({})
        return self._facts

    def run(self, jobs: Sequence[Job]) -> Iterator[Any]:
        waiting = sorted(jobs, key=lambda job: job.size)  # the last is the largest
        attempts: Counter[str] = Counter()
        running: _Running = {}
        started = {replica.number for replica in (*self._loaded.values(), *self._loading.values())}
        for number in {*range(self.n)} - started:  # stopped when an earlier call ended before its jobs
            self._load(number)
        try:
            while waiting or running:
                while waiting and (replica := self._next(running, len(waiting))):
                    job = waiting.pop()
                    stream = replica.actor.run.options(num_returns="streaming").remote(replica.number, job)
                    running[stream] = replica, job
                for stream in self._wait(running):
                    try:
                        yield self._ray.get(next(stream))
                    except StopIteration:  # the job is done
                        del running[stream]
                    except self._ray.exceptions.RayError as error:
                        waiting.append(self._begun_again(stream, running, attempts, error))
        finally:
            for replica, _ in running.values():  # their results are not wanted any more
                self._stop(replica)

    def _next(self, running: _Running, n_waiting: int) -> _Replica | None:
        """Return the loaded replica with the fewest jobs; None if no replica takes another job.

        A second job is queued at a replica only while more jobs are waiting than there are replicas.
        """
        busy = Counter(replica.number for replica, _ in running.values())
        most = _MAX_IN_FLIGHT if n_waiting > self.n else 1
        able = (replica for replica in self._loaded.values() if busy[replica.number] < most)
        return min(able, key=lambda replica: busy[replica.number], default=None)

    def _begun_again(self, stream: Any, running: _Running, attempts: Counter[str], error: Exception) -> Job:
        """Replace a lost replica, and return its job, which must begin again.

        A replica is lost if its process died, or if the device or a worker process of its engine failed. Raises
        ModelError after MAX_ATTEMPTS attempts, and other errors of a job unchanged.
        """
        cause = error.cause if isinstance(error, self._ray.exceptions.RayTaskError) else error
        if cause is not error and not isinstance(cause, ModelError | RuntimeError):
            raise cause from error
        at_work = next(other for other, (replica, _) in running.items() if replica is running[stream][0])
        replica, job = running.pop(stream)
        attempts[job.name] += stream is at_work  # a queued job had not begun
        is_first = self._loaded.get(replica.number) is replica  # else a loss of its other job has replaced it already
        self._stop(replica)
        if attempts[job.name] == MAX_ATTEMPTS:
            raise self._lost(replica.number, f"computed {job.name}", cause) from error
        if is_first:
            self._load_again(replica.number, f"it computed {job.name}", cause)
        return job

    def _load_again(self, number: int, when: str, error: BaseException) -> None:
        _log.warning("Replica %d was lost while %s, which begins again: %s.", number, when, first_sentence(error))
        self._load(number)

    def close(self) -> None:
        self._is_closed = True
        for replica in [*self._loaded.values(), *self._loading.values()]:
            self._stop(replica)
        self._resources.close()

    def _load(self, number: int) -> None:
        """Start the process of a replica, which loads the model."""
        self._times_loaded[number] += 1
        devices = self._config.devices
        on_gpus = self._machine.kind == "cuda"
        # On this machine without GPUs: split all cores among the devices of the run, then those of the model's devices
        # among its replicas.
        parts = split(cores(), self._place.n_of_run)
        of_model = [core for device in self._place.devices for core in parts[device]]
        cores_of = None if on_gpus or devices.ray_address else [*split(of_model, self.n)[number]]
        settings = ray_cluster.ReplicaSettings(
            number=number,
            place=self._place.devices[0] * devices.engines_per_device + number,
            cores=cores_of,
            log=self._log(number),
            ports_of=os.getpid(),
        )
        taken = self._devices_of_one()
        options = {"num_gpus": taken, "num_cpus": 0} if on_gpus else {"num_cpus": taken}
        actor = self._ray.remote(**options)(ray_cluster.ReplicaActor).remote(settings)
        replica = _Replica(number, actor, actor.__ray_ready__.remote())
        self._loading[actor.load.remote(self._source.to_send(), self._config)] = replica

    def _devices_of_one(self) -> float:
        """Return the number of GPUs, possibly a fraction, that Ray reserves for a replica; without GPUs, of cores."""
        devices = self._config.devices
        if self._machine.kind == "cuda":
            return devices.per_replica / devices.engines_per_device
        if not devices.ray_address:
            return 1
        # The largest number of cores with which the hosts of the cluster have room for all replicas.
        sizes = range(self._machine.max_devices // self.n, 0, -1)
        return next((size for size in sizes if self._machine.n_groups(size) >= self.n), 1)

    def _wait(self, running: _Running) -> list[Any]:
        """Wait at most _SECONDS_TO_WAIT, register replicas that have loaded, and return the streams with results.

        Raises ModelError if the replicas are closed, which another thread can do, and the errors of loading.
        """
        if self._is_closed:
            raise ModelError("The model was released before it had answered all prompts.")
        self._note_waiting()
        self._require_head()
        ready, _ = self._ray.wait(
            [*running, *self._loading], num_returns=1, timeout=_SECONDS_TO_WAIT, fetch_local=False
        )
        for loaded in set(ready) & self._loading.keys():
            replica = self._loading.pop(loaded)
            try:
                self._admit(replica, self._ray.get(loaded))
            except self._ray.exceptions.RayTaskError as error:
                raise error.cause from error
            except self._ray.exceptions.RayError as error:
                if self._times_loaded[replica.number] >= MAX_ATTEMPTS:
                    raise self._lost(replica.number, "loaded the model", error) from error
                self._load_again(replica.number, "it loaded the model", error)
        return [stream for stream in ready if stream in running]

    def _admit(self, replica: _Replica, loaded: ray_cluster.Loaded) -> None:
        """Register a loaded replica. Raises ModelError if its weights or engine differ from the first replica's."""
        facts = loaded.facts
        if loaded.log != (here := self._log(replica.number)):
            with here.open("a") as log:
                log.write(f"{now()} replica {replica.number} writes to {loaded.log} on {loaded.host}\n")
        if loaded.weights != self._source.fingerprint:
            raise ModelError(f"{self._source.title} has other weights on {loaded.host}. Copy the model to all hosts.")
        if self._machine.kind == "cpu" and not self._config.devices.ray_address:
            facts = replace(facts, device=self._machine.name)  # a replica sees only its own cores
        self._facts = self._facts or facts
        if facts != self._facts:
            raise ModelError(
                f"Replica {replica.number} is another engine than the first ({facts}, {self._facts}). Use hosts with "
                "equal devices and packages."
            )
        self._times_loaded[replica.number] = 0
        self._loaded[replica.number] = replica

    def _require_head(self) -> None:
        """Raise ModelError if the head of a joined cluster does not answer; Ray itself would end the process."""
        address = self._config.devices.ray_address
        if address is None or time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + _SECONDS_BETWEEN_LOOKS
        try:
            ray_cluster.require_answer(self._ray.get_runtime_context().gcs_address)
        except ConfigError as error:
            raise ModelError(
                f"The head of the Ray cluster at {address} does not answer any more. Start a cluster again; the same "
                "command then goes on from what was scored."
            ) from error

    def _note_waiting(self) -> None:
        """Log, every _SECONDS_BETWEEN_NOTES, how many replicas wait for devices."""
        if time.monotonic() < self._next_note:
            return
        self._next_note = time.monotonic() + _SECONDS_BETWEEN_NOTES
        started = [replica.started for replica in self._loading.values()]
        waiting = self._ray.wait(started, num_returns=len(started), timeout=0)[1] if started else []
        if waiting:
            kind = "GPU" if self._machine.kind == "cuda" else "CPU"
            every, free = self._ray.cluster_resources(), self._ray.available_resources()
            _log.warning(
                "%d of %d replicas wait for %g %ss on one host each: %g of %g are free.",
                len(waiting), self.n, self._devices_of_one(), kind, free.get(kind, 0), every.get(kind, 0),
            )  # fmt: skip

    def _stop(self, replica: _Replica) -> None:
        if self._loaded.get(replica.number) is replica:
            del self._loaded[replica.number]
        self._ray.kill(replica.actor)

    def _lost(self, number: int, doing: str, error: BaseException) -> ModelError:
        reason = first_sentence(error)
        elsewhere = f" (or, on another host, {ray_cluster.LOGS_ELSEWHERE} in its temporary folder)"
        return ModelError(
            f"A replica was lost {MAX_ATTEMPTS} times while it {doing}, the last time replica {number} ({reason}). Its "
            f"last words are in {self._log(number)}{elsewhere if self._config.devices.ray_address else ''}. What was "
            "scored is kept."
        )

    def _log(self, number: int) -> Path:
        return self._logs / f"replica-{number}.log"
