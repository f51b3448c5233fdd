"""Models that need no download: a trained one that ships with the package, and a random one made on first use."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from evaluator.config import ModelConfig


def _random_model() -> Path:
    from evaluator.models.embedded.random_model import random_model_folder

    return random_model_folder()


EMBEDDED_MODELS: dict[str, Callable[[], Path]] = {
    "embedded": lambda: Path(__file__).with_name("model"),  # which MODEL_CARD.md there describes
    "random": _random_model,
}
"""Names that `--model` takes besides folders and hub names -> function that returns the model's folder."""


def shipped_model(model: ModelConfig) -> ModelConfig:
    """Return the configuration with the folder of a model of EMBEDDED_MODELS in place of its name."""
    make = EMBEDDED_MODELS.get(model.model)
    return model if make is None else replace(model, model=str(make()))
