"""The fast engine: vLLM in this process, with its prefix cache.

A label of one token costs no more than its context: one request returns the log-probabilities of all first tokens.
Longer continuations are sent as prompts with a cached prefix. Log-probabilities that vLLM does not return because it
read the tokens from the cache are then requested token by token.
"""

import logging
import math
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count, islice, pairwise
from typing import Any, TypeVar

import numpy as np

from evaluator.arrays import Floats32
from evaluator.config import ModelConfig
from evaluator.engine import vllm_requests
from evaluator.engine.base import (
    ContinuationRequest,
    ContinuationScores,
    Requests,
    TokenCounts,
    TokenIds,
    first_sentence,
    require_room,
    versions_for_vllm,
    way_out,
)
from evaluator.engine.devices import device_kind, head_dtype, this_machine
from evaluator.engine.prefixes import ContinuationTrie, Question, max_kept_blocks, shared_prefixes
from evaluator.engine.vllm_loading import add_adapters, empty_cache, shared_block_tokens, start_vllm, stopping_vllm
from evaluator.engine.vllm_settings import last_error, missing_attributes, new_log, require_parts
from evaluator.errors import ModelError
from evaluator.models.source import ModelSource, scoring_dtype
from evaluator.models.weights import Adapter
from evaluator.record import EngineRecord
from evaluator.tokens.boundary import n_shared

_log = logging.getLogger(__name__)

_PLAIN_BLOCK_TOKENS = 128  # largest block of the cache for a model with attention only
_STEPS_WAITING = 4  # number of steps that queued requests fill; a GPU computes one while the next is prepared
_FIRST_ON_GPU = 128  # requests queued before the first step, which a GPU computes while others are queued (.1 ms each)
_BLOCKS_PER_REQUEST = 8  # cache blocks for each request of a window, with room for recurrent states after prefixes
_SAMPLED_TOKEN = [0]  # stands for the token that vLLM samples after each text, which must fit as well

_Key = TypeVar("_Key")
_Questions = Callable[[ContinuationTrie], Iterator[Question]]
_exhaust = deque[Any](maxlen=0).extend  # run an iterator to its end


class VllmEngine:
    """Scores with vLLM, on a GPU if there is one."""

    def __init__(self, source: ModelSource, config: ModelConfig) -> None:
        self._log = new_log()
        try:
            self._llm: Any = start_vllm(source, config, self._log)
        except BaseException as error:
            if str(self._log) not in str(error):  # keep a log to which the error refers
                self._log.unlink()
            raise
        require_parts(missing_attributes(self._llm.llm_engine))
        core = self._llm.llm_engine.engine_core.engine_core
        # Processes that hold parts of the model; empty if it is on one device.
        self._workers = [worker.proc for worker in getattr(core.model_executor, "workers", None) or ()]
        if not self._workers:
            self._log.unlink()
        self._model_name = source.name
        self._has_warned = False
        self._adapters = add_adapters(self._llm, source)
        self._lora_request: Any = None  # handle of the adapter of the last call; None: base model
        # With adapters, vLLM 0.32 computes the LM head for only one row of each request.
        self._scores_several_rows = vllm_requests.scores_several_rows(self._llm) and not source.adapters
        self._has_connector = core.scheduler.connector is not None  # it reads NO_REUSE and others
        self._request_ids = map(str, count())
        loaded = self._llm.llm_engine.vllm_config
        # A token needs a block in each group of layers, such as the group with full attention or a sliding window.
        n_groups = max(1, len(core.scheduler.kv_cache_config.kv_cache_groups))
        self._cache_blocks = loaded.cache_config.num_gpu_blocks // n_groups
        self._block_tokens = loaded.cache_config.block_size
        unit = shared_block_tokens(self._llm)
        # Recurrent states, which the cache keeps at only a few positions of a prompt.
        self._state_unit = unit if core.scheduler.has_mamba_layers else None
        self.facts = EngineRecord(
            name="vllm",
            versions=versions_for_vllm(),
            device=this_machine().name,
            dtype=scoring_dtype(source, config),
            head_dtype=head_dtype(source, config, device_kind()),
            quantization=config.quantization,
            prefix_block_tokens=unit,
            tokens_per_step=loaded.scheduler_config.max_num_batched_tokens,
            sequences_per_step=loaded.scheduler_config.max_num_seqs,
            cache_block_tokens=self._block_tokens,
            cache_tokens=self._cache_blocks * self._block_tokens,
            model_runner="V2" if vllm_requests.runs_v2(self._llm) else "V1",
            compiled=not loaded.model_config.enforce_eager,
            tensor_parallel=loaded.parallel_config.tensor_parallel_size,
            pipeline_parallel=loaded.parallel_config.pipeline_parallel_size,
            engines_per_device=config.devices.engines_per_device,
        )
        self.counts = TokenCounts()

    def log_likelihoods(self, requests: Requests, adapter: Adapter | None = None) -> Iterator[ContinuationScores]:
        self._begin(requests, adapter)
        # Requests whose continuations are single tokens, and requests with longer continuations.
        short = [i for i, request in enumerate(requests) if max(map(len, request.continuations)) == 1]
        long = sorted(set(range(len(requests))) - set(short))
        for some in self._windows(short):
            self._send_shared_prefixes([requests[index].context for index in some])
            # One question for each request, or several if it has more than MAX_IDS continuations.
            tries = ((index, ContinuationTrie(*requests[index])) for index in some)
            for index, trie in self._ask(tries, ContinuationTrie.first_token_questions):
                if trie.is_complete:
                    yield _scores(index, requests[index], trie)
        for group in self._groups(requests, long):
            yield from self._score_group(requests, group)

    def hidden_states(self, texts: Sequence[TokenIds], adapter: Adapter | None = None) -> Floats32:
        self._begin([ContinuationRequest(text, [_SAMPLED_TOKEN]) for text in texts], adapter)
        states, params = vllm_requests.States(), vllm_requests.one_token_params()
        model = self._llm.llm_engine.model_config
        # Every step that computes a part of a text records a state, so long texts need room for several states.
        n_steps = 1 + max(map(len, texts), default=0) // self.facts.tokens_per_step
        size = max(1, vllm_requests.max_recorded_texts(model.get_vocab_size()) // n_steps)
        for window in self._windows(range(len(texts))):
            self._send_shared_prefixes([texts[index] for index in window])
            with vllm_requests.recording_states(self._llm) as take_states:
                for first in range(0, len(window), size):
                    some = window[first : first + size]
                    outputs = dict(self._run((index, list(texts[index]), params) for index in some))
                    recorded = take_states()
                    states |= {index: recorded[ran.outputs[0].token_ids[0]] for index, ran in outputs.items()}
        if not states:
            return np.empty((0, model.get_hidden_size()), np.float32)
        return np.stack([states[index] for index in range(len(texts))])

    def generate(self, prompts: Sequence[TokenIds], **options: Any) -> list[Any]:
        """Return the outputs of `vllm.LLM.generate` for token ids, one new token each; the cache is emptied first."""
        from vllm import SamplingParams

        empty_cache(self._llm)
        params = SamplingParams(max_tokens=1, temperature=0, detokenize=False, **options)
        with self._refusals():
            outputs: list[Any] = self._llm.generate(
                [{"prompt_token_ids": [*tokens]} for tokens in prompts],
                params,
                use_tqdm=False,
                lora_request=self._lora_request,
            )
        return outputs

    def runner_at_work(self) -> str:
        """Return the model runner that vLLM really uses, according to its class: "V1" or "V2"."""
        return str(self._llm.collective_rpc(_runner)[0])

    def close(self) -> None:
        with stopping_vllm(self._llm):
            del self._llm
        self._log.unlink(missing_ok=True)

    def _begin(self, requests: Requests, adapter: Adapter | None) -> None:
        """Prepare a call: select the adapter, and empty the cache. Raises PromptTooLongError for too long a request."""
        self._lora_request = self._adapters[adapter.fingerprint] if adapter else None
        self._warn_if_nothing_is_shared([request.context for request in requests])
        hint = "Give a larger cache with --kv-cache-gib, or use fewer demonstrations (--shots)."
        room = self._llm.llm_engine.model_config.max_model_len
        require_room(requests, room, f"the model's context and KV cache allow. {hint}")
        empty_cache(self._llm)

    def _warn_if_nothing_is_shared(self, contexts: Sequence[TokenIds]) -> None:
        """Warn once if vLLM's unit of sharing is longer than the longest prefix that two consecutive contexts share."""
        unit = self.facts.prefix_block_tokens
        if self._has_warned or len(contexts) < 2 or (unit is not None and unit <= _PLAIN_BLOCK_TOKENS):
            return
        longest = max(n_shared(one, other) for one, other in pairwise(contexts))
        if 0 < longest < (unit or math.inf):
            self._has_warned = True
            how = f"in units of {unit} tokens" if unit else "not at all"
            _log.warning(
                "vLLM shares prefixes %s for %s, and these prompts have at most %d tokens in common: every prompt is "
                "computed whole.",
                how,
                self._model_name,
                longest,
            )

    def _windows(self, indices: Sequence[int]) -> Iterator[Sequence[int]]:
        """Yield windows of consecutive requests, small enough that the cache holds the states after shared prefixes.

        Without recurrent states, all requests are one window.
        """
        size = max(1, self._cache_blocks // _BLOCKS_PER_REQUEST) if self._state_unit else max(1, len(indices))
        for start in range(0, len(indices), size):
            yield indices[start : start + size]

    def _send_shared_prefixes(self, contexts: Sequence[TokenIds]) -> None:
        """Compute the recurrent states after prefixes that contexts share; do nothing for models without states."""
        if self._state_unit is None:
            return
        params = vllm_requests.one_token_params()
        for level in shared_prefixes(contexts, self._state_unit):
            _exhaust(self._run((None, list(prefix), params) for prefix in level))

    def _score_group(self, requests: Requests, indices: Sequence[int]) -> Iterator[ContinuationScores]:
        """Score a group of requests with longer continuations, whose contexts the cache holds until the end."""
        # Requests with equal contexts share one trie.
        tries: dict[tuple[int, ...], ContinuationTrie] = {}
        for index in indices:
            context, continuations = requests[index]
            tries.setdefault(tuple(context), ContinuationTrie(context, [])).extend(continuations)
        self._send_shared_prefixes([*tries])
        if self._scores_several_rows:
            _exhaust(self._ask(tries.items(), ContinuationTrie.path_questions))
        else:
            # First tokens come first, because their requests compute the contexts without log-probabilities of context
            # tokens. The two kinds of request never run together: vLLM mixes up their rows (its issue 51789).
            _exhaust(self._ask(tries.items(), ContinuationTrie.first_token_questions))
            if not self._adapters:
                self._score_suffixes(tries.values())
        _exhaust(self._ask(tries.items(), ContinuationTrie.missing_questions, no_reuse=True))
        for index in indices:
            yield _scores(index, requests[index], tries[tuple(requests[index].context)])

    def _ask(
        self, tries: Iterable[tuple[_Key, ContinuationTrie]], questions: _Questions, *, no_reuse: bool = False
    ) -> Iterator[tuple[_Key, ContinuationTrie]]:
        """Send questions about tries, and yield a key and its trie after each answer that is stored in the trie.

        Args:
            tries: pairs of any key and a trie.
            questions: returns the questions about a trie.
            no_reuse: whether the last cache block of each request is useless to other requests.
        """
        says = no_reuse if self._has_connector else None

        def prompts() -> Iterator[tuple[tuple[_Key, ContinuationTrie, Question], list[int], Any]]:
            for key, trie in tries:
                for question in questions(trie):
                    prompt = [*trie.context, *question.path]
                    params = vllm_requests.question_params(question, len(prompt), no_reuse=says)
                    yield (key, trie, question), prompt, params

        for (key, trie, question), output in self._run(prompts()):
            vllm_requests.learn_question(trie, question, output)
            yield key, trie

    def _score_suffixes(self, tries: Iterable[ContinuationTrie]) -> None:
        """Score continuations of three tokens or more as prompts. For two tokens, one more question is enough."""
        room = self._llm.llm_engine.model_config.max_model_len - 1  # vLLM always samples one more token
        says = True if self._has_connector else None
        prompts = (
            ((trie, continuation), [*trie.context, *continuation], params)
            for trie in tries
            for params in [vllm_requests.suffix_params(len(trie.context), no_reuse=says)]
            for continuation in trie.continuations
            if len(continuation) > 2 and len(trie.context) + len(continuation) <= room
        )
        for (trie, continuation), output in self._run(prompts):
            vllm_requests.learn_suffix(trie, continuation, output)

    def _groups(self, requests: Requests, indices: Sequence[int]) -> Iterator[list[int]]:
        """Yield groups of consecutive requests, each of which fills at most half of the cache.

        A group has at most as many requests as the cache keeps partly filled blocks. A request that needs more than
        half of the cache is a group alone.
        """
        block_tokens, max_contexts = self._block_tokens, max_kept_blocks(self._cache_blocks)
        group: list[int] = []
        before: Sequence[int] = ()
        n_blocks = 0
        for index in indices:
            context, continuations = requests[index]
            # Tokens that are new in the cache: the context after the prefix that it shares with the previous context,
            # and all tokens of each continuation but the last, which is never fed.
            n_new = len(context) - n_shared(before, context)
            n_new += sum(len(continuation) - 1 for continuation in continuations)
            needed = n_new // block_tokens + 1
            if group and (n_blocks + needed > self._cache_blocks // 2 or len(group) == max_contexts):
                yield group
                group, n_blocks = [], 0
                needed += len(context) // block_tokens  # a new group may have to compute the shared part again
            group.append(index)
            n_blocks, before = n_blocks + needed, context
        if group:
            yield group

    def _run(self, prompts: Iterable[tuple[_Key, list[int], Any]]) -> Iterator[tuple[_Key, Any]]:
        """Send (key, tokens, parameters) to vLLM, yield (key, output) in the order of completion, and count tokens.

        Requests that are still in vLLM when this generator ends, for whatever reason, are aborted.
        """
        engine, waiting = self._llm.llm_engine, iter(prompts)
        max_waiting = _STEPS_WAITING * (self.facts.sequences_per_step or 1)
        n_new = _FIRST_ON_GPU if device_kind() == "cuda" else max_waiting
        running: dict[str, _Key] = {}
        try:
            while True:
                for key, tokens, params in islice(waiting, min(n_new, max_waiting - len(running))):
                    request_id = next(self._request_ids)
                    running[request_id] = key
                    prompt = {"type": "token", "prompt_token_ids": tokens}
                    with self._refusals():
                        engine.add_request(request_id, prompt, params, lora_request=self._lora_request)
                if not running:
                    return
                # Add twice as many before the next step, even if this step answers all that are queued: so steps are
                # soon full.
                n_new *= 2
                with self._refusals():
                    outputs = engine.step()
                for output in outputs:
                    self.counts.prompt_tokens += len(output.prompt_token_ids)
                    self.counts.cached_tokens += output.num_cached_tokens
                    yield running.pop(output.request_id), output
        finally:
            engine.abort_request(list(running))

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        """Turn any error within this context, in which vLLM computes, into a ModelError."""
        try:
            yield
        except Exception as error:  # vLLM can raise anything: code of models, missing operators, no memory left
            raise ModelError(
                f"vLLM cannot run {self._model_name}: {self._dead_worker() or first_sentence(error)}"
                f"{last_error(self._log)}. {way_out(error, self.facts.dtype)}"
            ) from error

    def _dead_worker(self) -> str | None:
        """Return a phrase on how the first failed worker process ended; None if no worker process failed."""
        # SIGTERM is no failure: vLLM terminates the other worker processes.
        codes = [worker.exitcode for worker in self._workers if worker.exitcode not in (None, 0, -signal.SIGTERM)]
        if not codes:
            return None
        how = f"by {signal.Signals(-codes[0]).name}" if codes[0] < 0 else f"with code {codes[0]}"
        note = ", as when memory runs out" if codes[0] == -signal.SIGKILL else ""
        return f"one of its {len(self._workers)} worker processes ended {how}{note}"


def _runner(worker: Any) -> str:
    module = type(getattr(worker, "worker", worker).model_runner).__module__  # vllm.v1.worker.gpu.model_runner is V2
    return "V2" if module.endswith(".model_runner") else "V1"


def _scores(index: int, request: ContinuationRequest, trie: ContinuationTrie) -> ContinuationScores:
    return ContinuationScores(index, [trie.token_log_probs(continuation) for continuation in request.continuations])
