"""Engines over the tiny model, each loaded once a process. A command that loads vLLM closes the shared one first."""

from evaluator.engine.base import Engine

LOADED: dict[str, Engine] = {}
"""Engines that tests share, by name."""


def close_engines(*names: str) -> None:
    """Close these engines if they are loaded; the next test that needs one loads it again."""
    for name in names:
        if name in LOADED:
            LOADED.pop(name).close()
