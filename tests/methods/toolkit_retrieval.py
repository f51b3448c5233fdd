"""The toolkit's retrieval with a made-up model in place of a real one: what it would choose and say."""

import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from StaICC.prefabricate_inference import prompt_template_edit

from tests.methods.state_answers import hidden_state

LABEL_TOKENS = 100  # token i of the vocabulary is the label of index i


class _Encoded:
    """Token ids as the toolkit takes them; they are the text itself."""

    def __init__(self, text: Any) -> None:
        self.input_ids = self
        (self.text,) = text if isinstance(text, list) else (text,)

    def to(self, _device: str) -> "_Encoded":
        return self


def toolkit_retrieval(experiment: Any, scores: Callable[[str], list[float]]) -> Any:
    """The toolkit's SA_ICL, which holds TopK too, with the hidden states of state_answers and these label scores."""
    label_space = experiment.get_label_space()

    def tokenizer(text: Any, return_tensors: str | None = None) -> Any:
        return SimpleNamespace(input_ids=[label_space.index(text)]) if return_tensors is None else _Encoded(text)

    class Model:
        device = "cpu"

        def __call__(self, ids: _Encoded, output_hidden_states: bool) -> Any:  # noqa: ARG002
            logits = torch.full((1, 1, LABEL_TOKENS), -50.0, dtype=torch.float64)
            logits[0, 0, : len(label_space)] = torch.tensor(scores(ids.text), dtype=torch.float64)
            state = torch.from_numpy(hidden_state(ids.text))[None, None]
            return _Result(logits=logits, hidden_states=[state])

    with warnings.catch_warnings(), redirect_stdout(StringIO()):
        warnings.simplefilter("ignore")
        return prompt_template_edit.SA_ICL(Model(), tokenizer, experiment, cache_empty=None)


class _Result(dict[str, Any]):
    @property
    def hidden_states(self) -> Any:
        return self["hidden_states"]


def quietly(call: Callable[[], Any]) -> Any:
    with warnings.catch_warnings(), redirect_stdout(StringIO()):
        warnings.simplefilter("ignore")
        return call()


def euclidean(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.sqrt(((one.astype(np.float64) - other.astype(np.float64)) ** 2).sum()))
