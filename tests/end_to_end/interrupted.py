"""The command in a process that sends itself a signal when its engine is called for the n-th time: SIGNAL N WORD...

So the moment is the same however fast the machine is. Calls that came before have left their shards.
"""

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

from evaluator.cli.main import main
from evaluator.config import ModelConfig
from evaluator.engine import ENGINES
from evaluator.engine.base import Engine
from evaluator.models.source import ModelSource

Load = Callable[[ModelSource, ModelConfig], Engine]
Verb = Callable[[Any], Any]


def interrupting(load: Load, number: signal.Signals, at_call: int) -> Load:
    """Load an engine whose two verbs count their calls together."""
    calls = count(1)

    def counted(verb: Verb) -> Verb:
        def call(asked: Any) -> Any:
            if next(calls) == at_call:
                os.kill(os.getpid(), number)
            return verb(asked)

        return call

    def loaded(source: ModelSource, config: ModelConfig) -> Engine:
        engine = load(source, config)
        for name in ("log_likelihoods", "hidden_states"):
            setattr(engine, name, counted(getattr(engine, name)))
        return engine

    return loaded


if __name__ == "__main__":
    signal_name, at_call, *words = sys.argv[1:]
    for name, kind in [*ENGINES.items()]:
        ENGINES[name] = replace(kind, load=interrupting(kind.load, signal.Signals[signal_name], int(at_call)))
    sys.argv = ["evaluator", *words]
    main()
