"""The fast engine: vLLM in this process, with its prefix cache.

A label of one token costs no more than its context: one request brings the log-probabilities of all first tokens.
Longer continuations are scored as cached suffixes, and what the cache hides of them is asked for token by token.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.metadata import version
from itertools import count, islice
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from evaluator.config import ModelConfig
from evaluator.engine.base import ContinuationRequest, ContinuationScores, EngineFacts, TokenCounts
from evaluator.engine.block_index import n_shared
from evaluator.engine.continuation_trie import ContinuationTrie, NextTokenQuestion, Path
from evaluator.engine.device import device_name
from evaluator.engine.vllm_loading import Kind, empty_cache, most_contexts, start_vllm, stop_vllm, vllm_version
from evaluator.errors import PromptTooLongError
from evaluator.models.source import ModelSource, scoring_dtype

_MOST_IDS = 128  # vLLM's limit on the tokens whose log-probabilities one request may ask for
_WAITING = 1024  # requests handed over ahead of the scheduler: more than one step can take

_Key = TypeVar("_Key")
_Ask = tuple[tuple[_Key, NextTokenQuestion], list[int], Any]  # what comes back with the answer, tokens, parameters
_Questions = Callable[[ContinuationTrie, int], Iterator[NextTokenQuestion]]


class VllmEngine:
    """Scores with vLLM, on a GPU where there is one. Holds one loaded model at a time, of the kind last needed."""

    def __init__(self, source: ModelSource, config: ModelConfig) -> None:
        self._source, self._config = source, config
        self._kind: Kind = "generate"
        self._llm: Any = start_vllm(source, config, self._kind)
        self._request_ids = map(str, count())
        loaded = self._llm.llm_engine.vllm_config
        self._cache_blocks = loaded.cache_config.num_gpu_blocks
        self._most_contexts = most_contexts(self._cache_blocks)
        self.facts = EngineFacts(
            name="vllm",
            versions={"vllm": vllm_version()} | {package: version(package) for package in ("torch", "transformers")},
            device=device_name(),
            dtype=scoring_dtype(source, config),
            prefix_block_tokens=loaded.cache_config.block_size,
            tokens_per_step=loaded.scheduler_config.max_num_batched_tokens,
        )
        self.counts = TokenCounts()

    def log_likelihoods(self, requests: Sequence[ContinuationRequest]) -> Iterator[ContinuationScores]:
        self._check_lengths(requests)
        self._begin("generate")
        short = [i for i, request in enumerate(requests) if max(map(len, request.continuations)) == 1]
        long = sorted(set(range(len(requests))) - set(short))
        yield from self._score_next_tokens(requests, short)
        for group in self._groups(requests, long):
            yield from self._score_group(requests, group)

    def hidden_states(self, texts: Sequence[Sequence[int]]) -> npt.NDArray[np.float32]:
        from vllm import PoolingParams

        self._begin("pooling")
        states = np.empty((len(texts), self._llm.llm_engine.model_config.get_hidden_size()), np.float32)
        asks = ((index, list(text), PoolingParams(task="embed")) for index, text in enumerate(texts))
        for index, output in self._run(asks):
            states[index] = output.outputs.data.float().cpu().numpy()
        return states

    def close(self) -> None:
        stop_vllm(self._llm)
        del self._llm

    def _begin(self, kind: Kind) -> None:
        """Have a model of this kind with an empty prefix cache, so that answers do not depend on earlier calls."""
        if kind != self._kind:
            self.close()
            self._llm = start_vllm(self._source, self._config, kind)
            self._kind = kind
        empty_cache(self._llm)

    def _check_lengths(self, requests: Sequence[ContinuationRequest]) -> None:
        longest = max((len(r.context) + max(map(len, r.continuations)) for r in requests), default=0)
        limit = self._llm.llm_engine.model_config.max_model_len
        if longest > limit:
            raise PromptTooLongError(
                f"A prompt of {longest} tokens is longer than the {limit} that the model's context and KV cache allow. "
                "Ask for a larger cache with --kv-cache-gib, or use fewer demonstrations (--shots)."
            )

    def _score_next_tokens(
        self, requests: Sequence[ContinuationRequest], indices: Sequence[int]
    ) -> Iterator[ContinuationScores]:
        """Requests whose continuations are all of one token: a question each, or one for every 128 tokens."""
        tries = ((index, ContinuationTrie(*requests[index])) for index in indices)
        asks = (
            _next_token_ask((index, trie), trie, question)
            for index, trie in tries
            for question in trie.first_token_questions(_MOST_IDS)
        )
        for ((index, trie), question), output in self._run(asks):
            _learn_next_tokens(trie, question, output)
            if trie.is_complete:
                yield _scores(index, requests[index], trie)

    def _score_group(
        self, requests: Sequence[ContinuationRequest], indices: Sequence[int]
    ) -> Iterator[ContinuationScores]:
        """Requests with longer continuations, few enough that the cache still holds their contexts at the end.

        First tokens are asked for first: that computes the contexts without the log-probabilities of their tokens. The
        two kinds of request are never under way together: vLLM mixes up their rows (its issue 51789).
        """
        tries: dict[tuple[int, ...], ContinuationTrie] = {}
        for index in indices:
            context, continuations = requests[index]
            tries.setdefault(tuple(context), ContinuationTrie(context, [])).extend(continuations)
        self._ask_next_tokens(tries.values(), ContinuationTrie.first_token_questions)
        self._score_suffixes(tries.values())
        self._ask_next_tokens(tries.values(), ContinuationTrie.missing_questions, fleeting=True)
        for index in indices:
            yield _scores(index, requests[index], tries[tuple(requests[index].context)])

    def _ask_next_tokens(
        self, tries: Iterable[ContinuationTrie], questions: _Questions, *, fleeting: bool = False
    ) -> None:
        asks = (
            _next_token_ask(trie, trie, question, fleeting=fleeting)
            for trie in tries
            for question in questions(trie, _MOST_IDS)
        )
        for (trie, question), output in self._run(asks):
            _learn_next_tokens(trie, question, output)

    def _score_suffixes(self, tries: Iterable[ContinuationTrie]) -> None:
        """Have continuations of three tokens or more scored as prompts. (One question answers for a second token.)"""
        room = self._llm.llm_engine.model_config.max_model_len - 1  # vLLM wants to sample a token behind it
        asks = (
            ((trie, continuation), trie.context + list(continuation), params)
            for trie in tries
            for params in [_suffix_params(len(trie.context))]
            for continuation in trie.continuations
            if len(continuation) > 2 and len(trie.context) + len(continuation) <= room
        )
        for (trie, continuation), output in self._run(asks):
            _learn_suffix(trie, continuation, output)

    def _groups(self, requests: Sequence[ContinuationRequest], indices: Sequence[int]) -> Iterator[list[int]]:
        """Requests in turn, as many as half of the cache has room for."""
        block_tokens = self.facts.prefix_block_tokens
        assert block_tokens, "vLLM has a prefix cache"
        group: list[int] = []
        before: Sequence[int] = ()
        n_blocks = 0
        for index in indices:
            context, continuations = requests[index]
            own = (
                len(context) - n_shared(before, context) + sum(len(continuation) - 1 for continuation in continuations)
            )
            needed = own // block_tokens + 1
            if group and (n_blocks + needed > self._cache_blocks // 2 or len(group) == self._most_contexts):
                yield group
                group, n_blocks = [], 0
                needed += len(context) // block_tokens
            group.append(index)
            n_blocks, before = n_blocks + needed, context
        if group:
            yield group

    def _run(self, asks: Iterable[tuple[_Key, list[int], Any]]) -> Iterator[tuple[_Key, Any]]:
        """Put (key, tokens, parameters) through vLLM and yield (key, output) as they finish; keep count.

        However this ends, nothing stays behind in the engine.
        """
        engine = self._llm.llm_engine
        waiting = iter(asks)
        under_way: dict[str, _Key] = {}
        try:
            while True:
                for key, tokens, params in islice(waiting, _WAITING - len(under_way)):
                    request_id = next(self._request_ids)
                    under_way[request_id] = key
                    engine.add_request(request_id, {"type": "token", "prompt_token_ids": tokens}, params)
                if not under_way:
                    return
                for output in engine.step():
                    self.counts.prompt_tokens += len(output.prompt_token_ids)
                    self.counts.cached_tokens += output.num_cached_tokens
                    yield under_way.pop(output.request_id), output
        finally:
            engine.abort_request(list(under_way))


def _next_token_ask(
    key: _Key, trie: ContinuationTrie, question: NextTokenQuestion, *, fleeting: bool = False
) -> _Ask[_Key]:
    from vllm import SamplingParams

    from evaluator.engine.block_sharing import FLEETING

    params = SamplingParams(
        max_tokens=1,
        temperature=0,
        logprob_token_ids=question.token_ids,
        extra_args={"kv_transfer_params": {FLEETING: fleeting}},
        flat_logprobs=True,
        detokenize=False,
    )
    return (key, question), [*trie.context, *question.path], params


def _suffix_params(n_context: int) -> Any:
    from vllm import SamplingParams

    from evaluator.engine.block_sharing import FLEETING, SHARED_AT_MOST

    return SamplingParams(
        max_tokens=1,
        temperature=0,
        prompt_logprobs=0,
        skip_reading_prefix_cache=False,  # else each would compute its context anew
        # A row for the first token of the continuation comes from computing the last of the context.
        extra_args={"kv_transfer_params": {SHARED_AT_MOST: n_context - 1, FLEETING: True}},
        flat_logprobs=True,
        detokenize=False,
    )


def _learn_next_tokens(trie: ContinuationTrie, question: NextTokenQuestion, output: Any) -> None:
    row = output.outputs[0].logprobs
    # The first entry is the sampled token, which may or may not be one that was asked for.
    by_token = dict(zip(row.token_ids[1:], row.logprobs[1:], strict=True))
    for token in question.token_ids:
        trie.learn((*question.path, token), by_token[token])


def _learn_suffix(trie: ContinuationTrie, continuation: Path, output: Any) -> None:
    """Take the rows that were computed. vLLM leaves those of cached tokens unfilled and does not say so.

    The row for the token at index n comes from computing token n - 1, so it holds when num_cached_tokens <= n - 1.
    """
    n_context = len(trie.context)
    first = max(0, output.num_cached_tokens + 1 - n_context)
    for place in range(first, len(continuation)):
        # The first prompt token has no log-probability, each later one has exactly one.
        trie.learn(continuation[: place + 1], output.prompt_logprobs.logprobs[n_context + place - 1])


def _scores(index: int, request: ContinuationRequest, trie: ContinuationTrie) -> ContinuationScores:
    return ContinuationScores(index, [trie.token_log_probs(continuation) for continuation in request.continuations])
