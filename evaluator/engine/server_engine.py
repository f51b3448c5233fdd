"""The engine for models that other programs serve: log-likelihoods from vLLM or SGLang servers over HTTP.

The first tokens of a context's continuations are scored by one question, as in the vllm engine. A longer continuation
is sent as a prompt whose last tokens are scored. vLLM computes such a prompt without its prefix cache; where a question
for each token costs less, the engine sends these questions instead.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import NamedTuple

from evaluator.arrays import Floats32
from evaluator.config import ModelConfig
from evaluator.engine.base import ContinuationScores, EngineIdentity, Requests, TokenCounts, TokenIds, require_room
from evaluator.engine.prefixes import ContinuationTrie, Question, TokenPath
from evaluator.engine.server_client import ServedModel, ServerClient, answer_all, sum_fault
from evaluator.engine.server_protocols import ScoringPrompt
from evaluator.errors import ConfigError, ModelError
from evaluator.models.source import ModelSource
from evaluator.record import EngineRecord

_PROMPTS_PER_REQUEST = 16  # an HTTP request costs about as much as several small prompts
_TOKENS_PER_QUESTION = 32  # cost of one more question, in computed tokens: the rest of a cache block, and the request
_TOKENS_PER_STEP = 4096  # assumed, because servers do not report it; determines only the size of shards

# Sentences whose tokens tell tokenizers apart: case, digits, punctuation, accents, line breaks.
_PROBE = "Review: the plot is thin,\nbut 1,234 people LIKED it! Sentiment: naïve\n"


_Questions = Callable[[ContinuationTrie], Iterator[Question]]


class _Pending(NamedTuple):
    """A question about one request, not answered yet."""

    request: int  # index of the request
    trie: ContinuationTrie
    path: TokenPath  # tokens of a continuation before the next tokens to score; if these are none, a whole continuation
    question: ScoringPrompt

    def learn(self, log_probs: Sequence[float]) -> None:
        """Store the answer, log-probabilities in nats, in the trie."""
        if token_ids := self.question.next_token_ids:
            for token, log_prob in zip(token_ids, log_probs, strict=True):
                self.trie.learn((*self.path, token), log_prob)
        else:
            for end, log_prob in enumerate(log_probs[-len(self.path) :], start=1):
                self.trie.learn(self.path[:end], log_prob)


class ServerEngine:
    """Scores with one or several servers that serve the same model."""

    def __init__(self, source: ModelSource, config: ModelConfig) -> None:
        self._concurrency = config.server.concurrency
        servers = [ServerClient(url) for url in config.server.urls]
        self._served = served_model(servers, source, config)
        for server in servers:
            _check_tokenizer(server, self._served, source)
        # One client for each data-parallel replica of a server: prompts that share a prefix go to the same replica.
        self._clients = [
            ServerClient(server.url, connections=self._concurrency, replica=replica)
            for server in servers
            for replica in server.replicas()
        ]
        self.facts = EngineRecord(
            name="server",
            versions={self._served.kind: self._served.version},
            device=f"{self._served.name} at {', '.join(server.url for server in servers)}",
            dtype=served_dtype(config),
            prefix_block_tokens=None,  # servers do not report it
            tokens_per_step=_TOKENS_PER_STEP,
            counts_cached_tokens=self._served.protocol.tells_cached_tokens,
        )
        self.counts = TokenCounts()

    def log_likelihoods(self, requests: Requests) -> Iterator[ContinuationScores]:
        hint = "Start it with a larger --max-model-len, or use fewer demonstrations (--shots)."
        require_room(requests, self._served.max_tokens, f"the server allows. {hint}")
        left = {index: ContinuationTrie(*request) for index, request in enumerate(requests)}
        # Three rounds: first tokens, prompts to score, tokens that are still missing. Prompts to score are never in
        # flight together with other questions: vLLM mixes up their rows (its issue 51789).
        tries = ContinuationTrie
        first, missing = (partial(_next_tokens, of) for of in (tries.first_token_questions, tries.missing_questions))
        for questions in (first, self._whole_prompts, missing):
            pending = [question for index, trie in left.items() for question in questions(index, trie)]
            for index in self._answer(pending):
                if index in left and left[index].is_complete:
                    trie = left.pop(index)
                    if fault := sum_fault(trie.largest_sum()):
                        raise ModelError(f"A server of {self._served.name} {fault}.")
                    scores = [trie.token_log_probs(continuation) for continuation in requests[index].continuations]
                    yield ContinuationScores(index, scores)
        assert not left, f"{len(left)} requests lack log-probabilities"

    def hidden_states(self, texts: Sequence[TokenIds]) -> Floats32:  # noqa: ARG002
        raise ConfigError("The engine 'server' returns no hidden states. Choose another --engine.")

    def close(self) -> None:
        for client in self._clients:
            client.close()

    def _answer(self, pending: Sequence[_Pending]) -> Iterator[int]:
        """Send questions to servers, store the answers and count tokens; yield the request index of each answer."""
        answered = answer_all(
            list(_batches(pending)),
            self._clients,
            lambda client, batch: client.log_probs(self._served, [one.question for one in batch]),
            concurrency=self._concurrency,
        )
        for batch, answers in answered:
            self.counts.cached_tokens += answers.cached_tokens
            for one, values in zip(batch, answers.rows, strict=True):
                self.counts.prompt_tokens += len(one.question.tokens)
                one.learn(values)
                yield one.request

    def _whole_prompts(self, index: int, trie: ContinuationTrie) -> Iterator[_Pending]:
        """Yield a prompt to score for each continuation for which this is cheaper than a question for each token."""
        limit = self._served.max_tokens
        reads_cache = self._served.protocol.reads_cache_for_prompts
        for path in trie.continuations:
            n_tokens = len(trie.context) + len(path)
            n_computed = len(path) + _TOKENS_PER_QUESTION if reads_cache else n_tokens
            fits = limit is None or n_tokens < limit  # the server samples one more token
            if fits and (len(path) - 1) * _TOKENS_PER_QUESTION > n_computed:
                yield _Pending(index, trie, path, ScoringPrompt([*trie.context, *path], (), len(path)))


def served_model(clients: Iterable[ServerClient], source: ModelSource, config: ModelConfig) -> ServedModel:
    """Return the model that all servers serve, with the shortest of their limits on the length of a sequence.

    Raises ModelError if a server cannot be reached or does not serve the model, or if servers differ in name, program
    or version.
    """
    given = config.server
    served = {client.url: client.served_model(given.served_name, source.name, given.kind) for client in clients}
    first_url, first = next(iter(served.items()))
    for url, other in served.items():
        if (other.name, other.kind, other.version) != (first.name, first.kind, first.version):
            raise ModelError(
                f"{url} serves {_in_words(other)}, but {first_url} serves {_in_words(first)}. All servers of a run "
                "must serve the same."
            )
    return first._replace(max_tokens=min((one.max_tokens for one in served.values() if one.max_tokens), default=None))


def _in_words(served: ServedModel) -> str:
    return f"{served.name} with {served.protocol.title} {served.version}"


def served_dtype(config: ModelConfig) -> str:
    """Return the dtype to record: the user's --dtype, because servers do not report their dtype."""
    return "as served" if config.dtype == "auto" else config.dtype


def server_identity(source: ModelSource, config: ModelConfig) -> EngineIdentity:
    """Return the settings that affect a served model's scores; without addresses, because servers may move."""
    clients = [ServerClient(url) for url in config.server.urls]
    served = served_model(clients, source, config)
    for client in clients:
        client.close()
    versions: dict[str, str] = {served.kind: served.version}
    return EngineIdentity(name="server", versions=versions, dtype=served_dtype(config), served_name=served.name)


def _check_tokenizer(client: ServerClient, served: ServedModel, source: ModelSource) -> None:
    """Raise ModelError if a server's tokens of a text differ from those of the model folder's tokenizer."""
    tokens = client.tokens_of(served.name, _PROBE)
    if tokens is not None and tokens != source.tokenizer.token_ids([_PROBE], special_tokens=False)[0]:
        raise ModelError(
            f"{client.url} serves {served.name} with another tokenizer than that of {source.name}: its tokens would "
            "mean other words. Give the served model's own folder or hub name with --model."
        )


def _next_tokens(questions: _Questions, index: int, trie: ContinuationTrie) -> Iterator[_Pending]:
    for path, (token_ids,) in questions(trie):
        yield _Pending(index, trie, path, ScoringPrompt([*trie.context, *path], tuple(token_ids)))


def _batches(pending: Iterable[_Pending]) -> Iterator[list[_Pending]]:
    """Yield consecutive questions with the same `next_token_ids`, one list for each HTTP request."""
    for _, same in groupby(pending, key=lambda one: one.question.next_token_ids):
        questions = list(same)
        for start in range(0, len(questions), _PROMPTS_PER_REQUEST):
            yield questions[start : start + _PROMPTS_PER_REQUEST]
