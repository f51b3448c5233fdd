"""Engines by name. Loading one happens in its factory, so that listing names imports neither torch nor vllm."""

from collections.abc import Callable
from importlib.util import find_spec

from evaluator.config import ModelConfig
from evaluator.engine.base import Engine
from evaluator.errors import ConfigError
from evaluator.models.source import ModelSource


def _vllm(source: ModelSource, config: ModelConfig) -> Engine:
    from evaluator.engine.vllm_engine import VllmEngine

    return VllmEngine(source, config)


def _transformers(source: ModelSource, config: ModelConfig) -> Engine:
    from evaluator.engine.transformers_engine import TransformersEngine

    return TransformersEngine(source, config)


def _fake(_source: ModelSource, _config: ModelConfig) -> Engine:
    from evaluator.engine.fake_engine import FakeEngine

    return FakeEngine()


ENGINES: dict[str, Callable[[ModelSource, ModelConfig], Engine]] = {
    "vllm": _vllm,
    "transformers": _transformers,
    "fake": _fake,
}


def default_engine_name() -> str:
    """vllm where it is installed, else transformers."""
    return "vllm" if find_spec("vllm") else "transformers"


def engine_name(config: ModelConfig) -> str:
    """The engine a run names, or the default. Raises ConfigError for an unknown one."""
    name = config.engine or default_engine_name()
    if name not in ENGINES:
        raise ConfigError(f"There is no engine {name!r}. There are: {', '.join(ENGINES)}.")
    return name


def load_engine(source: ModelSource, config: ModelConfig) -> Engine:
    """Load the engine that a run names. Raises ConfigError for an unknown one, ModelError if the model does not fit."""
    return ENGINES[engine_name(config)](source, config)
