"""What the model's part of a run does with engines that cannot do all that is asked."""

from dataclasses import replace

import pytest

from evaluator.config import ModelConfig, StoreConfig
from evaluator.engine.fake_engine import FakeEngine
from evaluator.errors import ConfigError, ScoreError
from evaluator.progress import finish
from evaluator.run import pipeline
from evaluator.run import score as scoring

MODEL = ModelConfig(model="fake", engine="fake")
ASKED = StoreConfig(
    suites=("staicc-normal",), datasets=("sst5",), n_queries=4, methods=("vanilla", "hidden_calibration")
)


def kept_shards(out) -> set[str]:
    return {path.name for path in out.glob("scores/*/*-*.arrow")}


def test_a_method_that_needs_hidden_states_is_refused_on_an_engine_that_has_none(tmp_path, monkeypatch):
    class WithoutStates(FakeEngine):
        def __init__(self) -> None:
            super().__init__()
            self.facts = replace(self.facts, has_hidden_states=False)

    monkeypatch.setattr(scoring, "load_engine", lambda _source, _config: WithoutStates())
    with pytest.raises(ConfigError, match=r"hidden_calibration needs hidden states, and the engine fake has none"):
        finish(pipeline.run(ASKED, MODEL, tmp_path))
    assert kept_shards(tmp_path) == {"scores-00000.arrow"}


def test_hidden_states_that_are_not_numbers_end_the_run_and_leave_its_scores(tmp_path, monkeypatch):
    class Damaged(FakeEngine):
        def hidden_states(self, texts):
            return super().hidden_states(texts) * float("nan")

    monkeypatch.setattr(scoring, "load_engine", lambda _source, _config: Damaged())
    with pytest.raises(ScoreError, match="a hidden state that is not finite; the first is prompt"):
        finish(pipeline.run(ASKED, MODEL, tmp_path))
    assert kept_shards(tmp_path) == {"scores-00000.arrow"}
