"""The reference engine: any causal model of transformers, in batches sorted by length, without a cache."""

import inspect
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from evaluator.arrays import Floats32
from evaluator.config import ModelConfig
from evaluator.engine.base import (
    ContinuationRequest,
    ContinuationScores,
    Requests,
    TokenCounts,
    TokenIds,
    first_sentence,
    require_room,
    versions_for_transformers,
)
from evaluator.engine.devices import device_kind, head_dtype, return_freed_memory, this_machine
from evaluator.errors import ModelError
from evaluator.models.skeleton import auto_class, require_whole, without_progress
from evaluator.models.source import ModelSource, scoring_dtype
from evaluator.models.weights import Adapter
from evaluator.record import EngineRecord

_TOKENS_PER_BATCH = {"cpu": 2048, "cuda": 16384}
_ROUNDING = 1e-3  # tolerance for logits: experts that compute other tokens in the same batch round differently
_LOGITS_PER_BATCH = 2**26  # floats: 256 MiB of log-probabilities at a time


class _Text(NamedTuple):
    """A context and a continuation without its last token: one forward pass predicts all of the continuation."""

    request: int  # index of the request
    tokens: list[int]
    n_predictions: int  # number of positions at the end whose next token is scored
    places: list[int]  # indices of the request's continuations that are this text's continuation and one more token


class TransformersEngine:
    """Scores with `AutoModelForCausalLM`, on a GPU if there is one."""

    def __init__(self, source: ModelSource, config: ModelConfig) -> None:
        dtype = scoring_dtype(source, config)
        self._source, self._device = source, device_kind()
        self._model = _load(source, getattr(torch, dtype), self._device)
        logits_dtype = head_dtype(source, config, self._device)
        if logits_dtype != dtype:
            _compute_logits_in_float32(self._model, source)
        self._adapted = _with_adapters(self._model, source)
        self._adapter: str | None = None  # fingerprint of the adapter of the last call; None: base model
        accepted = inspect.signature(self._model.forward).parameters
        self._takes_positions = "position_ids" in accepted
        self._keeps_logits = "logits_to_keep" in accepted
        self.facts = EngineRecord(
            name="transformers",
            versions=versions_for_transformers(source.adapters),
            device=this_machine().name,
            dtype=dtype,
            head_dtype=logits_dtype,
            prefix_block_tokens=None,
            tokens_per_step=_TOKENS_PER_BATCH[self._device],
            engines_per_device=config.devices.engines_per_device,
        )
        self.counts = TokenCounts()
        self._see_positions()
        self.counts.prompt_tokens = 0

    def log_likelihoods(self, requests: Requests, adapter: Adapter | None = None) -> Iterator[ContinuationScores]:
        self._begin(requests, adapter)
        texts = [text for index, request in enumerate(requests) for text in _texts_of(index, request)]
        scores: dict[int, dict[int, list[float]]] = defaultdict(dict)  # request -> continuation -> log-probabilities
        for batch in self._batches(texts):
            for text, log_probs in zip(batch, self._next_token_log_probs(batch), strict=True):
                index, request = text.request, requests[text.request]
                scores[index] |= _continuation_scores(text, log_probs, request)
                if len(scores[index]) == len(request.continuations):
                    yield ContinuationScores(index, [row for _, row in sorted(scores.pop(index).items())])

    def hidden_states(self, texts: Sequence[TokenIds], adapter: Adapter | None = None) -> Floats32:
        self._begin([ContinuationRequest(text, []) for text in texts], adapter)
        states = np.empty((len(texts), self._model.config.get_text_config().hidden_size), np.float32)
        for batch in self._batches([_Text(index, list(tokens), 1, []) for index, tokens in enumerate(texts)]):
            with self._computing():
                last = self._model.base_model(**self._padded(batch)).last_hidden_state[:, -1]
            if last.shape[1] != states.shape[1]:  # such as OPT-350m's, projected to the head's size
                states = np.empty((len(texts), last.shape[1]), np.float32)
            states[[text.request for text in batch]] = last.float().cpu().numpy()
        return states

    @contextmanager
    def _computing(self) -> Iterator[None]:
        """Switch to the adapter of the present call, or to the base model, for computations within this context.

        Raises ModelError in place of any exception within the context.
        """
        if self._adapter is not None and self._adapted.active_adapter != self._adapter:
            self._adapted.set_adapter(self._adapter)
        alone = self._adapted is not None and self._adapter is None
        try:
            with torch.inference_mode(), self._adapted.disable_adapter() if alone else nullcontext():
                yield
        except Exception as error:  # models can raise anything: own code, missing operators, no memory left
            raise ModelError(f"transformers cannot run {self._source.name}: {first_sentence(error)}.") from error

    def close(self) -> None:
        del self._model, self._adapted
        return_freed_memory()

    def _begin(self, requests: Requests, adapter: Adapter | None) -> None:
        """Select the adapter of a call, or the base model. Raises PromptTooLongError if a request is too long."""
        self._adapter = adapter.fingerprint if adapter else None
        hint = "Use fewer demonstrations (--shots), or choose a model with a longer context."
        require_room(requests, self._source.context_length, f"the model's context allows. {hint}")

    def _see_positions(self) -> None:
        """Test whether positions count from 0, and whether scores of a text do not depend on its padding.

        Recurrent states and convolutions can carry padding into a text. Raises ModelError if a token changes the scores
        of earlier tokens.
        """
        text, padded = (self._padded([_Text(0, [0] * n, 1, []) for n in lengths]) for lengths in ([9], [9, 1]))
        leak = 0.01 if self.facts.dtype == "float32" else 1.0  # more than the rounding of logits in models with experts
        is_last, is_pad = torch.arange(9, device=self._device) == 8, padded["attention_mask"] == 0
        if not self._agree(text, {"input_ids": text["input_ids"].masked_fill(is_last, 1)}, slice(-1), leak):
            raise ModelError(
                f"{self._source.name} is no causal model: a token changes the scores of those before it. Choose "
                "another; a model of BERT's kind needs is_decoder in its config.json."
            )
        # Models such as RoBERTa count positions from another number than 0, and are then given no positions.
        self._takes_positions = self._takes_positions and self._agree(text, {"position_ids": None})
        self._pads = self._takes_positions and self._agree(
            padded, {"input_ids": padded["input_ids"].masked_fill(is_pad, 1)}, slice(-1, None)
        )

    def _agree(
        self, inputs: dict[str, Any], changed: dict[str, Any], places: slice = slice(None), atol: float = _ROUNDING
    ) -> bool:
        """Return whether logits at some places stay the same, up to `atol`, when inputs are changed."""
        with self._computing():
            one, other = (self._model(**given).logits[:, places] for given in (inputs, inputs | changed))
        return bool(torch.allclose(one, other, atol=atol, equal_nan=True))  # NaN is reported with scores

    def _batches(self, texts: Sequence[_Text]) -> Iterator[list[_Text]]:
        """Yield batches of texts of similar length, longest first: little padding, and a lack of memory shows early.

        Texts of a batch have equal lengths if padding would change the scores.
        """
        batch: list[_Text] = []
        for text in sorted(texts, key=lambda text: -len(text.tokens)):
            # What the batch would need with this text added; the first text of a batch is the longest.
            longest = len(batch[0].tokens if batch else text.tokens)
            n_predictions = max(other.n_predictions for other in [*batch, text])
            n_logits = (len(batch) + 1) * n_predictions * self._source.vocab_size
            is_full = (len(batch) + 1) * longest > self.facts.tokens_per_step or n_logits > _LOGITS_PER_BATCH
            # Texts up to this length are not batched with longer texts: LongRoPE applies the factors of the longest
            # text to the whole batch.
            apart = (self._source.short_context or 0) if self._pads else longest - 1
            if batch and (is_full or len(text.tokens) <= apart < longest):
                yield batch
                batch = []
            batch.append(text)
        if batch:
            yield batch

    def _padded(self, batch: Sequence[_Text]) -> dict[str, Any]:
        """Return model inputs padded on the left, so that the last tokens of all texts are in the last columns.

        Positions count from the first token of each text; padding is masked.
        """
        rows = [torch.tensor(text.tokens) for text in batch]
        pad = partial(pad_sequence, batch_first=True, padding_side="left")
        ids, mask = pad(rows), pad([torch.ones_like(row) for row in rows])
        self.counts.prompt_tokens += sum(map(len, rows))
        inputs = {"input_ids": ids, "attention_mask": mask}
        if self._takes_positions:
            inputs["position_ids"] = (mask.cumsum(1) - 1).clamp(min=0)
        return {name: tensor.to(self._device) for name, tensor in inputs.items()} | {"use_cache": False}

    def _next_token_log_probs(self, batch: Sequence[_Text]) -> Any:
        """Return next-token log-probabilities (nats) at the last positions: [text, position, vocabulary]."""
        n_last = max(text.n_predictions for text in batch)
        kept = {"logits_to_keep": n_last} if self._keeps_logits else {}
        with self._computing():
            logits = self._model(**self._padded(batch), **kept).logits[:, -n_last:]
            return torch.log_softmax(logits.float(), dim=-1)


def _texts_of(index: int, request: ContinuationRequest) -> list[_Text]:
    """Return the texts to compute for a request; continuations that differ only in their last token share one text."""
    places: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for place, continuation in enumerate(request.continuations):
        places[tuple(continuation[:-1])].append(place)
    return [_Text(index, [*request.context, *stem], len(stem) + 1, with_stem) for stem, with_stem in places.items()]


def _continuation_scores(text: _Text, log_probs: Any, request: ContinuationRequest) -> dict[int, list[float]]:
    """Return index -> token log-probabilities (nats), of the continuations that share this text."""
    targets = torch.tensor([request.continuations[place] for place in text.places], device=log_probs.device)
    last = log_probs[-text.n_predictions :]
    picked = last[torch.arange(text.n_predictions, device=last.device), targets].tolist()
    return dict(zip(text.places, picked, strict=True))


class _Float32Head(torch.nn.Linear):  # type: ignore[misc]
    """An LM head with weights and hidden states in 16 bits, and logits in float32."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Return logits [..., vocabulary] for hidden states [..., hidden size]."""
        if input.is_cuda:
            # A GPU sums products of 16-bit numbers in float32 anyway; here the sums are not rounded to 16 bits.
            logits = torch.mm(input.flatten(0, -2), self.weight.t(), out_dtype=torch.float32)
            logits = logits.unflatten(0, input.shape[:-1])
        else:
            logits = functional.linear(input.float(), self.weight.float())
        return logits if self.bias is None else logits + self.bias


def _compute_logits_in_float32(model: Any, source: ModelSource) -> None:
    """Turn a model's LM head into a _Float32Head. Raises ModelError if it is not a plain linear layer."""
    head = model.get_output_embeddings()
    if type(head) is not torch.nn.Linear:
        raise ModelError(
            f"The LM head of {source.name} is a {type(head).__name__}, whose logits cannot be had in float32. Use "
            "--head-dtype model."
        )
    head.__class__ = _Float32Head  # the class, not the method, so that a copy of the layer uses the copy's weights


def _load(source: ModelSource, dtype: Any, device: str) -> Any:
    require_whole(source)
    try:
        with without_progress():
            model = auto_class(source).from_pretrained(
                str(source.folder),
                dtype=dtype,
                # Attention implementations other than "eager" leave out the soft caps of Gemma 2. Falcon's "eager"
                # adds ALiBi twice: to the mask and to the scores (transformers 5.19).
                attn_implementation="sdpa" if source.has_alibi else "eager",
                trust_remote_code=source.trust_remote_code,
            )
            return model.to(device).eval()
    except Exception as error:  # damaged files, code of models and a lack of memory can raise anything
        raise ModelError(f"transformers cannot load {source.folder}: {first_sentence(error)}.") from error


def _with_adapters(model: Any, source: ModelSource) -> Any:
    """Add LoRA adapters to a model's layers with PEFT; return the PEFT model that switches them, None without adapters.

    Raises ModelError if PEFT is missing or cannot load an adapter.
    """
    if not source.adapters:
        return None
    try:
        from peft import PeftModel
    except ImportError as error:
        raise ModelError(
            f"--adapter with --engine transformers needs PEFT ({error}). Install evaluator[adapters]."
        ) from error
    adapted = model
    for number, adapter in enumerate(source.adapters):
        folder, name = str(adapter.folder), adapter.fingerprint
        try:
            if number:
                adapted.load_adapter(folder, name, autocast_adapter_dtype=False)
            else:
                adapted = PeftModel.from_pretrained(model, folder, name, autocast_adapter_dtype=False)
        except Exception as error:  # damaged files and modules that PEFT does not know can raise anything
            raise ModelError(f"PEFT cannot load the adapter {adapter.name}: {first_sentence(error)}.") from error
    return adapted.eval()
