"""Keep a model loaded between calls, and its answers for as long as the process lives."""

import atexit
from functools import cache
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import NamedTuple

from evaluator.config import ModelConfig
from evaluator.engine import find_source, with_devices
from evaluator.engine.replicas import EngineLoader
from evaluator.models.chat import chat_form
from evaluator.models.source import ModelSource
from evaluator.run.score import LOGS
from evaluator.tokens.chat import ChatForm


class LoadedModel(NamedTuple):
    """A model that is loaded when it is first asked, and stays so until another one is."""

    source: ModelSource
    config: ModelConfig
    loader: EngineLoader
    chat: ChatForm | None  # None: plain prompts


_loaded: dict[ModelConfig, LoadedModel] = {}


def loaded_model(config: ModelConfig) -> LoadedModel:
    """Return a model for this process. Releases another one's memory. Raises ModelError if it is not there."""
    if config not in _loaded:
        source = find_source(config)
        laid_out, chat = with_devices(source, config), chat_form(source, config.chat)
        unload_models()
        _loaded[config] = LoadedModel(source, laid_out, EngineLoader(source, laid_out, answers_folder() / LOGS), chat)
    return _loaded[config]


def unload_models() -> None:
    """Release the memory of the loaded model; what it has answered is kept."""
    while _loaded:
        _, model = _loaded.popitem()
        model.loader.close()


@cache
def answers_folder() -> Path:
    """Return the folder of prompts and scores of this process, which is removed at its end."""
    folder = Path(mkdtemp(prefix="evaluator-"))
    atexit.register(rmtree, folder, ignore_errors=True)
    atexit.register(unload_models)
    return folder
