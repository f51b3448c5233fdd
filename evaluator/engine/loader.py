"""Load an engine when it is first needed, and at most once."""

import time

from evaluator.config import ModelConfig
from evaluator.engine import load_engine
from evaluator.engine.base import Engine
from evaluator.models.source import ModelSource
from evaluator.progress import Progress, Stage


class EngineLoader:
    """The engine of a run. A run whose scores are all there never loads it."""

    def __init__(self, source: ModelSource, config: ModelConfig) -> None:
        self._source, self._config = source, config
        self.engine: Engine | None = None
        self.elapsed_s = 0.0

    def load(self) -> Stage[Engine]:
        """Return the loaded engine. Raises as engine.load_engine does."""
        if self.engine is None:
            clock = time.monotonic()
            yield Progress(stage="Loading the model", done=0, total=1, unit="models")
            self.engine = load_engine(self._source, self._config)
            self.elapsed_s = round(time.monotonic() - clock, 3)
            yield Progress(stage="Loading the model", done=1, total=1, unit="models")
        return self.engine

    def close(self) -> None:
        """Give back memory and devices, if any were taken."""
        if self.engine is not None:
            self.engine.close()
            self.engine = None
