"""What many tests share: real prompts of every dataset, a tiny random model, and each engine loaded once."""

import os
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from evaluator.config import ModelConfig
from evaluator.datasets import DATASETS
from evaluator.embedded.random_llama import make_random_llama
from evaluator.engine import load_engine
from evaluator.engine.base import Engine
from evaluator.engine.model_source import ModelSource, find_model
from evaluator.prompts.build import normal_requests


@pytest.fixture(scope="session", autouse=True)
def _own_cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep what tests convert and remember out of the user's cache folder."""
    if "EVALUATOR_CACHE" in os.environ:
        yield
        return
    os.environ["EVALUATOR_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    yield
    del os.environ["EVALUATOR_CACHE"]


@pytest.fixture(scope="session")
def real_prompts() -> pl.DataFrame:
    """The first query of every dataset behind four demonstrations, twice: `dataset`, `prompt`, `continuations`."""
    return pl.concat([normal_requests(load(), n_shots=4, n_queries=1) for load in DATASETS.values()])


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory, real_prompts: pl.DataFrame) -> Path:
    """Folder of a random Llama; its tokenizer learned few merges from real prompts, so labels take several tokens."""
    folder = tmp_path_factory.mktemp("models") / "tiny-llama"
    return make_random_llama(folder, texts=real_prompts["prompt"], vocab_size=1024, context_length=2048)


@pytest.fixture(scope="session")
def tiny_source(tiny_model: Path) -> ModelSource:
    return find_model(ModelConfig(model=str(tiny_model)))


@pytest.fixture(scope="session", params=["fake", "transformers", "vllm"])
def engine(request: pytest.FixtureRequest, tiny_source: ModelSource, tiny_model: Path) -> Iterator[Engine]:
    """Every engine in turn, over the same model in fp32. One at a time, and each is loaded once."""
    loaded = load_engine(tiny_source, ModelConfig(model=str(tiny_model), engine=request.param, dtype="float32"))
    yield loaded
    loaded.close()
