"""Models that need no download: one that was trained and ships, one that is random and made on the spot."""

from collections.abc import Callable
from pathlib import Path


def _trained_model() -> Path:
    """The model that ships; MODEL_CARD.md in its folder says what it is."""
    return Path(__file__).with_name("model")


def _random_model() -> Path:
    from evaluator.models.embedded.random_model import random_model_folder

    return random_model_folder()


EMBEDDED_MODELS: dict[str, Callable[[], Path]] = {
    "embedded": _trained_model,
    "random": _random_model,
}
"""What `--model` takes beside folders and hub names -> where the model is, once it is made."""
