"""Hidden states from a model that vLLM loaded to generate text, so that its weights are loaded once.

vLLM returns hidden states only from a model loaded for pooling. But a generating model passes the final-norm hidden
state of each prompt's last token to `compute_logits`, which every text model in vLLM has. While hidden states are
wanted, a recorder takes the place of that method: it keeps the states, numbers them, and returns logits whose greedy
token is the state's number. So the token sampled for a request says which state belongs to it, whichever model runner
and scheduler are at work, and the LM head is not computed. Where a model lies on several devices, each of their
processes has a recorder.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

States = dict[int, npt.NDArray[np.float32]]
"""Hidden states by number."""

_MAX_KEPT = 4096  # states, before they are taken


class StateRecorder:
    """Takes the place of a model's `compute_logits`."""

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._states: States = {}
        self._n_kept = 0

    def __call__(self, hidden_states: torch.Tensor, *_args: Any, **_kwargs: Any) -> torch.Tensor:
        """Keep hidden states [rows, hidden size]; return logits [rows, vocabulary] that are 1 at a state's number."""
        rows = torch.arange(len(hidden_states), device=hidden_states.device)
        numbers = (self._n_kept + rows) % self._vocab_size
        kept = hidden_states.to("cpu", torch.float32, copy=True).numpy()
        self._states |= dict(zip(numbers.tolist(), kept, strict=True))
        self._n_kept += len(hidden_states)
        logits = torch.zeros(len(hidden_states), self._vocab_size, device=hidden_states.device)
        logits[rows, numbers] = 1
        return logits

    def take(self) -> States:
        """Return the states that were kept since the last call, and forget them."""
        taken, self._states = self._states, {}
        return taken


class Recording:
    """The recorders of a `vllm.LLM`, one in each of its processes."""

    def __init__(self, llm: Any) -> None:
        self._llm = llm
        self.vocab_size: int = llm.llm_engine.model_config.get_vocab_size()

    @property
    def max_texts(self) -> int:
        """How many texts may be computed before their states are taken.

        Numbers begin again where the vocabulary ends, and vLLM may compute rows that nobody asked for.
        """
        return max(1, min(self.vocab_size // 4, _MAX_KEPT))

    def take(self) -> States:
        """Return the states that were recorded since the last call, and forget them."""
        # Devices that hold the same layers have recorded the same; those of earlier layers have recorded nothing.
        return max(self._llm.apply_model(_take), key=len)


@contextmanager
def recording_states(llm: Any) -> Iterator[Recording]:
    """Have a `vllm.LLM` record hidden states instead of computing logits."""
    recording = Recording(llm)
    llm.apply_model(partial(_start, vocab_size=recording.vocab_size))
    try:
        yield recording
    finally:
        llm.apply_model(_stop)


# Functions with names, because they are sent to other processes.
def _start(model: Any, vocab_size: int) -> None:
    model.compute_logits = StateRecorder(vocab_size)


def _take(model: Any) -> States:
    return dict(model.compute_logits.take())


def _stop(model: Any) -> None:
    del model.compute_logits
