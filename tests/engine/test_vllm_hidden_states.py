"""The recorder that takes the place of a model's LM head."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from evaluator.engine.vllm_requests import StateRecorder, max_recorded_texts, recording_states


def test_the_greedy_token_of_each_row_is_the_number_of_its_state() -> None:
    recorder = StateRecorder(vocab_size=8)
    first, second = torch.randn(3, 4), torch.randn(2, 4)
    assert recorder(first).argmax(dim=-1).tolist() == [0, 1, 2]
    assert recorder(second).argmax(dim=-1).tolist() == [3, 4]
    taken = recorder.take()
    np.testing.assert_array_equal(taken[4], second[1].numpy())
    np.testing.assert_array_equal(taken[0], first[0].numpy())
    assert recorder.take() == {}


def test_numbers_begin_again_where_the_vocabulary_ends() -> None:
    recorder = StateRecorder(vocab_size=8)
    for step in range(5):
        states = torch.full((2, 4), float(step))
        tokens = recorder(states).argmax(dim=-1).tolist()
        assert tokens == [2 * step % 8, (2 * step + 1) % 8]
        taken = recorder.take()
        assert all((taken[token] == step).all() for token in tokens)


def test_a_state_is_kept_although_its_memory_is_used_again() -> None:
    recorder = StateRecorder(vocab_size=8)
    states = torch.ones(1, 4)
    recorder(states)
    states.zero_()
    assert (recorder.take()[0] == 1).all()


class Model(torch.nn.Module):
    def compute_logits(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return hidden_states


def test_states_are_taken_before_numbers_begin_again() -> None:
    assert max_recorded_texts(8) == 2


def test_states_are_taken_from_the_devices_that_have_them() -> None:
    models = [Model(), Model(), Model()]  # of earlier layers, and two that share the last
    llm: Any = SimpleNamespace(
        llm_engine=SimpleNamespace(model_config=SimpleNamespace(get_vocab_size=lambda: 8)),
        apply_model=lambda change: [change(model) for model in models],
    )
    with recording_states(llm) as take_states:
        for model in models[1:]:
            model.compute_logits(torch.ones(2, 4))
        assert take_states().keys() == {0, 1}


def test_the_model_computes_logits_again_however_recording_ends() -> None:
    model = Model()
    llm: Any = SimpleNamespace(
        llm_engine=SimpleNamespace(model_config=SimpleNamespace(get_vocab_size=lambda: 8)),
        apply_model=lambda change: [change(model)],
    )

    def interrupted() -> None:
        with recording_states(llm):
            assert isinstance(model.compute_logits, StateRecorder)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert model.compute_logits(torch.ones(1, 4)).shape == (1, 4)
