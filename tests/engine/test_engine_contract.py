"""What every engine must do, over one fixture; and against the log-softmax of transformers computed here."""

import math
import random
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from transformers import AutoModelForCausalLM

from evaluator.engine.base import ContinuationRequest, Engine, require_room
from evaluator.errors import PromptTooLongError
from evaluator.models.source import ModelSource
from evaluator.tokens.boundary import tokenise_prompts
from tests.engine.cpu_only import cpu_only

BLOCK = 32  # tokens of a prefix-cache block on a CPU; twice that of a GPU
VOCAB_SIZE = 258  # ids below are tokens of every engine's vocabulary

Scores = list[list[list[float]]]


def answers(engine: Engine, requests: Sequence[ContinuationRequest]) -> Scores:
    """Answers in the order asked, after checking that each comes once."""
    given = list(engine.log_likelihoods(requests))
    by_index = {answer.index: answer.token_log_probs for answer in given}
    assert len(given) == len(by_index)
    assert sorted(by_index) == list(range(len(requests)))
    return [by_index[index] for index in range(len(requests))]


def tokens(seed: int, n: int) -> list[int]:
    return random.Random(seed).choices(range(2, VOCAB_SIZE), k=n)


def flat(scores: Scores) -> list[float]:
    return [value for request in scores for continuation in request for value in continuation]


@pytest.fixture(scope="session")
def oracle(tiny_model: Path) -> Any:
    """The same model through transformers alone, one text at a time: [context, continuation] -> log-probabilities."""
    model = AutoModelForCausalLM.from_pretrained(str(tiny_model), dtype=torch.float32)

    @cache
    def next_token_log_probs(context: tuple[int, ...], stem: tuple[int, ...]) -> torch.Tensor:
        """After the context and after each token of the stem: [len(stem) + 1, vocabulary]."""
        with torch.inference_mode():
            logits = model(torch.tensor([context + stem])).logits[0, len(context) - 1 :]
        return torch.log_softmax(logits.double(), dim=-1)

    def token_log_probs(context: Sequence[int], continuation: Sequence[int]) -> list[float]:
        rows = next_token_log_probs(tuple(context), tuple(continuation[:-1]))
        return [float(rows[place, token]) for place, token in enumerate(continuation)]

    token_log_probs.model = model  # type: ignore[attr-defined]
    return token_log_probs


def assert_agrees(engine: Engine, oracle: Any, requests: Sequence[ContinuationRequest]) -> None:
    expected = [[oracle(r.context, c) for c in r.continuations] for r in requests]
    got = answers(engine, requests)
    assert [[len(c) for c in request] for request in got] == [[len(c) for c in request] for request in expected]
    np.testing.assert_allclose(flat(got), flat(expected), rtol=0, atol=1e-5)


@pytest.mark.parametrize("boundary", ["separate", "merged"])
def test_labels_of_real_prompts_of_every_dataset_agree_with_log_softmax(
    model_engine: Engine, oracle: Any, real_prompts: pl.DataFrame, tiny_source: ModelSource, boundary: Any
) -> None:
    prompts, asks, labels = (real_prompts[name].to_list() for name in ("prompt", "ask", "continuations"))
    rows = tokenise_prompts(tiny_source.tokenizer, prompts, asks, labels, boundary)
    requests = [
        ContinuationRequest(context, continuations)
        for context, continuations in zip(rows.contexts.to_pylist(), rows.continuations.to_pylist(), strict=True)
    ]
    lengths = {len(continuation) for request in requests for continuation in request.continuations}
    assert max(lengths) > 2, "the labels should take several tokens, or this tests too little"
    assert_agrees(model_engine, oracle, requests)
    first_tokens_only = [r._replace(continuations=[[t] for t in {c[0] for c in r.continuations}]) for r in requests]
    assert_agrees(model_engine, oracle, first_tokens_only)


@pytest.mark.runner_v2
def test_more_labels_than_fit_one_question_are_all_scored(model_engine: Engine, oracle: Any) -> None:
    assert_agrees(model_engine, oracle, [ContinuationRequest(tokens(1, 9), [[t] for t in range(2, 258)])])


@pytest.mark.runner_v2
def test_a_context_of_one_token_is_enough(model_engine: Engine, oracle: Any) -> None:
    assert_agrees(model_engine, oracle, [ContinuationRequest([0], [[7], [8, 9], [8, 10, 11, 12]])])


@pytest.mark.parametrize(
    "n_context", [BLOCK - 8, BLOCK - 1, pytest.param(BLOCK, marks=pytest.mark.runner_v2), BLOCK + 1, 2 * BLOCK]
)
def test_a_stem_that_fills_blocks_is_scored_for_every_label_that_begins_with_it(
    model_engine: Engine, oracle: Any, n_context: int
) -> None:
    stem = tokens(2, 2 * BLOCK)
    labels = [stem + tokens(seed, n) for seed, n in [(3, 1), (4, 1), (5, 2), (6, 9)]]
    assert_agrees(model_engine, oracle, [ContinuationRequest(tokens(n_context, n_context), labels)])


@pytest.mark.parametrize("n_shared", range(BLOCK - 2, BLOCK + 2))
def test_labels_that_differ_first_at_a_block_edge_are_scored(model_engine: Engine, oracle: Any, n_shared: int) -> None:
    context = tokens(7, 5)
    stem = tokens(8, n_shared - len(context))
    labels = [[*stem, token, 50, 51, 52] for token in (10, 11, 12)]
    assert_agrees(model_engine, oracle, [ContinuationRequest(context, labels)])


@pytest.mark.runner_v2
def test_a_label_that_begins_another_is_scored_by_itself_too(model_engine: Engine, oracle: Any) -> None:
    label = tokens(9, 6)
    assert_agrees(model_engine, oracle, [ContinuationRequest(tokens(10, 40), [label[:1], label[:3], label, label[:5]])])


def test_labels_of_one_to_twenty_tokens_with_and_without_a_common_stem(model_engine: Engine, oracle: Any) -> None:
    stem = tokens(12, 20)
    apart = [tokens(20 + n, n) for n in range(1, 21)]
    together = [[*stem[: n - 1], 2 + n] for n in range(1, 21)]
    context = tokens(13, BLOCK + 5)
    requests = [ContinuationRequest(context, labels) for labels in (apart, together, [*apart, *together])]
    assert_agrees(model_engine, oracle, requests)


@pytest.mark.runner_v2
def test_requests_for_different_numbers_of_tokens_share_a_step(model_engine: Engine, oracle: Any) -> None:
    # Token 0 is also what fills up the shorter rows of a step.
    requests = [ContinuationRequest(tokens(n, 20), [[token] for token in range(n)]) for n in (1, 8, 2, 5, 1)]
    assert_agrees(model_engine, oracle, requests)


@pytest.mark.runner_v2
def test_prompts_longer_than_a_step_are_scored(model_engine: Engine, oracle: Any) -> None:
    context = tokens(14, 600)
    if model_engine.facts.name == "vllm":
        assert len(context) > 2 * model_engine.facts.tokens_per_step
    label = tokens(15, 300)
    requests = [
        ContinuationRequest(context, [[5], [6]]),
        ContinuationRequest([*context, 9], [label, [*label[:30], 5, 6, 7], label[:2]]),
        ContinuationRequest([*context[:450], 8], [label[:30], [5]]),
    ]
    assert_agrees(model_engine, oracle, requests)


def test_random_requests_of_all_lengths_agree_with_log_softmax(model_engine: Engine, oracle: Any) -> None:
    rng = random.Random(0)
    shared = tokens(11, 150)
    requests = [
        ContinuationRequest(
            shared[: rng.randrange(1, 150)] + tokens(seed, rng.randrange(3)),
            [tokens(seed * 7 + place, rng.randrange(1, 6)) for place in range(rng.randrange(1, 5))],
        )
        for seed in range(60)
    ]
    assert_agrees(model_engine, oracle, requests)


def mixed_requests() -> list[ContinuationRequest]:
    short = [ContinuationRequest(tokens(seed, 3 + 11 * seed), [[5], [6], [7]]) for seed in range(8)]
    long = [ContinuationRequest(tokens(seed, 3 + 11 * seed), [[5], [6, 7], tokens(seed, 5)]) for seed in range(8)]
    return [request for pair in zip(short, long, strict=True) for request in pair]


def test_each_request_is_answered_once_with_a_number_for_every_token(engine: Engine) -> None:
    requests = mixed_requests()
    for request, scores in zip(requests, answers(engine, requests), strict=True):
        assert [len(label) for label in scores] == [len(label) for label in request.continuations]
        assert all(math.isfinite(value) and value <= 0 for label in scores for value in label)


def test_no_requests_have_no_answers(engine: Engine) -> None:
    assert answers(engine, []) == []


def test_a_call_repeated_gives_the_same_bits(engine: Engine) -> None:
    first = answers(engine, mixed_requests())
    answers(engine, [ContinuationRequest(tokens(1, 90), [[9], [9, 10, 11]])])
    assert answers(engine, mixed_requests()) == first


def test_the_order_of_requests_does_not_matter(engine: Engine) -> None:
    requests = mixed_requests()
    forwards, backwards = answers(engine, requests), answers(engine, requests[::-1])[::-1]
    np.testing.assert_allclose(flat(forwards), flat(backwards), rtol=0, atol=1e-5)


def test_the_same_request_twice_gets_the_same_answer(engine: Engine) -> None:
    request = ContinuationRequest(tokens(3, 70), [tokens(4, 40), [9], tokens(5, 4)])
    first, second = answers(engine, [request, request])
    np.testing.assert_allclose(flat([first]), flat([second]), rtol=0, atol=1e-5)


def test_counts_grow_by_at_least_the_tokens_sent_while_a_call_runs(engine: Engine) -> None:
    requests = [ContinuationRequest(tokens(seed, 30), [[5]]) for seed in range(3)]
    before = engine.counts.prompt_tokens
    answers(engine, requests)
    assert engine.counts.prompt_tokens - before == 90
    assert 0 <= engine.counts.cached_tokens <= engine.counts.prompt_tokens
    assert engine.counts.computed_tokens == engine.counts.prompt_tokens - engine.counts.cached_tokens


def test_a_shared_prefix_is_computed_once_where_there_is_a_prefix_cache(engine: Engine) -> None:
    prefix = tokens(6, 4 * BLOCK)
    before = engine.counts.cached_tokens
    answers(engine, [ContinuationRequest([*prefix, token], [[5], [6]]) for token in range(2, 12)])
    taken = 9 * len(prefix) if engine.facts.prefix_block_tokens else 0  # all but the first of ten find it
    assert engine.counts.cached_tokens - before == taken


def grown_prompts(seed: int, n: int) -> list[list[int]]:
    """Prompts in prefix order, each the beginning of an earlier one, cut anywhere, with tokens of its own behind it."""
    rng = random.Random(seed)
    prompts = [tokens(seed, 100)]
    for place in range(1, n):
        earlier = rng.choice(prompts)
        prompts.append(earlier[: rng.randrange(1, len(earlier))] + tokens(seed * n + place, rng.randrange(1, 90)))
    return sorted(prompts)


@pytest.mark.parametrize("seed", range(4))
def test_prompts_with_any_shared_prefixes_agree_with_log_softmax(model_engine: Engine, oracle: Any, seed: int) -> None:
    labels = {1: [[5], [6]], 2: [[5, 6], [5, 7, 8], [9]], 3: [tokens(seed, 40), [9, 10]]}
    kinds = random.Random(seed)
    requests = [ContinuationRequest(prompt, labels[kinds.randint(1, 3)]) for prompt in grown_prompts(seed, 60)]
    assert_agrees(model_engine, oracle, requests)


@pytest.mark.parametrize("n_beginnings", [66, 70])
def test_prompts_whose_beginnings_push_each_other_out_of_the_cache_agree_with_log_softmax(
    model_engine: Engine, oracle: Any, n_beginnings: int
) -> None:
    """The cache is a little too small: the block of a beginning is reallocated in the step that needs it again."""
    beginnings = [tokens(seed, BLOCK) for seed in range(n_beginnings)]
    prompts = [[*beginning, ending] for ending in (5, 6) for beginning in beginnings]
    assert_agrees(model_engine, oracle, [ContinuationRequest(prompt, [[5], [6]]) for prompt in prompts])


@cpu_only
def test_tokens_that_prompts_share_within_a_block_are_computed_once(loaded_engine: Callable[[str], Engine]) -> None:
    engine = loaded_engine("vllm")
    demonstrations = tokens(12, 2 * BLOCK + 20)
    inputs = [tokens(seed, 30) for seed in range(13, 33)]
    # Queries come in pairs with the same input and another ending of two tokens.
    prompts = sorted([*demonstrations, *text, ending, 9] for text in inputs for ending in (5, 6))
    before = engine.counts.computed_tokens
    answers(engine, [ContinuationRequest(prompt, [[7], [8]]) for prompt in prompts])
    # The demonstrations, each input and each ending once. Whole blocks alone: 20 tokens more a prompt, or 800.
    floor = len(demonstrations) + len(inputs) * (30 + 2 * 2)
    assert floor <= engine.counts.computed_tokens - before <= 1.1 * floor


def test_an_abandoned_call_leaves_the_engine_usable(engine: Engine) -> None:
    expected = answers(engine, mixed_requests())
    running = engine.log_likelihoods(mixed_requests() * 20)
    next(running)
    running.close()  # type: ignore[attr-defined]
    assert answers(engine, mixed_requests()) == expected


def test_an_interrupt_leaves_the_engine_usable(engine: Engine) -> None:
    expected = answers(engine, mixed_requests())
    running = engine.log_likelihoods(mixed_requests() * 20)
    next(running)
    with pytest.raises(KeyboardInterrupt):
        running.throw(KeyboardInterrupt())  # type: ignore[attr-defined]
    assert answers(engine, mixed_requests()) == expected


def test_facts_name_engine_versions_device_and_dtype(model_engine: Engine) -> None:
    facts = model_engine.facts
    assert facts.dtype == "float32"
    assert facts.device
    assert facts.versions["torch"].split("+")[0] == torch.__version__.split("+")[0]  # "+cu130" is in one of them alone
    assert facts.versions["transformers"][0].isdigit()
    assert facts.tokens_per_step >= 256


def test_hidden_states_come_from_the_model_that_scores(
    loaded_engine: Callable[[str], Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = loaded_engine("vllm")
    monkeypatch.delattr("evaluator.engine.vllm_engine.start_vllm")  # what loads a model
    states = engine.hidden_states([tokens(1, 20)])
    answers(engine, [ContinuationRequest(tokens(1, 20), [[5]])])
    assert states.shape == (1, 64)


def test_log_likelihoods_are_the_same_after_hidden_states(engine: Engine) -> None:
    before = answers(engine, mixed_requests())
    engine.hidden_states([tokens(1, 20)])
    assert answers(engine, mixed_requests()) == before


def test_the_longest_request_is_a_context_with_its_longest_continuation() -> None:
    requests = [ContinuationRequest([1] * 5, [[1], [1, 2]]), ContinuationRequest([1] * 6, [])]
    require_room(requests, 7, "the test allows")
    with pytest.raises(PromptTooLongError, match="A prompt of 7 tokens is longer than the 6 that the test allows"):
        require_room(requests, 6, "the test allows")
    require_room([], 0, "the test allows")


def test_a_prompt_as_long_as_the_models_context_is_scored_and_a_longer_one_is_refused(
    model_engine: Engine, oracle: Any
) -> None:
    text = tokens(16, 3_000)  # the model's context has 2,048
    assert_agrees(model_engine, oracle, [ContinuationRequest(text[:2_047], [[5], [6]])])
    with pytest.raises(PromptTooLongError, match="A prompt of 2049 tokens is longer than the 2048 that"):
        answers(model_engine, [ContinuationRequest(text[:2_048], [[5]])])
    with pytest.raises(PromptTooLongError, match="A prompt of 3001 tokens is longer than the "):
        answers(model_engine, [ContinuationRequest(text, [[5]])])
    with pytest.raises(PromptTooLongError, match=r"A prompt of 300\d tokens is longer than the "):
        model_engine.hidden_states([text])


def test_no_texts_have_no_hidden_states(engine: Engine) -> None:
    assert engine.hidden_states([]).shape[0] == 0


@pytest.mark.runner_v2
def test_hidden_states_are_the_final_norm_of_the_last_token(model_engine: Engine, oracle: Any) -> None:
    texts = [tokens(seed, n) for seed, n in enumerate([1, 2, 31, 32, 33, 64, 150])]
    with torch.inference_mode():
        expected = [oracle.model.model(torch.tensor([text])).last_hidden_state[0, -1].numpy() for text in texts]
    np.testing.assert_allclose(model_engine.hidden_states(texts), np.stack(expected), rtol=0, atol=2e-5)


def test_hidden_states_of_texts_that_take_several_steps_are_their_own(
    loaded_engine: Callable[[str], Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a vocabulary of 64 tokens, by which states are numbered, and four steps for each of 16 texts."""
    engine: Any = loaded_engine("vllm")
    monkeypatch.setattr(engine._llm.llm_engine.model_config, "get_vocab_size", lambda: 64)
    texts = [[2 + token % 60 for token in tokens(seed, 4 * engine.facts.tokens_per_step)] for seed in range(16)]
    alone = np.concatenate([engine.hidden_states([text]) for text in texts])
    np.testing.assert_allclose(engine.hidden_states(texts), alone, rtol=0, atol=2e-5)


def test_hidden_states_do_not_depend_on_prompts_with_shared_prefixes(model_engine: Engine, oracle: Any) -> None:
    prompts = grown_prompts(5, 40)
    with torch.inference_mode():
        expected = [oracle.model.model(torch.tensor([text])).last_hidden_state[0, -1].numpy() for text in prompts]
    np.testing.assert_allclose(model_engine.hidden_states(prompts), np.stack(expected), rtol=0, atol=2e-5)
