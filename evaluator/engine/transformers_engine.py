"""The plain engine and our reference: any causal model of transformers, in length-sorted batches, nothing cached."""

import inspect
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from evaluator.config import ModelConfig
from evaluator.engine.base import ContinuationRequest, ContinuationScores, EngineFacts, TokenCounts
from evaluator.engine.device import device_kind, device_name
from evaluator.errors import ModelError
from evaluator.models.source import ModelSource, scoring_dtype

_TOKENS_PER_BATCH = {"cpu": 2048, "cuda": 16384}
_LOGITS_PER_BATCH = 2**26  # floats: 256 MiB of log-probabilities at a time


class _Text(NamedTuple):
    """A context with all of a continuation but its last token: one pass gives each token's log-probability."""

    request: int
    tokens: list[int]
    n_predictions: int  # the last positions whose next token is asked for
    places: list[int]  # the continuations of the request that begin with this text's tail


class TransformersEngine:
    """Scores with `AutoModelForCausalLM`, on a GPU where there is one."""

    def __init__(self, source: ModelSource, config: ModelConfig) -> None:
        dtype = scoring_dtype(source, config)
        self._device = device_kind()
        self._model = _load(source, getattr(torch, dtype)).to(self._device).eval()
        accepted = inspect.signature(self._model.forward).parameters
        self._takes_positions = "position_ids" in accepted
        self._keeps_logits = "logits_to_keep" in accepted
        self._vocab_size = source.vocab_size
        self.facts = EngineFacts(
            name="transformers",
            versions={package: version(package) for package in ("transformers", "torch")},
            device=device_name(),
            dtype=dtype,
            prefix_block_tokens=None,
            tokens_per_step=_TOKENS_PER_BATCH[self._device],
        )
        self.counts = TokenCounts()

    def log_likelihoods(self, requests: Sequence[ContinuationRequest]) -> Iterator[ContinuationScores]:
        texts = [text for index, request in enumerate(requests) for text in _texts_of(index, request)]
        missing = {index: len(request.continuations) for index, request in enumerate(requests)}
        found: dict[int, dict[int, list[float]]] = defaultdict(dict)
        for batch in self._batches(texts):
            for text, log_probs in zip(batch, self._next_token_log_probs(batch), strict=True):
                found[text.request] |= _read_off(text, log_probs, requests[text.request])
                if len(found[text.request]) == missing[text.request]:
                    by_place = found.pop(text.request)
                    yield ContinuationScores(text.request, [by_place[place] for place in range(len(by_place))])

    def hidden_states(self, texts: Sequence[Sequence[int]]) -> npt.NDArray[np.float32]:
        states = np.empty((len(texts), self._model.config.get_text_config().hidden_size), np.float32)
        for batch in self._batches([_Text(index, list(tokens), 1, []) for index, tokens in enumerate(texts)]):
            with torch.inference_mode():
                last = self._model.base_model(**self._padded(batch)).last_hidden_state[:, -1]
            states[[text.request for text in batch]] = last.float().cpu().numpy()
        return states

    def close(self) -> None:
        del self._model
        if self._device == "cuda":
            torch.cuda.empty_cache()

    def _batches(self, texts: Sequence[_Text]) -> Iterator[list[_Text]]:
        """Texts of like length together, longest first: little padding, and a lack of memory shows at once."""
        batch: list[_Text] = []
        for text in sorted(texts, key=lambda text: -len(text.tokens)):
            n_predictions = max([text.n_predictions, *(other.n_predictions for other in batch)])
            n_tokens = (len(batch) + 1) * len(batch[0].tokens if batch else text.tokens)
            n_logits = (len(batch) + 1) * n_predictions * self._vocab_size
            if batch and (n_tokens > self.facts.tokens_per_step or n_logits > _LOGITS_PER_BATCH):
                yield batch
                batch = []
            batch.append(text)
        if batch:
            yield batch

    def _padded(self, batch: Sequence[_Text]) -> dict[str, Any]:
        """Texts as rows that end together, so that the last positions of all are the last columns.

        Positions count from each text's own first token; what stands in the padding is masked and cannot matter.
        """
        longest = max(len(text.tokens) for text in batch)
        ids = torch.zeros((len(batch), longest), dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, text in enumerate(batch):
            ids[row, longest - len(text.tokens) :] = torch.tensor(text.tokens)
            mask[row, longest - len(text.tokens) :] = 1
        self.counts.prompt_tokens += sum(len(text.tokens) for text in batch)
        inputs = {"input_ids": ids, "attention_mask": mask}
        if self._takes_positions:
            inputs["position_ids"] = (mask.cumsum(1) - 1).clamp(min=0)
        return {name: tensor.to(self._device) for name, tensor in inputs.items()} | {"use_cache": False}

    def _next_token_log_probs(self, batch: Sequence[_Text]) -> Any:
        """Log-probabilities of the token after each of the last positions: [text, last positions, vocabulary], nats."""
        n_last = max(text.n_predictions for text in batch)
        kept = {"logits_to_keep": n_last} if self._keeps_logits else {}
        with torch.inference_mode():
            logits = self._model(**self._padded(batch), **kept).logits[:, -n_last:]
            return torch.log_softmax(logits.float(), dim=-1)


def _texts_of(index: int, request: ContinuationRequest) -> list[_Text]:
    """Continuations that differ in their last token only share one text."""
    places: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for place, continuation in enumerate(request.continuations):
        places[tuple(continuation[:-1])].append(place)
    return [_Text(index, [*request.context, *stem], len(stem) + 1, with_stem) for stem, with_stem in places.items()]


def _read_off(text: _Text, log_probs: Any, request: ContinuationRequest) -> dict[int, list[float]]:
    targets = torch.tensor([request.continuations[place] for place in text.places], device=log_probs.device)
    last = log_probs[-text.n_predictions :]
    picked = last[torch.arange(text.n_predictions, device=last.device), targets].tolist()
    return dict(zip(text.places, picked, strict=True))


def _load(source: ModelSource, dtype: Any) -> Any:
    from transformers import AutoModelForCausalLM

    try:
        with _no_progress_bar():
            return AutoModelForCausalLM.from_pretrained(
                str(source.folder), dtype=dtype, trust_remote_code=source.trust_remote_code
            )
    except (OSError, ValueError, ImportError) as error:
        raise ModelError(f"transformers cannot load {source.name}: {error}") from error


@contextmanager
def _no_progress_bar() -> Iterator[None]:
    from transformers.utils import logging

    was_shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if was_shown:
            logging.enable_progress_bar()
