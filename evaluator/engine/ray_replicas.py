"""Replicas of a model as Ray actors, on this machine or on a cluster.

Replicas load at the same time, each in a process of its own, and begin to work as soon as they are loaded. A job is
sent to a replica that is free. When a process dies, its job goes to another replica and a new process takes its place.
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
from evaluator.engine.devices import Machine, Place, cores, n_replicas, split
from evaluator.engine.replicas import Job
from evaluator.errors import ConfigError, ModelError
from evaluator.models.source import ModelSource
from evaluator.record import EngineRecord
from evaluator.run_log import now

_log = logging.getLogger(__name__)

MAX_ATTEMPTS = 3
"""How often a job is begun, and how often a replica is loaded, before the run ends with an error."""

_SECONDS_TO_WAIT = 1.0  # for any replica, before looking again
_SECONDS_BETWEEN_LOOKS = 5  # at the head of a cluster
_SECONDS_BETWEEN_NOTES = 30  # while replicas wait for devices that others use
_MAX_IN_FLIGHT = 2  # jobs of a replica: it begins the second while the first one's results travel


class _Replica(NamedTuple):
    number: int
    actor: Any
    started: Any  # reference that is ready once the process runs, on devices of its own


_Running = dict[Any, tuple[_Replica, Job]]  # by the stream of what a job yields


class RayReplicas:
    """Copies of one model in processes of their own, which load it while the command goes on."""

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
            machine: what it is loaded on.
            logs: folder for the log files of the replicas.
            place: of this model among others that are loaded at the same time; None: it is alone.
        """
        self._source, self._config, self._machine, self._logs = source, config, machine, logs
        self.n, self._is_closed = n_replicas(config.devices), False
        self._place = place or Place(range(self.n), self.n)
        self._loading: dict[Any, _Replica] = {}  # by the reference to the facts of its engine
        self._loaded: dict[int, _Replica] = {}  # by number
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
        for number in {*range(self.n)} - started:  # an earlier call ended before its jobs
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
            for replica, _ in running.values():  # what they compute is not wanted any more
                self._stop(replica)

    def _next(self, running: _Running, n_waiting: int) -> _Replica | None:
        """Return the loaded replica with the fewest jobs; None if all have enough. The last jobs never queue."""
        busy = Counter(replica.number for replica, _ in running.values())
        most = _MAX_IN_FLIGHT if n_waiting > self.n else 1
        able = (replica for replica in self._loaded.values() if busy[replica.number] < most)
        return min(able, key=lambda replica: busy[replica.number], default=None)

    def _begun_again(self, stream: Any, running: _Running, attempts: Counter[str], error: Exception) -> Job:
        """Start a replica in the place of a lost one, and return its job.

        A replica is lost if its process died, or the device or a worker process of its engine failed. Raises ModelError
        after some attempts, and other errors of a job as they are.
        """
        cause = error.cause if isinstance(error, self._ray.exceptions.RayTaskError) else error
        if cause is not error and not isinstance(cause, ModelError | RuntimeError):
            raise cause from error
        at_work = next(other for other, (replica, _) in running.items() if replica is running[stream][0])
        replica, job = running.pop(stream)
        attempts[job.name] += stream is at_work  # the next one had not begun
        is_first = self._loaded.get(replica.number) is replica
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
        """Start a replica; it is free when it has loaded the model."""
        self._times_loaded[number] += 1
        devices = self._config.devices
        on_gpus = self._machine.kind == "cuda"
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
        """Return the GPUs that Ray sets aside for a replica, or the cores where there is no GPU."""
        devices = self._config.devices
        if self._machine.kind == "cuda":
            return devices.per_replica / devices.engines_per_device
        if not devices.ray_address:
            return 1
        sizes = range(self._machine.max_devices // self.n, 0, -1)
        return next((size for size in sizes if self._machine.n_groups(size) >= self.n), 1)

    def _wait(self, running: _Running) -> list[Any]:
        """Wait a moment for replicas; note which are loaded, and return the streams with results.

        Raises ModelError once the replicas are closed, as another thread may do.
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
        """Let a loaded replica work. Raises ModelError if it would compute other numbers than the first."""
        facts = loaded.facts
        if loaded.log != (here := self._log(replica.number)):
            with here.open("a") as log:
                log.write(f"{now()} replica {replica.number} writes to {loaded.log} on {loaded.host}\n")
        if loaded.weights != self._source.fingerprint:
            raise ModelError(f"{self._source.title} has other weights on {loaded.host}. Copy the model to all hosts.")
        if self._machine.kind == "cpu" and not self._config.devices.ray_address:
            facts = replace(facts, device=self._machine.name)  # a replica sees its own cores alone
        self._facts = self._facts or facts
        if facts != self._facts:
            raise ModelError(
                f"Replica {replica.number} is another engine than the first ({facts}, {self._facts}). Use hosts with "
                "equal devices and packages."
            )
        self._times_loaded[replica.number] = 0
        self._loaded[replica.number] = replica

    def _require_head(self) -> None:
        """Raise ModelError if the head of a joined cluster does not answer: Ray would end the process by itself."""
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
        """Log from time to time which devices replicas wait for."""
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
