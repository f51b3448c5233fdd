"""Lazy loading of a run's model: when it is first needed, and at most once."""

import time
from pathlib import Path

from evaluator.config import DevicesConfig, ModelConfig
from evaluator.engine import find_machine, load_engine
from evaluator.engine.devices import n_replicas
from evaluator.engine.replicas import OneReplica, Replicas
from evaluator.models.source import ModelSource
from evaluator.progress import Progress, Stage


class EngineLoader:
    """The replicas of a run, loaded on first use. A run whose scores are all on disk never loads them.

    One replica is an engine in this process; several, and those of a cluster, run on Ray.
    """

    def __init__(self, source: ModelSource, config: ModelConfig, logs: Path) -> None:
        """Prepare to load a model.

        Args:
            source, config: the model, and how to load it; devices are laid out.
            logs: folder for the log files of replicas in other processes.
        """
        self._source, self._config, self._logs = source, config, logs
        self._replicas: Replicas | None = None
        self.elapsed_s = 0.0  # that loading has taken so far

    def replicas(self) -> Stage[Replicas]:
        """Return the replicas, loading them if necessary. Raises as engine.load_engine does, and ConfigError."""
        if self._replicas is None:
            clock = time.monotonic()
            stage = _stage(self._config.devices)
            yield Progress(stage=stage, done=0, total=1, unit="models")
            self._replicas = self._load()
            self.elapsed_s += round(time.monotonic() - clock, 3)
            yield Progress(stage=stage, done=1, total=1, unit="models")
        return self._replicas

    def _load(self) -> Replicas:
        devices = self._config.devices
        if n_replicas(devices) == 1 and devices.ray_address is None:
            return OneReplica(load_engine(self._source, self._config))
        from evaluator.engine.ray_replicas import RayReplicas

        self._logs.mkdir(parents=True, exist_ok=True)
        return RayReplicas(self._source, self._config, find_machine(self._config), self._logs)

    def close(self) -> None:
        """Release memory and devices if the model was loaded."""
        if self._replicas is not None:
            self._replicas.close()
            self._replicas = None


def _stage(devices: DevicesConfig) -> str:
    """Return what is loaded, in words: how many replicas, and how many devices each takes."""
    n, per_replica = n_replicas(devices), devices.per_replica
    what = "the model" if n == 1 else f"{n} replicas of the model"
    return f"Loading {what}" + (f", {per_replica} devices each" if per_replica > 1 else "")
