"""Hidden states from a model that vLLM loaded to generate text, so that its weights are loaded once.

vLLM returns hidden states only from a model loaded for pooling. But a generating model passes the final-norm hidden
state of each prompt's last token to `compute_logits`, which every text model in vLLM has. While hidden states are
wanted, a recorder takes the place of that method: it keeps the states, numbers them, and returns logits whose greedy
token is the state's number. So the token sampled for a request says which state belongs to it, whichever model runner
and scheduler are at work, and the LM head is not computed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import torch


class StateRecorder:
    """Takes the place of a model's `compute_logits`."""

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._states: dict[int, npt.NDArray[np.float32]] = {}
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

    @property
    def max_running(self) -> int:
        """How many requests may run at once: vLLM returns a token some steps later, when its number is still unique."""
        return max(1, self._vocab_size // 4)

    def take(self, number: int) -> npt.NDArray[np.float32]:
        """Return the state that was last kept under a number, and forget it."""
        return self._states.pop(number)


@contextmanager
def recording_states(llm: Any) -> Iterator[StateRecorder]:
    """Have a `vllm.LLM` record hidden states instead of computing logits."""
    recorder = StateRecorder(llm.llm_engine.model_config.get_vocab_size())
    llm.apply_model(lambda model: setattr(model, "compute_logits", recorder))
    try:
        yield recorder
    finally:
        llm.apply_model(lambda model: delattr(model, "compute_logits"))
