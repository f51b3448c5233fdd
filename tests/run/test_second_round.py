"""Distances from hidden states and the LM head, computed beside a model that is loaded."""

from dataclasses import replace

import pytest
import torch

from evaluator.config import ModelConfig, RunConfig
from evaluator.engine.replicas import EngineLoader
from evaluator.methods.base import Method
from evaluator.methods.hidden_states import KNN_CENTROID
from evaluator.models.fake_source import fake_model_source
from evaluator.progress import finish
from evaluator.run import pipeline, score
from evaluator.run.folder import BuiltFolder, open_scored
from evaluator.run.score import load_head, write_distances

pytestmark = pytest.mark.usefixtures("without_pages")

MODEL = ModelConfig(model="fake", engine="fake")
DATASET = "financial_phrasebank"  # the fewest demonstrations
CONFIG = RunConfig(suites=("staicc-normal",), datasets=(DATASET,), n_queries=4, methods=("vanilla", "knn_centroid"))


class Closing(EngineLoader):
    """Counts how often it is closed."""

    n_closed = 0

    def close(self) -> None:
        self.n_closed += 1
        super().close()


def without_memory(times: int, loader: Closing) -> tuple[Method, list[int]]:
    """Return the method as it is on a device whose memory is taken the first times.

    Also return how often the loader had been closed at each call.
    """
    closed_before: list[int] = []

    def distances(scored, head):
        closed_before.append(loader.n_closed)
        if len(closed_before) <= times:
            raise torch.OutOfMemoryError("CUDA out of memory")
        assert KNN_CENTROID.distances is not None
        return KNN_CENTROID.distances(scored, head)

    return replace(KNN_CENTROID, distances=distances), closed_before


@pytest.mark.parametrize("times", [0, 1])
def test_a_model_is_released_only_where_it_leaves_no_memory(tmp_path, times, monkeypatch):
    finish(pipeline.run(CONFIG, MODEL, tmp_path))
    folder = BuiltFolder(tmp_path)
    (part,) = open_scored(folder)
    source = fake_model_source()
    loader = Closing(source, MODEL, tmp_path)
    method, closed_before = without_memory(times, loader)
    monkeypatch.setattr(score, "chosen_methods", lambda _config: {"knn_centroid": method})
    again = finish(write_distances(folder.built, part, load_head(folder.built, source), loader))
    assert closed_before == list(range(times + 1))
    assert again.scores.manifest.distances == part.scores.manifest.distances


def test_a_device_that_is_too_small_for_the_head_alone_is_an_error(tmp_path, monkeypatch):
    finish(pipeline.run(CONFIG, MODEL, tmp_path))
    folder = BuiltFolder(tmp_path)
    (part,) = open_scored(folder)
    source = fake_model_source()
    loader = Closing(source, MODEL, tmp_path)
    method, _ = without_memory(2, loader)
    monkeypatch.setattr(score, "chosen_methods", lambda _config: {"knn_centroid": method})
    with pytest.raises(torch.OutOfMemoryError):
        finish(write_distances(folder.built, part, load_head(folder.built, source), loader))
