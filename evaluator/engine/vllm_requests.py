"""Build the parameters of requests to vLLM, and read log-probabilities and hidden states from its outputs.

vLLM has two model runners. V1 scores given tokens only after the last token of a prompt. V2, the default on a GPU, can
score given tokens at several positions (`prompt_logprob_token_ids` as a matrix, since vLLM 0.32), and computes the LM
head only for these positions. Without this, continuations of several tokens need the log-probabilities of all prompt
tokens.

vLLM returns hidden states only from a model loaded for pooling. But a generating model passes the final-norm hidden
state of each prompt's last token to `compute_logits`, which every text model in vLLM has. While hidden states are
wanted, a recorder replaces this method: it keeps and numbers the states, and returns logits whose greedy token is the
number of the state. So the token that is sampled for a request tells which state belongs to it, with any model runner
and scheduler, and the LM head is not computed. If a model is split over several devices, the process of each device has
a recorder.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import Any, get_args, get_type_hints

import numpy as np
import torch

from evaluator.arrays import Floats32
from evaluator.engine.prefixes import MAX_SHARED_TOKENS, NO_REUSE, ContinuationTrie, Question, TokenPath
from evaluator.errors import ScoreError


def scores_several_rows(llm: Any) -> bool:
    """Return whether a request can ask for different tokens at several positions of its prompt.

    Needs model runner V2 and vLLM 0.32: in vLLM 0.31, `prompt_logprob_token_ids` is one list of tokens for all
    positions.
    """
    from vllm import SamplingParams

    tokens = get_type_hints(SamplingParams).get("prompt_logprob_token_ids")
    return runs_v2(llm) and np.ndarray in get_args(tokens)


def runs_v2(llm: Any) -> bool:
    """Return whether vLLM's model runner is V2."""
    return getattr(llm.llm_engine.vllm_config, "use_v2_model_runner", False)


def question_params(question: Question, n_prompt: int, *, no_reuse: bool | None) -> Any:
    """Return the parameters of a request for a question.

    Args:
        question: may have several rows only if scores_several_rows is true.
        n_prompt: number of tokens of the prompt, which is context + path.
        no_reuse: whether the last, partly filled cache block of the request is useless to other requests; None: vLLM
            has no connector, and would log a warning for each request with this parameter.
    """
    *earlier, last = question.rows
    if not earlier:
        return _one_row_params(tuple(last), no_reuse)
    first_row = n_prompt - len(question.rows)
    several = {"prompt_logprob_token_ids": earlier, "prompt_logprob_start": first_row}
    return _params(
        no_reuse=no_reuse, max_shared_tokens=first_row, logprob_token_ids=last, **several, **_READING_THE_CACHE
    )


@lru_cache(maxsize=1024)
def _one_row_params(token_ids: tuple[int, ...], no_reuse: bool | None) -> Any:
    # Cached, because thousands of prompts ask for the same labels. By default all tokens but the last can be shared.
    return _params(no_reuse=no_reuse, logprob_token_ids=list(token_ids))


def suffix_params(n_context: int, *, no_reuse: bool | None) -> Any:
    """Return the parameters of a request for the log-probabilities of the prompt's tokens after a context."""
    # The context's last token must be computed, to predict the first token of the continuation.
    return _params(no_reuse=no_reuse, max_shared_tokens=n_context - 1, prompt_logprobs=0, **_READING_THE_CACHE)


def one_token_params() -> Any:
    """Return the parameters of a request that samples one token greedily, even if it is EOS."""
    from vllm import SamplingParams

    return SamplingParams(max_tokens=1, temperature=0, ignore_eos=True, detokenize=False)


# By default, vLLM computes a whole prompt again if log-probabilities of its tokens are requested.
_READING_THE_CACHE = {"skip_reading_prefix_cache": False}


def _params(*, no_reuse: bool | None, max_shared_tokens: int | None = None, **options: Any) -> Any:
    from vllm import SamplingParams

    sharing = {NO_REUSE: no_reuse} | ({} if max_shared_tokens is None else {MAX_SHARED_TOKENS: max_shared_tokens})
    return SamplingParams(
        max_tokens=1,
        temperature=0,
        extra_args=None if no_reuse is None else {"kv_transfer_params": sharing},
        flat_logprobs=True,
        detokenize=False,
        skip_clone=True,  # copying the parameters took longer than all other work of vLLM to add a request
        **options,
    )


def learn_question(trie: ContinuationTrie, question: Question, output: Any) -> None:
    """Store vLLM's answer to a question in the trie.

    Of several rows, vLLM returns only the last if its cache hides any of the others.

    Raises ScoreError if the answer lacks requested tokens or rows.
    """
    *earlier, last = question.rows
    answer = output.outputs[0].logprobs
    # The sampled token, the requested tokens, and padding if other requests of the step have more tokens.
    _require([*answer.token_ids[1 : 1 + len(last)]] == last, "log-probabilities of other tokens", output)
    rows = [answer.logprobs[1 : 1 + len(last)]]
    scored = output.prompt_token_id_logprobs if earlier else None
    if scored is not None:
        _require(len(scored) == len(earlier), f"{len(scored)} rows for {len(earlier)} positions", output)
        rows = [*scored.tolist(), *rows]
    answered = list(question.paths())[-len(rows) :]
    for (path, tokens), row in zip(answered, rows, strict=True):
        for token, log_prob in zip(tokens, row, strict=False):  # rows with fewer tokens are padded
            trie.learn((*path, token), log_prob)


def learn_suffix(trie: ContinuationTrie, continuation: TokenPath, output: Any) -> None:
    """Store in the trie the log-probabilities of a continuation's tokens that vLLM has computed.

    The row of the token at index n results from computing token n - 1, so it is valid if num_cached_tokens <= n - 1.
    The V1 runner returns a row for every token but the first, including invalid rows without a mark; V2 returns only
    valid rows. So rows are counted from the end.

    Raises ScoreError if the number of rows is neither that of V1 nor that of V2.
    """
    n_prompt = len(output.prompt_token_ids)
    rows = output.prompt_logprobs.logprobs
    expected = {n_prompt - 1, n_prompt - 1 - output.num_cached_tokens}
    _require(len(rows) in expected, f"{len(rows)} rows of prompt log-probabilities", output)
    n_context = len(trie.context)
    first = max(0, output.num_cached_tokens + 1 - n_context)
    for place in range(first, len(continuation)):
        trie.learn(continuation[: place + 1], rows[n_context + place - n_prompt])


def _require(is_right: bool, received: str, output: Any) -> None:
    if not is_right:
        from evaluator.engine.vllm_settings import version_note

        raise ScoreError(
            f"vLLM returned {received} for a prompt of {len(output.prompt_token_ids)} tokens, "
            f"{output.num_cached_tokens} of them cached. {version_note()} --engine transformers gives the same numbers."
        )


States = dict[int, Floats32]
"""Number of a hidden state -> the state, float32 of [hidden size]."""

_MAX_KEPT = 4096  # maximum number of states to keep before they are taken


class StateRecorder:
    """A replacement of a model's `compute_logits` that keeps hidden states instead of computing logits."""

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
        """Return the states that were kept since the last call of this method, and forget them."""
        taken, self._states = self._states, {}
        return taken


def max_recorded_texts(vocab_size: int) -> int:
    """Return the number of texts that may be computed before their states are taken.

    Numbers of states start again at 0 after the last token id, and vLLM may compute rows beyond the requested texts. So
    the limit is a quarter of the vocabulary.
    """
    return max(1, min(vocab_size // 4, _MAX_KEPT))


@contextmanager
def recording_states(llm: Any) -> Iterator[Callable[[], States]]:
    """Make a `vllm.LLM` record hidden states instead of computing logits; yield a function that takes the states."""
    llm.apply_model(partial(_start, vocab_size=llm.llm_engine.model_config.get_vocab_size()))
    try:
        # Devices with the same layers have recorded the same states; devices with only earlier layers have recorded
        # none.
        yield lambda: max(llm.apply_model(_take), key=len)
    finally:
        llm.apply_model(_stop)


# Module-level functions, because they are pickled and sent to other processes.
def _start(model: Any, vocab_size: int) -> None:
    model.compute_logits = StateRecorder(vocab_size)


def _take(model: Any) -> States:
    return dict(model.compute_logits.take())


def _stop(model: Any) -> None:
    del model.compute_logits
