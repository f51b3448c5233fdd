"""Lazy loading of a run's engine: when it is first needed, and at most once."""

import time

from evaluator.config import ModelConfig
from evaluator.engine import load_engine
from evaluator.engine.base import Engine
from evaluator.models.source import ModelSource
from evaluator.progress import Progress, Stage


class EngineLoader:
    """The engine of a run, loaded on first use. A run whose scores are all on disk never loads it."""

    def __init__(self, source: ModelSource, config: ModelConfig) -> None:
        self._source, self._config = source, config
        self.engine: Engine | None = None
        self.elapsed_s = 0.0

    def load(self) -> Stage[Engine]:
        """Return the engine, loading it if necessary. Raises as engine.load_engine does."""
        if self.engine is None:
            clock = time.monotonic()
            yield Progress(stage="Loading the model", done=0, total=1, unit="models")
            self.engine = load_engine(self._source, self._config)
            self.elapsed_s = round(time.monotonic() - clock, 3)
            yield Progress(stage="Loading the model", done=1, total=1, unit="models")
        return self.engine

    def close(self) -> None:
        """Release memory and devices if the engine was loaded."""
        if self.engine is not None:
            self.engine.close()
            self.engine = None
