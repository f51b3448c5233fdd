"""Engines are loaded with room for the prompts that they get, and again where later prompts are longer."""

from itertools import count
from pathlib import Path
from types import SimpleNamespace

from evaluator.config import DevicesConfig, ModelConfig
from evaluator.engine import replicas
from evaluator.engine.base import FakeEngine
from evaluator.engine.replicas import MIN_ROOM, EngineLoader
from evaluator.models.fake_source import fake_model_source
from evaluator.progress import finish


def test_an_engine_is_loaded_again_only_for_longer_prompts_than_it_has_room_for(monkeypatch, tmp_path: Path) -> None:
    rooms, closed = [], []

    class Noted(FakeEngine):
        def close(self) -> None:
            closed.append(rooms[-1])

    def load(_source, config):
        rooms.append(config.max_prompt_tokens)
        return Noted()

    monkeypatch.setattr(replicas, "load_engine", load)
    monkeypatch.setattr(replicas, "time", SimpleNamespace(monotonic=count().__next__))  # a second for each load
    config = ModelConfig(model="fake", engine="fake", devices=DevicesConfig(n=1, tensor_parallel=1))
    loader = EngineLoader(fake_model_source(), config, tmp_path)
    for longest in (100, MIN_ROOM, MIN_ROOM + 1, 200, 50_000, 60_000):
        finish(loader.replicas(longest))
    assert (loader.take_waited_s(), loader.take_waited_s()) == (4, 0)
    loader.close()
    assert rooms == [MIN_ROOM, MIN_ROOM + 1, 50_000, 60_000]
    assert closed == rooms
